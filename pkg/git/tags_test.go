package git_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/clusterctl-release/clusterctl-release/internal/prerequisite"
	"github.com/clusterctl-release/clusterctl-release/pkg/git"
)

// run runs git in a folder with a fixed configuration.
func run(t *testing.T, dir string, args ...string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "git", append([]string{"-c", "user.name=Test", "-c", "user.email=test@example.com", "-c", "protocol.file.allow=always"}, args...)...)
	command.Dir = dir
	// With a hook's variables, git would use the hook's repository.
	command.Env = slices.DeleteFunc(os.Environ(), func(variable string) bool {
		return strings.HasPrefix(variable, "GIT_") && !strings.HasPrefix(variable, "GIT_CONFIG_")
	})
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

// tagged returns a repository with a commit and tags.
func tagged(t *testing.T, tags ...string) string {
	t.Helper()
	prerequisite.Program(t, "git")
	t.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	t.Setenv("GIT_CONFIG_NOSYSTEM", "1")
	dir := t.TempDir()
	run(t, dir, "init", "-q", "-b", "main")
	run(t, dir, "commit", "-q", "--allow-empty", "-m", "first")
	run(t, dir, "commit", "-q", "--allow-empty", "-m", "second")
	for _, tag := range tags {
		run(t, dir, "tag", "-a", "-m", tag, tag)
	}
	return dir
}

func TestTags(t *testing.T) {
	dir := tagged(t, "v0.10.0", "v0.2.0", "api/v0.2.0", "v0.3.0-rc.0")
	run(t, dir, "branch", "v0.2.0") // a branch of the same name makes git's short names longer
	run(t, dir, "config", "column.ui", "always")
	run(t, dir, "config", "tag.sort", "-version:refname")
	below := filepath.Join(dir, "a", "b")
	if err := os.MkdirAll(below, 0o750); err != nil {
		t.Fatal(err)
	}
	want := []string{"api/v0.2.0", "v0.10.0", "v0.2.0", "v0.3.0-rc.0"}
	other := tagged(t, "v9.9.9")
	t.Setenv("GIT_DIR", filepath.Join(other, ".git"))
	for _, at := range []string{dir, below} {
		if tags, err := git.Tags(t.Context(), at); err != nil || !slices.Equal(tags, want) {
			t.Errorf("the tags of %s are %v, %v", at, tags, err)
		}
	}
}

func TestTagsOfARepositoryWithoutAny(t *testing.T) {
	dir := tagged(t)
	if tags, err := git.Tags(t.Context(), dir); err != nil || len(tags) > 0 || tags == nil {
		t.Errorf("the tags are %#v, %v; want none", tags, err)
	}
	clone := filepath.Join(t.TempDir(), "clone")
	run(t, dir, "clone", "-q", "--depth", "1", "--no-tags", "file://"+filepath.ToSlash(dir), clone)
	if _, err := git.Tags(t.Context(), clone); !errors.Is(err, git.ErrNoTagsFetched) {
		t.Errorf("a shallow clone without tags: %v", err)
	}
}

func TestTagsHere(t *testing.T) {
	dir := tagged(t, "v0.1.0")
	run(t, dir, "commit", "-q", "--allow-empty", "-m", "more")
	if tags, err := git.TagsHere(t.Context(), dir); err != nil || len(tags) > 0 {
		t.Errorf("after the tag: %v, %v", tags, err)
	}
	run(t, dir, "tag", "v0.2.0")
	run(t, dir, "tag", "api/v0.2.0")
	if tags, err := git.TagsHere(t.Context(), dir); err != nil || !slices.Equal(tags, []string{"api/v0.2.0", "v0.2.0"}) {
		t.Errorf("at the tags: %v, %v", tags, err)
	}
	if _, err := git.TagsHere(t.Context(), t.TempDir()); err == nil {
		t.Error("a folder outside of a repository has tags")
	}
}

func TestTagsRefuses(t *testing.T) {
	dir := t.TempDir()
	if _, err := exec.LookPath("git"); err == nil {
		if _, err := git.Tags(t.Context(), dir); !errors.Is(err, git.ErrNoRepository) {
			t.Errorf("outside of a repository: %v", err)
		}
		broken := t.TempDir()
		if err := os.WriteFile(filepath.Join(broken, ".git"), []byte("gitdir: nowhere\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := git.Tags(t.Context(), broken); err == nil || errors.Is(err, git.ErrNoRepository) {
			t.Errorf("a broken repository: %v", err)
		}
		stopped, stop := context.WithCancel(t.Context())
		stop()
		if _, err := git.Tags(stopped, dir); !errors.Is(err, context.Canceled) {
			t.Errorf("a canceled context: %v", err)
		}
	}
	if _, err := git.Tags(t.Context(), filepath.Join(dir, "nowhere")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing folder: %v", err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := git.Tags(t.Context(), file); err == nil {
		t.Error("a file instead of a folder is not an error")
	}
	t.Setenv("PATH", dir)
	if _, err := git.Tags(t.Context(), dir); !errors.Is(err, git.ErrNoGit) {
		t.Errorf("without git: %v", err)
	}
}
