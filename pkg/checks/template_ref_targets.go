package checks

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
	"github.com/clusterctl-release/clusterctl-release/pkg/schemas"
)

var templateRefNamespace = Check{
	ID: "template-ref-namespace", Group: Templates, Severity: Warning,
	Title:  "The references of templates name no fixed namespace",
	Source: sourceTemplateNamespace,
	Run: func(s *Subject, report Report) {
		for _, t := range s.templates() {
			objects := t.fixedObjects()
			for _, r := range s.fixedRefs(t) {
				if _, ok := objects[r.fixedName]; ok {
					continue // template-object-namespace says so of an object of the file
				}
				report(Finding{Place: r.from.place(r.path...), Cause: r.namespace,
					Message: fmt.Sprintf("the reference names the namespace %q, which clusterctl leaves as it is: with any other --target-namespace it points to where the template's objects are not", r.namespace),
					Fix:     "write namespace: ${NAMESPACE}, or leave it out; a variable with this default, where the object is meant to be elsewhere"})
			}
		}
	},
}

// fixedName names an object in a namespace that isn't a variable, in the words of the published file.
// The kind is empty in references that name none.
type fixedName struct {
	kind, namespace, name string
}

// fixedRef is a reference to such an object.
type fixedRef struct {
	fixedName
	from object
	// path is that of the namespace.
	path []any
}

// fixedObjects returns the objects of a template with a fixed namespace, each by its name with and
// without the kind.
func (t *template) fixedObjects() map[fixedName]object {
	objects := map[fixedName]object{}
	for _, o := range t.objects {
		namespace, _ := o.published("metadata", "namespace").(string)
		name, _ := o.published("metadata", "name").(string)
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
func (s *Subject) fixedRefs(t *template) []fixedRef {
	var refs []fixedRef
	for _, o := range t.objects {
		if o.raw == nil {
			continue // nobody knows what is fixed
		}
		isBinding := o.GetKind() == "RoleBinding" || o.GetKind() == "ClusterRoleBinding"
		for _, r := range namespacedRefs(o.raw.Object.Object) {
			named, path := fixedName{r.Kind, r.Namespace, r.Name}, manifest.Join(r.path, "namespace")
			if !strings.Contains(named.namespace, "${") && (!isBinding || path[0] != "subjects") && !s.isDropped(o, path) {
				refs = append(refs, fixedRef{fixedName: named, from: o, path: path})
			}
		}
	}
	return refs
}

// isDropped says whether the API server drops a field that the kind does not have, of which
// template-schema speaks.
func (s *Subject) isDropped(o object, path []any) bool {
	kind, ok := s.knownKinds().Kind(o.GroupVersionKind().GroupKind())
	return ok && !slices.Contains(kind.VersionsWith(path), o.GroupVersionKind().Version)
}

// namespacedRefs returns the references of an object that name a namespace: maps with a name next to it
// that have a kind, or that are called as references to Secrets and the like are.
func namespacedRefs(object map[string]any) []reference {
	var refs []reference
	manifest.Walk(object, nil, func(path []any, value any) bool {
		fields, _ := value.(map[string]any)
		_, hasKind := fields["kind"].(string)
		_, hasName := fields["name"].(string)
		if hasName && manifest.Text(fields, "namespace") != "" && (hasKind || isCalledReference(manifest.FieldName(path))) {
			refs = append(refs, reference{manifest.ReferenceOf(fields), slices.Clone(path)})
		}
		return len(path) == 0 || path[len(path)-1] != "metadata" // an object's own, or that of one it makes
	})
	return refs
}

// isCalledReference says whether a field is called as references to objects are.
func isCalledReference(field string) bool {
	return slices.ContainsFunc([]string{"Ref", "Refs", "Reference", "Secret", "ConfigMap"}, func(ending string) bool { return strings.HasSuffix(field, ending) })
}

var templateRefKind = Check{
	ID: "template-ref-kind", Group: Templates, Severity: Warning,
	Title:  "The kinds of objects and references are defined by the release, or by Cluster API",
	Source: sourceInfraRefs,
	Run: func(s *Subject, report Report) {
		if len(s.CRDs()) == 0 {
			return // components-present and components-parse say so
		}
		for _, t := range append(s.templates(), s.clusterClasses()...) {
			for _, o := range t.objects {
				s.reportKind(t, o, report)
			}
		}
	},
}

// reportKind looks up the kind of an object and those that it refers to.
func (s *Subject) reportKind(t *template, o object, report Report) {
	if gk := o.GroupVersionKind().GroupKind(); s.isUndefined(gk) && !o.variableAt("apiVersion") && !o.variableAt("kind") {
		report(Finding{Place: o.place("kind"), Cause: gk.String(),
			Message: s.undefined(gk) + ": the API server refuses the object",
			Fix:     "fix the kind, or check the release --with that of the provider that it belongs to"})
	}
	for _, r := range sortedReferences(o) {
		gk := r.GroupKind()
		if s.isUndefined(gk) && !t.guessedAt(o, schemas.Problem{Path: manifest.Join(r.path, "kind")}) {
			report(Finding{Place: o.place(manifest.Join(r.path, "kind")...), Cause: gk.String(),
				Message: s.undefined(gk) + ": Cluster API never finds what the reference names",
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
func (s *Subject) isUndefined(gk schema.GroupKind) bool {
	if _, known := s.knownKinds().Kind(gk); known || gk.Group == "" {
		return false
	}
	if group, isAlias := strings.CutPrefix(gk.Group, "exp."); isAlias {
		// Cluster API and its providers had experimental kinds in such groups, and moved them.
		_, moved := s.knownKinds().Kind(schema.GroupKind{Group: group, Kind: gk.Kind})
		return moved
	}
	if slices.Contains(sharedGroups, gk.Group) {
		return strings.HasPrefix(gk.Kind, "Kubeadm")
	}
	return gk.Group == clusterv1.GroupVersion.Group || slices.ContainsFunc(s.CRDs(), func(crd CRD) bool { return crd.Spec.Group == gk.Group })
}

// undefined says that a kind is not defined, and where one that is called alike is.
func (s *Subject) undefined(gk schema.GroupKind) string {
	text := fmt.Sprintf("neither this release nor Cluster API has a kind %s in group %s", gk.Kind, gk.Group)
	for _, k := range s.knownKinds().All() {
		if strings.EqualFold(k.Kind, gk.Kind) {
			return text + fmt.Sprintf(", but %s in %s", k.Kind, k.Group)
		}
	}
	return text
}
