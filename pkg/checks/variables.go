package checks

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
	"github.com/clusterctl-release/clusterctl-release/pkg/templates"
)

const sourceVariables = "clusterctl provider contract, Components YAML, Variables"

// variableUse is a variable on a line of the components.
type variableUse struct {
	name string
	// fallback is what stands where the variable is not set; nil isn't a default, or an empty one.
	fallback *string
	line     int
	// emptyDefault says that a default is written, and is empty.
	emptyDefault bool
}

// errNotSet is what the processor hears of a variable that nobody set.
var errNotSet = errors.New("not set")

// variableDefaults returns the variables of the components with what clusterctl takes for their
// defaults, which are those of the first place; nil is none. The error is clusterctl's.
func (s *Subject) variableDefaults() (map[string]*string, error) {
	d := s.onceDefaults.get(func() (d variableDefaults) {
		file, _ := s.Release.Components()
		d.byName, d.err = templates.NewProcessor().GetVariableMap(file.Data)
		return d
	})
	return d.byName, d.err
}

// variableDefaults are the defaults of variables, or why clusterctl can't read them.
type variableDefaults struct {
	byName map[string]*string
	err    error
}

// variables returns the uses of variables in the components, line by line.
func (s *Subject) variables() []variableUse {
	return s.onceVariables.get(func() (uses []variableUse) {
		file, _ := s.Release.Components()
		// Nothing is said of a file that clusterctl refuses as a whole; variable-syntax names it.
		if known, err := s.variableDefaults(); err != nil || len(known) == 0 {
			return nil
		}
		for i, line := range bytes.Split(file.Data, []byte("\n")) {
			if bytes.Contains(line, []byte("${")) {
				uses = append(uses, variablesOf(line, i+1)...)
			}
		}
		return uses
	})
}

// usePattern finds the places of variables: the name, and the sign of a default where there is one.
var usePattern = regexp.MustCompile(`(\$?)\$\{\s*([A-Za-z0-9_]+)\s*(:?[-=]\}?|\})`)

// variablesOf returns the variables of a line that are used as they are or with a default. What
// clusterctl's processor does not take for a variable is none, and its other functions are left out:
// they say nothing of defaults.
func variablesOf(line []byte, number int) []variableUse {
	known, err := templates.NewProcessor().GetVariableMap(line)
	if err != nil {
		return nil // a variable that goes over lines
	}
	var found []variableUse
	seen := map[string]bool{}
	for _, match := range usePattern.FindAllSubmatch(line, -1) {
		name := string(match[2])
		fallback, there := known[name]
		if !there || len(match[1]) > 0 || seen[name] {
			continue
		}
		seen[name] = true
		sign := string(match[3])
		found = append(found, variableUse{name: name, fallback: fallback, line: number, emptyDefault: sign != "}" && strings.HasSuffix(sign, "}")})
	}
	return found
}

// placeOfLine returns the place of a line of the components.
func (s *Subject) placeOfLine(line int) manifest.Place {
	return manifest.Place{File: s.Release.Provider.ComponentsFile(), Line: line}
}

// withDefaults returns a file with its variables' defaults, or false where one has none or where
// clusterctl's processor can't read them.
func withDefaults(data []byte) ([]byte, bool) {
	rendered, err := templates.NewProcessor().Process(data, func(string) (string, error) { return "", errNotSet })
	return rendered, err == nil
}

var variableSyntax = Check{
	ID: "variable-syntax", Group: Components, Severity: Error,
	Title:  "Variables are written as clusterctl reads them",
	Source: sourceVariables,
	Run: func(s *Subject, report Report) {
		file, _ := s.Release.Components()
		if _, err := s.variableDefaults(); err == nil {
			return
		}
		if line, err := templates.VariableError(file.Data); err != nil {
			report(Finding{
				Place:   s.placeOfLine(line),
				Message: fmt.Sprintf("clusterctl can't read a variable here, and refuses the whole file: %v", err),
				Fix:     "write ${NAME} or ${NAME:=default}, and $${...} for what isn't a variable",
			})
		}
	},
}

var variableDefault = Check{
	ID: "variable-default", Group: Components, Severity: Warning,
	Title:  "Defaults of variables take effect, and agree",
	Source: sourceVariables,
	Run: func(s *Subject, report Report) {
		first := map[string]variableUse{}
		for _, use := range s.variables() {
			if use.emptyDefault {
				report(Finding{
					Place:   s.placeOfLine(use.line),
					Message: fmt.Sprintf("the default of %s is empty, which clusterctl takes for none: it asks every user for a value", use.name),
					Fix:     fmt.Sprintf(`write ${%s:=""} where an empty text is meant`, use.name),
				})
			}
			before, seen := first[use.name]
			if !seen {
				first[use.name] = use
				continue
			}
			if message := disagreement(before, use); message != "" {
				report(Finding{Place: s.placeOfLine(use.line), Message: message, Fix: "give the variable the same default wherever it is used"})
			}
		}
	},
}

// disagreement says what comes of it where a variable is used twice, and not with the same default.
func disagreement(first, later variableUse) string {
	switch {
	case first.fallback == nil && later.fallback == nil:
		return ""
	case first.fallback == nil:
		return fmt.Sprintf("%s has the default %q here, and none in line %d: clusterctl goes by the first place, and asks every user for a value", later.name, *later.fallback, first.line)
	case later.fallback == nil:
		return fmt.Sprintf("%s has no default here, and %q in line %d: clusterctl goes by the first place, asks nobody, and leaves this one empty", later.name, *first.fallback, first.line)
	case unquoted(*first.fallback) != unquoted(*later.fallback):
		return fmt.Sprintf("%s has the default %q here, and %q in line %d: where nobody sets it, it has two values at once", later.name, *later.fallback, *first.fallback, first.line)
	}
	return ""
}

// unquoted returns a default without YAML's quotes, which don't belong to its value.
func unquoted(text string) string {
	if n := len(text); n >= 2 && (text[0] == '"' || text[0] == '\'') && text[n-1] == text[0] {
		return text[1 : n-1]
	}
	return text
}

var variablePrefix = Check{
	ID: "variable-prefix", Group: Components, Severity: Note,
	Title:  "Variables begin with the provider's name",
	Source: sourceVariables,
	Run: func(s *Subject, report Report) {
		var names []string
		seen := map[string]bool{}
		line := 0
		for _, use := range s.variables() {
			if !seen[use.name] && !isPrefixed(use.name, s.Release.Provider.Name) {
				seen[use.name] = true
				names = append(names, use.name)
				if line == 0 {
					line = use.line
				}
			}
		}
		if len(names) > 0 {
			report(Finding{
				Place:   s.placeOfLine(line),
				Message: fmt.Sprintf("%s: other providers installed with the same configuration may have variables of that name", few(names)),
				Fix:     "begin the names of variables with the provider's name",
			})
		}
	},
}

// few lists names, and of many the first and how many more there are.
func few(names []string) string {
	const most = 30
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// isPrefixed says whether a variable's name is told from those of other providers: it has the
// provider's name, or an acronym of the CAP... kind; EXP_ and CLUSTER_ names are Cluster API's own
// feature gates, meant to be shared.
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
