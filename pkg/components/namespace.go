package components

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/kustomize/kyaml/openapi"
	"sigs.k8s.io/kustomize/kyaml/resid"
	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// clusterScoped are common kinds that kustomize's schema does not know to be cluster-scoped.
var clusterScoped = map[schema.GroupKind]bool{
	{Group: "admissionregistration.k8s.io", Kind: "ValidatingAdmissionPolicy"}:        true,
	{Group: "admissionregistration.k8s.io", Kind: "ValidatingAdmissionPolicyBinding"}: true,
	{Group: "admissionregistration.k8s.io", Kind: "MutatingAdmissionPolicy"}:          true,
	{Group: "admissionregistration.k8s.io", Kind: "MutatingAdmissionPolicyBinding"}:   true,
	{Group: "cert-manager.io", Kind: "ClusterIssuer"}:                                 true,
}

// setNamespace puts every namespaced object into one namespace, adds a missing Namespace, and updates references to the
// moved objects. wanted is the namespace of the release file, or "" for the one that the objects themselves name.
//
// Source: clusterctl provider contract, "Target namespace".
func (c *Components) setNamespace(wanted string) error {
	scopes := ScopesOf(c.Objects)
	target, err := targetNamespace(c.Objects, scopes, wanted)
	if err != nil {
		return err
	}
	moves := newMoves(c.Objects, target)
	hasNamespace := false
	for _, o := range c.Objects {
		if isNamespace(o) {
			hasNamespace = true
			moves.from[o.GetName()] = true
			o.SetName(target)
			continue
		}
		if !scopes.Namespaced(o) || o.GetNamespace() == target {
			continue
		}
		if old := o.GetNamespace(); old != "" {
			moves.from[old] = true
			c.note("%s goes to namespace %s, where clusterctl would put it: set the namespace in the kustomization", describe(o), target)
		}
		o.SetNamespace(target)
	}
	delete(moves.from, target)
	if !hasNamespace {
		c.Objects = append(c.Objects, unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1",
			"kind":       "Namespace",
			"metadata":   map[string]any{"name": target},
		}})
	}
	for _, o := range c.Objects {
		moves.follow(o)
	}
	return nil
}

// targetNamespace returns the namespace of the components.
func targetNamespace(objects []unstructured.Unstructured, scopes Scopes, wanted string) (string, error) {
	var declared []string
	counts := map[string]int{}
	for _, o := range objects {
		switch {
		case isNamespace(o):
			declared = append(declared, o.GetName())
		case scopes.Namespaced(o) && o.GetNamespace() != "":
			counts[o.GetNamespace()]++
		}
	}
	if len(declared) > 1 {
		return "", fmt.Errorf("the kustomization has %d Namespaces (%s), but clusterctl accepts only one: remove the others from the kustomization", len(declared), strings.Join(declared, ", "))
	}
	switch {
	case wanted != "":
		return wanted, nil
	case len(declared) == 1:
		return declared[0], nil
	case len(counts) == 1:
		for namespace := range counts {
			return namespace, nil
		}
	case len(counts) == 0:
		return "", fmt.Errorf("the namespace of the components is unknown: set namespace in the kustomization, or in the provider's entry in %s", release.ConfigFile)
	}
	names := make([]string, 0, len(counts))
	for namespace, count := range counts {
		names = append(names, fmt.Sprintf("%s (%d objects)", namespace, count))
	}
	slices.Sort(names)
	return "", fmt.Errorf("the kustomization has no Namespace, and its objects are in several: %s: set namespace in the provider's entry in %s", strings.Join(names, ", "), release.ConfigFile)
}

// Scopes records which kinds are namespaced: from kustomize's schema, from clusterScoped, and from the CRDs of the
// components.
type Scopes map[schema.GroupKind]bool

// ScopesOf returns the scopes of the kinds that the objects define.
func ScopesOf(objects []unstructured.Unstructured) Scopes {
	known := Scopes{}
	for _, o := range objects {
		if o.GetKind() != "CustomResourceDefinition" {
			continue
		}
		gk := schema.GroupKind{Group: manifest.Text(o.Object, "spec", "group"), Kind: manifest.Text(o.Object, "spec", "names", "kind")}
		known[gk] = manifest.Text(o.Object, "spec", "scope") != "Cluster"
	}
	return known
}

// Known reports whether the scope of an object's kind is known. Other kinds, which are neither Kubernetes' nor
// cert-manager's nor defined by the components, are assumed to be namespaced.
func (s Scopes) Known(o unstructured.Unstructured) bool {
	gvk := o.GroupVersionKind()
	if _, ok := s[gvk.GroupKind()]; ok || clusterScoped[gvk.GroupKind()] || gvk.Group == "cert-manager.io" {
		return true
	}
	_, ok := openapi.IsNamespaceScoped(yaml.TypeMeta{APIVersion: o.GetAPIVersion(), Kind: gvk.Kind})
	return ok
}

// Namespaced reports whether objects of this kind are namespaced.
func (s Scopes) Namespaced(o unstructured.Unstructured) bool {
	gvk := o.GroupVersionKind()
	if namespaced, ok := s[gvk.GroupKind()]; ok {
		return namespaced
	}
	return !clusterScoped[gvk.GroupKind()] && !resid.NewGvk(gvk.Group, gvk.Version, gvk.Kind).IsClusterScoped()
}
