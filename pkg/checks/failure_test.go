package checks_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/catalog"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/tree"
)

// TestFailure runs a check that fails between two others: the result has the findings of all three, and the error
// names the check and the release.
func TestFailure(t *testing.T) {
	own, err := ownRelease()
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("the disk is full")
	run := func(id string, err error) checks.Check {
		return checks.Check{ID: id, Severity: checks.Note, Run: func(_ context.Context, _ *checks.Subject, report checks.Report) error {
			report(checks.Finding{Message: "found by " + id})
			return err
		}}
	}
	list := checks.List{run("first", nil), run("second", broken), run("third", nil)}
	config := &release.ProviderConfig{Suppress: []release.Suppression{{Check: "second", File: "not-reached.yaml", Reason: "none"}}}
	result, err := list.Run(t.Context(), &checks.Subject{Release: own, Config: config})
	var failure *checks.Failure
	if !errors.As(err, &failure) || failure.Check != "second" || !errors.Is(err, broken) {
		t.Fatalf("error = %v, want a Failure of the check second that wraps %q", err, broken)
	}
	for _, part := range []string{"second", own.String(), "the disk is full", "check again"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not contain %q: %v", part, err)
		}
	}
	if result == nil || len(result.Findings) != 3 {
		t.Errorf("result = %+v, want the findings of the three checks, without suppression-unused for the second", result)
	}
}

// TestUnreadableTree checks a release whose source tree can't be read: the check that needs the tree returns an
// error, not a finding in the release.
func TestUnreadableTree(t *testing.T) {
	own, err := ownRelease()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	source, err := tree.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	result, err := catalog.All().Run(t.Context(), &checks.Subject{
		Release: own, Config: &release.ProviderConfig{}, Source: &checks.Source{Tree: source, Config: &release.Config{}},
	})
	var failure *checks.Failure
	if !errors.As(err, &failure) || failure.Check != "assets-complete" || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error = %v, want a Failure of assets-complete", err)
	}
	if result == nil {
		t.Fatal("the other checks have no result")
	}
	for _, f := range result.Findings {
		if f.ID == "assets-complete" {
			t.Errorf("the unreadable tree is reported as a finding: %s", f.Message)
		}
	}
}

// TestCancelledCheck cancels the context while a check waits: the run ends with the context's error, whether the
// check returns it or not, and the checks after it don't run.
func TestCancelledCheck(t *testing.T) {
	own, err := ownRelease()
	if err != nil {
		t.Fatal(err)
	}
	for name, returned := range map[string]func(ctx context.Context) error{
		"returned": context.Context.Err,
		"ignored":  func(context.Context) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			nextRan := false
			list := checks.List{
				{ID: "waits", Run: func(ctx context.Context, _ *checks.Subject, _ checks.Report) error {
					cancel()
					<-ctx.Done()
					return returned(ctx)
				}},
				{ID: "next", Run: func(context.Context, *checks.Subject, checks.Report) error {
					nextRan = true
					return nil
				}},
			}
			result, err := list.Run(ctx, &checks.Subject{Release: own})
			var failure *checks.Failure
			if !errors.Is(err, context.Canceled) || errors.As(err, &failure) || result != nil || nextRan {
				t.Errorf("result = %v, error = %v, the next check ran: %v", result, err, nextRan)
			}
		})
	}
}

// TestCancelledChecksFindNothing runs each check with a cancelled context: a check reports no finding for input
// that it can't read. Checks that render templates or call clusterctl's code return the context's error.
func TestCancelledChecksFindNothing(t *testing.T) {
	own, err := ownRelease()
	if err != nil {
		t.Fatal(err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	stopped := map[string]bool{}
	live := &checks.Subject{Release: own, Previous: own}
	for _, check := range catalog.All() {
		if check.Run == nil {
			continue
		}
		found := len(findingsOf(t, check, live))
		err := check.Run(cancelled, &checks.Subject{Release: own, Previous: own}, func(f checks.Finding) {
			if found--; found < 0 {
				t.Errorf("with a cancelled context, %s reports: %s", check.ID, f.Message)
			}
		})
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("with a cancelled context, %s returns %v, want %v", check.ID, err, context.Canceled)
		}
		stopped[check.ID] = err != nil
	}
	for _, id := range []string{"as-clusterctl", "crd-valid", "template-rendered", "template-schema", "clusterclass-admission", "clusterclass-topology", "orphan", "crd-update-refused", "class-changed"} {
		if !stopped[id] {
			t.Errorf("with a cancelled context, %s returns no error", id)
		}
	}
}
