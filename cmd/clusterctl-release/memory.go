package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"sync/atomic"
)

// The heap sizes up to which garbage is collected rarely, in bytes. The program itself needs about 70 MiB more.
const (
	heapOfReleases = 190 << 20
	heapOfWorlds   = 100 << 20 // most data of a management cluster is garbage immediately
)

var (
	heapLimit  atomic.Int64
	followHeap sync.Once
)

// boundMemory trades memory for time, which is right for a process that ends soon: garbage is collected a quarter as
// often as Go does by default, until the heap reaches the limit. If more than half of the limit is in use, the limit
// becomes twice the used size, because more frequent collections would take most of the time. GOGC and GOMEMLIMIT take
// precedence.
func boundMemory(limit int64) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	heapLimit.Store(limit)
	debug.SetGCPercent(400)
	debug.SetMemoryLimit(limit)
	followHeap.Do(func() {
		// The finalizer of an unused object runs after each collection.
		runtime.SetFinalizer(&collected{}, (*collected).raiseLimit)
	})
}

// collected is garbage in every collection. It has a field because objects without a size have no finalizers.
type collected struct{ _ *byte }

// raiseLimit sets the limit from the memory in use after the last collection.
func (c *collected) raiseLimit() {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	debug.SetMemoryLimit(max(heapLimit.Load(), 2*int64(min(live[0].Value.Uint64(), 1<<60))))
	runtime.SetFinalizer(c, (*collected).raiseLimit)
}
