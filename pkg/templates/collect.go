// Package templates collects a provider's workload cluster templates and ClusterClass definitions from its source tree,
// under the names that clusterctl looks for.
package templates

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/tree"
	yamlv3 "go.yaml.in/yaml/v3"
)

// Collect returns the files of a provider's entry in the release file, each with its name in the release: templates and
// classes must have the contract's names, and other files must not have a name that clusterctl reads.
//
// Source: clusterctl provider contract, "Workload cluster templates" and "ClusterClass definitions".
func Collect(t *tree.Tree, provider release.ProviderConfig) ([]release.File, error) {
	var files []release.File
	for _, kind := range []struct {
		assets []release.AssetConfig
		rule   func(name string) error
		read   bool // by clusterctl
	}{
		{provider.Templates, func(name string) error { _, err := release.Flavor(name); return err }, true},
		{provider.ClusterClasses, func(name string) error { _, err := release.ClusterClassName(name); return err }, true},
		{provider.Files, func(name string) error { return requireUnread(provider.Provider(), name) }, false},
	} {
		for _, asset := range kind.assets {
			sources, err := collect(t, asset)
			if err != nil {
				return nil, err
			}
			for _, f := range sources {
				if err := kind.rule(f.Name); err != nil {
					return nil, fmt.Errorf("%s: %w: rename it, or say under which name it is released with 'as' in %s", t.Display(f.source), err, release.ConfigFile)
				}
				if kind.read {
					if err := CheckSyntax(t.Display(f.source), f.Data); err != nil {
						return nil, err
					}
				}
				files = append(files, f.File)
			}
		}
	}
	return files, nil
}

// sourced is a file of a release with its source.
type sourced struct {
	release.File
	source string
}

// collect returns the files of one entry.
func collect(t *tree.Tree, asset release.AssetConfig) ([]sourced, error) {
	if asset.Kustomize != "" {
		resources, err := t.Kustomize(asset.Kustomize)
		if err != nil {
			return nil, err
		}
		data, err := resources.AsYaml()
		if err != nil {
			return nil, fmt.Errorf("writing the result of %s: %w", t.Display(asset.Kustomize), err)
		}
		return []sourced{{release.File{Name: asset.As, Data: data}, asset.Kustomize}}, nil
	}
	paths, err := t.Glob(asset.Path)
	if err != nil {
		return nil, err
	}
	if asset.As != "" && len(paths) > 1 {
		return nil, fmt.Errorf("%s matches %d files (%s), but 'as: %s' names one", t.Display(asset.Path), len(paths), strings.Join(paths, ", "), asset.As)
	}
	files := make([]sourced, 0, len(paths))
	for _, p := range paths {
		data, err := t.ReadFile(p)
		if err != nil {
			return nil, err
		}
		files = append(files, sourced{release.File{Name: cmp.Or(asset.As, path.Base(p)), Data: data}, p})
	}
	return files, nil
}

// requireUnread refuses a name under "files" that clusterctl would read as a part of the release.
func requireUnread(provider release.Provider, name string) error {
	role := (&release.Release{Provider: provider}).Role(name)
	if role == release.RoleOther {
		return nil
	}
	return fmt.Errorf("%q under 'files' would be read as the release's %s", name, role)
}

// CheckSyntax reports a template that clusterctl can't process with any values of its variables: variables that its
// processor can't parse and, in a file without variables, text that isn't YAML. source names the file in the error,
// which has the line.
func CheckSyntax(source string, data []byte) error {
	variables, err := NewProcessor().GetVariables(data)
	if err != nil {
		line, err := VariableError(data)
		return fmt.Errorf("%s:%d: clusterctl can't parse a variable: %w (write $${...} for text that isn't a variable)", source, line, err)
	}
	if len(variables) > 0 {
		return nil // whether the rendered file is YAML depends on the values
	}
	decoder := yamlv3.NewDecoder(bytes.NewReader(data))
	for document := 1; ; document++ {
		err := decoder.Decode(new(yamlv3.Node))
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: document %d isn't YAML: %s", source, document, strings.TrimPrefix(err.Error(), "yaml: "))
		}
	}
}

// VariableError returns why clusterctl's processor can't read the variables of a file, and the line at which it stops:
// the one after the last readable line. A variable may continue over several lines, so lines can't be judged one by
// one.
func VariableError(data []byte) (line int, err error) {
	own := newProcessor()
	if _, err = own.GetVariables(data); err == nil {
		return 0, nil
	}
	text, _, _ := bytes.Cut(data, []byte{0}) // the processor reads no further
	_, readable, _ := own.split(text)
	return 1 + bytes.Count(text[:readable], []byte("\n")), err
}
