package libvirthost

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// countInterval is the default of a Reconciler's CountInterval.
const countInterval = 30 * time.Second

// writeDelay returns for how long the write of a changed status can wait: until CountInterval after the last write. It
// returns 0 if the status is unchanged or must be written now.
func (r *Reconciler) writeDelay(before, after *infrav1.LibvirtHost) time.Duration {
	last, written := r.written.Load(after.Name)
	if !written || isUrgent(before, after) || equality.Semantic.DeepEqual(before.Status, after.Status) {
		return 0
	}
	return max(time.Until(last.(time.Time).Add(cmp.Or(r.CountInterval, countInterval))), 0)
}

// isUrgent reports whether a change of the status is more than a change of numbers or messages.
func isUrgent(before, after *infrav1.LibvirtHost) bool {
	return !slices.EqualFunc(before.Status.Conditions, after.Status.Conditions, func(a, b metav1.Condition) bool {
		return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason && a.ObservedGeneration == b.ObservedGeneration
	}) ||
		!equality.Semantic.DeepEqual(before.Status.Capacity, after.Status.Capacity) ||
		before.Status.Arch != after.Status.Arch || before.Status.LibvirtVersion != after.Status.LibvirtVersion ||
		!slices.Equal(before.Status.Features, after.Status.Features)
}
