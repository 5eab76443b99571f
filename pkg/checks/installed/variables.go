package installed

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/templates"
)

// VariableUse is a variable on a line of the components.
type VariableUse struct {
	Name string
	// fallback is the default; nil is a missing or an empty one.
	fallback *string
	Line     int
	// EmptyDefault reports that a default is written and empty.
	EmptyDefault bool
}

// VariableDefaults returns the variables of the components with their defaults as clusterctl reads them, from the first
// use of each; nil is a missing default. The error is clusterctl's.
func VariableDefaults(s *checks.Subject) (map[string]*string, error) {
	return readDefaults(context.Background(), s)
}

var readDefaults = checks.OnceValues(func(_ context.Context, s *checks.Subject) (map[string]*string, error) {
	file, _ := s.Release.Components()
	return templates.NewProcessor().GetVariableMap(file.Data)
})

// Variables returns the uses of variables in the components, line by line.
var Variables = checks.OnceValue(func(s *checks.Subject) []VariableUse {
	// The list is empty for a file that clusterctl refuses as a whole, which variable-syntax reports.
	if known, err := VariableDefaults(s); err != nil || len(known) == 0 {
		return nil
	}
	file, _ := s.Release.Components()
	return VariableUses(file.Data)
})

// VariableUses returns the uses of variables in a file, line by line.
func VariableUses(data []byte) []VariableUse {
	var uses []VariableUse
	for i, line := range bytes.Split(data, []byte("\n")) {
		if bytes.Contains(line, []byte("${")) {
			uses = append(uses, variablesOf(line, i+1)...)
		}
	}
	return uses
}

// usePattern matches uses of variables: the name, and the operator of a default if it has one.
var usePattern = regexp.MustCompile(`(\$?)\$\{\s*([A-Za-z0-9_]+)\s*(:?[-=]\}?|\})`)

// variablesOf returns the variables of a line that are used as they are or with a default. It skips texts that
// clusterctl's processor does not parse as variables, and uses of other functions, which set no default.
func variablesOf(line []byte, number int) []VariableUse {
	known, err := templates.NewProcessor().GetVariableMap(line)
	if err != nil {
		return nil // a variable over several lines
	}
	var found []VariableUse
	seen := map[string]bool{}
	for _, match := range usePattern.FindAllSubmatch(line, -1) {
		name := string(match[2])
		fallback, there := known[name]
		if !there || len(match[1]) > 0 || seen[name] {
			continue
		}
		seen[name] = true
		sign := string(match[3])
		found = append(found, VariableUse{Name: name, fallback: fallback, Line: number, EmptyDefault: sign != "}" && strings.HasSuffix(sign, "}")})
	}
	return found
}

// Disagreement describes the effect of two uses of a variable with different defaults.
func Disagreement(first, later VariableUse) string {
	switch {
	case first.fallback == nil && later.fallback == nil:
		return ""
	case first.fallback == nil:
		return fmt.Sprintf("%s has the default %q here, and none in line %d: clusterctl uses the first place, and requires a value from every user", later.Name, *later.fallback, first.Line)
	case later.fallback == nil:
		return fmt.Sprintf("%s has no default here, and %q in line %d: clusterctl uses the first place, requires no value, and leaves this one empty", later.Name, *first.fallback, first.Line)
	case unquoted(*first.fallback) != unquoted(*later.fallback):
		return fmt.Sprintf("%s has the default %q here, and %q in line %d: if the user does not set it, it has two values at once", later.Name, *later.fallback, *first.fallback, first.Line)
	}
	return ""
}

// unquoted returns a default without YAML's quotes, which don't belong to the value.
func unquoted(text string) string {
	if n := len(text); n >= 2 && (text[0] == '"' || text[0] == '\'') && text[n-1] == text[0] {
		return text[1 : n-1]
	}
	return text
}
