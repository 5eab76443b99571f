package placement

import (
	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/exclusive"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/fleet"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// Lendable is Capacity with dedicated CPUs and devices as resources of their own. Dedicated CPUs don't count as
// shared ones.
func Lendable(spec *infrav1.LibvirtHostSpec, snapshot fleet.Snapshot) Resources {
	capacity := Capacity(snapshot)
	if dedicated := int64(len(exclusive.CPUsOf(spec, snapshot.Facts).Dedicated)); dedicated > 0 {
		capacity[Resource{Kind: DedicatedCPU}] = dedicated
		shared := Resource{Kind: CPU}
		capacity[shared] = max(capacity[shared]-dedicated, 0)
	}
	for _, device := range exclusive.LentOf(spec, snapshot.Devices) {
		if device.Problem == "" {
			capacity[DeviceResource(device.VendorID, device.ProductID)]++
		}
	}
	return capacity
}

// lent returns the exclusive things of a host, with the resource that each counts as.
func lent(spec *infrav1.LibvirtHostSpec, snapshot fleet.Snapshot) map[exclusive.Thing]Resource {
	things := map[exclusive.Thing]Resource{}
	for _, cpu := range exclusive.CPUsOf(spec, snapshot.Facts).Dedicated {
		things[exclusive.CPU(cpu)] = Resource{Kind: DedicatedCPU}
	}
	for _, device := range exclusive.LentOf(spec, snapshot.Devices) {
		if device.Problem == "" {
			things[exclusive.Device(device.Address)] = DeviceResource(device.VendorID, device.ProductID)
		}
	}
	return things
}

// foreignExclusive counts the exclusive things that foreign domains use, each thing once.
func foreignExclusive(spec *infrav1.LibvirtHostSpec, snapshot fleet.Snapshot, bound Bound) Resources {
	foreign := Resources{}
	things := lent(spec, snapshot)
	if len(things) == 0 {
		return foreign
	}
	taken := map[exclusive.Thing]bool{}
	for uuid, domain := range snapshot.Domains {
		if bound[uuid] {
			continue
		}
		for thing := range exclusive.Held(domain) {
			if resource, is := things[thing]; is && !taken[thing] {
				taken[thing] = true
				foreign[resource]++
			}
		}
	}
	return foreign
}

// sharedCPUs returns the number of a domain's virtual CPUs on shared CPUs.
func sharedCPUs(spec *infrav1.LibvirtHostSpec, snapshot fleet.Snapshot, domain hypervisor.Domain) int64 {
	shared := int64(domain.CPUs)
	if len(domain.PinnedCPUs) == 0 {
		return shared
	}
	held := exclusive.Held(domain)
	for _, cpu := range exclusive.CPUsOf(spec, snapshot.Facts).Dedicated {
		if held[exclusive.CPU(cpu)] {
			shared--
		}
	}
	return max(shared, 0)
}
