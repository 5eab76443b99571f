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

// open returns a tree with these files, and the folder that it lies in with whatever is outside:
// paths begin with tree/ or outside/.
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

// requireError checks an error against what it must wrap (nil for anything) and say.
func requireError(t *testing.T, err, is error, says ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("there is no error")
	}
	if is != nil && !errors.Is(err, is) {
		t.Errorf("the error is not %q: %v", is, err)
	}
	for _, text := range says {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("the error does not say %q: %v", text, err)
		}
	}
}

func TestOpen(t *testing.T) {
	dir := treetest.New(t, map[string]string{"file": "", "real/a.yaml": "a", "link": treetest.LinkTo + "real"})
	_, err := tree.Open(filepath.Join(dir, "missing"))
	requireError(t, err, fs.ErrNotExist, filepath.Join(dir, "missing"))
	_, err = tree.Open(filepath.Join(dir, "file"))
	requireError(t, err, nil, filepath.Join(dir, "file"), "is a file, not a folder")

	// A tree may be named by a link: inside is what is inside of the folder it leads to.
	source, err := tree.Open(filepath.Join(dir, "link"))
	if err != nil {
		t.Fatal(err)
	}
	if data, err := source.ReadFile("a.yaml"); err != nil || string(data) != "a" {
		t.Errorf("reading through a linked root: %q, %v", data, err)
	}
	if want := filepath.Join(dir, "real"); source.Root() != want {
		t.Errorf("the root is %s, want %s", source.Root(), want)
	}
	if want := filepath.Join(dir, "link", "a.yaml"); source.Display("a.yaml") != want {
		t.Errorf("a path is shown as %s, want it as the user named the tree: %s", source.Display("a.yaml"), want)
	}
}

// linked are the files of a tree with every kind of link.
var linked = map[string]string{
	"outside/a.yaml":            "outside",
	"tree-beside/a.yaml":        "beside", // its path has the tree's as a prefix
	"tree/a.yaml":               "inside",
	"tree/sub/b.yaml":           "sub",
	"tree/in.yaml":              treetest.LinkTo + "sub/b.yaml",
	"tree/folder-in":            treetest.LinkTo + "sub",
	"tree/out.yaml":             treetest.LinkTo + "../outside/a.yaml",
	"tree/beside.yaml":          treetest.LinkTo + "../tree-beside/a.yaml",
	"tree/folder-out":           treetest.LinkTo + "../outside",
	"tree/there-and-back":       treetest.LinkTo + "../tree/sub",
	"tree/nowhere.yaml":         treetest.LinkTo + "missing.yaml",
	"tree/round.yaml":           treetest.LinkTo + "round.yaml",
	"tree/globbed/one.yaml":     "1",
	"tree/globbed/two.yaml":     "2",
	"tree/globbed/x.yaml/f.txt": "a folder that is called like a file",
}

func TestReadFile(t *testing.T) {
	source := open(t, linked)
	for _, tc := range []struct {
		path string
		want string
		is   error
		says []string
	}{
		{path: "a.yaml", want: "inside"},
		{path: "./sub/../a.yaml", want: "inside"},
		{path: "in.yaml", want: "sub"},
		{path: "folder-in/b.yaml", want: "sub"},
		{path: "there-and-back/b.yaml", want: "sub"},
		{path: "out.yaml", is: tree.ErrOutside, says: []string{"out.yaml", "symbolic link to", "outside/a.yaml", "put a copy of the file into the tree"}},
		{path: "beside.yaml", is: tree.ErrOutside, says: []string{"tree-beside/a.yaml"}},
		{path: "folder-out/a.yaml", is: tree.ErrOutside, says: []string{"folder-out/a.yaml"}},
		{path: "../outside/a.yaml", is: tree.ErrOutside, says: []string{"../outside/a.yaml", "relative to the folder of clusterctl-release.yaml"}},
		{path: "/etc/hostname", is: tree.ErrOutside, says: []string{"/etc/hostname"}},
		{path: "", is: tree.ErrOutside},
		{path: "missing.yaml", is: fs.ErrNotExist, says: []string{"tree/missing.yaml"}},
		{path: "nowhere.yaml", is: fs.ErrNotExist, says: []string{"tree/nowhere.yaml"}},
		{path: "a.yaml/b.yaml", says: []string{"tree/a.yaml/b.yaml"}},
		{path: "round.yaml", says: []string{"tree/round.yaml", "too many links"}},
		{path: "sub", says: []string{"tree/sub", "directory"}},
	} {
		t.Run(tc.path, func(t *testing.T) {
			data, err := source.ReadFile(tc.path)
			if tc.want != "" {
				if err != nil || string(data) != tc.want {
					t.Errorf("read %q, %v; want %q", data, err, tc.want)
				}
				return
			}
			requireError(t, err, tc.is, tc.says...)
		})
	}
}

func TestGlob(t *testing.T) {
	source := open(t, linked)
	for _, tc := range []struct {
		pattern string
		want    []string
		is      error
		says    []string
	}{
		{pattern: "globbed/*.yaml", want: []string{"globbed/one.yaml", "globbed/two.yaml"}}, // and not the folder
		{pattern: "globbed/[o-z]*.yaml", want: []string{"globbed/one.yaml", "globbed/two.yaml"}},
		{pattern: "./globbed//one.yaml", want: []string{"globbed/one.yaml"}},
		{pattern: "*/one.yaml", want: []string{"globbed/one.yaml"}},
		{pattern: "globbed/*.txt", is: fs.ErrNotExist, says: []string{"tree/globbed/*.txt", "no file matches", "fix the path or remove the entry"}},
		{pattern: "globbed", is: fs.ErrNotExist, says: []string{"tree/globbed", "no file matches"}},
		{pattern: "missing.yaml", is: fs.ErrNotExist, says: []string{"tree/missing.yaml"}},
		{pattern: "globbed/[", says: []string{`pattern "globbed/["`, "syntax error"}},
		{pattern: "nowher?.yaml", is: fs.ErrNotExist, says: []string{"nowhere.yaml"}},
	} {
		t.Run(tc.pattern, func(t *testing.T) {
			got, err := source.Glob(tc.pattern)
			if tc.want != nil {
				if err != nil || !slices.Equal(got, tc.want) {
					t.Errorf("got %v, %v; want %v", got, err, tc.want)
				}
				return
			}
			requireError(t, err, tc.is, tc.says...)
		})
	}
}

// TestGlobOut: what a pattern finds by a link out of the tree is not read.
func TestGlobOut(t *testing.T) {
	source := open(t, linked)
	matches, err := source.Glob("folder-out/*.yaml")
	if err != nil {
		return // refused at once is as good
	}
	for _, match := range matches {
		_, err := source.ReadFile(match)
		requireError(t, err, tree.ErrOutside, match)
	}
}
