package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clusterctl-release/clusterctl-release/internal/prerequisite"
	"github.com/clusterctl-release/clusterctl-release/internal/treetest"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// committed makes a folder a Git repository, commits all files, and returns the commit.
func committed(t *testing.T, dir string) string {
	t.Helper()
	prerequisite.Program(t, "git")
	t.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	t.Setenv("GIT_CONFIG_NOSYSTEM", "1")
	out := ""
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}, {"commit", "-q", "-m", "all"}, {"rev-parse", "HEAD"}} {
		command := exec.CommandContext(t.Context(), "git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)...)
		command.Dir = dir
		data, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v: %s", args, err, data)
		}
		out = strings.TrimSpace(string(data))
	}
	return out
}

// TestBuildVersionOfTag checks that a build without --version takes the version from the only version tag of HEAD.
func TestBuildVersionOfTag(t *testing.T) {
	dir := inDemo(t)
	committed(t, dir)
	git := func(args ...string) {
		t.Helper()
		command := exec.CommandContext(t.Context(), "git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)...)
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
	}
	requireFailure(t, execute(t, "build"), exitUsage, "no version given", "has no tag", "set --version vX.Y.Z", "git fetch --tags")
	git("tag", "latest")
	git("tag", "provider/v0.1.0")
	requireFailure(t, execute(t, "build"), exitUsage, "no tag vX.Y.Z, only latest, provider/v0.1.0", "set --version vX.Y.Z")
	git("tag", "-a", "-m", "annotated", "v0.1.0")
	if out := succeed(t, "build"); !strings.Contains(out, "built infrastructure-demo v0.1.0") {
		t.Errorf("a build with a tag prints %s", out)
	}
	git("tag", "v0.1.0-rc.1")
	requireFailure(t, execute(t, "build"), exitUsage, "several version tags", "v0.1.0, v0.1.0-rc.1", "set --version")
	git("commit", "-q", "--allow-empty", "-m", "after")
	requireFailure(t, execute(t, "build"), exitUsage, "has no tag")
}

// TestBuildRecordsSource checks that a build records its commit and reports files that are not in the commit,
// except earlier output. Publish refuses such a release before it sends requests.
func TestBuildRecordsSource(t *testing.T) {
	dir := inDemo(t)
	version := filepath.Join("out", "release", "infrastructure-demo", "v0.1.0")
	record := func() string {
		t.Helper()
		r, err := release.ReadVersion(version)
		if err != nil {
			t.Fatal(err)
		}
		if r.Source == nil {
			return ""
		}
		if len(r.ChangedSinceBuild()) > 0 || r.Source.Tool == "" {
			t.Errorf("the record is %+v", r.Source)
		}
		return strings.TrimSpace(r.Source.Commit + map[bool]string{true: " modified"}[r.Source.Modified])
	}
	build := func(note, want string) {
		t.Helper()
		got := execute(t, "build", "--version", "v0.1.0")
		if got.status != exitFine || strings.Contains(got.stderr, "note: the ") != (note != "") || !strings.Contains(got.stderr, note) {
			t.Errorf("got the note %q, want %q", got.stderr, note)
		}
		if got := record(); got != want {
			t.Errorf("recorded %q, want %q", got, want)
		}
	}
	build("the source is not recorded: finding the commit of .: not in a git repository", "")
	if err := os.RemoveAll("out"); err != nil {
		t.Fatal(err)
	}
	commit := committed(t, dir)
	build("", commit)
	before := listing(t, version)
	build("", commit) // out/release itself isn't a change
	if after := listing(t, version); len(before) == 0 || len(before) != len(after) || before[release.SourceFile] != after[release.SourceFile] {
		t.Errorf("the first build wrote %v, the second %v", before, after)
	}
	treetest.Write(t, dir, map[string]string{"note.txt": ""})
	build("files that differ from the commit "+commit+" (note.txt)", commit+" modified")
	if err := os.Remove("note.txt"); err != nil {
		t.Fatal(err)
	}
	build("", commit) // the same files of the release, and another record
	// Files that Git ignores aren't changes, unless the build uses them.
	treetest.Write(t, dir, map[string]string{".git/info/exclude": "/note.txt\n/templates/cluster-template-ignored.yaml\n", "note.txt": ""})
	build("", commit)
	data, err := os.ReadFile(filepath.Join("templates", "cluster-template.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	treetest.Write(t, dir, map[string]string{"templates/cluster-template-ignored.yaml": string(data)})
	build("(templates/cluster-template-ignored.yaml)", commit+" modified")
	if err := os.Remove(filepath.Join("templates", "cluster-template-ignored.yaml")); err != nil {
		t.Fatal(err)
	}

	treetest.Write(t, dir, map[string]string{version + "/" + release.SourceFile: `{"commit": "main"}`})
	requireFailure(t, execute(t, "publish", "out/release", "--to", "repository"), exitFailed, release.SourceFile, "not the full hash of a commit", "remove the file")
}
