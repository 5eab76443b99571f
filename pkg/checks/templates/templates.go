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
	Title:  "Cluster templates and ClusterClasses are valid YAML after clusterctl has rendered them",
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
				Message: "the file is YAML only after its variables are replaced, so the fields of the variables are unknown: those without sample values are not checked",
				Fix:     "add sampleValues in " + release.ConfigFile + ", or let each variable be a single value"})
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

// renderFinding returns the finding for a file that clusterctl refuses.
func renderFinding(t *rendered.Template, s *checks.Subject, f rendered.Failure) checks.Finding {
	place := s.At(t.Name)
	if f.Set != "" {
		return checks.Finding{Place: place, Message: fmt.Sprintf("clusterctl refuses it with the sample values %q: %s", f.Set, rendered.Cause(f.Err)),
			Fix: "fix the template, or the values under sampleValues"}
	}
	return checks.Finding{Place: place, Message: "clusterctl refuses it: " + rendered.Cause(f.Err), Fix: "fix the template; `clusterctl release templates render` shows the result"}
}

// blocksFinding names the variables that stand for whole parts of a file, which are not checked.
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
		Fix:     "add sampleValues in " + release.ConfigFile}
}

// strictFinding returns the finding for a file that a stricter reader than clusterctl refuses.
func strictFinding(t *rendered.Template, s *checks.Subject) checks.Finding {
	f := checks.Finding{Place: s.At(t.Name), Severity: checks.Warning,
		Message: "clusterctl reads the file, but stricter readers don't: after rendering, " + t.Strict.Error(),
		Fix:     "fix the YAML; `clusterctl release templates render` shows the result"}
	if t.Strict.Beyond {
		f.Severity, f.Message = checks.Error, "the rendered file exceeds the limits of this tool: "+t.Strict.Error()
	}
	return f
}

// reportConversion reports Clusters that clusterctl can't convert to its Go types, for example because of a field with
// another type. It uses clusterctl's words, because it renders the template with clusterctl's client as users do.
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
			continue // every problem of the object may come from generated values
		}
		if _, err := templates.Render(ctx, s.Release, flavor, t.Values); err != nil && ctx.Err() == nil {
			report(checks.Finding{Place: s.At(t.Name), Message: "clusterctl refuses it: " + err.Error(), Fix: "set the field to a value of its type in Cluster API"})
		}
		return ctx.Err()
	}
	return nil
}

// isUnreadable reports whether the object is a Cluster that does not convert to its Go type.
func isUnreadable(o rendered.Object) bool {
	if o.GroupVersionKind().Group != clusterv1.GroupVersion.Group || o.GetKind() != "Cluster" {
		return false
	}
	typed, err := clusters.New(o.GroupVersionKind())
	if err != nil {
		return false // a version that clusterctl does not read either
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
		Message: fmt.Sprintf("clusterctl looks for the class %q in %s, which the release does not have: the flavor works only in a cluster that has the class", r.Name, r.File()),
		Fix:     "publish the class as " + r.File(),
	}
	isInside := slices.ContainsFunc(t.Objects, func(other rendered.Object) bool {
		return other.IsCore("ClusterClass") && t.NameAt(other, "metadata", "name") == t.NameAt(o, path...)
	})
	switch {
	case !o.VariableAt(path...):
		if isInside {
			finding.Message += "; clusterctl ignores the class in the template itself"
		}
	case isInside && !hasClassFor(s, o, path):
		finding.Message = fmt.Sprintf("no value of %s works: clusterctl looks for the class in a file clusterclass-NAME.yaml or in the cluster, but the class is in the template itself", strings.Join(rendered.VariablesIn(fmt.Sprint(o.Published(path...))), ", "))
		finding.Fix = "move the class with its templates to a file clusterclass-NAME.yaml of the release, and name it in the Cluster"
	default:
		finding.Severity = checks.Note
		finding.Message = "the user names the class: clusterctl finds it in the cluster, or in a file clusterclass-NAME.yaml of the release"
		finding.Fix = "list the available classes in the template's comments"
	}
	if r.Name == "" {
		finding.Message = "the Cluster has a topology without a class in the field of its apiVersion: clusterctl fails because it looks for clusterclass-.yaml"
		finding.Fix = "name the class in spec.topology.classRef.name (v1beta2), or in spec.topology.class (v1beta1)"
	}
	return finding
}

// hasClassFor reports whether the release has a file for some value of the variable that names a class.
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
				Message: "the template has a Namespace: a template must assume that the target namespace exists, and deleting its objects deletes all other clusters in that namespace",
				Fix:     "remove the Namespace"})
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
				Message: fmt.Sprintf("the namespace %q is fixed: clusterctl replaces it with the user's, but not in references to the object, such as %s of %s %s", namespace, manifest.FieldPath(r.path...), r.from.GetKind(), r.from.GetName()),
				Fix:     "write namespace: ${NAMESPACE} in both places, or remove it"})
		}
		return nil
	}),
}

var templateVariableDocumented = checks.Check{
	ID: "template-variable-documented", Group: checks.Templates, Severity: checks.Note,
	Title:  "A template's comments document the variables that a user must set",
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
				Message: fmt.Sprintf("the files with these variables have no comments that explain the values of %s", checks.Few(slices.Compact(missing))),
				Fix:     "describe them at the top of the file, with their names without ${}"})
		}
		return nil
	},
}

// undocumented returns the variables that a user must set and that no comment of the file mentions.
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
