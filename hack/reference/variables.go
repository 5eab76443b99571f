package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/templates"
)

// described matches a line of the table in a template's head: the variable, its default, and its description.
var described = regexp.MustCompile(`(?m)^#   ([A-Z_]+) +\S+ +(.*)$`)

// variablesPage returns the variables of the components and of the templates, as clusterctl reads them.
func variablesPage() (string, error) {
	var b strings.Builder
	b.WriteString("# Variables of clusterctl\n\n" + generated +
		"\nclusterctl takes their values from the environment or from its configuration file.\n\n## Variables of the components\n\nFor `clusterctl init` and `clusterctl upgrade`. They set [flags of the manager](manager-flags.md).\n\n")
	manager, variables, err := variablesOf("provider/config/manager/manager.yaml")
	if err != nil {
		return "", err
	}
	var rows [][]string
	for _, variable := range variables {
		sets := regexp.MustCompile(`([\w-]+)=\$\{` + variable.Name + `\b`).FindStringSubmatch(manager)
		if sets == nil {
			return "", fmt.Errorf("manager.yaml: %s sets no flag", variable.Name)
		}
		rows = append(rows, []string{code(variable.Name), defaultOf(variable), code(sets[1])})
	}
	b.WriteString(table([]string{"variable", "default", "flag or feature gate"}, rows))

	files, err := filepath.Glob("provider/templates/cluster-template*.yaml")
	if err != nil {
		return "", err
	}
	for _, file := range files {
		content, variables, err := variablesOf(file)
		if err != nil {
			return "", err
		}
		meanings := map[string]string{}
		for _, row := range described.FindAllStringSubmatch(content, -1) {
			meanings[row[1]] = row[2]
		}
		var rows [][]string
		for _, required := range []bool{true, false} {
			for _, variable := range variables {
				if meanings[variable.Name] == "" {
					return "", fmt.Errorf("%s: the table in its head lacks %s", file, variable.Name)
				}
				if required == (variable.Default == nil) {
					rows = append(rows, []string{code(variable.Name), defaultOf(variable), plain(meanings[variable.Name])})
				}
			}
		}
		name := filepath.Base(file)
		fmt.Fprintf(&b, "\n## %s\n\n%s", strings.TrimSuffix(name, ".yaml"), table([]string{"variable", "default", "meaning"}, rows))
	}
	return b.String(), nil
}

func variablesOf(file string) (string, []templates.Variable, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return "", nil, err
	}
	variables, err := templates.Variables(release.File{Name: filepath.Base(file), Data: content})
	return string(content), variables, err
}

func defaultOf(variable templates.Variable) string {
	switch {
	case variable.Default == nil:
		return "required"
	case *variable.Default == "":
		return "empty"
	}
	return code(*variable.Default)
}
