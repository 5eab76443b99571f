package templates

import (
	"context"
	"fmt"
	"slices"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/rendered"
	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

// expand returns the paths in an object that match a pattern: "*" is every item of a list.
func expand(o rendered.Object, pattern []any) [][]any {
	i := slices.Index(pattern, any("*"))
	if i < 0 {
		return [][]any{pattern}
	}
	items, _ := o.Published(pattern[:i]...).([]any)
	paths := make([][]any, 0, len(items))
	for n := range items {
		paths = append(paths, manifest.Join(manifest.Join(pattern[:i], n), pattern[i+1:]...))
	}
	return paths
}

var templateClusterScopedObject = checks.Check{
	ID: "template-cluster-scoped-object", Group: checks.Templates, Severity: checks.Warning,
	Title:  "The objects of templates and ClusterClasses are namespaced",
	Source: sourceTemplateNamespace,
	Run: rendered.All.EachObject(func(_ context.Context, s *checks.Subject, _ *rendered.Template, o rendered.Object, report checks.Report) error {
		if o.GetKind() == "Namespace" || !rendered.IsClusterScoped(s, o) { // template-namespace-object reports Namespaces
			return nil
		}
		finding := checks.Finding{Place: o.Place(),
			Message: fmt.Sprintf("a %s is cluster-scoped: all clusters share it, and a template of another cluster overwrites it", o.GetKind()),
			Fix:     "document that administrators create it once, or use a namespaced kind"}
		if name, _ := o.Published("metadata", "name").(string); len(rendered.VariablesIn(name)) > 0 {
			finding.Severity = checks.Note
			finding.Message = fmt.Sprintf("a %s is cluster-scoped: users need permissions for the whole management cluster, and it stays when the Cluster is deleted", o.GetKind())
		}
		report(finding)
		return nil
	}),
}

var templateUnreferencedObject = checks.Check{
	ID: "template-unreferenced-object", Group: checks.Templates, Severity: checks.Warning,
	Title:  "Objects that only serve others are referenced",
	Source: "clusterctl provider contract, OwnerReferences chain",
	Run: rendered.All.Each(func(_ context.Context, s *checks.Subject, t *rendered.Template, report checks.Report) error {
		if t.MayNameMore() {
			return nil // the variable may contain the reference
		}
		for i, o := range t.Objects {
			if !rendered.OnlyServes(s, o) || t.IsNamed(i) || isMissed(s, t, o) {
				continue
			}
			report(checks.Finding{Place: o.Place("metadata", "name"),
				Message: fmt.Sprintf("no object in %s names this %s: it has no effect, gets no owner, stays when the cluster is deleted, and `clusterctl move` leaves it behind", t.Name, o.GetKind()),
				Fix:     "correct the reference to it, or remove it"})
		}
		return nil
	}),
}

// isMissed reports whether a broken reference may be intended for an object: a reference to its kind with another name,
// or to its name with an undefined kind. Other checks report such references.
func isMissed(s *checks.Subject, t *rendered.Template, wanted rendered.Object) bool {
	for _, o := range t.Objects {
		for _, r := range rendered.SortedReferences(o) {
			if r.Kind == wanted.GetKind() && !t.Has(o, r) || r.Name == wanted.GetName() && isUndefined(s, r.GroupKind()) {
				return true
			}
		}
	}
	return false
}
