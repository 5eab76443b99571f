package components

import (
	"context"
	"fmt"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/installed"
	"github.com/clusterctl-release/clusterctl-release/pkg/templates"
)

const sourceVariables = "clusterctl provider contract, Components YAML, Variables"

var variableSyntax = checks.Check{
	ID: "variable-syntax", Group: checks.Components, Severity: checks.Error,
	Title:  "Variables have the syntax of clusterctl",
	Source: sourceVariables,
	Run: func(_ context.Context, s *checks.Subject, report checks.Report) error {
		file, _ := s.Release.Components()
		if _, err := installed.VariableDefaults(s); err == nil {
			return nil
		}
		if line, err := templates.VariableError(file.Data); err != nil {
			report(checks.Finding{
				Place:   s.AtLine(s.Release.Provider.ComponentsFile(), line),
				Message: fmt.Sprintf("clusterctl can't read a variable here, and refuses the whole file: %v", err),
				Fix:     "write ${NAME} or ${NAME:=default}, and $${...} for text that isn't a variable",
			})
		}
		return nil
	},
}

var variableDefault = checks.Check{
	ID: "variable-default", Group: checks.Components, Severity: checks.Warning,
	Title:  "Defaults of variables take effect and are consistent",
	Source: sourceVariables,
	Run: func(_ context.Context, s *checks.Subject, report checks.Report) error {
		first := map[string]installed.VariableUse{}
		for _, use := range installed.Variables(s) {
			if use.EmptyDefault {
				report(checks.Finding{
					Place:   s.AtLine(s.Release.Provider.ComponentsFile(), use.Line),
					Message: fmt.Sprintf("the default of %s is empty, which clusterctl treats as no default: it requires a value from every user", use.Name),
					Fix:     fmt.Sprintf(`write ${%s:=""} for an empty text`, use.Name),
				})
			}
			before, seen := first[use.Name]
			if !seen {
				first[use.Name] = use
				continue
			}
			if message := installed.Disagreement(before, use); message != "" {
				report(checks.Finding{Place: s.AtLine(s.Release.Provider.ComponentsFile(), use.Line), Message: message, Fix: "use the same default wherever the variable is used"})
			}
		}
		return nil
	},
}

var variablePrefix = checks.Check{
	ID: "variable-prefix", Group: checks.Components, Severity: checks.Note,
	Title:  "Variables begin with the provider's name",
	Source: sourceVariables,
	Run: func(_ context.Context, s *checks.Subject, report checks.Report) error {
		var names []string
		seen := map[string]bool{}
		line := 0
		for _, use := range installed.Variables(s) {
			if !seen[use.Name] && !isPrefixed(use.Name, s.Release.Provider.Name) {
				seen[use.Name] = true
				names = append(names, use.Name)
				if line == 0 {
					line = use.Line
				}
			}
		}
		if len(names) > 0 {
			report(checks.Finding{
				Place:   s.AtLine(s.Release.Provider.ComponentsFile(), line),
				Message: fmt.Sprintf("%s: other providers with the same configuration may have variables of that name", checks.Few(names)),
				Fix:     "start the names of variables with the provider's name",
			})
		}
		return nil
	},
}

// isPrefixed reports whether a variable's name is distinct from those of other providers: it contains the provider's
// name or an acronym such as CAP...; EXP_ and CLUSTER_ names are Cluster API's own feature gates, which providers
// share.
func isPrefixed(variable, provider string) bool {
	for _, prefix := range []string{"CA", "EXP_", "CLUSTER_"} {
		if strings.HasPrefix(variable, prefix) {
			return true
		}
	}
	letters := strings.ToUpper(strings.ReplaceAll(provider, "-", ""))
	variable = strings.ReplaceAll(variable, "_", "")
	for _, part := range append(strings.Split(strings.ToUpper(provider), "-"), letters) {
		if part != "" && strings.Contains(variable, part) {
			return true
		}
	}
	return false
}
