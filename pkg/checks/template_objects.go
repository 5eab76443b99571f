package checks

import (
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/clusterctl-release/clusterctl-release/pkg/contract"
	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
	"github.com/clusterctl-release/clusterctl-release/pkg/schemas"
)

// isCore says whether an object is of a kind of Cluster API's core group.
func isCore(o object, kind string) bool {
	gvk := o.GroupVersionKind()
	return gvk.Group == clusterv1.GroupVersion.Group && gvk.Kind == kind
}

// published returns the value at a path before variables were replaced; nil where there is none, or
// where the file isn't YAML then.
func (o object) published(path ...any) any {
	if o.raw == nil {
		return nil
	}
	return manifest.At(o.raw.Object.Object, path...)
}

// expand returns the paths that a pattern stands for in an object: "*" is every item of a list.
func (o object) expand(pattern []any) [][]any {
	i := slices.Index(pattern, any("*"))
	if i < 0 {
		return [][]any{pattern}
	}
	items, _ := o.published(pattern[:i]...).([]any)
	paths := make([][]any, 0, len(items))
	for n := range items {
		paths = append(paths, manifest.Join(manifest.Join(pattern[:i], n), pattern[i+1:]...))
	}
	return paths
}

var templateClusterScopedObject = Check{
	ID: "template-cluster-scoped-object", Group: Templates, Severity: Warning,
	Title:  "The objects of templates and ClusterClasses are in a namespace",
	Source: sourceTemplateNamespace,
	Run: func(s *Subject, report Report) {
		for _, t := range append(s.templates(), s.clusterClasses()...) {
			for _, o := range t.objects {
				if o.GetKind() == "Namespace" || !s.isClusterScoped(o) { // template-namespace-object has the former
					continue
				}
				finding := Finding{Place: o.place(),
					Message: fmt.Sprintf("a %s is in no namespace: all clusters share it, and who generates another one overwrites it", o.GetKind()),
					Fix:     "let administrators make it once, and document it; or use a kind that is namespaced"}
				if name, _ := o.published("metadata", "name").(string); len(variablesIn(name)) > 0 {
					finding.Severity = Note
					finding.Message = fmt.Sprintf("a %s is in no namespace: users need rights to the whole management cluster, and it stays when the Cluster is deleted", o.GetKind())
				}
				report(finding)
			}
		}
	},
}

// isClusterScoped says whether objects of a kind are in no namespace, as far as that is known.
func (s *Subject) isClusterScoped(o object) bool {
	if kind, ok := s.knownKinds().Kind(o.GroupVersionKind().GroupKind()); ok {
		return kind.Scope == apiextensionsv1.ClusterScoped
	}
	return s.kindScopes().Known(o.Unstructured) && !s.kindScopes().Namespaced(o.Unstructured)
}

var templateUnreferencedObject = Check{
	ID: "template-unreferenced-object", Group: Templates, Severity: Warning,
	Title:  "What only serves others is named by one of them",
	Source: "clusterctl provider contract, OwnerReferences chain",
	Run: func(s *Subject, report Report) {
		for _, t := range append(s.templates(), s.clusterClasses()...) {
			if t.mayNameMore() {
				continue // the variable may stand for what names it
			}
			for i, o := range t.objects {
				if !s.onlyServes(o) || t.isNamed(i) || s.isMissed(t, o) {
					continue
				}
				report(Finding{Place: o.place("metadata", "name"),
					Message: fmt.Sprintf("nothing in %s names this %s: it does nothing, gets no owner, stays when the cluster is deleted, and `clusterctl move` leaves it behind", t.Name, o.GetKind()),
					Fix:     "fix the reference that is meant for it, or take it out"})
			}
		}
	},
}

// onlyServes says whether an object is of a kind that does nothing until another object names it:
// templates, and what a Cluster is made of.
func (s *Subject) onlyServes(o object) bool {
	gvk := o.GroupVersionKind()
	shared := slices.Contains(wellKnownGroups, gvk.Group)
	switch {
	case shared && strings.HasSuffix(gvk.Kind, "Template"):
		return true
	case shared && gvk.Group == "controlplane."+clusterv1.GroupVersion.Group && strings.HasSuffix(gvk.Kind, "ControlPlane"):
		return true
	}
	for _, crd := range s.CRDs() {
		if crd.Spec.Group == gvk.Group && crd.Spec.Names.Kind == gvk.Kind {
			resource, template, ok := s.contractKindOf(crd)
			return ok && (template || resource == contract.InfraCluster || resource == contract.ControlPlane)
		}
	}
	return false
}

// isMissed says whether a reference to nothing may be meant for an object, of which other checks speak:
// one to its kind by another name, or to its name by a kind that there is not.
func (s *Subject) isMissed(t *template, wanted object) bool {
	for _, o := range t.objects {
		for _, r := range sortedReferences(o) {
			if r.Kind == wanted.GetKind() && !t.has(o, r) || r.Name == wanted.GetName() && s.isUndefined(r.GroupKind()) {
				return true
			}
		}
	}
	return false
}

// isNamed says whether another object names the one of an index: by kind and name or, where no kind
// is said, by its name in any field. Where a user gives the name of such an object, nobody knows.
func (t *template) isNamed(index int) bool {
	wanted := t.objects[index]
	for i, o := range t.objects {
		if i == index {
			continue
		}
		if t.names(o, wanted) {
			return true
		}
	}
	return false
}

// besidesNames are fields in which an object's name stands for something else.
var besidesNames = []string{"metadata", "labels", "matchLabels", "annotations", "clusterName"}

// names says whether an object names another one.
func (t *template) names(o, wanted object) bool {
	isNamed := false
	manifest.Walk(o.Object, nil, func(path []any, value any) bool {
		field := manifest.FieldName(path)
		if isNamed || slices.Contains(besidesNames, field) || len(path) == 1 && (field == "apiVersion" || field == "kind") {
			return false
		}
		fields, _ := value.(map[string]any)
		kind, hasKind := fields["kind"].(string)
		name, hasName := fields["name"].(string)
		if len(path) > 0 && hasKind && hasName {
			isNamed = kind == wanted.GetKind() && (name == wanted.GetName() || t.guessedAt(o, schemas.Problem{Path: manifest.Join(path, "name")}))
			return false
		}
		isNamed = value == wanted.GetName()
		return !isNamed
	})
	return isNamed
}
