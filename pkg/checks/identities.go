package checks

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
)

// reportIdentities reports kinds without a namespace that fields of other kinds of the release are
// called after, such as identityRef, and that have no label to move them.
func reportIdentities(s *Subject, report Report) {
	for _, crd := range s.CRDs() {
		if !staysPut(crd) {
			continue
		}
		for _, other := range s.CRDs() {
			if field := referenceTo(crd.Spec.Names.Kind, other); field != "" && other.Name != crd.Name {
				report(Finding{Place: crd.Place("metadata", "labels"),
					Message: fmt.Sprintf("objects of the kind have no namespace, %s refers to them in %s, and the CRD has no label to move them: `clusterctl move` leaves them behind, and with them what the clusters need", other.Spec.Names.Kind, field),
					Fix:     fmt.Sprintf("label the CRD %s: \"\"; the Secrets that such an object owns come along then", clusterctlv1.ClusterctlMoveHierarchyLabel)})
				break
			}
		}
	}
}

// staysPut says whether the objects of a kind have no namespace and nothing moves them.
func staysPut(crd CRD) bool {
	_, moves := crd.Labels[clusterctlv1.ClusterctlMoveLabel]
	_, hierarchy := crd.Labels[clusterctlv1.ClusterctlMoveHierarchyLabel]
	return crd.Spec.Scope == apiextensionsv1.ClusterScoped && !moves && !hierarchy
}

// referenceTo returns the path of a field of a kind's spec by which it refers to another kind, or "".
func referenceTo(kind string, from CRD) string {
	for _, version := range from.Spec.Versions {
		if version.Schema == nil || version.Schema.OpenAPIV3Schema == nil || !version.Served {
			continue
		}
		if spec, ok := version.Schema.OpenAPIV3Schema.Properties["spec"]; ok {
			if path := fieldNamedAfter(kind, "spec", &spec); path != "" {
				return path
			}
		}
	}
	return ""
}

// fieldNamedAfter returns the path of a reference below a schema that is called after a kind, or whose
// enum of kinds has it.
func fieldNamedAfter(kind, path string, schema *apiextensionsv1.JSONSchemaProps) string {
	if schema.Items != nil && schema.Items.Schema != nil {
		return fieldNamedAfter(kind, path, schema.Items.Schema)
	}
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		property := schema.Properties[name]
		at := path + "." + name
		if isReferenceTo(kind, name, &property) {
			return at
		}
		if found := fieldNamedAfter(kind, at, &property); found != "" {
			return found
		}
	}
	return ""
}

// isReferenceTo says whether a field is a reference to objects of a kind: a map with a name.
func isReferenceTo(kind, field string, schema *apiextensionsv1.JSONSchemaProps) bool {
	if _, ok := schema.Properties["name"]; !ok {
		return false
	}
	for _, by := range []string{"kind", "type"} {
		for _, value := range schema.Properties[by].Enum {
			if named := strings.Trim(string(value.Raw), `"`); named != "" && strings.HasSuffix(kind, named) {
				return true
			}
		}
	}
	stem := strings.TrimSuffix(strings.TrimSuffix(field, "Reference"), "Ref")
	return stem != field && len(stem) >= len("identity") && strings.HasSuffix(strings.ToLower(kind), strings.ToLower(stem))
}
