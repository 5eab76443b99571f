package metadata

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// ContractOf returns the contract that a release with these objects is for: the one that most of its
// CRDs carry, and the newest of several. It is that of the API version for core
// Cluster API itself, whose CRDs carry none, and "" for other objects without one.
// Source: Cluster API contracts, "API version labels".
func ContractOf(objects []unstructured.Unstructured) string {
	carried := map[string]int{}
	for _, o := range objects {
		if o.GetKind() != "CustomResourceDefinition" {
			continue
		}
		if group, _, _ := unstructured.NestedString(o.Object, "spec", "group"); group == clusterv1.GroupVersion.Group {
			return clusterv1.GroupVersion.Version
		}
		for label := range o.GetLabels() {
			contract, _ := strings.CutPrefix(label, clusterv1.GroupVersion.Group+"/")
			if slices.Contains(KnownContracts(), contract) {
				carried[contract]++
			}
		}
	}
	best := ""
	for _, contract := range slices.Backward(KnownContracts()) {
		if carried[contract] > carried[best] {
			best = contract
		}
	}
	return best
}
