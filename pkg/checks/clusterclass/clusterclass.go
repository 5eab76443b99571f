package clusterclass

import (
	"context"
	"fmt"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/rendered"
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

var clusterClassFileName = checks.Check{
	ID: "clusterclass-file-name", Group: checks.ClusterClass, Severity: checks.Error,
	Title:  "A ClusterClass is in the file with its name",
	Source: sourceClassNames,
	Run: func(ctx context.Context, s *checks.Subject, report checks.Report) error {
		classes, err := rendered.Classes.Of(ctx, s)
		if err != nil {
			return err
		}
		for _, t := range classes {
			wanted, err := release.ClusterClassName(t.Name)
			if err != nil || len(t.Failures) > 0 {
				continue
			}
			if finding := wrongClass(t, wanted); finding != nil {
				finding.Place = s.At(t.Name)
				report(*finding)
			}
		}
		clusterTemplates, err := rendered.Templates.Of(ctx, s)
		if err != nil {
			return err
		}
		for _, t := range clusterTemplates {
			for _, o := range t.Objects {
				if o.IsCore("ClusterClass") && rendered.MissingClass(s, t) == nil {
					report(classInTemplate(t, o))
				}
			}
		}
		return nil
	},
}

// wrongClass returns the defect in the names of the classes in a file that clusterctl reads for the class wanted, or
// nil.
func wrongClass(t *rendered.Template, wanted string) *checks.Finding {
	var names []string
	severity := checks.Error
	for _, o := range t.Objects {
		if !o.IsCore("ClusterClass") {
			continue
		}
		name := t.NameAt(o, "metadata", "name")
		if rendered.MayBe(name, wanted) {
			return nil
		}
		if published, ok := o.Published("metadata", "name").(string); ok && rendered.MayBe(published, wanted) {
			severity = checks.Warning // the default counts unless the user sets the variable
		}
		names = append(names, name)
	}
	message := fmt.Sprintf("the file has no ClusterClass %q, which clusterctl looks for in it", wanted)
	if len(names) > 0 {
		message += ", but " + strings.Join(names, ", ")
	}
	return &checks.Finding{Severity: severity, Message: message, Fix: "rename the file to clusterclass-NAME.yaml, where NAME is the name of the class"}
}

// classInTemplate returns the finding for a ClusterClass in a cluster template. Users have to apply a template without
// a Cluster before they use other flavors.
func classInTemplate(t *rendered.Template, o rendered.Object) checks.Finding {
	if len(t.ClusterNames()) == 0 {
		return checks.Finding{Place: o.Place(), Severity: checks.Note,
			Message: "a ClusterClass in a cluster template without a Cluster: users have to generate and apply it before the flavors that name the class, because clusterctl does not look for the class here",
			Fix:     "move it to clusterclass-NAME.yaml, where NAME is the name of the class, or document both steps"}
	}
	return checks.Finding{Place: o.Place(), Severity: checks.Warning,
		Message: "a ClusterClass inside a cluster template: it is applied again with every cluster, and clusterctl does not find it for other flavors",
		Fix:     "move it to clusterclass-" + t.NameAt(o, "metadata", "name") + ".yaml"}
}

var clusterClassVariables = checks.Check{
	ID: "clusterclass-variables", Group: checks.ClusterClass, Severity: checks.Warning,
	Title:  "ClusterClass definitions have no clusterctl variables",
	Source: sourceClassVariables,
	Run: rendered.Classes.Each(func(_ context.Context, s *checks.Subject, t *rendered.Template, report checks.Report) error {
		variables, err := templates.Variables(t.File)
		if err != nil {
			return nil // template-rendered reports it
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
			report(checks.Finding{Place: place,
				Message: fmt.Sprintf("clusterctl replaces the variables %s: all clusters of the class get the values of its first user", checks.Few(names)),
				Fix:     "make them variables of the ClusterClass"})
		}
		return nil
	}),
}

var clusterClassNamespace = checks.Check{
	ID: "clusterclass-namespace", Group: checks.ClusterClass, Severity: checks.Warning,
	Title:  "The objects of a ClusterClass have no namespace",
	Source: sourceClassNamespace,
	Run: rendered.Classes.EachObject(func(_ context.Context, _ *checks.Subject, _ *rendered.Template, o rendered.Object, report checks.Report) error {
		if o.GetNamespace() == "" {
			return nil
		}
		report(checks.Finding{Place: o.Place("metadata", "namespace"), Cause: o.GetNamespace(),
			Message: fmt.Sprintf("the object has the namespace %q: clusterctl puts a class into the namespace that the user names", o.GetNamespace()),
			Fix:     "remove the namespace"})
		return nil
	}),
}

var clusterClassRefNamespace = checks.Check{
	ID: "clusterclass-ref-namespace", Group: checks.ClusterClass, Severity: checks.Warning,
	Title:  "The references of a ClusterClass have no namespace",
	Source: sourceClassNamespace,
	Run: eachReference(func(_ *rendered.Template, o rendered.Object, r rendered.Reference, report checks.Report) {
		if r.Namespace != "" {
			report(checks.Finding{Place: o.Place(append(r.Path, "namespace")...), Cause: r.Namespace,
				Message: fmt.Sprintf("the reference to %s %s has the namespace %q: the class doesn't work in another namespace", r.Kind, r.Name, r.Namespace),
				Fix:     "remove the namespace"})
		}
	}),
}

var clusterClassRefResolves = checks.Check{
	ID: "clusterclass-ref-resolves", Group: checks.ClusterClass, Severity: checks.Warning,
	Title:  "The templates that a ClusterClass refers to are in its file",
	Source: sourceClass,
	Run: eachReference(func(t *rendered.Template, o rendered.Object, r rendered.Reference, report checks.Report) {
		if !t.Has(o, r) {
			report(checks.Finding{Place: o.Place(append(r.Path, "name")...),
				Message: fmt.Sprintf("the file has no %s %s: it must contain all objects that the class refers to", r.Kind, t.NameAt(o, manifest.Join(r.Path, "name")...)),
				Fix:     "add the object to " + t.Name + ", or correct the name"})
		}
	}),
}

// eachReference returns a RunFunc that calls look for every reference of every ClusterClass.
func eachReference(look func(t *rendered.Template, o rendered.Object, r rendered.Reference, report checks.Report)) checks.RunFunc {
	return rendered.Classes.EachObject(func(_ context.Context, _ *checks.Subject, t *rendered.Template, o rendered.Object, report checks.Report) error {
		if o.IsCore("ClusterClass") {
			for _, r := range rendered.References(o.Object["spec"], []any{"spec"}) {
				look(t, o, r, report)
			}
		}
		return nil
	})
}

var clusterClassShared = checks.Check{
	ID: "clusterclass-shared", Group: checks.ClusterClass, Severity: checks.Warning,
	Title:  "No object belongs to more than one ClusterClass",
	Source: sourceClassNamespace,
	Run: func(ctx context.Context, s *checks.Subject, report checks.Report) error {
		first := map[string]string{} // the first file with the object
		classes, err := rendered.Classes.Of(ctx, s)
		if err != nil {
			return err
		}
		for _, t := range classes {
			for _, o := range t.Objects {
				if o.IsOfCluster("metadata", "name") {
					continue // each cluster has its own class and objects
				}
				key := o.GroupVersionKind().GroupKind().String() + " " + t.NameAt(o, "metadata", "name")
				if other, ok := first[key]; ok && other != t.Name {
					report(checks.Finding{Place: o.Place("metadata", "name"), Cause: other + " " + t.Name,
						Message: fmt.Sprintf("%s has an object of the same kind and name: a change for one class changes the clusters of the other", other),
						Fix:     "give each class its own objects"})
					continue
				}
				first[key] = t.Name
			}
		}
		return nil
	},
}
