package move

import (
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	addonsv1 "sigs.k8s.io/cluster-api/api/addons/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/util/contract"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

// The kinds that the rules of a move name.
var (
	clusterKind       = clusterv1.GroupVersion.WithKind("Cluster").GroupKind()
	classKind         = clusterv1.GroupVersion.WithKind("ClusterClass").GroupKind()
	machineKind       = clusterv1.GroupVersion.WithKind("Machine").GroupKind()
	resourceSetKind   = addonsv1.GroupVersion.WithKind("ClusterResourceSet").GroupKind()
	bindingKind       = addonsv1.GroupVersion.WithKind("ClusterResourceSetBinding").GroupKind()
	providerKind      = clusterctlv1.GroupVersion.WithKind("Provider").GroupKind()
	secretKind        = schema.GroupKind{Kind: "Secret"}
	configMapKind     = schema.GroupKind{Kind: "ConfigMap"}
	crdKind           = schema.GroupKind{Group: apiextensionsv1.GroupName, Kind: "CustomResourceDefinition"}
	hierarchiesOfCore = map[schema.GroupKind]bool{clusterKind: true, classKind: true, resourceSetKind: true}
)

// Kind is a kind whose objects a move reads.
type Kind struct {
	schema.GroupKind
	// Version is the stored version, in which clusterctl reads the objects; "" if unknown.
	Version string
	// Served are the versions that the API server serves; none if unknown.
	Served []string
	// Plural is the resource's name in URLs; "" if unknown.
	Plural string
	// ClusterScoped means that its objects have no namespace.
	ClusterScoped bool
	// Move and MoveHierarchy mean that its CRD has clusterctl's label of that name, or that clusterctl treats the kind as
	// if it had.
	Move, MoveHierarchy bool
	// Unknown means that its labels are unknown, because the CRD is in a release that was not given.
	Unknown bool
}

// Kinds are the kinds that a move reads: those of CRDs with clusterctl's label, Secrets and ConfigMaps.
type Kinds map[schema.GroupKind]Kind

// KindsOf returns the kinds of CRDs that clusterctl reads, as its getDiscoveryTypes does.
func KindsOf(crds ...slimCRD) Kinds {
	kinds := Kinds{
		secretKind:    {GroupKind: secretKind, Version: "v1", Plural: "secrets"},
		configMapKind: {GroupKind: configMapKind, Version: "v1", Plural: "configmaps"},
	}
	for _, crd := range crds {
		if _, ok := crd.Metadata.Labels[clusterctlv1.ClusterctlLabel]; !ok {
			continue
		}
		gk := schema.GroupKind{Group: crd.Spec.Group, Kind: crd.Spec.Names.Kind}
		kind := newKind(gk, crd.Spec.Scope == apiextensionsv1.ClusterScoped, crd.Metadata.Labels)
		kind.Plural = crd.Spec.Names.Plural
		for _, v := range crd.Spec.Versions {
			if v.Served {
				kind.Served = append(kind.Served, v.Name)
			}
			if v.Storage {
				kind.Version = v.Name
			}
		}
		if kind.Version != "" {
			kinds[gk] = kind
		}
	}
	return kinds
}

// newKind returns a kind whose CRD has the given labels.
func newKind(gk schema.GroupKind, clusterScoped bool, labels map[string]string) Kind {
	_, move := labels[clusterctlv1.ClusterctlMoveLabel]
	_, hierarchy := labels[clusterctlv1.ClusterctlMoveHierarchyLabel]
	hierarchy = hierarchy || hierarchiesOfCore[gk]
	return Kind{GroupKind: gk, ClusterScoped: clusterScoped, Move: move || hierarchy, MoveHierarchy: hierarchy}
}

// assume adds the kind of an object without a known CRD, if it may be a provider's kind.
func (k Kinds) assume(o manifest.Object) {
	gk := o.GroupKind()
	if _, known := k[gk]; !known && !isOfKubernetes(gk.Group) {
		k[gk] = newKind(gk, o.Namespace == "", nil)
	}
}

// isOfKubernetes reports whether a group belongs to Kubernetes itself.
func isOfKubernetes(group string) bool {
	return !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io") && !strings.HasSuffix(group, ".x-k8s.io")
}

// pluralOf returns the resource name that the contract requires for a kind, for kinds without a known CRD.
//
// Source: Cluster API book, provider contract, "CRD name".
func pluralOf(gk schema.GroupKind) string {
	return strings.TrimSuffix(contract.CalculateCRDName(gk.Group, gk.Kind), "."+gk.Group)
}

// slimCRD is a CRD without its schemas, which are large.
type slimCRD struct {
	Metadata struct {
		Labels map[string]string `json:"labels"`
	} `json:"metadata"`
	Spec struct {
		Group string                        `json:"group"`
		Scope apiextensionsv1.ResourceScope `json:"scope"`
		Names struct {
			Kind   string `json:"kind"`
			Plural string `json:"plural"`
		} `json:"names"`
		Versions []struct {
			Name    string `json:"name"`
			Storage bool   `json:"storage"`
			Served  bool   `json:"served"`
		} `json:"versions"`
	} `json:"spec"`
}
