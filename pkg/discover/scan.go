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

// scanned is the content of a tree, by paths with forward slashes.
type scanned struct {
	// kustomizations are the files and folders that each kustomization names, by its folder.
	kustomizations map[string][]string
	// files are the YAML files in no kustomization, without those in skipped folders.
	files []string
	// all are the files of the tree, including those of its tests, without those of hidden folders.
	all []string
	// buildFiles are the files that may say what the tree releases.
	buildFiles []string
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
			s.kustomizations[path.Dir(name)] = namedBy(root, name)
		case path.Ext(base) == ".yaml" && !aside:
			s.files = append(s.files, name)
		}
		return nil
	})
	return s, err
}

// isAside reports whether a folder is, or is below, a folder with nothing to release.
func isAside(dir string) bool {
	return dir != "." && slices.ContainsFunc(strings.Split(dir, "/"), tree.IsAside)
}

// namedBy returns the files and folders that a kustomization names, or nil if it can't be read, which the build reports.
func namedBy(root fs.FS, file string) []string {
	data, err := fs.ReadFile(root, file)
	if err != nil {
		return nil
	}
	var kustomization types.Kustomization
	if err := yaml.Unmarshal(data, &kustomization); err != nil {
		return nil
	}
	kustomization.FixKustomization()
	names := slices.Concat(kustomization.Resources, kustomization.Components)
	for _, patch := range kustomization.Patches {
		if patch.Path != "" {
			names = append(names, patch.Path)
		}
	}
	for i, name := range names {
		names[i] = path.Join(path.Dir(file), filepath.ToSlash(name))
	}
	return names
}

// reaches reports whether a kustomization uses another as a base, directly or not.
func (s *scanned) reaches(from, to string) bool {
	// Bases may be cyclic, which kustomize reports.
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

// isRoot reports whether no kustomization uses this one as a base.
func (s *scanned) isRoot(dir string) bool {
	for other, names := range s.kustomizations {
		if slices.Contains(names, dir) && (!isAside(other) || isAside(dir)) {
			return false
		}
	}
	return true
}

// candidates returns the folders that may contain a provider or a flavor: those called config/default first, as in
// scaffolds, then all that aren't part of another.
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
