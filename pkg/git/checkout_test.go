package git_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/clusterctl-release/clusterctl-release/pkg/git"
)

// put writes a file below a folder.
func put(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestCheckedOut checks the commit, the remote and the changes of a checkout.
func TestCheckedOut(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(t *testing.T, dir string)
		changes []string
		remote  string
		merge   string
	}{
		"as committed":      {change: func(*testing.T, string) {}},
		"changed":           {change: func(t *testing.T, dir string) { put(t, dir, "tree/config/a.yaml", "b") }, changes: []string{"tree/config/a.yaml"}},
		"staged":            {change: func(t *testing.T, dir string) { put(t, dir, "tree/new", ""); run(t, dir, "add", ".") }, changes: []string{"tree/new"}},
		"removed":           {change: func(t *testing.T, dir string) { _ = os.Remove(filepath.Join(dir, "tree/config/a.yaml")) }, changes: []string{"tree/config/a.yaml"}},
		"not in the commit": {change: func(t *testing.T, dir string) { put(t, dir, "tree/new", "") }, changes: []string{"tree/new"}},
		"hidden by the user": {change: func(t *testing.T, dir string) {
			run(t, dir, "config", "status.showUntrackedFiles", "no")
			put(t, dir, "tree/new", "")
		}, changes: []string{"tree/new"}},
		"outside of the tree":  {change: func(t *testing.T, dir string) { put(t, dir, "other", "") }},
		"ignored":              {change: func(t *testing.T, dir string) { put(t, dir, "tree/x.tmp", "") }},
		"built output":         {change: func(t *testing.T, dir string) { put(t, dir, "tree/out/[1]/x", "") }},
		"next to built output": {change: func(t *testing.T, dir string) { put(t, dir, "tree/out/1/x", "") }, changes: []string{"tree/out/"}},
		"a remote":             {change: func(t *testing.T, dir string) { run(t, dir, "remote", "add", "origin", "git@github.com:acme/capl.git") }, remote: "https://github.com/acme/capl"},
		"a remote with a token, also in insteadOf": {change: func(t *testing.T, dir string) {
			run(t, dir, "remote", "add", "origin", "https://ci:secret@gitlab.example.com:8443/a/b.git")
			run(t, dir, "config", "url.https://x:secret@gitlab.example.com.insteadOf", "https://ci:secret@gitlab.example.com:8443")
		}, remote: "https://gitlab.example.com:8443/a/b"},
		"a folder as the remote":   {change: func(t *testing.T, dir string) { run(t, dir, "remote", "add", "origin", "/srv/capl.git") }},
		"the merge of a request":   {change: func(t *testing.T, dir string) { run(t, dir, "update-ref", "refs/remotes/pull/12/merge", "HEAD") }, merge: "refs/pull/12/merge"},
		"the head of a request":    {change: func(t *testing.T, dir string) { run(t, dir, "update-ref", "refs/remotes/pull/12/head", "HEAD") }},
		"the merge of another one": {change: func(t *testing.T, dir string) { run(t, dir, "update-ref", "refs/remotes/pull/12/merge", "HEAD^") }},
	} {
		t.Run(name, func(t *testing.T) {
			dir := tagged(t)
			put(t, dir, ".gitignore", "*.tmp\n")
			put(t, dir, "tree/clusterctl-release.yaml", "")
			put(t, dir, "tree/config/a.yaml", "a")
			run(t, dir, "add", ".")
			run(t, dir, "commit", "-q", "-m", "third")
			test.change(t, dir)
			t.Setenv("GIT_DIR", filepath.Join(tagged(t), ".git")) // as in a hook of another repository
			c, err := git.CheckedOut(t.Context(), filepath.Join(dir, "tree/clusterctl-release.yaml"), filepath.Join("out", "[1]"))
			if err != nil {
				t.Fatal(err)
			}
			head := exec.CommandContext(t.Context(), "git", "--git-dir", filepath.Join(dir, ".git"), "rev-parse", "HEAD")
			want, err := head.Output()
			if err != nil {
				t.Fatal(err)
			}
			if c.Commit != strings.TrimSpace(string(want)) || !slices.Equal(c.Changes, test.changes) || c.Repository != test.remote || c.MergeRef != test.merge {
				t.Errorf("got %+v, want %s, %q, %q, %q", *c, want, test.changes, test.remote, test.merge)
			}
		})
	}
}

// TestCheckedOutRefuses checks the errors for an untracked file, a missing repository and a repository without commits.
func TestCheckedOutRefuses(t *testing.T) {
	dir := tagged(t)
	put(t, dir, ".gitignore", "/copy\n")
	put(t, dir, "copy/clusterctl-release.yaml", "")
	if _, err := git.CheckedOut(t.Context(), filepath.Join(dir, "copy", "clusterctl-release.yaml")); !errors.Is(err, git.ErrNotTracked) {
		t.Errorf("an ignored copy: %v", err)
	}
	nowhere := t.TempDir()
	put(t, nowhere, "clusterctl-release.yaml", "")
	if _, err := git.CheckedOut(t.Context(), filepath.Join(nowhere, "clusterctl-release.yaml")); !errors.Is(err, git.ErrNoRepository) {
		t.Errorf("no repository: %v", err)
	}
	run(t, nowhere, "init", "-q")
	if _, err := git.CheckedOut(t.Context(), filepath.Join(nowhere, "clusterctl-release.yaml")); err == nil || errors.Is(err, git.ErrNoRepository) {
		t.Errorf("no commit: %v", err)
	}
}

// TestUntracked checks that ignored and new files are untracked, and that files of submodules are tracked.
func TestUntracked(t *testing.T) {
	module := tagged(t)
	put(t, module, "base/a.yaml", "")
	run(t, module, "add", ".")
	run(t, module, "commit", "-q", "-m", "base")
	dir := tagged(t)
	put(t, dir, ".gitignore", "*.tmp\n")
	put(t, dir, "tree/a ü.yaml", "")
	run(t, dir, "submodule", "--quiet", "add", module, "tree/module")
	run(t, dir, "add", ".")
	run(t, dir, "commit", "-q", "-m", "third")
	put(t, dir, "tree/b.tmp", "")
	put(t, dir, "tree/new", "")
	got, err := git.Untracked(t.Context(), filepath.Join(dir, "tree"), []string{"a ü.yaml", "b.tmp", "module/base/a.yaml", "new"})
	if err != nil || !slices.Equal(got, []string{"b.tmp", "new"}) {
		t.Errorf("got %q, %v", got, err)
	}
}
