package templates

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/yamlprocessor"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// Variable is a variable of a template.
type Variable struct {
	Name string `json:"name"`
	// Default is nil where a user must set the variable.
	Default *string `json:"default"`
	// Lines are those of the file that use it, from 1.
	Lines []int `json:"lines"`
	// Described says that a comment of the file speaks of it.
	Described bool `json:"described"`
}

// Variables returns the variables of a file by name, as clusterctl's own processor reads them. The
// error is the processor's.
func Variables(f release.File) ([]Variable, error) {
	defaults, err := yamlprocessor.NewSimpleProcessor().GetVariableMap(f.Data)
	if err != nil {
		return nil, fmt.Errorf("reading the variables of %s: %w", f.Name, err)
	}
	variables := make([]Variable, 0, len(defaults))
	for name, value := range defaults {
		v := Variable{Name: name, Default: value}
		use := regexp.MustCompile(`\$\{\s*` + regexp.QuoteMeta(name) + `\b`)
		word := regexp.MustCompile(`\b` + regexp.QuoteMeta(name) + `\b`)
		number := 0
		for line := range strings.Lines(string(f.Data)) {
			number++
			switch {
			case use.MatchString(line):
				v.Lines = append(v.Lines, number)
			case strings.HasPrefix(strings.TrimSpace(line), "#") && word.MatchString(line):
				v.Described = true
			}
		}
		variables = append(variables, v)
	}
	slices.SortFunc(variables, func(a, b Variable) int { return strings.Compare(a.Name, b.Name) })
	return variables, nil
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

// Guess returns values for the variables that a user must set and nobody gave: those that clusterctl
// sets from its arguments as it would, numbers for counts, and a word for the rest.
func Guess(variables []Variable) map[string]string {
	values := map[string]string{
		ClusterNameVariable: "demo", NamespaceVariable: "default", KubernetesVersionVariable: "v1.36.3",
		ControlPlaneCountVariable: "3", WorkerCountVariable: "3",
	}
	for _, v := range variables {
		if _, set := values[v.Name]; set || v.Default != nil {
			continue
		}
		values[v.Name] = "x"
		if countLike.MatchString(v.Name) {
			values[v.Name] = "3"
		}
	}
	return values
}

// countLike are names of variables that stand for numbers.
var countLike = regexp.MustCompile(`(^|_)(COUNT|REPLICAS|NUM|SIZE|PORT|CPUS?|CORES|NUMBER)(_|$)`)
