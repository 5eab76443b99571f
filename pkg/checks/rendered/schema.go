package rendered

import (
	"context"
	"errors"
	"maps"
	"regexp"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/installed"
	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
	"github.com/clusterctl-release/clusterctl-release/pkg/schemas"
	"github.com/clusterctl-release/clusterctl-release/pkg/templates"
)

// SchemaProblems returns the problems of an object by the schema of its kind, as an API server reports them, if the
// kind is known. A problem that may come from a generated value says nothing about the template, so open names the
// variables of such fields instead. The error is a schemas.VersionError, or that of the context.
func SchemaProblems(ctx context.Context, s *checks.Subject, t *Template, o Object) (problems []schemas.Problem, open []string, err error) {
	all, err := o.validate()
	var notServed *schemas.VersionError
	switch {
	case errors.As(err, &notServed) && !o.VariableAt("apiVersion"):
		return nil, nil, notServed
	case err != nil:
		// Any other error means that the schema is unusable, which the checks of CRDs report.
		return nil, nil, ctx.Err()
	}
	for _, p := range all {
		switch {
		case t.guessed(o, p):
			open = t.appendGuesses(open, o.Published(p.Path...))
		case p.Unknown || !t.isCommonAt(o, p.Path):
			problems = append(problems, p)
		}
	}
	return problems, open, nil
}

// IsValid reports whether an object passes the schema of its kind. An invalid object never reaches a webhook, and a
// webhook would report its lost fields again.
func IsValid(ctx context.Context, s *checks.Subject, t *Template, o Object) (bool, error) {
	problems, _, err := SchemaProblems(ctx, s, t, o)
	var notServed *schemas.VersionError
	if errors.As(err, &notServed) {
		return false, nil
	}
	return !slices.ContainsFunc(problems, func(p schemas.Problem) bool { return !MayBeFilledIn(s, o, p) }), err
}

// MayBeFilledIn reports whether a webhook may set the field that an object lacks.
func MayBeFilledIn(s *checks.Subject, o Object, p schemas.Problem) bool {
	return p.Missing && Mutated(s, o.GroupVersionKind().GroupKind())
}

// Mutated reports whether a webhook may change the objects of a kind before they are validated.
func Mutated(s *checks.Subject, gk schema.GroupKind) bool {
	if kind, ok := s.KnownKinds().Kind(gk); ok && kind.Core {
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

// mutates reports whether a webhook configuration matches a resource.
func mutates(d *manifest.Document, group, resource string) bool {
	var c admissionv1.MutatingWebhookConfiguration
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(d.Object.Object, &c); err != nil {
		return true // unknown: report no wrong finding
	}
	for _, webhook := range c.Webhooks {
		for _, rule := range webhook.Rules {
			if installed.Has(rule.APIGroups, group) && installed.Has(rule.Resources, resource) {
				return true
			}
		}
	}
	return false
}

// variableReference matches the variables of a text.
var variableReference = regexp.MustCompile(`\$\{\s*([A-Za-z_][A-Za-z0-9_]*)`)

// GuessedAt reports whether the content of a field may come from a generated value.
func (t *Template) GuessedAt(o Object, path ...any) bool {
	return t.guessed(o, schemas.Problem{Path: path})
}

// guessed reports whether a problem may come from a generated value: of a variable in the field, in a parent or, for
// problems of its content, in a field below it.
func (t *Template) guessed(o Object, p schemas.Problem) bool {
	if o.Raw == nil {
		return !p.Unknown && len(t.Guessed) > 0
	}
	if !p.Unknown && t.isHidden(o, p) {
		return true
	}
	var raw, made any = o.Raw.Object.Object, o.Object
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
	return !p.Unknown && t.HoldsGuess(raw, made)
}

// isHidden reports whether a problem may disappear once a variable has its lines of YAML.
func (t *Template) isHidden(o Object, p schemas.Problem) bool {
	around := p.Path
	if p.Missing && len(around) > 0 {
		around = around[:len(around)-1]
	}
	return slices.ContainsFunc(t.Blocks, func(b templates.Block) bool {
		return !b.Value && b.Document == o.Raw && len(around) <= len(b.Path) && slices.Equal(around, b.Path[:len(around)])
	})
}

// hasGuess reports whether a text has a variable with a generated value.
func (t *Template) hasGuess(text string) bool {
	return slices.ContainsFunc(VariablesIn(text), func(name string) bool { return t.Guessed[name] })
}

// isGuess reports whether a value of the published file has a variable with a generated value.
func (t *Template) isGuess(raw, made any) bool {
	text, isText := raw.(string)
	if !isText {
		return false
	}
	// An empty default has to be replaced.
	return t.hasGuess(text) || len(VariablesIn(text)) > 0 && (made == nil || made == "")
}

// isCommonAt reports whether a field has a variable that clusterctl sets, with a generated value.
func (t *Template) isCommonAt(o Object, path []any) bool {
	text, _ := o.Published(path...).(string)
	return slices.ContainsFunc(VariablesIn(text), func(name string) bool { return t.common[name] })
}

// appendGuesses appends the variables without values in a value of the published file.
func (t *Template) appendGuesses(names []string, raw any) []string {
	manifest.Walk(raw, nil, func(_ []any, value any) bool {
		text, _ := value.(string)
		for _, name := range VariablesIn(text) {
			if t.Guessed[name] {
				names = append(names, name)
			}
		}
		return true
	})
	return names
}

// HoldsGuess reports whether a value, or one below it, is generated.
func (t *Template) HoldsGuess(raw, made any) bool {
	holds := false
	manifest.Walk(raw, nil, func(path []any, value any) bool {
		isNamed := len(path) > 0 && t.hasGuess(manifest.FieldName(path[len(path)-1:]))
		holds = holds || isNamed || t.isGuess(value, manifest.At(made, path...))
		return !holds
	})
	return holds
}
