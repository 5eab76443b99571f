// Package treetest makes the source trees that tests work on.
package treetest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clusterctl-release/clusterctl-release/internal/pinned"
)

// LinkTo leads in the text of a file that is a symbolic link; the rest of the text is its target.
const LinkTo = "-> "

// New creates a folder with these files, by paths with forward slashes, and returns it. It is removed after the test.
func New(tb testing.TB, files map[string]string) string {
	tb.Helper()
	dir, err := filepath.EvalSymlinks(tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	Write(tb, dir, files)
	return dir
}

// Write adds files to a folder, or replaces those that are there.
func Write(tb testing.TB, dir string, files map[string]string) {
	tb.Helper()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			tb.Fatal(err)
		}
		var err error
		if target, isLink := strings.CutPrefix(text, LinkTo); isLink {
			err = os.Symlink(target, path)
		} else {
			err = os.WriteFile(path, []byte(text), 0o600)
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
}

// Demo returns a copy of the demo provider's tree, testdata/trees/demo.
func Demo(tb testing.TB) string {
	tb.Helper()
	dir := filepath.Join(New(tb, nil), "demo")
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(pinned.Root(tb), "testdata", "trees", "demo"))); err != nil {
		tb.Fatal(err)
	}
	return dir
}

// Clone returns files with some of them changed: an empty text takes a file out.
func Clone(files, changes map[string]string) map[string]string {
	all := make(map[string]string, len(files)+len(changes))
	for name, text := range files {
		all[name] = text
	}
	for name, text := range changes {
		if text == "" {
			delete(all, name)
			continue
		}
		all[name] = text
	}
	return all
}
