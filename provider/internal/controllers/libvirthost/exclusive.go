package libvirthost

import (
	"k8s.io/utils/ptr"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/exclusive"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/fleet"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/placement"
)

// setExclusive sets how much there is, and how much is free, of what machines have to themselves. promised
// is what machines take, and domains of others. What was seen stays while the host isn't.
func setExclusive(host *infrav1.LibvirtHost, snapshot fleet.Snapshot, promised placement.Resources) {
	if snapshot.Taken.IsZero() {
		return
	}
	host.Status.DedicatedCPUs = nil
	if host.Spec.DedicatedCPUs != "" {
		cpus := exclusive.CPUsOf(&host.Spec, snapshot.Facts)
		count, free := free(len(cpus.Dedicated), promised[placement.Resource{Kind: placement.DedicatedCPU}])
		host.Status.DedicatedCPUs = &infrav1.HostDedicatedCPUs{Count: count, Free: free}
		if cpus.Missing != "" {
			host.Status.DedicatedCPUs.Message = "The host has no CPUs " + cpus.Missing + ": correct spec.dedicatedCPUs"
		}
	}
}

// free returns how many there are of something, and how many of them aren't promised.
func free(count int, promised int64) (there, left *int32) {
	return ptr.To(int32(count)), ptr.To(int32(max(int64(count)-promised, 0))) //nolint:gosec // no host has 2 billion of anything
}
