package metadata

import (
	"context"
	"fmt"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/installed"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

var contractMatchesCRDs = checks.Check{
	ID: "contract-matches-crds", Group: checks.Metadata, Severity: checks.Error,
	Title:  "metadata.yaml has the contract of the CRDs",
	Source: "clusterctl provider contract, Metadata YAML",
	Run: func(_ context.Context, s *checks.Subject, report checks.Report) error {
		file, _ := s.Metadata()
		if file == nil {
			return nil
		}
		series, ok := file.SeriesFor(s.Release.Version)
		if !ok {
			return nil // series-present reports it
		}
		var first *checks.CRD
		total, wrong := 0, 0
		for _, crd := range s.CRDs() {
			if _, _, ok := installed.ContractKindOf(s, crd); !ok || installed.CurrentLabel(crd) == "" {
				continue
			}
			total++
			if _, there := installed.ContractLabels(crd)[series.Contract]; !there {
				wrong++
				if first == nil {
					first = &crd
				}
			}
		}
		if first == nil {
			return nil
		}
		report(checks.Finding{
			Place: s.AtLine(release.MetadataFile, series.Line),
			Message: fmt.Sprintf("series %s has contract %s, but %d of %d CRDs that Cluster API works with lack its label: %s has %s: clusterctl accepts the provider where it does not work, or refuses it where it would work",
				series, series.Contract, wrong, total, first.Spec.Names.Kind, installed.CurrentLabel(*first)),
			Fix: fmt.Sprintf("write the contract that the CRDs implement, or label the CRDs with %s%s", installed.ContractPrefix, series.Contract),
		})
		return nil
	},
}
