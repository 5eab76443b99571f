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

// newest returns the version in a label that core Cluster API uses.
func newest(versions []string) string {
	return slices.MaxFunc(versions, func(a, b string) int {
		return cmp.Or(versionutil.CompareKubeAwareVersionStrings(a, b), strings.Compare(a, b))
	})
}

var crdContractVersion = checks.Check{
	ID: "crd-contract-version", Group: checks.Components, Severity: checks.Warning,
	Title:  "Contract labels that core Cluster API does not read name versions that the CRD serves",
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
				// The version that core uses must exist: the check of the contract's rule on APIVersion reports it.
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

// staleLabel is a contract label that names versions that do not exist, and that core Cluster API does not read today.
type staleLabel struct{ contract, wrong string }

// report reports a label once for all CRDs that have it: usually one line of a kustomization sets it.
func (l staleLabel) report(crds []checks.CRD, report checks.Report) {
	names := make([]string, 0, len(crds))
	for _, crd := range crds {
		names = append(names, crd.Spec.Names.Kind)
	}
	report(checks.Finding{
		Place:   crds[0].Place("metadata", "labels", installed.ContractPrefix+l.contract),
		Message: fmt.Sprintf("for contract %s the label names %s, which is not served, on %s: a client that uses the label looks for a missing version", l.contract, l.wrong, strings.Join(names, ", ")),
		Fix:     "remove the label from CRDs without a version that implements the contract, and from kinds that Cluster API does not refer to",
	})
}
