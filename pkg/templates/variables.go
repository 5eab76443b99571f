package templates

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// Variable is a variable of a template.
type Variable struct {
	Name string `json:"name"`
	// Default is nil if a user must set the variable.
	Default *string `json:"default"`
	// Lines are the lines of the file that use it, from 1.
	Lines []int `json:"lines"`
	// Described means that a comment of the file mentions it.
	Described bool `json:"described"`
}

// Variables returns the variables of a file by name, as clusterctl's own processor reads them. The
// error is the processor's.
func Variables(f release.File) ([]Variable, error) {
	defaults, err := NewProcessor().GetVariableMap(f.Data)
	if err != nil {
		return nil, fmt.Errorf("reading the variables of %s: %w", f.Name, err)
	}
	lines, described := uses(f.Data)
	variables := make([]Variable, 0, len(defaults))
	for name, value := range defaults {
		variables = append(variables, Variable{Name: name, Default: value, Lines: lines[name], Described: described[name]})
	}
	slices.SortFunc(variables, func(a, b Variable) int { return strings.Compare(a.Name, b.Name) })
	return variables, nil
}

var (
	usePattern  = regexp.MustCompile(`\$\{\s*#?(\w+)`)
	wordPattern = regexp.MustCompile(`\w+`)
)

// uses returns the lines with variables, by their names, and the words of comments, except those on a line where the
// word is a variable.
func uses(data []byte) (lines map[string][]int, described map[string]bool) {
	lines, described = map[string][]int{}, map[string]bool{}
	number := 0
	for line := range bytes.Lines(data) {
		number++
		used := map[string]bool{}
		if bytes.Contains(line, []byte("${")) {
			for _, match := range usePattern.FindAllSubmatch(line, -1) {
				if name := string(match[1]); !used[name] {
					used[name] = true
					lines[name] = append(lines[name], number)
				}
			}
		}
		if bytes.HasPrefix(bytes.TrimSpace(line), []byte("#")) {
			for _, word := range wordPattern.FindAll(line, -1) {
				if !used[string(word)] {
					described[string(word)] = true
				}
			}
		}
	}
	return lines, described
}

// Flavors returns the cluster templates of a release, the default one first.
func Flavors(r *release.Release) []release.File {
	var files []release.File
	for _, f := range r.Files {
		if release.IsClusterTemplate(f.Name) {
			files = append(files, f)
		}
	}
	slices.SortStableFunc(files, func(a, b release.File) int {
		first, _ := release.Flavor(a.Name)
		second, _ := release.Flavor(b.Name)
		return strings.Compare(first, second)
	})
	return files
}

// Guess returns values for the variables that a user must set, from their names only: clusterctl's values for those
// that its arguments set, numbers for counts, addresses for names of addresses, and for the rest a unique word. Sample
// also uses the places of the variables.
func Guess(variables []Variable) map[string]string {
	values := map[string]string{
		ClusterNameVariable: "demo", NamespaceVariable: "default", KubernetesVersionVariable: "v1.36.3",
		ControlPlaneCountVariable: "3", WorkerCountVariable: "3",
	}
	for _, v := range variables {
		if _, set := values[v.Name]; !set && v.Default == nil {
			values[v.Name] = hint(v.Name)
		}
	}
	return values
}

// hints are values of variables by their names.
var hints = []struct {
	name  *regexp.Regexp
	value string
}{
	{regexp.MustCompile(`(^|_)(COUNT|REPLICAS|NUM|SIZE|PORT|CPUS?|CORES|NUMBER)(_|$)`), "3"},
	{regexp.MustCompile(`(^|_)(CIDRS?|CIDR_BLOCKS?|SUBNET_RANGE)$`), "192.0.2.0/24"},
	{regexp.MustCompile(`(^|_)(IPS?|IPV4|ADDRESS|VIP)$`), "192.0.2.1"},
	{regexp.MustCompile(`(^|_)(URL|URI)$`), "https://example.com"},
}

// hint returns the value that the name of a variable suggests.
func hint(name string) string {
	for _, h := range hints {
		if h.name.MatchString(name) {
			return h.value
		}
	}
	return word(name)
}

// word returns the name of a variable as a word that is a valid name of an object.
func word(name string) string {
	text := strings.Trim(strings.ToLower(strings.ReplaceAll(name, "_", "-")), "-")
	if _, isText := scalarValue(text).(string); !isText || text == "" {
		return "x" + text // YAML reads yes, null and 1e3 as other types
	}
	return text
}
