package checks

import (
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/clusterctl-release/clusterctl-release/pkg/contract"
)

// contractKindOf returns which resource of a contract a CRD defines, and whether it is its template;
// ok is false for a CRD that core Cluster API has nothing to do with. IPAM pools are among these:
// they are found by their group, and carry no contract label, rightly.
func (s *Subject) contractKindOf(crd CRD) (resource contract.Resource, template, ok bool) {
	for _, i := range s.implementations() {
		switch {
		case i.Resource == contract.IPAM:
		case i.CRD != nil && i.CRD.Document == crd.Document:
			return i.Resource, false, true
		case i.Template != nil && i.Template.Document == crd.Document:
			return i.Resource, true, true
		}
	}
	return "", false, false
}

// schemaField returns the schema of a field in a version of a CRD, or nil.
func schemaField(version apiextensionsv1.CustomResourceDefinitionVersion, path ...string) *apiextensionsv1.JSONSchemaProps {
	if version.Schema == nil || version.Schema.OpenAPIV3Schema == nil {
		return nil
	}
	schema := version.Schema.OpenAPIV3Schema
	for _, step := range path {
		next, ok := schema.Properties[step]
		if !ok {
			return nil
		}
		schema = &next
	}
	return schema
}

// servedVersions returns the versions of a CRD that the API server serves.
func servedVersions(crd CRD) []apiextensionsv1.CustomResourceDefinitionVersion {
	var served []apiextensionsv1.CustomResourceDefinitionVersion
	for _, v := range crd.Spec.Versions {
		if v.Served {
			served = append(served, v)
		}
	}
	return served
}

// versionIndex returns the index of a CRD's version, or -1.
func versionIndex(crd CRD, name string) int {
	return slices.IndexFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == name })
}
