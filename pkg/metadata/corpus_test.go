package metadata_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/clusterctl-release/clusterctl-release/internal/pinned"
	"github.com/clusterctl-release/clusterctl-release/pkg/metadata"
)

// corpus returns the metadata.yaml files of real providers by path, and fails the test if there are none.
func corpus(t testing.TB) map[string][]byte {
	t.Helper()
	dir := pinned.Corpus(t)
	files := map[string][]byte{}
	for _, pattern := range []string{"released/*/*/metadata.yaml", "source/*/metadata.yaml"} {
		paths, err := filepath.Glob(filepath.Join(dir, filepath.FromSlash(pattern)))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			name, _ := filepath.Rel(dir, path)
			files[filepath.ToSlash(name)] = data
		}
	}
	if len(files) == 0 {
		t.Fatalf("the corpus of real providers in %s has no metadata.yaml", dir)
	}
	return files
}

func TestAddToCorpus(t *testing.T) {
	for path, data := range corpus(t) {
		t.Run(path, func(t *testing.T) {
			file, err := metadata.Parse(path, data)
			if err != nil {
				t.Fatal(err)
			}
			mustAgree(t, file)
			if p := file.Check(file.Newest(), nil); slices.ContainsFunc(p, func(p metadata.Problem) bool { return p.ID != metadata.ProblemKind }) {
				t.Errorf("problems: %v", p)
			}
			newest := file.Newest()
			for _, version := range []string{
				fmt.Sprintf("v%d.%d.0", newest.Major, newest.Minor+1), fmt.Sprintf("v%d.0.0-rc.0", newest.Major+1), "v0.0.1",
			} {
				added, err := file.Add(version, "v1beta2")
				if err != nil {
					t.Fatal(err)
				}
				mustAgree(t, added)
				lines, ok := onlyInserted(data, added.Data)
				if !ok || strings.Count(lines, "\n") != 3 || strings.Contains(lines, "#") || !strings.Contains(lines, "contract: v1beta2") {
					t.Errorf("%s: Add inserted %q, want three lines", version, lines)
				}
				if strings.Contains(string(data), "\r\n") && strings.Count(lines, "\r\n") != 3 {
					t.Errorf("%s: Add inserted %q, want the line breaks of the file", version, lines)
				}
				if p := added.Check(added.Newest(), nil); slices.ContainsFunc(p, func(p metadata.Problem) bool { return p.ID != metadata.ProblemKind }) {
					t.Errorf("%s: problems after Add: %v", version, p)
				}
				if again, err := added.Add(version, "v1beta2"); err != nil || again != added {
					t.Errorf("%s: adding the series again changes the file: %v", version, err)
				}
			}
		})
	}
}
