package checks

import (
	"context"
	"slices"
	"strings"

	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/repository"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/templates"
)

// asInstalled returns what clusterctl makes of a components YAML before it installs it. target is a
// namespace to install in, or "" for the file's own. The error is clusterctl's.
func asInstalled(r *release.Release, raw []byte, target string, values map[string]string) (repository.Components, error) {
	client, err := release.ClusterctlConfig(context.Background(), values)
	if err != nil {
		return nil, err
	}
	return repository.NewComponents(repository.ComponentsInput{
		Provider:     config.NewProvider(r.Provider.Name, "", r.Provider.Type),
		ConfigClient: client,
		Processor:    templates.NewProcessor(),
		RawYaml:      raw,
		Options:      repository.ComponentsOptions{Version: r.Version, TargetNamespace: target},
	})
}

// standIns are the values that variables without a default are tried with: which of them fits, a
// text, an image, a number or a truth, is not known.
var standIns = []string{"x", "registry.example.com/x", "1", "true", "eA=="}

// refusals are the checks that name what clusterctl refuses, with its place. What one of them
// reports is not said again in clusterctl's words.
var refusals = []*Check{&componentsParse, &variableSyntax, &namespaceSingle, &namespaceMissing, &imageCanonical, &caInjection}

var asClusterctl = Check{
	ID: "as-clusterctl", Group: Components, Severity: Error,
	Title:  "clusterctl's own code accepts the components",
	Source: "clusterctl, NewComponents",
	Run: func(s *Subject, report Report) {
		file, ok := s.Release.Components()
		if !ok {
			return
		}
		refusal := s.refusal()
		if refusal == nil || explained(s) {
			return
		}
		report(Finding{
			Place:   s.At(file.Name),
			Message: "clusterctl refuses the file: " + firstLine(refusal.Error()),
			Fix:     "fix what clusterctl names; `clusterctl generate provider` shows the same",
		})
	},
}

// refusal returns why clusterctl refuses the components YAML whatever its variables are set to, or
// nil. It reads the release's bytes alone, so it may be worked out while other checks run.
func (s *Subject) refusal() error {
	return s.onceRefusal.get(func() error {
		file, ok := s.Release.Components()
		if !ok {
			return nil
		}
		return s.refusedBy(file.Data)
	})
}

// refusedBy works out what refusal returns.
func (s *Subject) refusedBy(raw []byte) error {
	defaults, err := s.variableDefaults()
	if err != nil {
		return err
	}
	required := map[string]string{}
	for name, fallback := range defaults {
		if fallback == nil {
			required[name] = ""
		}
	}
	with := func(standIn string) error {
		if err := s.Context().Err(); err != nil {
			return err
		}
		for name := range required {
			required[name] = standIn
		}
		_, err := asInstalled(s.Release, raw, "", required)
		return err
	}
	refusal := with(standIns[0])
	if refusal == nil || len(required) == 0 {
		return refusal
	}
	// Each variable may need another value, so only what has none of them can be judged.
	if _, refusal = asInstalled(s.Release, withoutVariables(raw, required), "target", nil); refusal == nil {
		return nil
	}
	for _, standIn := range standIns[1:] {
		if with(standIn) == nil {
			return nil
		}
	}
	return refusal
}

// documentSeparator is between the documents of a file.
const documentSeparator = "\n---"

// withoutVariables returns a file without the documents in which there are variables of these names.
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

// explained says whether a check has already named what clusterctl refuses.
func explained(s *Subject) bool {
	found := false
	for _, check := range refusals {
		check.Run(s, func(f Finding) {
			found = found || f.Severity == Error || (f.Severity == "" && check.Severity == Error)
		})
	}
	return found
}

// firstLine shortens an error that carries a whole document.
func firstLine(text string) string {
	const longest = 400
	text, _, _ = strings.Cut(text, "\n")
	if len(text) > longest {
		text = text[:longest] + "..."
	}
	return text
}
