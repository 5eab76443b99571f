package checks

import (
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
)

// contractKind is a kind of resource that core Cluster API works with.
type contractKind struct {
	// name is the contract's own, and the suffix that kinds have by convention.
	name, suffix string
	// document is the page of the contract.
	document string
	// fields are such that core Cluster API reads; one of them tells the kind from others of the same suffix.
	fields [][]string
}

// contractKinds are the resources of the contracts. Their templates are called after them.
var contractKinds = []contractKind{
	{"InfraMachinePool", "MachinePool", "InfraMachinePool contract", [][]string{{"spec", "providerIDList"}}},
	{"InfraMachine", "Machine", "InfraMachine contract", [][]string{{"spec", "providerID"}}},
	{"InfraCluster", "Cluster", "InfraCluster contract", [][]string{{"spec", "controlPlaneEndpoint"}}},
	{"BootstrapConfig", "Config", "BootstrapConfig contract", [][]string{{"status", "dataSecretName"}}},
	{"ControlPlane", "ControlPlane", "ControlPlane contract", [][]string{{"status", "initialization"}, {"status", "initialized"}, {"status", "ready"}}},
}

// contractKindOf returns which resource of a contract a CRD defines, and whether it is its template;
// ok is false for a CRD that core Cluster API has nothing to do with. Other kinds of a provider may
// well be called after clusters and machines, so a field that only the contract has must be there too.
func (s *Subject) contractKindOf(crd CRD) (kind contractKind, template, ok bool) {
	switch s.Release.Provider.Type {
	case clusterctlv1.InfrastructureProviderType, clusterctlv1.BootstrapProviderType, clusterctlv1.ControlPlaneProviderType:
	default:
		return contractKind{}, false, false // core's own kinds, add-ons and IPAM have no such resources
	}
	name, template := strings.CutSuffix(crd.Spec.Names.Kind, "Template")
	for _, kind := range contractKinds {
		if !strings.HasSuffix(name, kind.suffix) || name == kind.suffix {
			continue
		}
		fields := kind.fields
		if template {
			fields = [][]string{{"spec", "template", "spec"}}
		}
		if slices.ContainsFunc(fields, func(path []string) bool { return hasField(crd, path...) }) {
			return kind, template, true
		}
	}
	return contractKind{}, false, false
}

// hasField says whether the schema of any version of a CRD has a field.
func hasField(crd CRD, path ...string) bool {
	return slices.ContainsFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return schemaField(v, path...) != nil
	})
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
