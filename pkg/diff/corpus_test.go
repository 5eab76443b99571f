package diff_test

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/clusterctl-release/clusterctl-release/internal/pinned"
	"github.com/clusterctl-release/clusterctl-release/pkg/diff"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// edits change one thing in the files of a release.
var edits = map[string]func(text string) string{
	"limit":     func(text string) string { return regexp.MustCompile(`maxLength: \d`).ReplaceAllString(text, "${0}1") },
	"image":     func(text string) string { return strings.ReplaceAll(text, "image: ", "image: elsewhere.example.com/") },
	"arguments": func(text string) string { return strings.ReplaceAll(text, "--leader-elect", "--new-flag=`|`") },
	"column":    func(text string) string { return strings.ReplaceAll(text, "jsonPath: .metadata", "jsonPath: .status") },
	"variable": func(text string) string {
		return strings.ReplaceAll(text, "${CLUSTER_NAME}", "${CLUSTER_NAME}${NEW_VARIABLE}")
	},
	"webhook": func(text string) string {
		return strings.ReplaceAll(text, "failurePolicy: Fail", "failurePolicy: Ignore")
	},
	"verbs": func(text string) string { return strings.ReplaceAll(text, "  - watch\n", "  - watch\n  - escalate\n") },
	"CA":    func(text string) string { return strings.ReplaceAll(text, "inject-ca-from:", "inject-apiserver-ca:") },
}

// mostUnits is the number of releases in which an edit is tried alone; all edits together are tried in each.
const mostUnits = 4

// TestCorpus compares each release of the corpus with itself and with edits of it: a release does not differ from
// itself, an edit is never reported as a mere change of text, and all runs have the same output.
func TestCorpus(t *testing.T) {
	folders, err := filepath.Glob(filepath.Join(pinned.Corpus(t), "released", "*", "*"))
	if err != nil || len(folders) == 0 {
		t.Fatalf("%v: %v", folders, err)
	}
	tried := map[string]int{}
	for _, folder := range folders {
		label := filepath.Base(filepath.Dir(folder))
		t.Run(label, func(t *testing.T) {
			provider, err := release.ParseLabel(label)
			if err != nil {
				t.Fatal(err)
			}
			edited := func(edit func(string) string) *release.Release {
				var files []release.File
				for _, file := range filesOf(t, folder) {
					files = append(files, release.File{Name: file.Name, Data: []byte(edit(string(file.Data)))})
				}
				r, err := release.New(provider, filepath.Base(folder), files)
				if err != nil {
					t.Fatal(err)
				}
				return r
			}
			unchanged := edited(func(text string) string { return text })
			if _, d := shown(t, unchanged, unchanged); !d.Empty() {
				t.Errorf("the release differs from itself: %+v", d)
			}
			all := func(text string) string { return text }
			for _, name := range slices.Sorted(maps.Keys(edits)) {
				before, edit := all, edits[name]
				all = func(text string) string { return edit(before(text)) }
				after := edited(edit)
				if tried[name] == mostUnits || bytes.Equal(joined(unchanged), joined(after)) {
					continue
				}
				tried[name]++
				d, err := diff.Releases(unchanged, after)
				if err != nil {
					t.Fatal(err)
				}
				if d.Empty() || len(d.Reworded) > 0 && name != "variable" {
					t.Errorf("%s: the edit is missing or reported as a mere change of text: %+v", name, d.Reworded)
				}
			}
			first, _ := shown(t, unchanged, edited(all))
			if again, _ := shown(t, unchanged, edited(all)); first != again {
				t.Error("the output of two runs differs")
			}
		})
	}
}

func filesOf(t *testing.T, folder string) []release.File {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var files []release.File
	for _, entry := range entries {
		data, err := os.ReadFile(filepath.Join(folder, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, release.File{Name: entry.Name(), Data: data})
	}
	return files
}

func joined(r *release.Release) []byte {
	var all []byte
	for _, f := range r.Files {
		all = append(all, f.Data...)
	}
	return all
}

// shown returns the output of all formats for two releases, and their difference.
func shown(t *testing.T, before, after *release.Release) (string, *diff.Difference) {
	t.Helper()
	r, err := diff.Sets([]*release.Release{before}, []*release.Release{after})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	for _, format := range diff.Formats.Names() {
		if err := r.Write(format, &out); err != nil {
			t.Fatal(err)
		}
	}
	return out.String(), r.Differences[0]
}
