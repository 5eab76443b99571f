package checks

import (
	"fmt"
	"slices"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/templates"
)

const (
	sourceClass          = "clusterctl provider contract, ClusterClass definitions"
	sourceClassNames     = "clusterctl provider contract, ClusterClass definitions, Naming conventions"
	sourceClassNamespace = "clusterctl provider contract, ClusterClass definitions, Target namespace"
	sourceClassVariables = "clusterctl provider contract, ClusterClass definitions, Variables"
)

// isClass says whether an object is a ClusterClass.
func isClass(o object) bool {
	gvk := o.GroupVersionKind()
	return gvk.Group == clusterv1.GroupVersion.Group && gvk.Kind == "ClusterClass"
}

var clusterClassFileName = Check{
	ID: "clusterclass-file-name", Group: ClusterClass, Severity: Error,
	Title:  "A ClusterClass is in the file that is called after it",
	Source: sourceClassNames,
	Run: func(s *Subject, report Report) {
		for _, t := range s.clusterClasses() {
			wanted, err := release.ClusterClassName(t.Name)
			if err != nil || len(t.failures) > 0 {
				continue
			}
			if finding := t.wrongClass(wanted); finding != nil {
				finding.Place = s.At(t.Name)
				report(*finding)
			}
		}
		for _, t := range s.templates() {
			for _, o := range t.objects {
				if isClass(o) && s.missingClass(t) == nil {
					report(t.classInTemplate(o))
				}
			}
		}
	},
}

// isMisnamedClass says whether a file holds a ClusterClass under a name by which clusterctl does not
// find it.
func isMisnamedClass(r *release.Release, f release.File) bool {
	isYAML := strings.HasSuffix(f.Name, ".yaml") || strings.HasSuffix(f.Name, ".yml")
	return isYAML && r.Role(f.Name) == release.RoleOther && isKind(f.Data, "ClusterClass")
}

// wrongClass returns what is wrong with the names of the classes in a file that clusterctl reads for
// the class wanted, or nil.
func (t *template) wrongClass(wanted string) *Finding {
	var names []string
	severity := Error
	for _, o := range t.objects {
		if !isClass(o) {
			continue
		}
		name := t.nameAt(o, "metadata", "name")
		if mayBe(name, wanted) {
			return nil
		}
		if published, ok := o.published("metadata", "name").(string); ok && mayBe(published, wanted) {
			severity = Warning // unless the user sets the variable, it has its default
		}
		names = append(names, name)
	}
	message := fmt.Sprintf("it has no ClusterClass %q, which is what clusterctl looks for in it", wanted)
	if len(names) > 0 {
		message += ", but " + strings.Join(names, ", ")
	}
	return &Finding{Severity: severity, Message: message, Fix: "call the file clusterclass-NAME.yaml after the class"}
}

// classInTemplate returns what is wrong with a ClusterClass in a cluster template. Without a Cluster
// next to it the template is the first of two steps, for the user to apply before other flavors.
func (t *template) classInTemplate(o object) Finding {
	if len(t.clusterNames()) == 0 {
		return Finding{Place: o.place(), Severity: Note,
			Message: "a ClusterClass in a cluster template without a Cluster: users have to generate and apply it before the flavors that name the class, as clusterctl does not look for the class here",
			Fix:     "move it to clusterclass-NAME.yaml, where NAME is the name of the class, or document both steps"}
	}
	return Finding{Place: o.place(), Severity: Warning,
		Message: "a ClusterClass inside of a cluster template: it is made again with every cluster, and clusterctl does not find it for other flavors",
		Fix:     "move it to clusterclass-" + t.nameAt(o, "metadata", "name") + ".yaml"}
}

var clusterClassVariables = Check{
	ID: "clusterclass-variables", Group: ClusterClass, Severity: Warning,
	Title:  "ClusterClass definitions have no variables of clusterctl's",
	Source: sourceClassVariables,
	Run: func(s *Subject, report Report) {
		for _, t := range s.clusterClasses() {
			variables, err := templates.Variables(t.File)
			if err != nil {
				continue // template-rendered says so
			}
			place := s.At(t.Name)
			var names []string
			for _, v := range variables {
				names = append(names, v.Name)
				if len(v.Lines) > 0 && (place.Line == 0 || v.Lines[0] < place.Line) {
					place.Line = v.Lines[0]
				}
			}
			if len(names) > 0 {
				report(Finding{Place: place,
					Message: fmt.Sprintf("clusterctl replaces the variables %s: all clusters of the class get the values of its first user", few(names)),
					Fix:     "make them variables of the ClusterClass"})
			}
		}
	},
}

var clusterClassNamespace = Check{
	ID: "clusterclass-namespace", Group: ClusterClass, Severity: Warning,
	Title:  "The objects of a ClusterClass name no namespace",
	Source: sourceClassNamespace,
	Run: func(s *Subject, report Report) {
		for _, t := range s.clusterClasses() {
			for _, o := range t.objects {
				if o.GetNamespace() == "" {
					continue
				}
				report(Finding{Place: o.place("metadata", "namespace"), Cause: o.GetNamespace(),
					Message: fmt.Sprintf("the object names the namespace %q: a class goes to the namespace that its user names", o.GetNamespace()),
					Fix:     "leave the namespace out"})
			}
		}
	},
}

// reference is a reference of an object to another one.
type reference struct {
	manifest.Reference
	path []any
}

// references returns the references to objects below a value, in the order of fields: maps with a kind
// and a name that have an apiVersion as well, or are in a field called ref, templateRef and the like.
func references(value any, path []any) []reference {
	var found []reference
	manifest.Walk(value, path, func(path []any, value any) bool {
		fields, _ := value.(map[string]any)
		isRef := isReferenceAt(fields, path)
		if isRef {
			found = append(found, reference{manifest.ReferenceOf(fields), slices.Clone(path)})
		}
		return !isRef
	})
	return found
}

// isReferenceAt says whether a map is a reference. A map with metadata is an object.
func isReferenceAt(fields map[string]any, path []any) bool {
	_, hasKind := fields["kind"].(string)
	_, hasName := fields["name"].(string)
	_, hasVersion := fields["apiVersion"].(string)
	_, isObject := fields["metadata"]
	field, _ := path[len(path)-1].(string)
	return hasKind && hasName && (field == "ref" || strings.HasSuffix(field, "Ref") || hasVersion && !isObject)
}

var clusterClassRefNamespace = Check{
	ID: "clusterclass-ref-namespace", Group: ClusterClass, Severity: Warning,
	Title:  "The references of a ClusterClass name no namespace",
	Source: sourceClassNamespace,
	Run: func(s *Subject, report Report) {
		eachReference(s, func(_ *template, o object, r reference) {
			if r.Namespace != "" {
				report(Finding{Place: o.place(append(r.path, "namespace")...), Cause: r.Namespace,
					Message: fmt.Sprintf("the reference to %s %s names the namespace %q: in any other, the class is broken", r.Kind, r.Name, r.Namespace),
					Fix:     "leave the namespace out"})
			}
		})
	},
}

var clusterClassRefResolves = Check{
	ID: "clusterclass-ref-resolves", Group: ClusterClass, Severity: Warning,
	Title:  "The templates that a ClusterClass refers to are in its file",
	Source: sourceClass,
	Run: func(s *Subject, report Report) {
		eachReference(s, func(t *template, o object, r reference) {
			if t.has(o, r) {
				return
			}
			report(Finding{Place: o.place(append(r.path, "name")...),
				Message: fmt.Sprintf("there is no %s %s in the file: the definition should have all objects that make up the class", r.Kind, t.nameAt(o, manifest.Join(r.path, "name")...)),
				Fix:     "put the object into " + t.Name + ", or fix the name"})
		})
	},
}

// eachReference calls do for every reference in every ClusterClass of the release.
func eachReference(s *Subject, do func(*template, object, reference)) {
	for _, t := range s.clusterClasses() {
		for _, o := range t.objects {
			if isClass(o) {
				for _, r := range references(o.Object["spec"], []any{"spec"}) {
					do(t, o, r)
				}
			}
		}
	}
}

var clusterClassShared = Check{
	ID: "clusterclass-shared", Group: ClusterClass, Severity: Warning,
	Title:  "No object belongs to several ClusterClasses",
	Source: sourceClassNamespace,
	Run: func(s *Subject, report Report) {
		first := map[string]string{} // the file that had the object first
		for _, t := range s.clusterClasses() {
			for _, o := range t.objects {
				if o.isOfCluster("metadata", "name") {
					continue // each cluster has one class and objects of its own
				}
				key := o.GroupVersionKind().GroupKind().String() + " " + t.nameAt(o, "metadata", "name")
				if other, ok := first[key]; ok && other != t.Name {
					report(Finding{Place: o.place("metadata", "name"), Cause: other + " " + t.Name,
						Message: fmt.Sprintf("%s has an object of the same kind and name: who changes it for one class changes it for the clusters of the other", other),
						Fix:     "give each class objects of its own"})
					continue
				}
				first[key] = t.Name
			}
		}
	},
}
