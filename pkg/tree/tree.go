// Package tree reads a provider's source tree: its files, its globs and its kustomizations. It changes nothing in it
// and does not follow symbolic links out of it.
package tree

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// ErrOutside means that a path leads out of the tree through a symbolic link.
var ErrOutside = errors.New("leads out of the tree")

// Tree is a source tree on disk.
type Tree struct {
	// root is absolute and free of symbolic links.
	root string
	// name is the root as the user named it, for messages.
	name string
	// deprecated counts kustomize's warnings by field.
	deprecated map[string]int

	mu sync.Mutex
	// read are the files that were read, relative to the root.
	read map[string]bool
}

// Open returns the tree below a folder.
func Open(dir string) (*Tree, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("finding the source tree %s: %w", dir, err)
	}
	root, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return nil, fmt.Errorf("opening the source tree: %w", err)
	}
	if info, err := os.Stat(root); err != nil {
		return nil, fmt.Errorf("opening the source tree: %w", err)
	} else if !info.IsDir() {
		return nil, fmt.Errorf("opening the source tree: %s is a file, not a folder", dir)
	}
	return &Tree{root: root, name: dir, deprecated: map[string]int{}, read: map[string]bool{}}, nil
}

// Root returns the tree's folder, absolute and free of symbolic links.
func (t *Tree) Root() string { return t.root }

// aside are folders without files to release.
var aside = []string{"vendor", "node_modules", "testdata", "_artifacts", "out", "bin", "e2e"}

// IsAside reports whether a folder's name is that of a folder without files to release: created by tools, for tests, or
// hidden.
func IsAside(folder string) bool {
	return strings.HasPrefix(folder, ".") || slices.Contains(aside, folder)
}

// SharedFolders counts the folders that two paths have in common from the root on.
func SharedFolders(a, b string) int {
	as, bs := strings.Split(a, "/"), strings.Split(b, "/")
	n := 0
	for n < len(as) && n < len(bs) && as[n] == bs[n] {
		n++
	}
	return n
}

// Display returns a path of the tree for messages: the way the user would type it.
func (t *Tree) Display(rel string) string {
	return filepath.Join(t.name, filepath.FromSlash(rel))
}

// ReadFile returns the bytes of a file of the tree; rel is relative to the root, with forward slashes. The error is
// ErrOutside if the file is a symbolic link out of the tree, and wraps the system's error otherwise.
func (t *Tree) ReadFile(rel string) ([]byte, error) {
	resolved, err := t.resolve(rel)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(resolved) //nolint:gosec // inside of the tree that the user named
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", t.Display(rel), err)
	}
	t.noteRead(resolved)
	return data, nil
}

// noteRead records that a file was read, after resolving its links.
func (t *Tree) noteRead(name string) {
	abs, err := filepath.Abs(name)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	if err != nil || !t.holds(abs) {
		return // it was in a clone of kustomize
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.read[filepath.ToSlash(strings.TrimPrefix(abs, t.root+string(filepath.Separator)))] = true
}

// FilesRead returns the files of the tree that were read so far, sorted, relative to the root, with
// forward slashes.
func (t *Tree) FilesRead() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Sorted(maps.Keys(t.read))
}

// resolve returns the place of a path of the tree on disk, or why it can't be used.
func (t *Tree) resolve(rel string) (string, error) {
	local := filepath.FromSlash(rel)
	if !filepath.IsLocal(local) {
		return "", fmt.Errorf("%s: %w: paths are relative to the folder of %s", rel, ErrOutside, release.ConfigFile)
	}
	full := filepath.Join(t.root, local)
	resolved, err := filepath.EvalSymlinks(full)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%s: %w", t.Display(rel), fs.ErrNotExist)
	}
	if err != nil {
		return "", fmt.Errorf("finding %s: %w", t.Display(rel), err)
	}
	if !t.holds(resolved) {
		return "", fmt.Errorf("%s: %w: it is, or is below, a symbolic link to %s; put a copy of the file into the tree", t.Display(rel), ErrOutside, resolved)
	}
	return resolved, nil
}

// holds reports whether an absolute path without symbolic links is in the tree.
func (t *Tree) holds(resolved string) bool {
	return resolved == t.root || strings.HasPrefix(resolved, t.root+string(filepath.Separator))
}

// Glob returns the files that match a pattern of path.Match, in order, with forward slashes, without folders. It is an
// error if there are none.
func (t *Tree) Glob(pattern string) ([]string, error) {
	matches, err := fs.Glob(os.DirFS(t.root), path.Clean(pattern))
	if err != nil {
		return nil, fmt.Errorf("pattern %q: %w", pattern, err)
	}
	files := make([]string, 0, len(matches))
	for _, match := range matches {
		info, err := os.Stat(filepath.Join(t.root, filepath.FromSlash(match)))
		if err != nil {
			return nil, fmt.Errorf("pattern %q: %w", pattern, err)
		}
		if !info.IsDir() {
			files = append(files, match)
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s: %w: no file matches; fix the path or remove the entry", t.Display(pattern), fs.ErrNotExist)
	}
	slices.Sort(files)
	return files, nil
}
