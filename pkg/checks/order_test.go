package checks_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/clusterctl-release/clusterctl-release/internal/pinned"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/catalog"
)

// orderRuns is how often the checks run: iterations over a map of two entries have the same order in all runs with
// a probability of 1 to 2^19.
const orderRuns = 20

// findingsText returns the findings of each check in the order in which it reports them. It does not use List.Run,
// which sorts and limits findings.
func findingsText(t *testing.T, subject *checks.Subject, without ...string) string {
	t.Helper()
	var text strings.Builder
	for _, check := range catalog.All() {
		if check.Run != nil && !slices.Contains(without, check.ID) {
			for _, f := range findingsOf(t, check, subject) {
				fmt.Fprintf(&text, "%s: %+v\n", check.ID, f)
			}
		}
	}
	return text.String()
}

// requireOneOrder fails if the findings or their order differ between runs.
func requireOneOrder(t *testing.T, findings func() string) {
	t.Helper()
	first := findings()
	for range orderRuns - 1 {
		if other := findings(); other != first {
			a, b := strings.Split(first, "\n"), strings.Split(other, "\n")
			for i := range min(len(a), len(b)) {
				if a[i] != b[i] {
					t.Errorf("finding %d =\n%s\nwant as in the first run\n%s", i, b[i], a[i])
					return
				}
			}
			t.Errorf("got %d findings, want %d as in the first run", len(b), len(a))
			return
		}
	}
}

// TestFindingsInOneOrder checks a release with several findings of each check that iterates over a map.
func TestFindingsInOneOrder(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(pinned.Root(t), "testdata", "order.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var c checkCase
	if err := yaml.UnmarshalStrict(data, &c); err != nil {
		t.Fatal(err)
	}
	r := c.apply(t)
	text := findingsText(t, &checks.Subject{Release: r})
	for id, least := range map[string]int{"clusterclass-ref-namespace": 3, "template-ref-namespace": 3, "crd-valid": 4, "clusterclass-admission": 2} {
		if n := strings.Count("\n"+text, "\n"+id+": "); n < least {
			t.Errorf("the release has %d findings of %s, want at least %d", n, id, least)
		}
	}
	requireOneOrder(t, func() string { return findingsText(t, &checks.Subject{Release: r}) })
}

// TestCorpusFindingsInOneOrder checks the corpus several times. The slowest parts run once: reading the files, and
// compiling the rules of CRDs.
func TestCorpusFindingsInOneOrder(t *testing.T) {
	var wait sync.WaitGroup
	limit := make(chan struct{}, runtime.GOMAXPROCS(0))
	for _, unit := range corpusUnits(t) {
		wait.Go(func() {
			limit <- struct{}{}
			defer func() { <-limit }()
			subject := &checks.Subject{Release: unit.release}
			requireOneOrder(t, func() string { return findingsText(t, subject, "crd-valid") })
		})
	}
	wait.Wait()
}
