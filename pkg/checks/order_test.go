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

// orderRuns is how often the findings are compared: a walk over a map of two gives the same order
// every time with a probability of 1 to 2^19.
const orderRuns = 20

// findingsText returns what each check finds in a release, in the order in which it reports it: the
// engine sorts by places, and cuts what is too much.
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

// requireOneOrder fails where the checks report other findings, or in another order, from run to run.
func requireOneOrder(t *testing.T, findings func() string) {
	t.Helper()
	first := findings()
	for range orderRuns - 1 {
		if other := findings(); other != first {
			a, b := strings.Split(first, "\n"), strings.Split(other, "\n")
			for i := range min(len(a), len(b)) {
				if a[i] != b[i] {
					t.Errorf("finding %d was\n%s\nand is\n%s", i, a[i], b[i])
					return
				}
			}
			t.Errorf("there were %d findings, and there are %d", len(a), len(b))
			return
		}
	}
}

// TestFindingsInOneOrder checks a release with several findings of each kind that comes of a map.
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
			t.Errorf("the release has %d findings of %s, want %d to compare", n, id, least)
		}
	}
	requireOneOrder(t, func() string { return findingsText(t, &checks.Subject{Release: r}) })
}

// TestCorpusFindingsInOneOrder checks the corpus again and again. What takes longest is done once: to
// read the files, and to compile the rules of CRDs.
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
