package checks

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/templates"
)

// anyVariable matches a variable of a template, with its default.
var anyVariable = regexp.MustCompile(`\$\{\s*([A-Za-z_][A-Za-z0-9_]*)[^{}]*\}`)

// nameAt returns a name in an object: the rendered one or, where the tool made up the value of a
// variable in it, the published text with each variable as ${NAME}.
func (t *template) nameAt(o object, path ...any) string {
	var rendered any = o.Object
	for _, step := range path {
		rendered, _ = childOf(rendered, step)
	}
	name, _ := rendered.(string)
	if published, ok := o.published(path...).(string); ok && t.isGuess(published, name) {
		return anyVariable.ReplaceAllString(published, "$${$1}")
	}
	return name
}

// isSameName says whether two names of nameAt may be equal. Different variables are different names.
func isSameName(a, b string) bool {
	isOpen, isOtherOpen := strings.Contains(a, "${"), strings.Contains(b, "${")
	switch {
	case isOpen && !isOtherOpen:
		return mayBe(a, b)
	case isOtherOpen && !isOpen:
		return mayBe(b, a)
	}
	return a == b
}

// mayBe says whether a text is a name for some values of its variables.
func mayBe(text, name string) bool {
	return namePattern(text).MatchString(name)
}

// namePattern returns a pattern of the names that a text stands for, with a group for each variable.
// A variable whose default has variables may be anything.
func namePattern(text string) *regexp.Regexp {
	if strings.Contains(anyVariable.ReplaceAllString(text, ""), "${") {
		return regexp.MustCompile("^.*$")
	}
	var pattern strings.Builder
	rest := 0
	for _, at := range anyVariable.FindAllStringIndex(text, -1) {
		pattern.WriteString(regexp.QuoteMeta(text[rest:at[0]]) + "(.*)")
		rest = at[1]
	}
	return regexp.MustCompile("^" + pattern.String() + regexp.QuoteMeta(text[rest:]) + "$")
}

// nameClass adds to a set of values the variable that names the class of a clusterclass-NAME.yaml,
// where it has no value: clusterctl looks for the class NAME in the file, so only NAME works.
func nameClass(f release.File, set release.SampleValues) release.SampleValues {
	wanted, err := release.ClusterClassName(f.Name)
	if err != nil || !strings.Contains(string(f.Data), "${") {
		return set
	}
	documents, err := manifest.Parse(f.Name, f.Data)
	if err != nil {
		return set
	}
	for _, d := range documents {
		name := d.Object.GetName()
		uses := anyVariable.FindAllStringSubmatch(name, -1)
		if !isClass(object{Unstructured: d.Object}) || len(uses) != 1 || "${"+uses[0][1]+"}" != uses[0][0] || slices.Contains(alwaysSet, uses[0][1]) {
			continue
		}
		match := namePattern(name).FindStringSubmatch(wanted)
		if _, given := set.Values[uses[0][1]]; len(match) != 2 || given {
			continue
		}
		set.Values = maps.Clone(set.Values)
		if set.Values == nil {
			set.Values = map[string]string{}
		}
		set.Values[uses[0][1]] = match[1]
	}
	return set
}

// isOfCluster says whether a name in an object has the name of the user's Cluster in it.
func (o object) isOfCluster(path ...any) bool {
	published, _ := o.published(path...).(string)
	return slices.Contains(variablesIn(published), templates.ClusterNameVariable)
}
