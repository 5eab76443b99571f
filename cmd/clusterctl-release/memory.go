package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"sync/atomic"
)

// The heaps up to which garbage is collected rarely, in bytes. The program itself takes some 70 MiB more.
const (
	heapOfReleases = 190 << 20
	heapOfWorlds   = 100 << 20 // most of what is read of a management cluster is garbage at once
)

var (
	heapLimit  atomic.Int64
	followHeap sync.Once
)

// boundMemory trades memory for time, as a process that ends soon can: garbage is collected a quarter as
// often as Go does by default, until the heap has so many bytes. Where more than half of that is in use,
// the limit is twice of what is in use: collecting more often than that would take most of the time. GOGC
// and GOMEMLIMIT, where they are set, are the user's word.
func boundMemory(limit int64) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	heapLimit.Store(limit)
	debug.SetGCPercent(400)
	debug.SetMemoryLimit(limit)
	followHeap.Do(func() {
		// The finalizer of an object that nobody uses runs after each collection.
		runtime.SetFinalizer(&collected{}, (*collected).raiseLimit)
	})
}

// collected is garbage in every collection. It has a field, as objects without a size have no finalizers.
type collected struct{ _ *byte }

// raiseLimit sets the limit by what the last collection left in use.
func (c *collected) raiseLimit() {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	debug.SetMemoryLimit(max(heapLimit.Load(), 2*int64(min(live[0].Value.Uint64(), 1<<60))))
	runtime.SetFinalizer(c, (*collected).raiseLimit)
}
