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
	// listed are all files and folders that each of them names.
	listed map[string][]string
	// files are the YAML files that no kustomization is made of, without those in folders set aside.
	files []string
	// all are the files of the tree, those of its tests among them, and without those of hidden folders.
	all []string
	// buildFiles are the files that may say what the tree releases.
	buildFiles []string
}

// scan reads a tree's folders and kustomizations.
func scan(t *tree.Tree) (*scanned, error) {
	s := &scanned{kustomizations: map[string][]string{}, listed: map[string][]string{}}
	root := os.DirFS(t.Root())
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("looking at %s: %w", t.Display(name), err)
		}
		base := path.Base(name)
		aside := isAside(path.Dir(name))
		if entry.IsDir() {
			if name != "." && name != ".github" && (strings.HasPrefix(base, ".") || base == "vendor" || base == "node_modules") {
				return fs.SkipDir
			}
			return nil
		}
		if isBuildFile(name) && (!aside || strings.HasPrefix(name, ".github/workflows/")) {
			s.buildFiles = append(s.buildFiles, name)
		}
		if strings.HasPrefix(name, ".github/") {
			return nil
		}
		s.all = append(s.all, name)
		switch {
		case slices.Contains(konfig.RecognizedKustomizationFileNames(), base):
			s.addKustomization(root, name)
		case path.Ext(base) == ".yaml" && !aside:
			s.files = append(s.files, name)
		}
		return nil
	})
	return s, err
}

// isAside says whether a folder is, or is below, one in which nothing that a tree releases is kept.
func isAside(dir string) bool {
	return dir != "." && slices.ContainsFunc(strings.Split(dir, "/"), tree.IsAside)
}

// addKustomization records what a kustomization is made of.
func (s *scanned) addKustomization(root fs.FS, file string) {
	dir := path.Dir(file)
	s.kustomizations[dir] = nil
	data, err := fs.ReadFile(root, file)
	if err != nil {
		return // building it says why
	}
	var kustomization types.Kustomization
	if err := yaml.Unmarshal(data, &kustomization); err != nil {
		return // as above
	}
	kustomization.FixKustomization()
	for _, base := range append(kustomization.Resources, kustomization.Components...) {
		name := path.Join(dir, filepath.ToSlash(base))
		s.listed[dir] = append(s.listed[dir], name)
		if info, err := fs.Stat(root, name); err == nil && info.IsDir() {
			s.kustomizations[dir] = append(s.kustomizations[dir], name)
		}
	}
	for _, patch := range kustomization.Patches {
		if patch.Path != "" {
			s.listed[dir] = append(s.listed[dir], path.Join(dir, filepath.ToSlash(patch.Path)))
		}
	}
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
	for other, dirs := range s.kustomizations {
		if slices.Contains(dirs, dir) && (!isAside(other) || isAside(dir)) {
			return false
		}
	}
	return true
}

// candidates returns the folders that may give a provider or a flavor: those called config/default
// first, as the scaffolds have them, then all that aren't part of another.
func (s *scanned) candidates() []string {
	var defaults, roots []string
	for dir := range s.kustomizations {
		switch {
		case isAside(dir):
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
