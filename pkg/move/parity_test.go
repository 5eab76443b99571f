package move_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clusterctl-release/clusterctl-release/internal/pinned"
	"github.com/clusterctl-release/clusterctl-release/pkg/move"
)

// seeds is the number of scenarios that are compared.
const seeds = 200

// TestParity compares plans of live namespaces with clusterctl's own code for the same objects: the objects
// that it creates, in their order, the objects that it deletes, the files that it writes to a folder, and
// whether it refuses to start. Two API servers run half of the scenarios each, because most of the time is spent
// waiting for them.
func TestParity(t *testing.T) {
	first := theWorld(t)
	var mutex sync.Mutex
	seen := map[string]int{}
	compare := func(t *testing.T, w *world, seed int) {
		s := newScenario(seed, "parity")
		all := seed < 10 // also compare the move of all namespaces
		w.install(t, s)
		defer w.remove(t, s, all)
		namespaces := []string{s.space}
		if all {
			namespaces = append(namespaces, "")
		} else if seed%4 == 0 {
			namespaces = append(namespaces, s.second)
		}
		for _, namespace := range namespaces {
			plan := w.plan(t, namespace)
			mutex.Lock()
			count(seen, plan)
			mutex.Unlock()
			compareDryRun(t, w, plan)
			if seed%2 == 0 {
				compareToDirectory(t, w, plan)
			}
		}
	}
	t.Run("servers", func(t *testing.T) {
		for half := range 2 {
			t.Run(strconv.Itoa(half), func(t *testing.T) {
				t.Parallel()
				w := first
				if half == 1 {
					second, stop, err := startWorld()
					defer stop()
					if err != nil {
						t.Fatal(err)
					}
					w = second
				}
				for seed := range seeds {
					if seed/2%2 == half { // both halves have even and odd seeds
						t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) { compare(t, w, seed) })
					}
				}
			})
		}
	})
	// The scenarios must have all cases that the rules distinguish.
	for _, what := range []string{"moved", "deleted", "kept", "left alone in the target", "stuck", "left behind", "apart", "stops", "stops of dry runs", "starts"} {
		if seen[what] < 10 {
			t.Errorf("%d of %d plans have the case %q, want at least 10", seen[what], seeds, what)
		}
	}
	t.Logf("plans by their cases: %v", seen)
}

// count adds the cases of a plan.
func count(seen map[string]int, plan *move.Plan) {
	has := map[string]bool{"apart": len(plan.Apart) > 0, "stops": len(plan.Stops) > 0}
	for _, s := range plan.Stops {
		has["stops of dry runs"] = has["stops of dry runs"] || s.DryRun
	}
	has["starts"] = !has["stops of dry runs"]
	for _, group := range plan.Groups {
		for _, m := range group {
			has["moved"] = true
			has["deleted"] = has["deleted"] || m.Deleted
			has["kept"] = has["kept"] || m.Kept != ""
			has["left alone in the target"] = has["left alone in the target"] || m.IfThere == move.Leave
		}
	}
	for _, l := range plan.LeftBehind {
		has["stuck"] = has["stuck"] || l.Linked
		has["left behind"] = has["left behind"] || !l.Linked
	}
	for what, yes := range has {
		if yes {
			seen[what]++
		}
	}
}

// compareDryRun compares a plan with clusterctl's dry run.
func compareDryRun(t *testing.T, w *world, plan *move.Plan) {
	t.Helper()
	stops := slices.ContainsFunc(plan.Stops, func(s move.Stop) bool { return s.DryRun })
	got, err := w.dryRun(t.Context(), plan.Namespace)
	if (err != nil) != stops {
		t.Errorf("clusterctl's dry run ends with %v; the plan's stops are %v", err, plan.Stops)
	}
	if err != nil {
		return
	}
	group := map[string]int{}
	var created, deleted []string
	for i, moved := range plan.Groups {
		for _, m := range moved {
			group[nameOf(m.Object)] = i
			created = append(created, nameOf(m.Object))
			if m.Deleted {
				deleted = append(deleted, nameOf(m.Object))
			}
		}
	}
	if diff := cmp.Diff(sorted(got.created), sorted(created)); diff != "" {
		t.Errorf("created (-clusterctl +plan):\n%s", diff)
	}
	if diff := cmp.Diff(sorted(got.deleted), sorted(deleted)); diff != "" {
		t.Errorf("deleted (-clusterctl +plan):\n%s", diff)
	}
	if !slices.IsSortedFunc(got.created, func(a, b string) int { return group[a] - group[b] }) {
		t.Errorf("clusterctl creates objects in another order than the plan's groups: %v", got.created)
	}
	if !slices.IsSortedFunc(got.deleted, func(a, b string) int { return group[b] - group[a] }) {
		t.Errorf("clusterctl deletes objects in another order than the plan's groups: %v", got.deleted)
	}
}

// compareToDirectory compares a plan with the files that clusterctl writes.
func compareToDirectory(t *testing.T, w *world, plan *move.Plan) {
	t.Helper()
	stops := slices.ContainsFunc(plan.Stops, func(s move.Stop) bool { return s.ToDirectory })
	got, err := w.toDirectory(t.Context(), plan.Namespace, t.TempDir())
	if (err != nil) != stops {
		t.Errorf("clusterctl's move to a directory ends with %v; the plan's stops are %v", err, plan.Stops)
	}
	if err != nil {
		return
	}
	files := map[string]bool{}
	for _, moved := range plan.Groups {
		for _, m := range moved {
			files[move.FileName(m.Object)] = true
		}
	}
	if diff := cmp.Diff(sorted(got), sorted(slices.Collect(maps.Keys(files)))); diff != "" {
		t.Errorf("files (-clusterctl +plan):\n%s", diff)
	}
}

// sorted returns the items in order.
func sorted(items []string) []string {
	items = append([]string{}, items...)
	slices.Sort(items)
	return items
}

// TestParityOfTheProgram compares plans of a few scenarios with the program clusterctl itself.
func TestParityOfTheProgram(t *testing.T) {
	w := theWorld(t)
	clusterctl := pinned.Tool(t, "clusterctl")
	created := regexp.MustCompile(`(?m)^Creating (\w+)="([^"]*)" Namespace="([^"]*)"`)
	for seed := 1000; seed < 1006; seed++ {
		s := newScenario(seed, "program")
		w.install(t, s)
		plan := w.plan(t, s.space)
		if !slices.ContainsFunc(plan.Stops, func(s move.Stop) bool { return s.DryRun }) {
			cmd := exec.CommandContext(t.Context(), clusterctl, "move", "--dry-run", "-v", "1", "--kubeconfig", w.kubeconfig, "--namespace", s.space)
			cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "CLUSTERCTL_DISABLE_VERSIONCHECK=true")
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("seed %d: clusterctl move: %v\n%s", seed, err, out)
			}
			var got, want []string
			for _, match := range created.FindAllStringSubmatch(string(out), -1) {
				got = append(got, match[1]+" "+match[3]+"/"+match[2])
			}
			for _, group := range plan.Groups {
				for _, m := range group {
					want = append(want, nameOf(m.Object))
				}
			}
			if diff := cmp.Diff(sorted(got), sorted(want)); diff != "" {
				t.Errorf("seed %d: created (-clusterctl +plan):\n%s\n%s", seed, diff, out)
			}
		}
		w.remove(t, s, true)
	}
}
