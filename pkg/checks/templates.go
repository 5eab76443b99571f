package checks

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	clusterv1beta1 "sigs.k8s.io/cluster-api/api/core/v1beta1" //nolint:staticcheck // clusterctl reads Clusters of this version, so they are read here
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/schemas"
	"github.com/clusterctl-release/clusterctl-release/pkg/templates"
)

const (
	sourceTemplates         = "clusterctl provider contract, Workload cluster templates"
	sourceTemplateNamespace = "clusterctl provider contract, Workload cluster templates, Target namespace"
	sourceTemplateVariables = "clusterctl provider contract, Workload cluster templates, Variables"
)

var templateRendered = Check{
	ID: "template-rendered", Group: Templates, Severity: Error,
	Title:  "Cluster templates and ClusterClasses are YAML once clusterctl has rendered them",
	Source: sourceTemplates,
	Run: func(s *Subject, report Report) {
		for _, t := range append(s.templates(), s.clusterClasses()...) {
			if _, err := t.variableError(); err != nil {
				continue // template-variable-syntax says where
			}
			for _, f := range t.failures {
				report(t.renderFinding(s, f))
			}
			if len(t.blocks) > 0 {
				report(t.blocksFinding(s))
			}
			if t.strict == nil && slices.ContainsFunc(t.objects, func(o object) bool { return o.raw == nil }) {
				report(Finding{Place: s.At(t.Name), Severity: Note,
					Message: "the file is YAML only once its variables are replaced, and nothing tells which fields have them: those without sample values are not checked",
					Fix:     "give sampleValues in " + release.ConfigFile + ", or let each variable stand for a value of its own"})
			}
			if t.strict != nil {
				report(t.strictFinding(s))
			}
			if len(t.failures) == 0 && release.IsClusterTemplate(t.Name) && s.missingClass(t) == nil {
				t.reportConversion(s, report)
			}
		}
	},
}

// renderFinding says why clusterctl refuses a file.
func (t *template) renderFinding(s *Subject, f failure) Finding {
	place := s.At(t.Name)
	if f.set != "" {
		return Finding{Place: place, Message: fmt.Sprintf("clusterctl refuses it with the sample values %q: %s", f.set, cause(f.err)),
			Fix: "fix the template, or the values under sampleValues"}
	}
	return Finding{Place: place, Message: "clusterctl refuses it: " + cause(f.err), Fix: "fix the template; `clusterctl release templates render` shows what clusterctl makes of it"}
}

// blocksFinding says which variables stand for whole parts of a file, so that those parts are not checked.
func (t *template) blocksFinding(s *Subject) Finding {
	place := s.At(t.Name)
	place.Line = t.blocks[0].Line
	var names []string
	for _, b := range t.blocks {
		if text := fmt.Sprintf("%s (line %d)", b.Variable, b.Line); !slices.Contains(names, text) {
			names = append(names, text)
		}
	}
	return Finding{Place: place, Severity: Note,
		Message: fmt.Sprintf("variables stand for whole objects, lists or lines of YAML, which are not checked without values for them: %s", few(names)),
		Fix:     "give sampleValues in " + release.ConfigFile}
}

// strictFinding says why a reader that is stricter than clusterctl refuses a file.
func (t *template) strictFinding(s *Subject) Finding {
	f := Finding{Place: s.At(t.Name), Severity: Warning,
		Message: "clusterctl reads the file, and stricter readers don't: once it is rendered, " + t.strict.Error(),
		Fix:     "fix the YAML; `clusterctl release templates render` shows what clusterctl makes of it"}
	if t.strict.Beyond {
		f.Severity, f.Message = Error, "once it is rendered, the file is beyond the limits of what is checked: "+t.strict.Error()
	}
	return f
}

// reportConversion reports Clusters that clusterctl can't read as the Go types that they are for it,
// as where a field is of another type. It says so in clusterctl's words: its client then renders the
// template as users do.
func (t *template) reportConversion(s *Subject, report Report) {
	flavor, err := release.Flavor(t.Name)
	if err != nil || !slices.ContainsFunc(t.objects, func(o object) bool { return o.isUnreadable() && !s.isOpen(t, o) }) {
		return
	}
	if _, err := templates.Render(s.Context(), s.Release, flavor, t.values); err != nil {
		report(Finding{Place: s.At(t.Name), Message: "clusterctl refuses it: " + err.Error(), Fix: "give the field a value of the type that Cluster API has for it"})
	}
}

// isOpen says whether all that is wrong with an object may come of values that were made up.
func (s *Subject) isOpen(t *template, o object) bool {
	open := s.reportSchema(t, o, func(Finding) {})
	return len(open) > 0 && s.isValid(t, o)
}

// isUnreadable says whether the object is a Cluster that does not convert to its Go type.
func (o object) isUnreadable() bool {
	if o.GroupVersionKind().Group != clusterv1.GroupVersion.Group || o.GetKind() != "Cluster" {
		return false
	}
	typed, err := clusters.New(o.GroupVersionKind())
	if err != nil {
		return false // a version that clusterctl does not look into either
	}
	return clusters.Convert(&o.Unstructured, typed, nil) != nil
}

// clusters are the Go types of Clusters.
var clusters = func() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clusterv1.AddToScheme, clusterv1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err) // Cluster API's own types do not fit together
		}
	}
	return scheme
}()

var topologyClass = Check{
	ID: "topology-class", Group: Templates, Severity: Error,
	Title:  "clusterctl finds the ClusterClass that a template names",
	Source: "clusterctl provider contract, ClusterClass definitions, Naming conventions",
	Run: func(s *Subject, report Report) {
		for _, t := range s.templates() {
			if f := s.missingClass(t); f != nil {
				report(*f)
			}
		}
	},
}

// missingClass returns the finding for a template whose class is not in the release, or nil.
func (s *Subject) missingClass(t *template) *Finding {
	for _, o := range t.objects {
		name, path, ok := className(o.Unstructured)
		if !ok {
			continue
		}
		file := "clusterclass-" + name + ".yaml"
		isGuess := o.variableAt(path...) && t.guessedAt(o, schemas.Problem{Path: path})
		if _, found := s.Release.File(file); found && name != "" && !isGuess {
			continue
		}
		finding := &Finding{
			Place:   o.place(path...),
			Message: fmt.Sprintf("clusterctl looks for the class %q in %s, which the release does not have: the flavor can't be used without a cluster that has the class", name, file),
			Fix:     "publish the class as " + file,
		}
		isInside := slices.ContainsFunc(t.objects, func(other object) bool {
			return isClass(other) && t.nameAt(other, "metadata", "name") == t.nameAt(o, path...)
		})
		switch {
		case !o.variableAt(path...):
			if isInside {
				finding.Message += "; the class in the template itself does not count"
			}
		case isInside && !s.hasClassFor(o, path):
			finding.Message = fmt.Sprintf("no value of %s works: clusterctl looks for the class in a file clusterclass-NAME.yaml or in the cluster, and not in the template itself, which has it", strings.Join(variablesIn(fmt.Sprint(o.published(path...))), ", "))
			finding.Fix = "move the class with its templates to a file clusterclass-NAME.yaml of the release, and let the Cluster name it"
		default:
			finding.Severity = Note
			finding.Message = "the class is the user's to name: clusterctl finds it where it is in the cluster already, or in a file clusterclass-NAME.yaml of the release"
			finding.Fix = "say in the template's comments which classes there are"
		}
		if name == "" {
			finding.Message = "the Cluster has a topology and no class where its apiVersion has it: clusterctl fails as it looks for clusterclass-.yaml"
			finding.Fix = "name the class in spec.topology.classRef.name (v1beta2), or in spec.topology.class (v1beta1)"
		}
		return finding
	}
	return nil
}

// hasClassFor says whether the release has a file for some value of the variable that names a class.
func (s *Subject) hasClassFor(o object, path []any) bool {
	text, _ := o.published(path...).(string)
	return slices.ContainsFunc(s.Release.Files, func(f release.File) bool {
		class, err := release.ClusterClassName(f.Name)
		return err == nil && mayBe(text, class)
	})
}

// variableAt says whether the field has a variable in the published file.
func (o object) variableAt(path ...any) bool {
	text, _ := o.published(path...).(string)
	return strings.Contains(text, "${")
}

var templateNamespaceObject = Check{
	ID: "template-namespace-object", Group: Templates, Severity: Error,
	Title:  "Cluster templates have no Namespace",
	Source: sourceTemplateNamespace,
	Run: func(s *Subject, report Report) {
		for _, t := range append(s.templates(), s.clusterClasses()...) {
			for _, o := range t.objects {
				if o.GetKind() == "Namespace" && o.GetAPIVersion() == "v1" {
					report(Finding{Place: o.place(),
						Message: "it has a Namespace: a template must assume that the target namespace exists, and who deletes what it made deletes all other clusters in that namespace",
						Fix:     "take the Namespace out"})
				}
			}
		}
	},
}

var templateObjectNamespace = Check{
	ID: "template-object-namespace", Group: Templates, Severity: Warning,
	Title:  "The objects of a template are in the namespace that the user names",
	Source: sourceTemplateNamespace,
	Run: func(s *Subject, report Report) {
		for _, t := range s.templates() {
			objects := t.fixedObjects()
			reported := map[int]bool{} // by the object's index
			for _, r := range s.fixedRefs(t) {
				o, ok := objects[r.fixedName]
				if !ok || reported[o.index] {
					continue
				}
				reported[o.index] = true
				namespace := r.namespace
				report(Finding{Place: o.place("metadata", "namespace"), Cause: t.Name + " " + namespace,
					Message: fmt.Sprintf("the namespace %q is fixed: clusterctl replaces it with the user's, but not in what refers to it, such as %s of %s %s", namespace, manifest.FieldPath(r.path...), r.from.GetKind(), r.from.GetName()),
					Fix:     "write namespace: ${NAMESPACE} in both places, or leave it out"})
			}
		}
	},
}

var templateVariableDocumented = Check{
	ID: "template-variable-documented", Group: Templates, Severity: Note,
	Title:  "A template's comments speak of the variables that a user must set",
	Source: sourceTemplateVariables,
	Run: func(s *Subject, report Report) {
		var files []*template
		var missing []string
		for _, t := range s.templates() {
			if names := t.undocumented(); len(names) > 0 {
				files = append(files, t)
				missing = append(missing, names...)
			}
		}
		slices.Sort(missing)
		for _, t := range files {
			report(Finding{Place: s.At(t.Name), Cause: "comments",
				Message: fmt.Sprintf("the files that need them have no comments on what a user must set %s to", few(slices.Compact(missing))),
				Fix:     "describe them at the top of the file, by their names without ${}"})
		}
	},
}

// undocumented returns the variables that a user must set and no comment of the file speaks of.
func (t *template) undocumented() []string {
	common := templates.Guess(nil)
	var names []string
	for _, v := range t.variables {
		if _, isCommon := common[v.Name]; !isCommon && v.Default == nil && !v.Described {
			names = append(names, v.Name)
		}
	}
	return names
}
