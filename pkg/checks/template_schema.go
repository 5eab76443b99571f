package checks

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/schemas"
	"github.com/clusterctl-release/clusterctl-release/pkg/templates"
)

const sourceSchema = "Kubernetes documentation, Extend the Kubernetes API with CustomResourceDefinitions, Validation and Field pruning"

var templateSchema = Check{
	ID: "template-schema", Group: Templates, Severity: Warning,
	Title:  "The objects of templates and ClusterClasses are valid by their kinds' schemas",
	Source: sourceSchema,
	Run: func(s *Subject, report Report) {
		for _, t := range append(s.templates(), s.clusterClasses()...) {
			if s.Context().Err() != nil {
				return
			}
			var open []string
			for _, o := range t.objects {
				open = append(open, s.reportSchema(t, o, report)...)
			}
			t.reportOpen(s.At(t.Name), open, report)
		}
	},
}

// reportOpen says once for a file which variables nobody gave a value that their fields allow.
func (t *template) reportOpen(place manifest.Place, variables []string, report Report) {
	if len(variables) == 0 {
		return
	}
	slices.Sort(variables)
	report(Finding{Place: place, Severity: Note,
		Message: fmt.Sprintf("fields that need values of %s could not be checked: no value was found that their schemas allow", few(slices.Compact(variables))),
		Fix:     "give sampleValues in " + release.ConfigFile})
}

// reportSchema holds an object against the schema of its kind, where that is known. What comes of a
// made-up value says nothing of the template: the variables of such fields are returned.
func (s *Subject) reportSchema(t *template, o object, report Report) (open []string) {
	problems, err := o.validate()
	var notServed *schemas.VersionError
	if errors.As(err, &notServed) {
		if !o.variableAt("apiVersion") {
			report(Finding{Place: o.place("apiVersion"),
				Message: fmt.Sprintf("%v: the API server refuses the object", notServed),
				Fix:     "write the object for a version that is served"})
		}
		return nil
	}
	// An error is that of a schema which can't be used at all, which is for the checks of CRDs.
	for _, p := range problems {
		switch {
		case t.guessedAt(o, p):
			open = t.appendGuesses(open, o.published(p.Path...))
		case p.Unknown || !t.isCommonAt(o, p.Path):
			report(s.schemaFinding(o, p))
		}
	}
	return open
}

// schemaFinding says what an API server does with a field.
func (s *Subject) schemaFinding(o object, p schemas.Problem) Finding {
	gvk := o.GroupVersionKind()
	if p.Missing {
		finding := Finding{Place: o.place(p.Path...),
			Message: fmt.Sprintf("the API server refuses the %s: the field is required", gvk.Kind),
			Fix:     "give the field a value",
		}
		if s.mutated(gvk.GroupKind()) {
			finding.Severity = Note
			finding.Message += ", unless a webhook fills it in"
		}
		return finding
	}
	if !p.Unknown {
		finding := Finding{Place: o.place(p.Path...),
			Message: fmt.Sprintf("the API server refuses the %s: %s", gvk.Kind, p.Message),
			Fix:     "give the field a value that the schema of " + gvk.Kind + " " + gvk.Version + " allows"}
		if others := s.versionsWith(gvk.GroupKind(), p.Below); others != "" {
			finding.Message += fmt.Sprintf("; the value is written as %s has it", others)
			finding.Fix = fixVersion(gvk.Version)
		}
		return finding
	}
	finding := Finding{Place: o.place(p.Path...),
		Message: fmt.Sprintf("%s %s has no such field: the API server drops it without a word", gvk.Kind, gvk.Version),
		Fix:     "take the field out, or put it where the schema has it",
	}
	if others := s.versionsWith(gvk.GroupKind(), p.Path); others != "" {
		finding.Message = fmt.Sprintf("%s %s has no such field, but %s has it: the API server drops it without a word", gvk.Kind, gvk.Version, others)
		finding.Cause = gvk.String() + " written for " + others
		finding.Fix = fixVersion(gvk.Version)
	}
	return finding
}

// fixVersion says what to do about an object that is written for another version than its own.
func fixVersion(version string) string {
	return "write the object as " + version + " has it, or give it the apiVersion that it is written for"
}

// versionsWith lists the served versions of a kind that have a field, or returns "".
func (s *Subject) versionsWith(gk schema.GroupKind, path []any) string {
	kind, ok := s.knownKinds().Kind(gk)
	if !ok || path == nil {
		return ""
	}
	return strings.Join(kind.VersionsWith(path), ", ")
}

// mutated says whether a webhook may change the objects of a kind before they are validated.
func (s *Subject) mutated(gk schema.GroupKind) bool {
	if kind, ok := s.knownKinds().Kind(gk); ok && kind.Core {
		return kind.Mutated
	}
	for _, crd := range s.CRDs() {
		if crd.Spec.Group != gk.Group || crd.Spec.Names.Kind != gk.Kind {
			continue
		}
		for _, d := range s.Objects("MutatingWebhookConfiguration") {
			if mutates(d, gk.Group, crd.Spec.Names.Plural) {
				return true
			}
		}
	}
	return false
}

// mutates says whether a webhook configuration is about a resource.
func mutates(d *manifest.Document, group, resource string) bool {
	var c admissionv1.MutatingWebhookConfiguration
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(d.Object.Object, &c); err != nil {
		return true // nobody knows: what is said must be right
	}
	has := func(list []string, wanted string) bool {
		return slices.Contains(list, wanted) || slices.Contains(list, "*")
	}
	for _, webhook := range c.Webhooks {
		for _, rule := range webhook.Rules {
			if has(rule.APIGroups, group) && has(rule.Resources, resource) {
				return true
			}
		}
	}
	return false
}

// variableReference finds the variables of a text.
var variableReference = regexp.MustCompile(`\$\{\s*([A-Za-z_][A-Za-z0-9_]*)`)

// guessedAt says whether a problem may come of a value that was made up: of a variable in the field,
// in one around it or, for what is said of its content, in one below it.
func (t *template) guessedAt(o object, p schemas.Problem) bool {
	if o.raw == nil {
		return !p.Unknown && len(t.guessed) > 0
	}
	if !p.Unknown && t.isHidden(o, p) {
		return true
	}
	var raw, made any = o.raw.Object.Object, o.Object
	for _, step := range p.Path {
		if t.isGuess(raw, made) {
			return true
		}
		fields, _ := raw.(map[string]any)
		var ok bool
		if raw, ok = manifest.Child(raw, step); !ok && slices.ContainsFunc(slices.Collect(maps.Keys(fields)), t.hasGuess) {
			return true // the variable is in a field's name
		}
		made, _ = manifest.Child(made, step)
	}
	return !p.Unknown && t.holdsGuess(raw, made)
}

// isHidden says whether a problem may be gone once a variable has the lines of YAML that it stands for.
func (t *template) isHidden(o object, p schemas.Problem) bool {
	around := p.Path
	if p.Missing && len(around) > 0 {
		around = around[:len(around)-1]
	}
	return slices.ContainsFunc(t.blocks, func(b templates.Block) bool {
		return !b.Value && b.Document == o.raw && len(around) <= len(b.Path) && slices.Equal(around, b.Path[:len(around)])
	})
}

// hasGuess says whether a text has a variable whose value nobody gave.
func (t *template) hasGuess(text string) bool {
	return slices.ContainsFunc(variablesIn(text), func(name string) bool { return t.guessed[name] })
}

// isGuess says whether a value of the published file has a variable whose value nobody gave.
func (t *template) isGuess(raw, made any) bool {
	text, isText := raw.(string)
	if !isText {
		return false
	}
	// A default that is empty is there to be replaced.
	return t.hasGuess(text) || len(variablesIn(text)) > 0 && (made == nil || made == "")
}

// isCommonAt says whether a field has a variable that clusterctl sets, with a value that nobody gave.
func (t *template) isCommonAt(o object, path []any) bool {
	text, _ := o.published(path...).(string)
	return slices.ContainsFunc(variablesIn(text), func(name string) bool { return t.common[name] })
}

// appendGuesses appends the variables without values in a value of the published file.
func (t *template) appendGuesses(names []string, raw any) []string {
	manifest.Walk(raw, nil, func(_ []any, value any) bool {
		text, _ := value.(string)
		for _, name := range variablesIn(text) {
			if t.guessed[name] {
				names = append(names, name)
			}
		}
		return true
	})
	return names
}

// holdsGuess says whether a value, or one below it, was made up.
func (t *template) holdsGuess(raw, made any) bool {
	holds := false
	manifest.Walk(raw, nil, func(path []any, value any) bool {
		isNamed := len(path) > 0 && t.hasGuess(manifest.FieldName(path[len(path)-1:]))
		holds = holds || isNamed || t.isGuess(value, manifest.At(made, path...))
		return !holds
	})
	return holds
}
