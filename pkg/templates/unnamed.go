package templates

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"

	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/kustomize/api/konfig"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/tree"
)

// Forgotten is a template or class of a tree that no entry of its release file names.
type Forgotten struct {
	// Path is relative to the tree's root.
	Path string
	// Field is the field of the release file to which it belongs: templates or clusterClasses.
	Field string
	// Provider is the most likely infrastructure provider: the one whose kustomization has the most folders in common.
	Provider release.Provider
}

// partFolders are folders of parts of templates, and of samples.
var partFolders = []string{"base", "bases", "samples", "examples", "docs"}

// Unnamed returns the files of a tree that are cluster templates or ClusterClasses by their names and content, and that
// no entry of the release file names, in the order of their paths. It skips folders of tests and documents, and parts
// of kustomizations. The error is that of an unreadable folder.
func Unnamed(t *tree.Tree, config *release.Config) ([]Forgotten, error) {
	kustomized := map[string][]byte{}
	var candidates []string
	err := fs.WalkDir(os.DirFS(t.Root()), ".", func(name string, entry fs.DirEntry, err error) error {
		base := path.Base(name)
		switch {
		case err != nil:
			return fmt.Errorf("looking at %s: %w", t.Display(name), err)
		case entry.IsDir() && name != "." && (tree.IsAside(base) || slices.Contains(partFolders, base)):
			return fs.SkipDir
		case slices.Contains(konfig.RecognizedKustomizationFileNames(), base):
			kustomized[path.Dir(name)], _ = t.ReadFile(name) // a link out of the tree is empty here
		case !entry.IsDir() && fieldOf(base) != "":
			candidates = append(candidates, name)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var forgotten []Forgotten
	for _, name := range candidates {
		if isBelow(name, kustomized) && !isAmongTemplates(name, kustomized, candidates) || isNamed(config, name) {
			continue
		}
		data, _ := t.ReadFile(name) // a link out of the tree, which builds refuse, is empty here
		if f := (release.File{Data: data}); !f.HasKind("Cluster") && !f.HasKind("ClusterClass") {
			continue
		}
		if provider, ok := nearest(config, name); ok {
			forgotten = append(forgotten, Forgotten{Path: name, Field: fieldOf(path.Base(name)), Provider: provider})
		}
	}
	return forgotten, nil
}

// fieldOf returns the field of the release file for files of a name, or "".
func fieldOf(name string) string {
	switch {
	case release.IsClusterTemplate(name):
		return "templates"
	case release.IsClusterClass(name):
		return "clusterClasses"
	}
	return ""
}

// isBelow reports whether a path is in or below the folder of a kustomization other than the root.
func isBelow(name string, kustomized map[string][]byte) bool {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if _, ok := kustomized[dir]; ok {
			return true
		}
	}
	return false
}

// isAmongTemplates reports whether a file is in a folder of templates that its kustomization names only in part: such a
// kustomization is for testing one of them, and the others don't belong to it.
func isAmongTemplates(name string, kustomized map[string][]byte, candidates []string) bool {
	kustomization, ok := kustomized[path.Dir(name)]
	return ok && slices.ContainsFunc(candidates, func(other string) bool {
		return path.Dir(other) == path.Dir(name) && !bytes.Contains(kustomization, []byte(path.Base(other)))
	})
}

// isNamed reports whether an entry of the release file names a file.
func isNamed(config *release.Config, name string) bool {
	for _, p := range config.Providers {
		for _, asset := range slices.Concat(p.Templates, p.ClusterClasses, p.Files) {
			if ok, err := path.Match(path.Clean(asset.Path), name); asset.Path != "" && err == nil && ok {
				return true
			}
		}
	}
	return false
}

// nearest returns the infrastructure provider of a release file whose kustomization has the most folders in common with
// a path, or false without one.
func nearest(config *release.Config, name string) (release.Provider, bool) {
	best, shared := release.Provider{}, -1
	for _, p := range config.Providers {
		if n := tree.SharedFolders(name, p.Kustomize); p.Type == clusterctlv1.InfrastructureProviderType && n > shared {
			best, shared = p.Provider(), n
		}
	}
	return best, shared >= 0
}
