package tree

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/yaml"
)

// parts are the parts of a kustomization and its bases that the tree lacks, each with the kustomization that names it.
type parts struct {
	// remote are bases outside of the tree.
	remote map[string]string
	// missing are files.
	missing map[string]string
	// seen are the folders of the kustomization and its bases.
	seen map[string]bool
}

// partsOf returns the parts of the kustomization in a folder.
func (t *Tree) partsOf(dir string) parts {
	p := parts{remote: map[string]string{}, missing: map[string]string{}, seen: map[string]bool{}}
	t.addParts(p, dir)
	return p
}

// addParts adds the parts of a kustomization and of its bases.
func (t *Tree) addParts(p parts, dir string) {
	if p.seen[dir] {
		return
	}
	p.seen[dir] = true
	for _, name := range konfig.RecognizedKustomizationFileNames() {
		file := filepath.Join(dir, name)
		data, err := os.ReadFile(file) //nolint:gosec // the kustomization that the user named
		if err != nil {
			continue
		}
		var kustomization types.Kustomization
		// kustomize reports files that can't be parsed.
		if err := yaml.Unmarshal(data, &kustomization); err != nil {
			return
		}
		kustomization.FixKustomization()
		named := slices.Concat(kustomization.Resources, kustomization.Components, kustomization.Configurations)
		for _, patch := range kustomization.Patches {
			if patch.Path != "" {
				named = append(named, patch.Path)
			}
		}
		for _, base := range named {
			local := filepath.Join(dir, filepath.FromSlash(base))
			info, err := os.Stat(local)
			switch {
			case err == nil && info.IsDir():
				t.addParts(p, local)
			case err == nil:
			case isRemote(base):
				p.remote[base] = t.shown(file)
			default:
				p.missing[t.shown(local)] = t.shown(file)
			}
		}
	}
}

// isRemote reports whether kustomize fetches a base from elsewhere.
func isRemote(base string) bool {
	return strings.Contains(base, "://") || strings.Contains(base, "?ref=") || strings.HasPrefix(base, "git@") || strings.HasPrefix(base, "github.com/")
}

// shown returns a path on the disk as messages show it.
func (t *Tree) shown(path string) string {
	if rel, err := filepath.Rel(t.root, path); err == nil {
		return t.Display(rel)
	}
	return path
}

// Remote returns the bases of a kustomization of the tree that are fetched from elsewhere.
func (t *Tree) Remote(rel string) []string {
	return slices.Sorted(maps.Keys(t.partsOf(filepath.Join(t.root, filepath.FromSlash(rel))).remote))
}

// missingHint names the first missing file of a kustomization, and the target of make that may create it.
func (t *Tree) missingHint(missing map[string]string) string {
	if len(missing) == 0 {
		return ""
	}
	first := slices.Min(slices.Collect(maps.Keys(missing)))
	more := ""
	if len(missing) > 1 {
		more = fmt.Sprintf(" (and %d more files)", len(missing)-1)
	}
	question := "is it generated?"
	if target := t.generateTarget(); target != "" {
		question = fmt.Sprintf("does `make %s` create it?", target)
	}
	return fmt.Sprintf("%s does not exist%s, which %s names: %s", first, more, missing[first], question)
}

// generateTargets are targets of make that generate files of kustomizations, the most specific first.
var generateTargets = []string{"generate-manifests", "manifests", "generate"}

// generateTarget returns the target of the tree's Makefile that generates files, or "".
func (t *Tree) generateTarget() string {
	makefile, err := t.ReadFile("Makefile")
	if err != nil {
		return ""
	}
	for _, target := range generateTargets {
		if regexp.MustCompile(`(?m)^` + target + `\s*:([^=]|$)`).Match(makefile) {
			return target
		}
	}
	return ""
}
