package rendered

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

// NameAt returns a name in an object: the rendered name or, if it contains a variable with a generated value, the
// published text with each variable as ${NAME}.
func (t *Template) NameAt(o Object, path ...any) string {
	name, _ := manifest.At(o.Object, path...).(string)
	if published, ok := o.Published(path...).(string); ok && t.isGuess(published, name) {
		return anyVariable.ReplaceAllString(published, "$${$1}")
	}
	return name
}

// openName is a name with variables: the texts between them.
type openName []string

// newOpenName returns the open name of a text. A variable whose default contains variables matches any text.
func newOpenName(text string) openName {
	if strings.Contains(anyVariable.ReplaceAllString(text, ""), "${") {
		return openName{"", ""}
	}
	return anyVariable.Split(text, -1)
}

// matches reports whether some values of the variables result in a name.
func (n openName) matches(name string) bool {
	first, last := n[0], n[len(n)-1]
	if len(n) == 1 {
		return name == first
	}
	if len(name) < len(first)+len(last) || !strings.HasPrefix(name, first) || !strings.HasSuffix(name, last) {
		return false
	}
	rest := name[len(first) : len(name)-len(last)]
	for _, text := range n[1 : len(n)-1] {
		i := strings.Index(rest, text)
		if i < 0 {
			return false
		}
		rest = rest[i+len(text):]
	}
	return true
}

// MayBe reports whether a text results in a name for some values of its variables.
func MayBe(text, name string) bool { return newOpenName(text).matches(name) }

// nameIndex contains the names of a template's objects by their kinds, as NameAt returns them.
type nameIndex struct {
	names  map[[2]string]bool
	closed map[string][]string
	open   map[string][]openName
}

// newNameIndex returns the names of the objects of a template.
func newNameIndex(t *Template) *nameIndex {
	index := &nameIndex{names: map[[2]string]bool{}, closed: map[string][]string{}, open: map[string][]openName{}}
	for _, o := range t.Objects {
		kind, name := o.GetKind(), t.NameAt(o, "metadata", "name")
		index.names[[2]string{kind, name}] = true
		if strings.Contains(name, "${") {
			index.open[kind] = append(index.open[kind], newOpenName(name))
		} else {
			index.closed[kind] = append(index.closed[kind], name)
		}
	}
	return index
}

// has reports whether an object of a kind may have a name that NameAt returned. Different variables are different
// names.
func (i *nameIndex) has(kind, name string) bool {
	if i.names[[2]string{kind, name}] {
		return true
	}
	if strings.Contains(name, "${") {
		return slices.ContainsFunc(i.closed[kind], newOpenName(name).matches)
	}
	return slices.ContainsFunc(i.open[kind], func(open openName) bool { return open.matches(name) })
}

// nameClass adds to a set of values the variable for the class's name of a clusterclass-NAME.yaml, if it has no value:
// clusterctl looks for the class NAME in the file, so NAME is the only valid value.
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
		uses := anyVariable.FindAllStringSubmatch(d.Object.GetName(), -1)
		if !(Object{Unstructured: d.Object}).IsCore("ClusterClass") || len(uses) != 1 || "${"+uses[0][1]+"}" != uses[0][0] || slices.Contains(AlwaysSet, uses[0][1]) {
			continue
		}
		open := newOpenName(d.Object.GetName())
		if _, given := set.Values[uses[0][1]]; given || len(open) != 2 || !open.matches(wanted) {
			continue
		}
		set.Values = maps.Clone(set.Values)
		if set.Values == nil {
			set.Values = map[string]string{}
		}
		set.Values[uses[0][1]] = wanted[len(open[0]) : len(wanted)-len(open[1])]
	}
	return set
}

// IsOfCluster reports whether a name in an object contains the name of the user's Cluster.
func (o Object) IsOfCluster(path ...any) bool {
	published, _ := o.Published(path...).(string)
	return slices.Contains(VariablesIn(published), templates.ClusterNameVariable)
}

// AlwaysSet are variables that always have a value: clusterctl sets them from its arguments, and missing counts to 1
// and 0. Their defaults are never used.
var AlwaysSet = []string{
	templates.ClusterNameVariable, templates.NamespaceVariable, templates.ControlPlaneCountVariable, templates.WorkerCountVariable,
}

// VariablesIn returns the names of the variables of a text.
func VariablesIn(text string) []string {
	var names []string
	for _, use := range variableReference.FindAllStringSubmatch(text, -1) {
		names = append(names, use[1])
	}
	return names
}
