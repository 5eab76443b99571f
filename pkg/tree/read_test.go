package tree_test

import (
	"slices"
	"testing"

	"github.com/clusterctl-release/clusterctl-release/internal/treetest"
	"github.com/clusterctl-release/clusterctl-release/pkg/tree"
)

// TestFilesRead checks that files that kustomize and ReadFile read are recorded with the paths to which links lead,
// and that missing files are not recorded.
func TestFilesRead(t *testing.T) {
	dir := treetest.New(t, map[string]string{
		"config/kustomization.yaml": "resources: [cm.yaml, ../linked/more.yaml]\n",
		"config/cm.yaml":            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n",
		"real/more.yaml":            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\n",
		"linked":                    treetest.LinkTo + "real",
		"metadata.yaml":             "a: 1\n",
		"other.yaml":                "a: 1\n",
	})
	source, err := tree.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := source.Kustomize("config"); err != nil {
		t.Fatal(err)
	}
	if _, err := source.ReadFile("metadata.yaml"); err != nil {
		t.Fatal(err)
	}
	if _, err := source.ReadFile("nowhere.yaml"); err == nil {
		t.Error("ReadFile of the missing nowhere.yaml returned no error")
	}
	want := []string{"config/cm.yaml", "config/kustomization.yaml", "metadata.yaml", "real/more.yaml"}
	if got := source.FilesRead(); !slices.Equal(got, want) {
		t.Errorf("FilesRead() = %q, want %q", got, want)
	}
}
