package tree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// kustomizeState guards global state during a build: kustomize's schema, which concurrent builds would share, and Go's
// default transport (boundFetches).
var kustomizeState sync.Mutex

// KustomizeError means that a kustomization did not build.
type KustomizeError struct {
	// Folder is the kustomization's folder as a user would type it.
	Folder string
	// Hint says what to do, if known, or is "".
	Hint string
	// Missing is the part of the hint about missing files of the tree.
	Missing string
	// Err is kustomize's error.
	Err error
	// refused is the first path outside of the tree that was refused to kustomize, which then tries other names and may
	// report those.
	refused error
}

func (e *KustomizeError) Error() string {
	text := fmt.Sprintf("kustomize build %s: %s", e.Folder, strings.TrimSpace(e.Err.Error()))
	if e.refused != nil && !strings.Contains(text, e.refused.Error()) {
		text += "\n" + e.refused.Error()
	}
	if e.Hint != "" {
		text += "\n" + e.Hint
	}
	return text
}

// Unwrap lets errors.Is find ErrOutside, which kustomize does not always wrap.
func (e *KustomizeError) Unwrap() []error {
	if e.refused == nil {
		return []error{e.Err}
	}
	return []error{e.Err, e.refused}
}

// Kustomize builds the kustomization in a folder of the tree, as `kustomize build` does, and returns its resources. The
// kustomization may use any file of the tree, but no other file on the disk. Kustomize changes nothing on disk. The
// error is a *KustomizeError, which wraps ErrOutside if a file outside of the tree is the cause, or wraps
// fs.ErrNotExist if the folder does not exist.
func (t *Tree) Kustomize(rel string) (resmap.ResMap, error) {
	dir, err := t.resolve(rel)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: the folder does not exist; fix the path in %s: %w", t.Display(rel), release.ConfigFile, fs.ErrNotExist)
	}
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("reading %s: %w", t.Display(rel), err)
	} else if !info.IsDir() {
		return nil, fmt.Errorf("%s is a file: name the folder of a kustomization", t.Display(rel))
	}
	options := krusty.MakeDefaultOptions()
	options.Reorder = krusty.ReorderOptionUnspecified // the command's default: the folder's sortOptions, else legacy
	// Kustomize's own restriction is the kustomization's folder, and many trees disable it to build their templates.
	// Here the restriction is the tree.
	options.LoadRestrictions = types.LoadRestrictionsNone
	kustomizeState.Lock()
	defer kustomizeState.Unlock()
	defer boundFetches()()
	disk := &guardedDisk{FileSystem: filesys.MakeFsOnDisk(), tree: t, existing: clones()}
	var resources resmap.ResMap
	t.countDeprecations(func() { resources, err = krusty.MakeKustomizer(options).Run(disk, dir) })
	if err != nil {
		parts := t.partsOf(dir)
		missing := t.missingHint(parts.missing)
		return nil, &KustomizeError{
			Folder: t.Display(rel), Missing: missing, Err: err, refused: disk.refused,
			Hint: strings.TrimSpace(missing + "\n" + remoteHint(parts.remote)),
		}
	}
	return resources, nil
}

// remoteHint names the bases of a kustomization that are not in the tree: without a network, they are the most likely
// reason for a failed build.
func remoteHint(remote map[string]string) string {
	if len(remote) == 0 {
		return ""
	}
	lines := make([]string, 0, len(remote))
	for base, file := range remote {
		lines = append(lines, fmt.Sprintf("  %s (in %s)", base, file))
	}
	slices.Sort(lines)
	return "The kustomization has bases that are not in the tree. They need a network, and may change: put copies of them into the tree.\n" + strings.Join(lines, "\n")
}

// guardedDisk is the disk restricted to the tree and the clones that kustomize creates in this build: other files,
// direct or linked, are not in the tree's history, and may differ on another machine.
type guardedDisk struct {
	filesys.FileSystem
	tree *Tree
	// existing are the clones of other builds, or nil if they are not known: then no clone is read.
	existing map[string]bool
	// refused is the first error of check.
	refused error
}

// ReadFile implements filesys.FileSystem.
func (d *guardedDisk) ReadFile(name string) ([]byte, error) {
	if err := d.check(name); err != nil {
		return nil, err
	}
	data, err := d.FileSystem.ReadFile(name)
	if err == nil { // kustomize tries several file names
		d.tree.noteRead(name)
	}
	return data, err
}

// Open implements filesys.FileSystem.
func (d *guardedDisk) Open(name string) (filesys.File, error) {
	if err := d.check(name); err != nil {
		return nil, err
	}
	return d.FileSystem.Open(name)
}

// CleanedAbs implements filesys.FileSystem. kustomize resolves a base's folder with it before it reads a file there, so
// a link is visible only here.
func (d *guardedDisk) CleanedAbs(name string) (filesys.ConfirmedDir, string, error) {
	if err := d.check(name); err != nil {
		return "", "", err
	}
	return d.FileSystem.CleanedAbs(name)
}

// check refuses a path outside of the tree and of this build's clones, with or without resolving its links. The path is
// absolute, or relative to the working folder.
func (d *guardedDisk) check(name string) (err error) {
	defer func() {
		if d.refused == nil {
			d.refused = err
		}
	}()
	abs, err := filepath.Abs(name)
	if err != nil {
		return fmt.Errorf("finding %s: %w", name, err)
	}
	if !d.holds(abs) {
		return fmt.Errorf("%s: %w %s: put a copy into the tree, or the release file into the folder that has both", name, ErrOutside, d.tree.root)
	}
	resolved, err := filepath.EvalSymlinks(abs)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // kustomize has a better error
	}
	if err != nil {
		return fmt.Errorf("finding %s: %w", name, err)
	}
	if !d.holds(resolved) {
		return fmt.Errorf("%s: %w: it is, or is below, a symbolic link to %s; put a copy into the tree", d.tree.shown(abs), ErrOutside, resolved)
	}
	return nil
}

// holds reports whether an absolute path is in the tree or in a clone of this build.
func (d *guardedDisk) holds(abs string) bool {
	if d.tree.holds(abs) {
		return true
	}
	clone, ok := cloneOf(abs)
	return ok && d.existing != nil && !d.existing[clone]
}

// clonePrefix is the prefix of the folders into which kustomize clones remote bases.
// Source: sigs.k8s.io/kustomize/kyaml/filesys, NewTmpConfirmedDir.
const clonePrefix = "kustomize-"

// cloneOf returns the name of the clone that contains an absolute path, if any.
func cloneOf(abs string) (string, bool) {
	temporary, err := filepath.EvalSymlinks(os.TempDir())
	if err != nil {
		return "", false
	}
	rel, err := filepath.Rel(temporary, abs)
	if err != nil {
		return "", false
	}
	name, _, _ := strings.Cut(rel, string(filepath.Separator))
	return name, strings.HasPrefix(name, clonePrefix)
}

// clones returns the names of the existing clones, or nil if they can't be listed. kustomize doesn't return the name of
// its clones, but the names are random and new: a tree can only refer to a clone that exists before its build.
func clones() map[string]bool {
	entries, err := os.ReadDir(os.TempDir())
	if err != nil {
		return nil
	}
	existing := map[string]bool{}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), clonePrefix) {
			existing[entry.Name()] = true
		}
	}
	return existing
}
