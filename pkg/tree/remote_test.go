package tree_test

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/clusterctl-release/clusterctl-release/internal/treetest"
	"github.com/clusterctl-release/clusterctl-release/pkg/tree"
)

// repository creates a git repository with these files and returns its URL.
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

// TestKustomizeFetchedBase checks that a base that kustomize fetches may be outside of the tree.
func TestKustomizeFetchedBase(t *testing.T) {
	url := repository(t, map[string]string{"config/kustomization.yaml": list("a.yaml"), "config/a.yaml": configMap})
	source := open(t, map[string]string{"tree/config/kustomization.yaml": list(url + "//config?ref=main")})
	result, err := source.Kustomize("config")
	if err != nil {
		t.Fatal(err)
	}
	if result.Size() != 1 {
		t.Errorf("the result has %d objects, want 1", result.Size())
	}
	// A link in a clone must not lead out of the clone.
	url = repository(t, map[string]string{"config/kustomization.yaml": list("a.yaml"), "config/a.yaml": treetest.LinkTo + "/etc/hostname"})
	source = open(t, map[string]string{"tree/config/kustomization.yaml": list(url + "//config?ref=main")})
	_, err = source.Kustomize("config")
	requireError(t, err, tree.ErrOutside, "config/a.yaml", "symbolic link to /etc/hostname")
}

// TestKustomizeForeignClone checks that a build does not read a clone that it did not create.
func TestKustomizeForeignClone(t *testing.T) {
	temporary := treetest.New(t, nil)
	t.Setenv("TMPDIR", temporary)
	treetest.Write(t, temporary, map[string]string{
		"kustomize-123/kustomization.yaml": list("a.yaml"), "kustomize-123/a.yaml": configMap,
		"tree/base/kustomization.yaml": list("../../kustomize-123"),
		"tree/file/kustomization.yaml": list(filepath.Join(temporary, "kustomize-123", "a.yaml")),
		"tree/link/kustomization.yaml": list("a.yaml"),
		"tree/link/a.yaml":             treetest.LinkTo + filepath.Join(temporary, "kustomize-123", "a.yaml"),
	})
	source, err := tree.Open(filepath.Join(temporary, "tree"))
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"base", "file", "link"} {
		_, err := source.Kustomize(dir)
		requireError(t, err, tree.ErrOutside, "kustomize-123", "into the tree")
	}
}
