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

// countingContext counts how often somebody asks whether it is done, and is done from one of them on.
type countingContext struct {
	context.Context
	cancel context.CancelFunc
	looks  atomic.Int64
	// last is the look at which it is cancelled; 0 is none.
	last int64
}

func newCountingContext(t *testing.T, last int64) *countingContext {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	return &countingContext{Context: ctx, cancel: cancel, last: last}
}

// Err implements context.Context.
func (c *countingContext) Err() error {
	if c.looks.Add(1) == c.last {
		c.cancel()
	}
	return c.Context.Err()
}

// TestCancelled cancels runs at several points: a run asks often whether it is cancelled, and ends where
// it learns that it is.
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
	looks := whole.looks.Load()
	// Each check, and more than one thing that is done with each template.
	if least := int64(len(catalog.All()) + 3*copies); looks < least {
		t.Errorf("a run asks %d times whether it is cancelled, want %d at least", looks, least)
	}
	for part := range int64(6) {
		ctx := newCountingContext(t, 1+part*looks/8)
		result, err := run(ctx)
		if !errors.Is(err, context.Canceled) || result != nil {
			t.Errorf("cancelled at look %d of %d, it gave %v, %v", ctx.last, looks, result, err)
		}
		if after := ctx.looks.Load() - ctx.last; after > looks/8 {
			t.Errorf("cancelled at look %d of %d, it asked %d times more", ctx.last, looks, after)
		}
	}
}
