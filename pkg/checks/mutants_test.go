package checks_test

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/clusterctl-release/clusterctl-release/internal/pinned"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/catalog"
)

var mutants = flag.Bool("mutants", false, "print the matrix of planted defects and the checks that find them")

// TestMutants applies every bad case to the own release and prints a matrix: how many forms of a defect were
// planted, how many of them the right check found, and which other checks have findings.
//
// TestCases covers the same cases; this test prints them for people, with `make mutants`.
func TestMutants(t *testing.T) {
	if !*mutants {
		return
	}
	t.Logf("%-36s %7s %5s  %s", "check", "planted", "found", "others")
	for _, check := range catalog.All() {
		data, err := os.ReadFile(filepath.Join(pinned.Root(t), "testdata", "checks", check.ID+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var cases caseFile
		if err := yaml.UnmarshalStrict(data, &cases); err != nil {
			t.Fatal(err)
		}
		found := 0
		others := map[string]bool{}
		for _, c := range cases.Bad {
			hit := false
			var result *checks.Result
			if c.Dump != "" {
				result = c.world(t)
			} else if result, err = catalog.All().Run(t.Context(), c.subject(t)); err != nil {
				t.Fatal(err)
			}
			for _, f := range result.Findings {
				if f.ID == check.ID {
					hit = true
				} else {
					others[f.ID] = true
				}
			}
			if hit {
				found++
			}
		}
		if found != len(cases.Bad) {
			t.Errorf("%s found %d of %d planted defects", check.ID, found, len(cases.Bad))
		}
		t.Logf("%-36s %7d %5d  %s", check.ID, len(cases.Bad), found, strings.Join(slices.Sorted(maps.Keys(others)), " "))
	}
}
