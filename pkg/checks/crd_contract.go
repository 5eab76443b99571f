package checks

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	versionutil "k8s.io/apimachinery/pkg/version"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/clusterctl-release/clusterctl-release/pkg/metadata"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// contractPrefix begins the labels by which CRDs say which contract their versions implement.
var contractPrefix = clusterv1.GroupVersion.Group + "/"

// contractLabels returns the contracts that a CRD is labelled with, and the versions of each.
func contractLabels(crd CRD) map[string][]string {
	labels := map[string][]string{}
	for label, value := range crd.Object.GetLabels() {
		contract, ok := strings.CutPrefix(label, contractPrefix)
		if ok && slices.Contains(metadata.KnownContracts(), contract) {
			labels[contract] = strings.Split(value, "_")
		}
	}
	return labels
}

// currentLabel returns the contract by which core Cluster API reads a CRD today: the newest that it
// knows of those the CRD is labelled with, or "".
func currentLabel(crd CRD) string {
	labels := contractLabels(crd)
	for _, contract := range []string{clusterv1.GroupVersion.Version, "v1beta1"} {
		if versions := labels[contract]; len(versions) > 0 && versions[0] != "" {
			return contract
		}
	}
	return ""
}

// newest returns the version that core Cluster API picks of those in a label.
func newest(versions []string) string {
	return slices.MaxFunc(versions, func(a, b string) int {
		return cmp.Or(versionutil.CompareKubeAwareVersionStrings(a, b), strings.Compare(a, b))
	})
}

var crdContractVersion = Check{
	ID: "crd-contract-version", Group: Components, Severity: Warning,
	Title:  "Contract labels that nobody reads today name versions that the CRD serves",
	Source: "InfraMachine contract, All resources: version",
	Run: func(s *Subject, report Report) {
		var order []staleLabel
		stale := map[staleLabel][]CRD{}
		for _, crd := range s.CRDs() {
			_, _, touched := s.contractKindOf(crd)
			labels := contractLabels(crd)
			for _, contract := range metadata.KnownContracts() {
				versions := labels[contract]
				wrong := slices.DeleteFunc(slices.Clone(versions), func(v string) bool {
					i := versionIndex(crd, v)
					return i >= 0 && crd.Spec.Versions[i].Served
				})
				if len(wrong) == 0 {
					continue
				}
				// What core picks must be there: the check of the contract's rule on APIVersion says so.
				if touched && contract == currentLabel(crd) && slices.Contains(wrong, newest(versions)) {
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
	},
}

// staleLabel is a contract label that promises versions which are not there, and that nobody reads today.
type staleLabel struct{ contract, wrong string }

// report says once of all CRDs that have the label: they get it from one line of a kustomization.
func (l staleLabel) report(crds []CRD, report Report) {
	names := make([]string, 0, len(crds))
	for _, crd := range crds {
		names = append(names, crd.Spec.Names.Kind)
	}
	report(Finding{
		Place:   crds[0].Place("metadata", "labels", contractPrefix+l.contract),
		Message: fmt.Sprintf("for contract %s the label names %s, which is not served, on %s: whoever goes by the label looks for what is not there", l.contract, l.wrong, strings.Join(names, ", ")),
		Fix:     "take the label off where no version implements the contract, and off kinds that Cluster API does not refer to",
	})
}

var contractMatchesCRDs = Check{
	ID: "contract-matches-crds", Group: Metadata, Severity: Error,
	Title:  "metadata.yaml has the contract of the CRDs",
	Source: "clusterctl provider contract, Metadata YAML",
	Run: func(s *Subject, report Report) {
		file, err := s.Metadata()
		if file == nil || err != nil {
			return
		}
		series, ok := file.SeriesFor(s.Release.Version)
		if !ok {
			return // series-present says so
		}
		var first *CRD
		total, wrong := 0, 0
		for _, crd := range s.CRDs() {
			if _, _, ok := s.contractKindOf(crd); !ok || currentLabel(crd) == "" {
				continue
			}
			total++
			if _, there := contractLabels(crd)[series.Contract]; !there {
				wrong++
				if first == nil {
					first = &crd
				}
			}
		}
		if first == nil {
			return
		}
		place := s.At(release.MetadataFile)
		place.Line = series.Line
		report(Finding{
			Place: place,
			Message: fmt.Sprintf("series %s has contract %s, and %d of %d CRDs that Cluster API works with do not carry it: %s has %s: clusterctl lets the provider in where it does not work, or keeps it out where it does",
				series, series.Contract, wrong, total, first.Spec.Names.Kind, currentLabel(*first)),
			Fix: fmt.Sprintf("write the contract that the CRDs implement, or label the CRDs with %s%s", contractPrefix, series.Contract),
		})
	},
}
