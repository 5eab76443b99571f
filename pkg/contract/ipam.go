package contract

import (
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// ipamHeading is the section of the IPAM page that has its rules: a numbered list, and no table.
const ipamHeading = "Data Types"

// ipam are the rules for kinds of pools, in the order of the list. The page has no contract label,
// so that each version that is served is one that claims may name.
var ipam = []Rule{
	{
		ID: "ipam-pool-api-group", Resource: IPAM, Name: "Pool: API group served by the API server", Mandatory: true,
		Title:   "The kinds of pools are served",
		Fix:     "serve the version that pools are stored in",
		verdict: poolServed,
	},
	{
		ID: "ipam-pool-resource-definition", Resource: IPAM, Name: "Pool: custom resource definition and its name", Mandatory: true,
		Title:   "The kinds of pools are defined under the names that Cluster API calculates",
		Fix:     "define the kind under the name of the contract page",
		verdict: definition,
	},
	{
		ID: "ipam-pool-type-meta", Resource: IPAM, Name: "Pool: type metadata and object metadata", Mandatory: true,
		Title:   "The kinds of pools have the standard type and object metadata",
		Fix:     "embed metav1.TypeMeta and metav1.ObjectMeta in the Go type and generate the definition again",
		verdict: typeMeta,
	},
	{
		ID: "ipam-pool-conditions", Resource: IPAM, Name: "Pool: status.conditions with Ready",
		Note:    "Should be there",
		Title:   "The conditions of pools are ones that Cluster API can read",
		Fix:     "make status.conditions a list of objects with type and status (in Go, []metav1.Condition)",
		verdict: conditions,
	},
}

// poolServed holds a kind of pools to be served in the version that it is stored in.
func poolServed(i *Implementation) Verdict {
	return i.each(func(crd *CRD) []Problem {
		served := false
		storage := 0
		for k, v := range crd.Spec.Versions {
			served = served || v.Served
			if v.Storage {
				storage = k
			}
		}
		if served && crd.Spec.Group != "" {
			return nil
		}
		return []Problem{{
			CRD: crd, Path: []any{"spec", "versions", storage, "served"}, Weight: Broken,
			Reason: fmt.Sprintf("no version of %s is served (%s): no claim can name a pool of that kind", crd.kind(), describeVersions(crd.Spec.Versions)),
		}}
	})
}

// describeVersions says how many versions there are.
func describeVersions(versions []apiextensionsv1.CustomResourceDefinitionVersion) string {
	if len(versions) == 1 {
		return "it has one"
	}
	return fmt.Sprintf("it has %d", len(versions))
}
