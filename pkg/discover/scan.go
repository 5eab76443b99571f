package discover

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/yaml"

	"github.com/clusterctl-release/clusterctl-release/pkg/tree"
)

// scanned is what is in a tree, by paths with forward slashes.
type scanned struct {
	// kustomizations are the folders that each folder with a kustomization takes as a base.
	kustomizations map[string][]string
	// files are the YAML files that no kustomization is made of.
	files []string
}

// scan reads a tree's folders and kustomizations.
func scan(t *tree.Tree) (*scanned, error) {
	s := &scanned{kustomizations: map[string][]string{}}
	root := os.DirFS(t.Root())
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("looking at %s: %w", t.Display(name), err)
		}
		base := path.Base(name)
		if entry.IsDir() {
			if name != "." && tree.IsAside(base) {
				return fs.SkipDir
			}
			return nil
		}
		switch {
		case slices.Contains(konfig.RecognizedKustomizationFileNames(), base):
			s.kustomizations[path.Dir(name)] = bases(root, name)
		case path.Ext(base) == ".yaml":
			s.files = append(s.files, name)
		}
		return nil
	})
	return s, err
}

// bases returns the folders that a kustomization takes as its bases.
func bases(root fs.FS, file string) []string {
	data, err := fs.ReadFile(root, file)
	if err != nil {
		return nil // building it says why
	}
	var kustomization types.Kustomization
	if err := yaml.Unmarshal(data, &kustomization); err != nil {
		return nil // as above
	}
	kustomization.FixKustomization()
	var dirs []string
	for _, base := range append(kustomization.Resources, kustomization.Components...) {
		dir := path.Join(path.Dir(file), filepath.ToSlash(base))
		if info, err := fs.Stat(root, dir); err == nil && info.IsDir() {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// reaches says whether a kustomization is built of another, at any remove.
func (s *scanned) reaches(from, to string) bool {
	// Bases can go round in a circle, which is kustomize's to complain of.
	seen := map[string]bool{}
	var reaches func(from string) bool
	reaches = func(from string) bool {
		if from == to {
			return true
		}
		if seen[from] {
			return false
		}
		seen[from] = true
		return slices.ContainsFunc(s.kustomizations[from], reaches)
	}
	return reaches(from)
}

// isRoot says whether no kustomization takes this one as a base.
func (s *scanned) isRoot(dir string) bool {
	for _, dirs := range s.kustomizations {
		if slices.Contains(dirs, dir) {
			return false
		}
	}
	return true
}

// candidates returns the folders that may give a provider or a flavor: those called config/default
// first, as the scaffolds have them, then all that are no part of another.
func (s *scanned) candidates() []string {
	var defaults, roots []string
	for dir := range s.kustomizations {
		switch {
		case strings.HasSuffix("/"+dir, "/config/default"):
			defaults = append(defaults, dir)
		case s.isRoot(dir):
			roots = append(roots, dir)
		}
	}
	slices.Sort(defaults)
	slices.Sort(roots)
	return append(defaults, roots...)
}
