package templates

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/rendered"
	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
	"github.com/clusterctl-release/clusterctl-release/pkg/schemas"
)

var templateRefNamespace = checks.Check{
	ID: "template-ref-namespace", Group: checks.Templates, Severity: checks.Warning,
	Title:  "The references of templates name no fixed namespace",
	Source: sourceTemplateNamespace,
	Run: rendered.Templates.Each(func(_ context.Context, s *checks.Subject, t *rendered.Template, report checks.Report) error {
		objects := fixedObjects(t)
		for _, r := range fixedRefs(s, t) {
			if _, ok := objects[r.fixedName]; ok {
				continue // template-object-namespace says so of an object of the file
			}
			report(checks.Finding{Place: r.from.Place(r.path...), Cause: r.namespace,
				Message: fmt.Sprintf("the reference names the namespace %q, which clusterctl leaves as it is: with any other --target-namespace it points to where the template's objects are not", r.namespace),
				Fix:     "write namespace: ${NAMESPACE}, or leave it out; a variable with this default, where the object is meant to be elsewhere"})
		}
		return nil
	}),
}

// fixedName names an object in a namespace that isn't a variable, in the words of the published file.
// The kind is empty in references that name none.
type fixedName struct {
	kind, namespace, name string
}

// fixedRef is a reference to such an object.
type fixedRef struct {
	fixedName
	from rendered.Object
	// path is that of the namespace.
	path []any
}

// fixedObjects returns the objects of a template with a fixed namespace, each by its name with and
// without the kind.
func fixedObjects(t *rendered.Template) map[fixedName]rendered.Object {
	objects := map[fixedName]rendered.Object{}
	for _, o := range t.Objects {
		namespace, _ := o.Published("metadata", "namespace").(string)
		name, _ := o.Published("metadata", "name").(string)
		if namespace == "" || strings.Contains(namespace, "${") {
			continue
		}
		objects[fixedName{o.GetKind(), namespace, name}] = o
		objects[fixedName{"", namespace, name}] = o
	}
	return objects
}

// fixedRefs returns the references of a template that keep a fixed namespace. clusterctl replaces that
// of a binding's subjects, and the API server drops a field that the kind does not have.
func fixedRefs(s *checks.Subject, t *rendered.Template) []fixedRef {
	var refs []fixedRef
	for _, o := range t.Objects {
		if o.Raw == nil {
			continue // nobody knows what is fixed
		}
		isBinding := o.GetKind() == "RoleBinding" || o.GetKind() == "ClusterRoleBinding"
		for _, r := range namespacedRefs(o.Raw.Object.Object) {
			named, path := fixedName{r.Kind, r.Namespace, r.Name}, manifest.Join(r.Path, "namespace")
			if !strings.Contains(named.namespace, "${") && (!isBinding || path[0] != "subjects") && !isDropped(s, o, path) {
				refs = append(refs, fixedRef{fixedName: named, from: o, path: path})
			}
		}
	}
	return refs
}

// isDropped says whether the API server drops a field that the kind does not have, of which
// template-schema speaks.
func isDropped(s *checks.Subject, o rendered.Object, path []any) bool {
	kind, ok := s.KnownKinds().Kind(o.GroupVersionKind().GroupKind())
	return ok && !slices.Contains(kind.VersionsWith(path), o.GroupVersionKind().Version)
}

// namespacedRefs returns the references of an object that name a namespace: maps with a name next to it
// that have a kind, or that are called as references to Secrets and the like are.
func namespacedRefs(object map[string]any) []rendered.Reference {
	var refs []rendered.Reference
	manifest.Walk(object, nil, func(path []any, value any) bool {
		fields, _ := value.(map[string]any)
		_, hasKind := fields["kind"].(string)
		_, hasName := fields["name"].(string)
		if hasName && manifest.Text(fields, "namespace") != "" && (hasKind || isCalledReference(manifest.FieldName(path))) {
			refs = append(refs, rendered.Reference{Reference: manifest.ReferenceOf(fields), Path: slices.Clone(path)})
		}
		return len(path) == 0 || path[len(path)-1] != "metadata" // an object's own, or that of one it makes
	})
	return refs
}

// isCalledReference says whether a field is called as references to objects are.
func isCalledReference(field string) bool {
	return slices.ContainsFunc([]string{"Ref", "Refs", "Reference", "Secret", "ConfigMap"}, func(ending string) bool { return strings.HasSuffix(field, ending) })
}

var templateRefKind = checks.Check{
	ID: "template-ref-kind", Group: checks.Templates, Severity: checks.Warning,
	Title:  "The kinds of objects and references are defined by the release, or by Cluster API",
	Source: sourceInfraRefs,
	Run: rendered.All.EachObject(func(_ context.Context, s *checks.Subject, t *rendered.Template, o rendered.Object, report checks.Report) error {
		if len(s.CRDs()) > 0 { // else components-present and components-parse say so
			reportKind(s, t, o, report)
		}
		return nil
	}),
}

// reportKind looks up the kind of an object and those that it refers to.
func reportKind(s *checks.Subject, t *rendered.Template, o rendered.Object, report checks.Report) {
	if gk := o.GroupVersionKind().GroupKind(); isUndefined(s, gk) && !o.VariableAt("apiVersion") && !o.VariableAt("kind") {
		report(checks.Finding{Place: o.Place("kind"), Cause: gk.String(),
			Message: undefined(s, gk) + ": the API server refuses the object",
			Fix:     "fix the kind, or check the release --with that of the provider that it belongs to"})
	}
	for _, r := range rendered.SortedReferences(o) {
		gk := r.GroupKind()
		if isUndefined(s, gk) && !t.GuessedAt(o, schemas.Problem{Path: manifest.Join(r.Path, "kind")}) {
			report(checks.Finding{Place: o.Place(manifest.Join(r.Path, "kind")...), Cause: gk.String(),
				Message: undefined(s, gk) + ": Cluster API never finds what the reference names",
				Fix:     "fix the reference, or check the release --with that of the provider that it belongs to"})
		}
	}
}

// sharedGroups are those in which providers that are not here have kinds as well.
var sharedGroups = []string{
	"bootstrap." + clusterv1.GroupVersion.Group, "controlplane." + clusterv1.GroupVersion.Group,
	"addons." + clusterv1.GroupVersion.Group, "ipam." + clusterv1.GroupVersion.Group,
}

// isUndefined says whether a kind is in a group whose kinds are all known, Cluster API's own or one of
// this provider's, and is none of them.
func isUndefined(s *checks.Subject, gk schema.GroupKind) bool {
	if _, known := s.KnownKinds().Kind(gk); known || gk.Group == "" {
		return false
	}
	if group, isAlias := strings.CutPrefix(gk.Group, "exp."); isAlias {
		// Cluster API and its providers had experimental kinds in such groups, and moved them.
		_, moved := s.KnownKinds().Kind(schema.GroupKind{Group: group, Kind: gk.Kind})
		return moved
	}
	if slices.Contains(sharedGroups, gk.Group) {
		return strings.HasPrefix(gk.Kind, "Kubeadm")
	}
	return gk.Group == clusterv1.GroupVersion.Group || slices.ContainsFunc(s.CRDs(), func(crd checks.CRD) bool { return crd.Spec.Group == gk.Group })
}

// undefined says that a kind is not defined, and where one that is called alike is.
func undefined(s *checks.Subject, gk schema.GroupKind) string {
	text := fmt.Sprintf("neither this release nor Cluster API has a kind %s in group %s", gk.Kind, gk.Group)
	for _, k := range s.KnownKinds().All() {
		if strings.EqualFold(k.Kind, gk.Kind) {
			return text + fmt.Sprintf(", but %s in %s", k.Kind, k.Group)
		}
	}
	return text
}
