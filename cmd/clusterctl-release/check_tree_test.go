package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clusterctl-release/clusterctl-release/internal/prerequisite"
)

// TestCheckAgainstTheTree holds a built release against the tree that it was made from, as long as that
// is what is checked out.
func TestCheckAgainstTheTree(t *testing.T) {
	prerequisite.Program(t, "git")
	dir := inDemo(t)
	succeed(t, "build", "--version", "v0.1.0")
	if err := os.Remove(filepath.Join("out", "release", "infrastructure-demo", "v0.1.0", "cluster-template-topology.yaml")); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join("templates", "cluster-template.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir("more", 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join("more", "cluster-template-gpu.yaml"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	git := func(args ...string) {
		t.Helper()
		command := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)...)
		command.Dir = dir
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
	}
	wants := func(when string, found bool) {
		t.Helper()
		got := succeed(t, "check", "out/release")
		for _, says := range []string{"has no cluster-template-topology.yaml", "the tree has more/cluster-template-gpu.yaml"} {
			if strings.Contains(got, says) != found {
				t.Errorf("%s, %q is said: %v, want %v:\n%s", when, says, !found, found, got)
			}
		}
	}
	wants("without a repository", true)
	git("init", "-q")
	git("commit", "-q", "--allow-empty", "-m", "first")
	wants("before the tag", true)
	git("tag", "v0.1.0")
	wants("at the tag", true)
	git("commit", "-q", "--allow-empty", "-m", "second")
	wants("after the tag", false)
}
