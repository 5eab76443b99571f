package libvirthost

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// countInterval is the default of a Reconciler's CountInterval.
const countInterval = 30 * time.Second

// writes knows when the status of each host was last written.
type writes struct {
	lock sync.Mutex
	last map[string]time.Time
}

// later returns how long the write of what has changed can wait, which is until some interval after the
// last one. 0 when it can't, or when nothing has.
func (w *writes) later(before, after *infrav1.LibvirtHost, interval time.Duration) time.Duration {
	if pressing(before, after) || equality.Semantic.DeepEqual(before.Status, after.Status) {
		return 0
	}
	w.lock.Lock()
	defer w.lock.Unlock()
	return max(time.Until(w.last[after.Name].Add(interval)), 0)
}

// done remembers that the status was written.
func (w *writes) done(host *infrav1.LibvirtHost) {
	w.lock.Lock()
	defer w.lock.Unlock()
	if w.last == nil {
		w.last = map[string]time.Time{}
	}
	w.last[host.Name] = time.Now()
}

func (w *writes) forget(host string) {
	w.lock.Lock()
	defer w.lock.Unlock()
	delete(w.last, host)
}

// pressing says whether something has changed that somebody waits for or decides by.
func pressing(before, after *infrav1.LibvirtHost) bool {
	return !slices.EqualFunc(before.Status.Conditions, after.Status.Conditions, func(a, b metav1.Condition) bool {
		return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason && a.ObservedGeneration == b.ObservedGeneration
	}) ||
		!equality.Semantic.DeepEqual(before.Status.Capacity, after.Status.Capacity) ||
		before.Status.Arch != after.Status.Arch || before.Status.LibvirtVersion != after.Status.LibvirtVersion ||
		!slices.Equal(before.Status.Features, after.Status.Features)
}
