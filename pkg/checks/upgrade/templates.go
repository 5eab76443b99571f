package upgrade

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/installed"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/rendered"
	"github.com/clusterctl-release/clusterctl-release/pkg/diff"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/schemas"
	"github.com/clusterctl-release/clusterctl-release/pkg/templates"
	"github.com/clusterctl-release/clusterctl-release/pkg/topology"
)

const sourceClassChange = "Cluster API book, ClusterClass, Changing a ClusterClass"

var variableAdded = upgradeCheck("variable-added", checks.Error, "An upgrade requires no new values", "clusterctl provider contract, Components YAML, Variables",
	func(_ context.Context, s *checks.Subject, u *upgrade, report checks.Report) error {
		before, errBefore := installed.VariableDefaults(u.before)
		after, err := installed.VariableDefaults(s)
		if err == nil && errBefore == nil && hasComponents(s) && hasComponents(u.before) {
			for _, c := range diff.Variables(s.Release.Provider.ComponentsFile(), before, after) {
				if !c.Demanded() {
					continue
				}
				report(checks.Finding{Place: s.AtLine(s.Release.Provider.ComponentsFile(), lineOf(s, c.Name)),
					Message: fmt.Sprintf("%s must now be set: clusterctl upgrade fails without it, after the managers are scaled down", c.Name),
					Fix:     fmt.Sprintf("give it a default that keeps the old behaviour, as ${%s:=...}", c.Name)})
			}
		}
		reportTemplateVariables(s, report)
		return nil
	})

func hasComponents(s *checks.Subject) bool {
	_, ok := s.Release.Components()
	return ok
}

// lineOf returns the line of the first use of a variable in the components, or 0.
func lineOf(s *checks.Subject, variable string) int {
	for _, use := range installed.Variables(s) {
		if use.Name == variable {
			return use.Line
		}
	}
	return 0
}

// reportTemplateVariables reports the variables that the templates newly require.
func reportTemplateVariables(s *checks.Subject, report checks.Report) {
	for _, f := range s.Release.Files {
		previous, ok := s.Previous.File(f.Name)
		if !ok || !release.IsClusterTemplate(f.Name) {
			continue
		}
		now, err := templates.Variables(f)
		old, errBefore := templates.Variables(previous)
		if err != nil || errBefore != nil {
			continue // template-rendered reports it
		}
		known := templates.Guess(nil)
		for _, c := range diff.Variables(f.Name, defaultsOf(old), defaultsOf(now)) {
			if _, common := known[c.Name]; common || !c.Demanded() {
				continue
			}
			place := s.At(f.Name)
			if i := slices.IndexFunc(now, func(v templates.Variable) bool { return v.Name == c.Name }); len(now[i].Lines) > 0 {
				place.Line = now[i].Lines[0]
			}
			report(checks.Finding{Place: place, Severity: checks.Warning,
				Message: fmt.Sprintf("%s must now be set: scripts that generate clusters with the previous values fail", c.Name),
				Fix:     fmt.Sprintf("give it a default, as ${%s:=...}, or publish the template as another flavor", c.Name)})
		}
	}
}

// defaultsOf returns variables by their names.
func defaultsOf(variables []templates.Variable) map[string]*string {
	defaults := map[string]*string{}
	for _, v := range variables {
		defaults[v.Name] = v.Default
	}
	return defaults
}

var flavorRemoved = upgradeCheck("flavor-removed", checks.Warning, "No flavor and no ClusterClass is missing", "clusterctl provider contract, Workload cluster templates",
	func(_ context.Context, s *checks.Subject, _ *upgrade, report checks.Report) error {
		for _, f := range s.Previous.Files {
			if _, ok := s.Release.File(f.Name); ok {
				continue
			}
			var what string
			if flavor, err := release.Flavor(f.Name); err == nil {
				what = fmt.Sprintf("flavor %s (%s)", flavor, f.Name)
				if flavor == "" {
					what = "the default flavor (" + f.Name + ")"
				}
			} else if class, err := release.ClusterClassName(f.Name); err == nil {
				what = fmt.Sprintf("ClusterClass %s (%s)", class, f.Name)
			} else {
				continue
			}
			report(checks.Finding{Place: s.At(""),
				Message: fmt.Sprintf("%s of the previous release was removed: clusterctl generate cluster fails for its users, unless they name the older version", what),
				Fix:     "keep the file for a release or two, or name its replacement in the release notes"})
		}
		return nil
	})

var classChanged = upgradeCheck("class-changed", checks.Error, "A ClusterClass can replace the previous one", sourceClassChange,
	func(ctx context.Context, s *checks.Subject, u *upgrade, report checks.Report) error {
		classes, err := rendered.Classes.Of(ctx, s)
		if err != nil {
			return err
		}
		classesBefore, err := rendered.Classes.Of(ctx, u.before)
		if err != nil {
			return err
		}
		for _, t := range classes {
			before := slices.IndexFunc(classesBefore, func(o *rendered.Template) bool { return o.Name == t.Name })
			if before < 0 {
				continue
			}
			for _, o := range t.Objects {
				for _, old := range classesBefore[before].Objects {
					if old.GetName() != o.GetName() || old.GroupVersionKind().GroupKind() != o.GroupVersionKind().GroupKind() {
						continue
					}
					if o.IsCore("ClusterClass") {
						if err := reportClassChange(ctx, old, o, report); err != nil {
							return err
						}
					} else if strings.HasSuffix(o.GetKind(), clusterv1.TemplateSuffix) && !equality.Semantic.DeepEqual(old.Object["spec"], o.Object["spec"]) {
						report(checks.Finding{Place: o.Place("spec"), Severity: checks.Warning,
							Message: "the template changed under its old name: the new class is refused if the kind is immutable, else all machines of all Clusters of the class are replaced",
							Fix:     "give a changed template a new name, and refer to it in the class"})
					}
				}
			}
		}
		return nil
	})

// reportClassChange lets the webhook judge a class as an update of the previous one, and compares the variables that
// Clusters of the class may have set.
func reportClassChange(ctx context.Context, before, after rendered.Object, report checks.Report) error {
	old, errBefore := topology.Class(ctx, &before.Unstructured)
	now, err := topology.Class(ctx, &after.Unstructured)
	if err != nil || errBefore != nil {
		return ctx.Err() // template-schema reports it
	}
	always, inUse, err := topology.AdmitUpdate(ctx, old, now)
	if err != nil {
		return err
	}
	say := func(problems []metav1.StatusCause, severity checks.Severity, when string) {
		for _, p := range problems {
			report(checks.Finding{Place: after.Place(schemas.Steps(after.Object, p.Field)...), Severity: severity,
				Message: fmt.Sprintf("Cluster API's webhook refuses the class as an update of the previous one%s: %s", when, strings.TrimSuffix(p.Message, ".")),
				Fix:     "publish it under another name (and file name), to which users rebase their Clusters"})
		}
	}
	say(always, checks.Error, "")
	say(inUse, checks.Warning, " while Clusters use a removed part")
	changes, err := classVariables(ctx, old, now)
	for _, f := range changes {
		f.Place = after.Place("spec", "variables")
		f.Severity = checks.Warning
		f.Fix = "keep values valid that Clusters may have set, or publish the class under another name"
		report(f)
	}
	return err
}

// classVariables describes the variables for which Clusters of a class are refused after its change.
func classVariables(ctx context.Context, before, after *clusterv1.ClusterClass) (found []checks.Finding, err error) {
	say := func(format string, args ...any) {
		found = append(found, checks.Finding{Message: fmt.Sprintf(format, args...)})
	}
	old := map[string]*clusterv1.ClusterClassVariable{}
	for i, v := range before.Spec.Variables {
		old[v.Name] = &before.Spec.Variables[i]
	}
	for _, v := range after.Spec.Variables {
		was := old[v.Name]
		delete(old, v.Name)
		required := ptr.Deref(v.Required, false) && v.Schema.OpenAPIV3Schema.Default == nil
		if required && (was == nil || !ptr.Deref(was.Required, false) || was.Schema.OpenAPIV3Schema.Default != nil) {
			say("the variable %s is now required and has no default: Clusters of the class without it are not reconciled any more", v.Name)
		}
		if was == nil {
			continue
		}
		schemaBefore, err := asProps(was.Schema.OpenAPIV3Schema)
		if err != nil {
			return nil, err
		}
		schema, err := asProps(v.Schema.OpenAPIV3Schema)
		if err != nil {
			return nil, err
		}
		for _, c := range diff.Schemas(schemaBefore, schema) {
			name := strings.TrimSuffix(v.Name+"."+c.Field, ".")
			if what := variableNarrowing(ctx, c); what != "" {
				say("the variable %s: %s: Clusters with other values are not reconciled any more", name, what)
			}
		}
	}
	for _, v := range before.Spec.Variables {
		if old[v.Name] != nil {
			say("the variable %s was removed: Clusters that set it are not reconciled any more", v.Name)
		}
	}
	return found, nil
}

// variableNarrowing describes the values that a variable's schema newly refuses; "" means none.
func variableNarrowing(ctx context.Context, c diff.SchemaChange) string {
	switch {
	case c.Closes() && c.Kind == diff.FieldRemoved:
		return "the field was removed"
	case c.Narrows == diff.Widens:
		return ""
	case c.Kind == diff.FieldRequired, c.Kind == diff.FieldAdded:
		return "the field is now required and has no default"
	case c.Kind == diff.FieldEnum:
		if gone, all := c.RemovedValues(); !all {
			return "it can't be " + strings.Join(gone, " or ") + " any more"
		}
		return "it must be one of " + c.After
	}
	if severity, what := narrowing(ctx, c); severity != checks.Note {
		return what
	}
	return ""
}

// asProps returns a variable's schema as the schema of a CRD, which has the same fields.
func asProps(schema clusterv1.JSONSchemaProps) (*apiextensionsv1.JSONSchemaProps, error) {
	props := &apiextensionsv1.JSONSchemaProps{}
	data, err := json.Marshal(schema)
	if err != nil {
		return nil, fmt.Errorf("convert the schema of a variable: %w", err)
	}
	return props, json.Unmarshal(data, props)
}
