package templates

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	clusterv1beta1 "sigs.k8s.io/cluster-api/api/core/v1beta1" //nolint:staticcheck // clusterctl reads Clusters of this version, so they are read here
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/rendered"
	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/templates"
)

const (
	sourceTemplates         = "clusterctl provider contract, Workload cluster templates"
	sourceTemplateNamespace = "clusterctl provider contract, Workload cluster templates, Target namespace"
	sourceTemplateVariables = "clusterctl provider contract, Workload cluster templates, Variables"
)

var templateRendered = checks.Check{
	ID: "template-rendered", Group: checks.Templates, Severity: checks.Error,
	Title:  "Cluster templates and ClusterClasses are YAML once clusterctl has rendered them",
	Source: sourceTemplates,
	Run: rendered.All.Each(func(ctx context.Context, s *checks.Subject, t *rendered.Template, report checks.Report) error {
		if _, err := variableError(t); err != nil {
			return nil // template-variable-syntax reports it
		}
		for _, f := range t.Failures {
			report(renderFinding(t, s, f))
		}
		if len(t.Blocks) > 0 {
			report(blocksFinding(t, s))
		}
		if t.Strict == nil && slices.ContainsFunc(t.Objects, func(o rendered.Object) bool { return o.Raw == nil }) {
			report(checks.Finding{Place: s.At(t.Name), Severity: checks.Note,
				Message: "the file is YAML only once its variables are replaced, and nothing tells which fields have them: those without sample values are not checked",
				Fix:     "give sampleValues in " + release.ConfigFile + ", or let each variable stand for a value of its own"})
		}
		if t.Strict != nil {
			report(strictFinding(t, s))
		}
		if len(t.Failures) == 0 && release.IsClusterTemplate(t.Name) && rendered.MissingClass(s, t) == nil {
			return reportConversion(ctx, t, s, report)
		}
		return nil
	}),
}

// renderFinding says why clusterctl refuses a file.
func renderFinding(t *rendered.Template, s *checks.Subject, f rendered.Failure) checks.Finding {
	place := s.At(t.Name)
	if f.Set != "" {
		return checks.Finding{Place: place, Message: fmt.Sprintf("clusterctl refuses it with the sample values %q: %s", f.Set, rendered.Cause(f.Err)),
			Fix: "fix the template, or the values under sampleValues"}
	}
	return checks.Finding{Place: place, Message: "clusterctl refuses it: " + rendered.Cause(f.Err), Fix: "fix the template; `clusterctl release templates render` shows what clusterctl makes of it"}
}

// blocksFinding says which variables stand for whole parts of a file, so that those parts are not checked.
func blocksFinding(t *rendered.Template, s *checks.Subject) checks.Finding {
	place := s.AtLine(t.Name, t.Blocks[0].Line)
	var names []string
	for _, b := range t.Blocks {
		if text := fmt.Sprintf("%s (line %d)", b.Variable, b.Line); !slices.Contains(names, text) {
			names = append(names, text)
		}
	}
	return checks.Finding{Place: place, Severity: checks.Note,
		Message: fmt.Sprintf("variables stand for whole objects, lists or lines of YAML, which are not checked without values for them: %s", checks.Few(names)),
		Fix:     "give sampleValues in " + release.ConfigFile}
}

// strictFinding says why a reader that is stricter than clusterctl refuses a file.
func strictFinding(t *rendered.Template, s *checks.Subject) checks.Finding {
	f := checks.Finding{Place: s.At(t.Name), Severity: checks.Warning,
		Message: "clusterctl reads the file, and stricter readers don't: once it is rendered, " + t.Strict.Error(),
		Fix:     "fix the YAML; `clusterctl release templates render` shows what clusterctl makes of it"}
	if t.Strict.Beyond {
		f.Severity, f.Message = checks.Error, "once it is rendered, the file is beyond the limits of what is checked: "+t.Strict.Error()
	}
	return f
}

// reportConversion reports Clusters that clusterctl can't read as the Go types that they are for it,
// as where a field is of another type. It says so in clusterctl's words: its client then renders the
// template as users do.
func reportConversion(ctx context.Context, t *rendered.Template, s *checks.Subject, report checks.Report) error {
	flavor, err := release.Flavor(t.Name)
	if err != nil {
		return err
	}
	for _, o := range t.Objects {
		if !isUnreadable(o) {
			continue
		}
		_, open, _ := rendered.SchemaProblems(ctx, s, t, o)
		valid, err := rendered.IsValid(ctx, s, t, o)
		if err != nil {
			return err
		}
		if valid && len(open) > 0 {
			continue // all that is wrong with the object may come of values that were made up
		}
		if _, err := templates.Render(ctx, s.Release, flavor, t.Values); err != nil && ctx.Err() == nil {
			report(checks.Finding{Place: s.At(t.Name), Message: "clusterctl refuses it: " + err.Error(), Fix: "give the field a value of the type that Cluster API has for it"})
		}
		return ctx.Err()
	}
	return nil
}

// isUnreadable says whether the object is a Cluster that does not convert to its Go type.
func isUnreadable(o rendered.Object) bool {
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

var topologyClass = checks.Check{
	ID: "topology-class", Group: checks.Templates, Severity: checks.Error,
	Title:  "clusterctl finds the ClusterClass that a template names",
	Source: "clusterctl provider contract, ClusterClass definitions, Naming conventions",
	Run: rendered.Templates.Each(func(_ context.Context, s *checks.Subject, t *rendered.Template, report checks.Report) error {
		if missing := rendered.MissingClass(s, t); missing != nil {
			report(finding(missing, s, t))
		}
		return nil
	}),
}

// finding returns the finding for a class that is not in the release.
func finding(r *rendered.ClassReference, s *checks.Subject, t *rendered.Template) checks.Finding {
	o, path := r.Cluster, r.Path
	finding := checks.Finding{
		Place:   o.Place(path...),
		Message: fmt.Sprintf("clusterctl looks for the class %q in %s, which the release does not have: the flavor can't be used without a cluster that has the class", r.Name, r.File()),
		Fix:     "publish the class as " + r.File(),
	}
	isInside := slices.ContainsFunc(t.Objects, func(other rendered.Object) bool {
		return other.IsCore("ClusterClass") && t.NameAt(other, "metadata", "name") == t.NameAt(o, path...)
	})
	switch {
	case !o.VariableAt(path...):
		if isInside {
			finding.Message += "; the class in the template itself does not count"
		}
	case isInside && !hasClassFor(s, o, path):
		finding.Message = fmt.Sprintf("no value of %s works: clusterctl looks for the class in a file clusterclass-NAME.yaml or in the cluster, and not in the template itself, which has it", strings.Join(rendered.VariablesIn(fmt.Sprint(o.Published(path...))), ", "))
		finding.Fix = "move the class with its templates to a file clusterclass-NAME.yaml of the release, and let the Cluster name it"
	default:
		finding.Severity = checks.Note
		finding.Message = "the class is the user's to name: clusterctl finds it where it is in the cluster already, or in a file clusterclass-NAME.yaml of the release"
		finding.Fix = "say in the template's comments which classes there are"
	}
	if r.Name == "" {
		finding.Message = "the Cluster has a topology and no class where its apiVersion has it: clusterctl fails as it looks for clusterclass-.yaml"
		finding.Fix = "name the class in spec.topology.classRef.name (v1beta2), or in spec.topology.class (v1beta1)"
	}
	return finding
}

// hasClassFor says whether the release has a file for some value of the variable that names a class.
func hasClassFor(s *checks.Subject, o rendered.Object, path []any) bool {
	text, _ := o.Published(path...).(string)
	return slices.ContainsFunc(s.Release.Files, func(f release.File) bool {
		class, err := release.ClusterClassName(f.Name)
		return err == nil && rendered.MayBe(text, class)
	})
}

var templateNamespaceObject = checks.Check{
	ID: "template-namespace-object", Group: checks.Templates, Severity: checks.Error,
	Title:  "Cluster templates have no Namespace",
	Source: sourceTemplateNamespace,
	Run: rendered.All.EachObject(func(_ context.Context, _ *checks.Subject, _ *rendered.Template, o rendered.Object, report checks.Report) error {
		if o.GetKind() == "Namespace" && o.GetAPIVersion() == "v1" {
			report(checks.Finding{Place: o.Place(),
				Message: "it has a Namespace: a template must assume that the target namespace exists, and who deletes what it made deletes all other clusters in that namespace",
				Fix:     "take the Namespace out"})
		}
		return nil
	}),
}

var templateObjectNamespace = checks.Check{
	ID: "template-object-namespace", Group: checks.Templates, Severity: checks.Warning,
	Title:  "The objects of a template are in the namespace that the user names",
	Source: sourceTemplateNamespace,
	Run: rendered.Templates.Each(func(_ context.Context, s *checks.Subject, t *rendered.Template, report checks.Report) error {
		objects := fixedObjects(t)
		reported := map[int]bool{} // by the object's index
		for _, r := range fixedRefs(s, t) {
			o, ok := objects[r.fixedName]
			if !ok || reported[o.Index] {
				continue
			}
			reported[o.Index] = true
			namespace := r.namespace
			report(checks.Finding{Place: o.Place("metadata", "namespace"), Cause: t.Name + " " + namespace,
				Message: fmt.Sprintf("the namespace %q is fixed: clusterctl replaces it with the user's, but not in what refers to it, such as %s of %s %s", namespace, manifest.FieldPath(r.path...), r.from.GetKind(), r.from.GetName()),
				Fix:     "write namespace: ${NAMESPACE} in both places, or leave it out"})
		}
		return nil
	}),
}

var templateVariableDocumented = checks.Check{
	ID: "template-variable-documented", Group: checks.Templates, Severity: checks.Note,
	Title:  "A template's comments speak of the variables that a user must set",
	Source: sourceTemplateVariables,
	Run: func(ctx context.Context, s *checks.Subject, report checks.Report) error {
		all, err := rendered.Templates.Of(ctx, s)
		if err != nil {
			return err
		}
		var files []*rendered.Template
		var missing []string
		for _, t := range all {
			if names := undocumented(t); len(names) > 0 {
				files = append(files, t)
				missing = append(missing, names...)
			}
		}
		slices.Sort(missing)
		for _, t := range files {
			report(checks.Finding{Place: s.At(t.Name), Cause: "comments",
				Message: fmt.Sprintf("the files that need them have no comments on what a user must set %s to", checks.Few(slices.Compact(missing))),
				Fix:     "describe them at the top of the file, by their names without ${}"})
		}
		return nil
	},
}

// undocumented returns the variables that a user must set and no comment of the file speaks of.
func undocumented(t *rendered.Template) []string {
	common := templates.Guess(nil)
	var names []string
	for _, v := range t.Variables {
		if _, isCommon := common[v.Name]; !isCommon && v.Default == nil && !v.Described {
			names = append(names, v.Name)
		}
	}
	return names
}
