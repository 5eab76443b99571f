// Package schemas returns the schemas of kinds: those of Cluster API's core and its kubeadm providers, and those of
// releases. It validates objects as an API server does, with the API server's own code.
package schemas

import (
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// Kind is a kind that a CRD defines.
type Kind struct {
	schema.GroupKind
	// Core means that the kind belongs to Cluster API's core or its kubeadm providers.
	Core bool
	// Mutated means that a webhook of the core may change the kind's objects before they are validated. It is unknown
	// for other kinds.
	Mutated bool
	// Labels are those of the CRD; CRDs of the core have the label of the contract here.
	Labels map[string]string
	// Scope is the scope of its objects.
	Scope    apiextensionsv1.ResourceScope
	versions []version
}

// Served returns the versions of the kind that an API server serves, in the order of its CRD.
func (k *Kind) Served() []string {
	var names []string
	for _, v := range k.versions {
		if v.served {
			names = append(names, v.name)
		}
	}
	return names
}

// VersionsWith returns the served versions whose schemas have a field at a path.
func (k *Kind) VersionsWith(path []any) []string {
	var names []string
	for _, v := range k.versions {
		if !v.served {
			continue
		}
		if schema, err := v.compile(); err == nil && (&Field{structural: schema.structural}).At(path) != nil {
			names = append(names, v.name)
		}
	}
	return names
}

// Kinds are the known kinds. Several goroutines may use it.
type Kinds struct {
	own map[schema.GroupKind]*Kind
}

// coreProviders are the values of the label cluster.x-k8s.io/provider on the CRDs of the core's kinds.
var coreProviders = []string{
	config.ClusterAPIProviderName,
	clusterctlv1.ManifestLabel(config.KubeadmBootstrapProviderName, clusterctlv1.BootstrapProviderType),
	clusterctlv1.ManifestLabel(config.KubeadmControlPlaneProviderName, clusterctlv1.ControlPlaneProviderType),
}

// Of returns the kinds of CRDs, with those of the core. Of several CRDs of a kind, the first counts. CRDs that the core
// itself publishes, perhaps in another version, replace those of this program.
func Of(crds ...*apiextensionsv1.CustomResourceDefinition) *Kinds {
	kinds := &Kinds{own: map[schema.GroupKind]*Kind{}}
	for _, crd := range crds {
		gk := schema.GroupKind{Group: crd.Spec.Group, Kind: crd.Spec.Names.Kind}
		if _, ok := kinds.own[gk]; ok {
			continue
		}
		kind := &Kind{GroupKind: gk, Labels: crd.Labels, Scope: crd.Spec.Scope}
		if known, ok := core()[gk]; ok && slices.Contains(coreProviders, crd.Labels[clusterv1.ProviderNameLabel]) {
			kind.Core, kind.Mutated = true, known.Mutated
		}
		for _, v := range crd.Spec.Versions {
			read := func() (*apiextensionsv1.JSONSchemaProps, error) {
				if v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
					return nil, fmt.Errorf("version %s of %s has no schema", v.Name, gk)
				}
				return v.Schema.OpenAPIV3Schema, nil
			}
			kind.versions = append(kind.versions, newVersion(v.Name, v.Served, read))
		}
		kinds.own[gk] = kind
	}
	return kinds
}

// For returns the kinds of the components of releases, with those of the core. The error is that of components that
// aren't YAML, or of a CRD that doesn't fit its Go type.
func For(releases ...*release.Release) (*Kinds, error) {
	var crds []*apiextensionsv1.CustomResourceDefinition
	for _, r := range releases {
		own, err := CRDs(r)
		if err != nil {
			return nil, fmt.Errorf("reading the kinds of %s: %w", r, err)
		}
		crds = append(crds, own...)
	}
	return Of(crds...), nil
}

// CRDs returns the CRDs of a release's components, none without components. The error is that of components that aren't
// YAML, or of a CRD that doesn't fit its Go type.
func CRDs(r *release.Release) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	file, ok := r.Components()
	if !ok {
		return nil, nil
	}
	documents, err := manifest.Parse(file.Name, file.Data)
	if err != nil {
		return nil, err
	}
	var crds []*apiextensionsv1.CustomResourceDefinition
	for _, d := range documents {
		if d.Object.GetKind() != "CustomResourceDefinition" {
			continue
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(d.Object.Object, crd); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", file.Name, d.Object.GetName(), err)
		}
		crds = append(crds, crd)
	}
	return crds, nil
}

// Kind returns a kind, or false if it is not known: it belongs to Kubernetes, or to another provider. Kinds of the core
// are those of the core, even if the release of another provider defines them.
func (k *Kinds) Kind(gk schema.GroupKind) (*Kind, bool) {
	own, isOwn := k.own[gk]
	if kind, ok := core()[gk]; ok && (!isOwn || !own.Core) {
		return kind, true
	}
	return own, isOwn
}

// All returns all kinds, in the order of their names.
func (k *Kinds) All() []*Kind {
	var all []*Kind
	for gk := range core() {
		kind, _ := k.Kind(gk)
		all = append(all, kind)
	}
	for gk, kind := range k.own {
		if _, isCore := core()[gk]; !isCore {
			all = append(all, kind)
		}
	}
	slices.SortFunc(all, func(a, b *Kind) int { return strings.Compare(a.String(), b.String()) })
	return all
}
