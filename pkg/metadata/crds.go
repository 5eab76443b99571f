package metadata

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// ContractOf returns the contract of a release with these objects: the most frequent one in the labels of its CRDs, the
// newest of several. For core Cluster API, whose CRDs have no such labels, it is that of the API version. For other
// objects without labels it is "".
//
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
