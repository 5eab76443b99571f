package checks_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// TestCancelled: a run that is cancelled ends long before it is done, whatever check is running.
func TestCancelled(t *testing.T) {
	own, err := ownRelease()
	if err != nil {
		t.Fatal(err)
	}
	large := *own
	large.Files = slices.Clone(own.Files)
	for _, f := range own.Files {
		for i := 0; release.IsClusterTemplate(f.Name) && i < 50; i++ {
			large.Files = append(large.Files, release.File{Name: fmt.Sprintf("cluster-template-%d-%s", i, f.Name), Data: f.Data})
		}
	}
	started := time.Now()
	if _, err := checks.Run(t.Context(), &checks.Subject{Release: &large, Previous: &large}); err != nil {
		t.Fatal(err)
	}
	whole := time.Since(started)
	for part := range 6 {
		ctx, cancel := context.WithCancel(t.Context())
		var cancelled time.Time
		timer := time.AfterFunc(time.Duration(part)*whole/8, func() { cancelled = time.Now(); cancel() })
		result, err := checks.Run(ctx, &checks.Subject{Release: &large, Previous: &large})
		if err == nil {
			t.Logf("the run was done before it was cancelled at %d/8 of %v", part, whole)
		} else if took := time.Since(cancelled); !errors.Is(err, context.Canceled) || result != nil || took > whole/4 {
			t.Errorf("cancelled at %d/8 of %v, it went on for %v and gave %v, %v", part, whole, took, result, err)
		}
		timer.Stop()
		cancel()
	}
}
