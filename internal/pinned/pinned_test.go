package pinned

import (
	"os"
	"path/filepath"
	"testing"
)

// TestFindRoot looks for the project from folders of its module, from those of other modules in it, and from outside.
func TestFindRoot(t *testing.T) {
	project, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	started := startFolder
	t.Cleanup(func() { startFolder = started })
	for folder, want := range map[string]string{
		started:                                  project,
		project:                                  project,
		filepath.Join(project, "provider/e2e"):   project,
		filepath.Join(project, "hack/tools/cni"): project,
		os.TempDir():                             "",
	} {
		startFolder = folder
		if root, err := FindRoot(); root != want || (err == nil) != (want != "") {
			t.Errorf("from %s: %q, %v, want %q", folder, root, err, want)
		}
	}
}
