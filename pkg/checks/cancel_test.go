package checks_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/catalog"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// countingContext counts the calls of Err, and cancels itself at one of them.
type countingContext struct {
	context.Context
	cancel context.CancelFunc
	calls  atomic.Int64
	// cancelAt is the number of the call that cancels the context; 0 means that none does.
	cancelAt int64
}

func newCountingContext(t *testing.T, cancelAt int64) *countingContext {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	return &countingContext{Context: ctx, cancel: cancel, cancelAt: cancelAt}
}

// Err implements context.Context.
func (c *countingContext) Err() error {
	if c.calls.Add(1) == c.cancelAt {
		c.cancel()
	}
	return c.Context.Err()
}

// TestCancelled cancels runs at several points: a run often checks whether it is cancelled, and then ends soon.
func TestCancelled(t *testing.T) {
	own, err := ownRelease()
	if err != nil {
		t.Fatal(err)
	}
	large := *own
	large.Files = slices.Clone(own.Files)
	copies := 0
	for _, f := range own.Files {
		for i := 0; release.IsClusterTemplate(f.Name) && i < 10; i++ {
			large.Files = append(large.Files, release.File{Name: fmt.Sprintf("cluster-template-%d-%s", i, f.Name), Data: f.Data})
			copies++
		}
	}
	run := func(ctx context.Context) (*checks.Result, error) {
		return catalog.All().Run(ctx, &checks.Subject{Release: &large, Previous: &large})
	}
	whole := newCountingContext(t, 0)
	if _, err := run(whole); err != nil {
		t.Fatal(err)
	}
	calls := whole.calls.Load()
	// At least one call for each check, and several for each template.
	if least := int64(len(catalog.All()) + 3*copies); calls < least {
		t.Errorf("a run calls Err %d times, want at least %d", calls, least)
	}
	for part := range int64(6) {
		ctx := newCountingContext(t, 1+part*calls/8)
		result, err := run(ctx)
		if !errors.Is(err, context.Canceled) || result != nil {
			t.Errorf("cancelled at call %d of %d, Run returns %v, %v", ctx.cancelAt, calls, result, err)
		}
		if after := ctx.calls.Load() - ctx.cancelAt; after > calls/8 {
			t.Errorf("cancelled at call %d of %d, the run calls Err %d times more", ctx.cancelAt, calls, after)
		}
	}
}
