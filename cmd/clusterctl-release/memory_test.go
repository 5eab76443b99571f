package main

import (
	"math"
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

// TestMemoryLimitFollowsTheHeap checks that the limit grows with the memory in use. Close to the limit, Go would
// collect garbage all the time.
func TestMemoryLimitFollowsTheHeap(t *testing.T) {
	t.Setenv("GOGC", "")
	t.Setenv("GOMEMLIMIT", "")
	t.Cleanup(func() {
		heapLimit.Store(math.MaxInt64)
		debug.SetMemoryLimit(math.MaxInt64)
		debug.SetGCPercent(100)
	})
	const base = 16 << 20
	boundMemory(base)
	if limit := debug.SetMemoryLimit(-1); limit != base {
		t.Errorf("the limit is %d at first, want %d", limit, base)
	}
	inUse := make([][]byte, 64)
	for i := range inUse {
		inUse[i] = make([]byte, 1<<20)
	}
	deadline := time.Now().Add(20 * time.Second)
	for debug.SetMemoryLimit(-1) < 128<<20 && time.Now().Before(deadline) {
		runtime.GC()
		time.Sleep(10 * time.Millisecond)
	}
	if limit := debug.SetMemoryLimit(-1); limit < 128<<20 {
		t.Errorf("with %d MiB in use the limit is %d MiB", len(inUse), limit>>20)
	}
	runtime.KeepAlive(inUse)
}
