package contract

import (
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	k8sversion "k8s.io/apimachinery/pkg/version"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

// CRD is a custom resource definition with the places of its fields.
type CRD struct {
	*manifest.Document
	apiextensionsv1.CustomResourceDefinition
}

// The contract versions whose fields Cluster API reads.
const (
	v1beta1 = "v1beta1"
	v1beta2 = "v1beta2"
)

// readContracts are the contract versions in the labels of a CRD that Cluster API supports, in its order: its own
// version, and the previous compatible one.
var readContracts = []string{v1beta2, v1beta1}

// ReadCRDs returns the CRDs among some objects. It skips a CRD that does not fit its Go type, because an API server
// would refuse it.
func ReadCRDs(documents []*manifest.Document) []CRD {
	var crds []CRD
	for _, d := range documents {
		if d.Object.GetKind() != "CustomResourceDefinition" {
			continue
		}
		crd := CRD{Document: d}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(d.Object.Object, &crd.CustomResourceDefinition); err == nil {
			crds = append(crds, crd)
		}
	}
	return crds
}

// kind is the kind that is defined.
func (c *CRD) kind() string { return c.Spec.Names.Kind }

// label returns the label that declares a contract version.
func label(contract string) string { return clusterv1.GroupVersion.Group + "/" + contract }

// declared returns the newest contract version that the CRD declares and Cluster API supports, and the version of the
// kind that Cluster API then uses: the last one in the label. Both are "" without such a label.
func (c *CRD) declared() (contract, version string) {
	for _, contract := range readContracts {
		value := c.Labels[label(contract)]
		if value == "" {
			continue
		}
		versions := strings.Split(value, "_")
		slices.SortFunc(versions, k8sversion.CompareKubeAwareVersionStrings)
		return contract, versions[len(versions)-1]
	}
	return "", ""
}

// contractVersion returns the version whose schema the rules are checked on, its index, and the contract version whose
// fields it should have. If the label is missing or names no version, it is the storage version with the contract that
// its fields match, because then the label is wrong.
func (c *CRD) contractVersion() (contract string, index int) {
	contract, version := c.declared()
	for i, v := range c.Spec.Versions {
		if v.Name == version {
			return contract, i
		}
	}
	index = max(0, slices.IndexFunc(c.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Storage }))
	root := c.root(index)
	status := root.field("status")
	if !status.field("initialization").there() && (status.field("ready").there() || status.field("initialized").there()) {
		return v1beta1, index
	}
	return v1beta2, index
}

// contractRoot returns the schema that the rules are checked on.
func (c *CRD) contractRoot() node {
	_, index := c.contractVersion()
	return c.root(index)
}
