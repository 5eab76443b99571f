package tree_test

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/clusterctl-release/clusterctl-release/internal/treetest"
)

// repository makes a git repository of these files and returns its URL.
func repository(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := filepath.Join(treetest.New(t, nil), "base.git")
	treetest.Write(t, dir, files)
	for _, args := range [][]string{
		{"init", "--quiet", "--initial-branch=main"},
		{"add", "."},
		{"-c", "user.name=demo", "-c", "user.email=demo@example.com", "-c", "commit.gpgsign=false", "commit", "--quiet", "-m", "base"},
	} {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	return "file://" + filepath.ToSlash(dir)
}

// TestKustomizeRemoteThatIsThere: what kustomize itself fetches lies outside of the tree, and may.
func TestKustomizeRemoteThatIsThere(t *testing.T) {
	url := repository(t, map[string]string{"config/kustomization.yaml": list("a.yaml"), "config/a.yaml": configMap})
	source := open(t, map[string]string{"tree/config/kustomization.yaml": list(url + "//config?ref=main")})
	result, err := source.Kustomize("config")
	if err != nil {
		t.Fatal(err)
	}
	if result.Size() != 1 {
		t.Errorf("the result has %d objects, want 1", result.Size())
	}
	// What was fetched is no way to the rest of the disk: there kustomize's own bound holds.
	url = repository(t, map[string]string{"config/kustomization.yaml": list("a.yaml"), "config/a.yaml": treetest.LinkTo + "/etc/hostname"})
	source = open(t, map[string]string{"tree/config/kustomization.yaml": list(url + "//config?ref=main")})
	_, err = source.Kustomize("config")
	requireError(t, err, nil, "security", "config/a.yaml", "is not in or below")
}
