package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clusterctl-release/clusterctl-release/internal/prerequisite"
)

// TestCheckAgainstTheTree checks that a release is compared with the tree of its build only while HEAD is the
// release's commit.
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
	check := func(when string, want bool) {
		t.Helper()
		got := succeed(t, "check", "out/release")
		for _, finding := range []string{"has no cluster-template-topology.yaml", "the tree has more/cluster-template-gpu.yaml"} {
			if strings.Contains(got, finding) != want {
				t.Errorf("%s: found %q: %v, want %v:\n%s", when, finding, !want, want, got)
			}
		}
	}
	check("without a repository", true)
	git("init", "-q")
	git("commit", "-q", "--allow-empty", "-m", "first")
	check("before the tag", true)
	git("tag", "v0.1.0")
	check("at the tag", true)
	git("commit", "-q", "--allow-empty", "-m", "second")
	check("after the tag", false)
}
