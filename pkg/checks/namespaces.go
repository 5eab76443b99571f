package checks

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/clusterctl-release/clusterctl-release/pkg/components"
	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

const sourceNamespace = "clusterctl provider contract, Components YAML, Target namespace"

// kindScopes knows which kinds of the components are namespaced.
func (s *Subject) kindScopes() components.Scopes {
	return s.onceScopes.get(func() components.Scopes {
		var crds []unstructured.Unstructured
		for _, d := range s.Objects("CustomResourceDefinition") {
			crds = append(crds, d.Object)
		}
		return components.ScopesOf(crds)
	})
}

// targetNamespace returns the namespace that clusterctl installs the components in: the name of
// their first Namespace, or "".
func (s *Subject) targetNamespace() string {
	for _, d := range s.Objects("Namespace") {
		return d.Object.GetName()
	}
	return ""
}

// ownNamespace returns the target namespace, or, in a file without a Namespace, the namespace that most
// of its objects name.
func (s *Subject) ownNamespace() string {
	if target := s.targetNamespace(); target != "" {
		return target
	}
	return mostCommon(s.Objects(), func(o unstructured.Unstructured) string { return o.GetNamespace() })
}

// mostCommon returns the value that most objects have, or "" where none has one.
func mostCommon(objects []*manifest.Document, value func(o unstructured.Unstructured) string) string {
	count, most := map[string]int{}, ""
	for _, d := range objects {
		v := value(d.Object)
		if v == "" {
			continue
		}
		if count[v]++; most == "" || count[v] > count[most] {
			most = v
		}
	}
	return most
}

var namespaceSingle = Check{
	ID: "namespace-single", Group: Components, Severity: Error,
	Title:  "There is one Namespace at most",
	Source: sourceNamespace,
	Run: func(s *Subject, report Report) {
		namespaces := s.Objects("Namespace")
		for i, d := range namespaces {
			if i == 0 {
				continue
			}
			report(Finding{
				Place:   d.Place(),
				Message: fmt.Sprintf("there is a Namespace %s already, and clusterctl refuses a file with more than one", namespaces[0].Object.GetName()),
				Fix:     "take it out, and let whoever needs it make it",
			})
		}
	},
}

var namespaceMissing = Check{
	ID: "namespace-missing", Group: Components, Severity: Error,
	Title:  "There is a Namespace",
	Source: sourceNamespace,
	Run: func(s *Subject, report Report) {
		documents, err := s.Components()
		if len(documents) == 0 || err != nil || len(s.Objects("Namespace")) > 0 {
			return
		}
		report(Finding{
			Place:   s.At(s.Release.Provider.ComponentsFile()),
			Message: "there is no Namespace: clusterctl installs the provider only for users who give a --target-namespace",
			Fix:     "add a Namespace object with the name of the namespace that the components are in",
		})
	},
}

var objectNamespace = Check{
	ID: "object-namespace", Group: Components, Severity: Error,
	Title:  "All namespaced objects are in the target namespace",
	Source: sourceNamespace,
	Run: func(s *Subject, report Report) {
		target := s.targetNamespace()
		for _, d := range s.Objects() {
			if !s.kindScopes().Namespaced(d.Object) {
				continue
			}
			switch namespace := d.Object.GetNamespace(); {
			case target == "" || namespace == target:
			case namespace == "" && !s.kindScopes().Known(d.Object):
				// It may have none, rightly.
			case namespace == "":
				report(Finding{
					Place: d.Place("metadata"), Severity: Warning,
					Message: fmt.Sprintf("it names no namespace: clusterctl puts it into %s, kubectl apply into whatever namespace is current", target),
					Fix:     "set metadata.namespace to " + target,
				})
			default:
				report(Finding{
					Place:   d.Place("metadata", "namespace"),
					Message: fmt.Sprintf("it belongs to namespace %s, and clusterctl puts it into %s: what needs it there does not find it", namespace, target),
					Fix:     fmt.Sprintf("put it into %s, or leave it out and let who needs it elsewhere make it", target),
				})
			}
		}
	},
}

var clusterScopedKind = Check{
	ID: "cluster-scoped-kind", Group: Components, Severity: Warning,
	Title:  "clusterctl knows which objects have no namespace",
	Source: sourceNamespace,
	Run: func(s *Subject, report Report) {
		taken := map[string]bool{}
		for _, d := range s.Objects() {
			if s.kindScopes().Namespaced(d.Object) {
				continue
			}
			kind := d.Object.GetAPIVersion() + "/" + d.Object.GetKind()
			if _, known := taken[kind]; !known {
				taken[kind] = takenForNamespaced(s, d)
			}
			if taken[kind] {
				report(Finding{
					Place: d.Place(),
					Message: fmt.Sprintf("%s objects are cluster-scoped, and clusterctl takes them for namespaced: it sets a namespace on this one, and deletes it with any one instance of the provider",
						d.Object.GetKind()),
					Fix: "let the manager make the object, or leave it to users",
				})
			}
		}
	},
}

// takenForNamespaced asks clusterctl whether it sets a namespace on objects of a kind: its own list
// of kinds is not exported.
func takenForNamespaced(s *Subject, d *manifest.Document) bool {
	const target = "target"
	raw, err := yaml.Marshal(map[string]any{
		"apiVersion": d.Object.GetAPIVersion(), "kind": d.Object.GetKind(), "metadata": map[string]any{"name": d.Object.GetName()},
	})
	if err != nil {
		return false
	}
	result, err := asInstalled(s.Release, raw, target, nil)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(result.Objs(), func(o unstructured.Unstructured) bool {
		return o.GetKind() == d.Object.GetKind() && o.GetNamespace() == target
	})
}
