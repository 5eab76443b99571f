package components

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	versionutil "k8s.io/apimachinery/pkg/version"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/installed"
	"github.com/clusterctl-release/clusterctl-release/pkg/diff"
	"github.com/clusterctl-release/clusterctl-release/pkg/metadata"
)

// newest returns the version that core Cluster API picks of those in a label.
func newest(versions []string) string {
	return slices.MaxFunc(versions, func(a, b string) int {
		return cmp.Or(versionutil.CompareKubeAwareVersionStrings(a, b), strings.Compare(a, b))
	})
}

var crdContractVersion = checks.Check{
	ID: "crd-contract-version", Group: checks.Components, Severity: checks.Warning,
	Title:  "Contract labels that nobody reads today name versions that the CRD serves",
	Source: "InfraMachine contract, All resources: version",
	Run: func(_ context.Context, s *checks.Subject, report checks.Report) error {
		var order []staleLabel
		stale := map[staleLabel][]checks.CRD{}
		for _, crd := range s.CRDs() {
			_, _, touched := installed.ContractKindOf(s, crd)
			labels := installed.ContractLabels(crd)
			for _, contract := range metadata.KnownContracts() {
				versions := labels[contract]
				wrong := slices.DeleteFunc(slices.Clone(versions), func(v string) bool {
					i := diff.VersionIndex(&crd, v)
					return i >= 0 && crd.Spec.Versions[i].Served
				})
				if len(wrong) == 0 {
					continue
				}
				// What core picks must be there: the check of the contract's rule on APIVersion says so.
				if touched && contract == installed.CurrentLabel(crd) && slices.Contains(wrong, newest(versions)) {
					continue
				}
				key := staleLabel{contract, strings.Join(wrong, ", ")}
				if stale[key] == nil {
					order = append(order, key)
				}
				stale[key] = append(stale[key], crd)
			}
		}
		for _, key := range order {
			key.report(stale[key], report)
		}
		return nil
	},
}

// staleLabel is a contract label that promises versions which are not there, and that nobody reads today.
type staleLabel struct{ contract, wrong string }

// report says once of all CRDs that have the label: they get it from one line of a kustomization.
func (l staleLabel) report(crds []checks.CRD, report checks.Report) {
	names := make([]string, 0, len(crds))
	for _, crd := range crds {
		names = append(names, crd.Spec.Names.Kind)
	}
	report(checks.Finding{
		Place:   crds[0].Place("metadata", "labels", installed.ContractPrefix+l.contract),
		Message: fmt.Sprintf("for contract %s the label names %s, which is not served, on %s: whoever goes by the label looks for what is not there", l.contract, l.wrong, strings.Join(names, ", ")),
		Fix:     "take the label off where no version implements the contract, and off kinds that Cluster API does not refer to",
	})
}
