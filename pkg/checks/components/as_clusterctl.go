package components

import (
	"context"
	"slices"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/installed"
	"github.com/clusterctl-release/clusterctl-release/pkg/templates"
)

// standIns are the values that the check tries for variables without a default: a text, an image, a number and a
// boolean.
var standIns = []string{"x", "registry.example.com/x", "1", "true", "eA=="}

// refusals are the checks that report a refusal by clusterctl with its place. A refusal that one of them reports is not
// reported again in clusterctl's words.
var refusals = []*checks.Check{&componentsParse, &variableSyntax, &namespaceSingle, &namespaceMissing, &imageCanonical, &caInjection}

var asClusterctl = checks.Check{
	ID: "as-clusterctl", Group: checks.Components, Severity: checks.Error,
	Title:  "clusterctl's own code accepts the components",
	Source: "clusterctl, NewComponents",
	Ahead:  func(ctx context.Context, s *checks.Subject) { _, _ = refusalOf(ctx, s) },
	Run: func(ctx context.Context, s *checks.Subject, report checks.Report) error {
		file, ok := s.Release.Components()
		if !ok {
			return nil
		}
		refusal, err := refusalOf(ctx, s)
		if refusal == nil || err != nil {
			return err
		}
		if named, err := isNamedByOthers(ctx, s); named || err != nil {
			return err
		}
		report(checks.Finding{
			Place:   s.At(file.Name),
			Message: "clusterctl refuses the file: " + firstLine(refusal.Error()),
			Fix:     "fix what clusterctl names; `clusterctl generate provider` shows the same",
		})
		return nil
	},
}

// refusalOf returns why clusterctl refuses the components YAML for all values of its variables, or nil. It depends only
// on the bytes of the file.
var refusalOf = checks.OnceValues(func(ctx context.Context, s *checks.Subject) (refusal, err error) {
	file, ok := s.Release.Components()
	if !ok {
		return nil, nil
	}
	defaults, refusal := installed.VariableDefaults(s)
	if refusal != nil {
		return refusal, nil
	}
	required := map[string]string{}
	for name, fallback := range defaults {
		if fallback == nil {
			required[name] = ""
		}
	}
	with := func(standIn string) (refusal, err error) {
		for name := range required {
			required[name] = standIn
		}
		_, refusal, err = installed.AsInstalled(ctx, s.Release, file.Data, "", required)
		return refusal, err
	}
	refusal, err = with(standIns[0])
	if refusal == nil || err != nil || len(required) == 0 {
		return refusal, err
	}
	// Each variable may need a different value, so only documents without these variables can be judged.
	_, refusal, err = installed.AsInstalled(ctx, s.Release, withoutVariables(file.Data, required), "target", nil)
	if refusal == nil || err != nil {
		return nil, err
	}
	for _, standIn := range standIns[1:] {
		if other, err := with(standIn); other == nil || err != nil {
			return nil, err
		}
	}
	return refusal, nil
})

// documentSeparator matches the separator between the documents of a file.
const documentSeparator = "\n---"

// withoutVariables returns a file without the documents that use variables of these names.
func withoutVariables(raw []byte, names map[string]string) []byte {
	processor := templates.NewProcessor()
	documents := slices.DeleteFunc(strings.Split(string(raw), documentSeparator), func(document string) bool {
		variables, err := processor.GetVariables([]byte(document))
		return err != nil || slices.ContainsFunc(variables, func(name string) bool {
			_, among := names[name]
			return among
		})
	})
	return []byte(strings.Join(documents, documentSeparator))
}

// isNamedByOthers reports whether one of the checks in refusals reports the refusal.
func isNamedByOthers(ctx context.Context, s *checks.Subject) (bool, error) {
	named := false
	for _, check := range refusals {
		if err := check.Run(ctx, s, func(f checks.Finding) {
			named = named || f.Severity == checks.Error || (f.Severity == "" && check.Severity == checks.Error)
		}); err != nil {
			return false, err
		}
	}
	return named, nil
}

// firstLine shortens an error that contains a whole document.
func firstLine(text string) string {
	const longest = 400
	text, _, _ = strings.Cut(text, "\n")
	if len(text) > longest {
		text = text[:longest] + "..."
	}
	return text
}
