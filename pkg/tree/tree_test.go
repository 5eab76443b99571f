package tree_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/clusterctl-release/clusterctl-release/internal/treetest"
	"github.com/clusterctl-release/clusterctl-release/pkg/tree"
)

// open writes files with paths that begin with tree/ or outside/, and returns the tree in the folder tree.
func open(t *testing.T, files map[string]string) *tree.Tree {
	t.Helper()
	dir := treetest.New(t, files)
	if err := os.MkdirAll(filepath.Join(dir, "tree"), 0o750); err != nil {
		t.Fatal(err)
	}
	source, err := tree.Open(filepath.Join(dir, "tree"))
	if err != nil {
		t.Fatal(err)
	}
	return source
}

// requireError checks that err wraps want, if that is not nil, and contains the texts.
func requireError(t *testing.T, err, want error, texts ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("error = nil, want an error")
	}
	if want != nil && !errors.Is(err, want) {
		t.Errorf("error = %v, want %v", err, want)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("the error does not contain %q: %v", text, err)
		}
	}
}

func TestOpen(t *testing.T) {
	dir := treetest.New(t, map[string]string{"file": "", "real/a.yaml": "a", "link": treetest.LinkTo + "real"})
	_, err := tree.Open(filepath.Join(dir, "missing"))
	requireError(t, err, fs.ErrNotExist, filepath.Join(dir, "missing"))
	_, err = tree.Open(filepath.Join(dir, "file"))
	requireError(t, err, nil, filepath.Join(dir, "file"), "is a file, not a folder")

	// The tree's path may be a link to the folder.
	source, err := tree.Open(filepath.Join(dir, "link"))
	if err != nil {
		t.Fatal(err)
	}
	if data, err := source.ReadFile("a.yaml"); err != nil || string(data) != "a" {
		t.Errorf("ReadFile with a linked root = %q, %v, want a", data, err)
	}
	if want := filepath.Join(dir, "real"); source.Root() != want {
		t.Errorf("Root() = %s, want %s", source.Root(), want)
	}
	if want := filepath.Join(dir, "link", "a.yaml"); source.Display("a.yaml") != want {
		t.Errorf("Display(a.yaml) = %s, want the path as the user wrote it: %s", source.Display("a.yaml"), want)
	}
}

// linkFiles are the files of a tree with every kind of link.
var linkFiles = map[string]string{
	"outside/a.yaml":            "outside",
	"tree-sibling/a.yaml":       "sibling", // the tree's path is a prefix of its path
	"tree/a.yaml":               "inside",
	"tree/sub/b.yaml":           "sub",
	"tree/in.yaml":              treetest.LinkTo + "sub/b.yaml",
	"tree/folder-in":            treetest.LinkTo + "sub",
	"tree/out.yaml":             treetest.LinkTo + "../outside/a.yaml",
	"tree/sibling.yaml":         treetest.LinkTo + "../tree-sibling/a.yaml",
	"tree/folder-out":           treetest.LinkTo + "../outside",
	"tree/back-in":              treetest.LinkTo + "../tree/sub",
	"tree/nowhere.yaml":         treetest.LinkTo + "missing.yaml",
	"tree/round.yaml":           treetest.LinkTo + "round.yaml",
	"tree/globbed/one.yaml":     "1",
	"tree/globbed/two.yaml":     "2",
	"tree/globbed/x.yaml/f.txt": "a folder with a file's name",
}

func TestReadFile(t *testing.T) {
	source := open(t, linkFiles)
	for _, tc := range []struct {
		path     string
		want     string
		wantErr  error
		wantText []string
	}{
		{path: "a.yaml", want: "inside"},
		{path: "./sub/../a.yaml", want: "inside"},
		{path: "in.yaml", want: "sub"},
		{path: "folder-in/b.yaml", want: "sub"},
		{path: "back-in/b.yaml", want: "sub"},
		{path: "out.yaml", wantErr: tree.ErrOutside, wantText: []string{"out.yaml", "symbolic link to", "outside/a.yaml", "put a copy of the file into the tree"}},
		{path: "sibling.yaml", wantErr: tree.ErrOutside, wantText: []string{"tree-sibling/a.yaml"}},
		{path: "folder-out/a.yaml", wantErr: tree.ErrOutside, wantText: []string{"folder-out/a.yaml"}},
		{path: "../outside/a.yaml", wantErr: tree.ErrOutside, wantText: []string{"../outside/a.yaml", "relative to the folder of clusterctl-release.yaml"}},
		{path: "/etc/hostname", wantErr: tree.ErrOutside, wantText: []string{"/etc/hostname"}},
		{path: "", wantErr: tree.ErrOutside},
		{path: "missing.yaml", wantErr: fs.ErrNotExist, wantText: []string{"tree/missing.yaml"}},
		{path: "nowhere.yaml", wantErr: fs.ErrNotExist, wantText: []string{"tree/nowhere.yaml"}},
		{path: "a.yaml/b.yaml", wantText: []string{"tree/a.yaml/b.yaml"}},
		{path: "round.yaml", wantText: []string{"tree/round.yaml", "too many links"}},
		{path: "sub", wantText: []string{"tree/sub", "directory"}},
	} {
		t.Run(tc.path, func(t *testing.T) {
			data, err := source.ReadFile(tc.path)
			if tc.want != "" {
				if err != nil || string(data) != tc.want {
					t.Errorf("ReadFile = %q, %v, want %q", data, err, tc.want)
				}
				return
			}
			requireError(t, err, tc.wantErr, tc.wantText...)
		})
	}
}

func TestGlob(t *testing.T) {
	source := open(t, linkFiles)
	for _, tc := range []struct {
		pattern  string
		want     []string
		wantErr  error
		wantText []string
	}{
		{pattern: "globbed/*.yaml", want: []string{"globbed/one.yaml", "globbed/two.yaml"}}, // and not the folder
		{pattern: "globbed/[o-z]*.yaml", want: []string{"globbed/one.yaml", "globbed/two.yaml"}},
		{pattern: "./globbed//one.yaml", want: []string{"globbed/one.yaml"}},
		{pattern: "*/one.yaml", want: []string{"globbed/one.yaml"}},
		{pattern: "globbed/*.txt", wantErr: fs.ErrNotExist, wantText: []string{"tree/globbed/*.txt", "no file matches", "fix the path or remove the entry"}},
		{pattern: "globbed", wantErr: fs.ErrNotExist, wantText: []string{"tree/globbed", "no file matches"}},
		{pattern: "missing.yaml", wantErr: fs.ErrNotExist, wantText: []string{"tree/missing.yaml"}},
		{pattern: "globbed/[", wantText: []string{`pattern "globbed/["`, "syntax error"}},
		{pattern: "nowher?.yaml", wantErr: fs.ErrNotExist, wantText: []string{"nowhere.yaml"}},
	} {
		t.Run(tc.pattern, func(t *testing.T) {
			got, err := source.Glob(tc.pattern)
			if tc.want != nil {
				if err != nil || !slices.Equal(got, tc.want) {
					t.Errorf("Glob = %v, %v, want %v", got, err, tc.want)
				}
				return
			}
			requireError(t, err, tc.wantErr, tc.wantText...)
		})
	}
}

// TestGlobOut checks that files that a pattern matches through a link out of the tree are not read.
func TestGlobOut(t *testing.T) {
	source := open(t, linkFiles)
	matches, err := source.Glob("folder-out/*.yaml")
	if err != nil {
		return // Glob may refuse the pattern
	}
	for _, match := range matches {
		_, err := source.ReadFile(match)
		requireError(t, err, tree.ErrOutside, match)
	}
}
