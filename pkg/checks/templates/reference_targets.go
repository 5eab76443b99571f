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
)

var templateRefNamespace = checks.Check{
	ID: "template-ref-namespace", Group: checks.Templates, Severity: checks.Warning,
	Title:  "The references of templates have no fixed namespace",
	Source: sourceTemplateNamespace,
	Run: rendered.Templates.Each(func(_ context.Context, s *checks.Subject, t *rendered.Template, report checks.Report) error {
		objects := fixedObjects(t)
		for _, r := range fixedRefs(s, t) {
			if _, ok := objects[r.fixedName]; ok {
				continue // template-object-namespace reports objects of the file
			}
			report(checks.Finding{Place: r.from.Place(r.path...), Cause: r.namespace,
				Message: fmt.Sprintf("the reference has the namespace %q, which clusterctl does not change: with another --target-namespace it does not point to the template's objects", r.namespace),
				Fix:     "write namespace: ${NAMESPACE}, or remove it; use a variable with this default for an object in another namespace"})
		}
		return nil
	}),
}

// fixedName identifies an object in a namespace that isn't a variable, in the words of the published file. The kind is
// empty in references without one.
type fixedName struct {
	kind, namespace, name string
}

// fixedRef is a reference to such an object.
type fixedRef struct {
	fixedName
	from rendered.Object
	// path is the path of the namespace.
	path []any
}

// fixedObjects returns the objects of a template with a fixed namespace, each under its name with and without the kind.
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

// fixedRefs returns the references of a template that keep a fixed namespace. clusterctl replaces the namespace of a
// binding's subjects, and the API server drops a field that the kind does not have.
func fixedRefs(s *checks.Subject, t *rendered.Template) []fixedRef {
	var refs []fixedRef
	for _, o := range t.Objects {
		if o.Raw == nil {
			continue // the fixed fields are unknown
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

// isDropped reports whether the API server drops a field that the kind does not have, which template-schema reports.
func isDropped(s *checks.Subject, o rendered.Object, path []any) bool {
	kind, ok := s.KnownKinds().Kind(o.GroupVersionKind().GroupKind())
	return ok && !slices.Contains(kind.VersionsWith(path), o.GroupVersionKind().Version)
}

// namespacedRefs returns the references of an object with a namespace: maps with a name that have a kind, or whose
// field is called like references to Secrets and the like.
func namespacedRefs(object map[string]any) []rendered.Reference {
	var refs []rendered.Reference
	manifest.Walk(object, nil, func(path []any, value any) bool {
		fields, _ := value.(map[string]any)
		_, hasKind := fields["kind"].(string)
		_, hasName := fields["name"].(string)
		if hasName && manifest.Text(fields, "namespace") != "" && (hasKind || isCalledReference(manifest.FieldName(path))) {
			refs = append(refs, rendered.Reference{Reference: manifest.ReferenceOf(fields), Path: slices.Clone(path)})
		}
		return len(path) == 0 || path[len(path)-1] != "metadata" // metadata of an object or a template in it
	})
	return refs
}

// isCalledReference reports whether a field has the name of a reference to objects.
func isCalledReference(field string) bool {
	return slices.ContainsFunc([]string{"Ref", "Refs", "Reference", "Secret", "ConfigMap"}, func(ending string) bool { return strings.HasSuffix(field, ending) })
}

var templateRefKind = checks.Check{
	ID: "template-ref-kind", Group: checks.Templates, Severity: checks.Warning,
	Title:  "The kinds of objects and references are defined by the release, or by Cluster API",
	Source: sourceInfraRefs,
	Run: rendered.All.EachObject(func(_ context.Context, s *checks.Subject, t *rendered.Template, o rendered.Object, report checks.Report) error {
		if len(s.CRDs()) > 0 { // else components-present and components-parse report it
			reportKind(s, t, o, report)
		}
		return nil
	}),
}

// reportKind checks the kind of an object and the kinds that it refers to.
func reportKind(s *checks.Subject, t *rendered.Template, o rendered.Object, report checks.Report) {
	if gk := o.GroupVersionKind().GroupKind(); isUndefined(s, gk) && !o.VariableAt("apiVersion") && !o.VariableAt("kind") {
		report(checks.Finding{Place: o.Place("kind"), Cause: gk.String(),
			Message: undefined(s, gk) + ": the API server refuses the object",
			Fix:     "correct the kind, or check the release --with the release of its provider"})
	}
	for _, r := range rendered.SortedReferences(o) {
		gk := r.GroupKind()
		if isUndefined(s, gk) && !t.GuessedAt(o, manifest.Join(r.Path, "kind")...) {
			report(checks.Finding{Place: o.Place(manifest.Join(r.Path, "kind")...), Cause: gk.String(),
				Message: undefined(s, gk) + ": Cluster API never finds the object of the reference",
				Fix:     "correct the reference, or check the release --with the release of its provider"})
		}
	}
}

// sharedGroups are groups in which other providers have kinds as well.
var sharedGroups = []string{
	"bootstrap." + clusterv1.GroupVersion.Group, "controlplane." + clusterv1.GroupVersion.Group,
	"addons." + clusterv1.GroupVersion.Group, "ipam." + clusterv1.GroupVersion.Group,
}

// isUndefined reports whether a kind is missing in a group whose kinds are all known: Cluster API's own groups and
// those of this provider.
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

// undefined says that a kind is not defined, and names a similar kind.
func undefined(s *checks.Subject, gk schema.GroupKind) string {
	text := fmt.Sprintf("neither this release nor Cluster API defines a kind %s in group %s", gk.Kind, gk.Group)
	for _, k := range s.KnownKinds().All() {
		if strings.EqualFold(k.Kind, gk.Kind) {
			return text + fmt.Sprintf(", but %s in %s", k.Kind, k.Group)
		}
	}
	return text
}
