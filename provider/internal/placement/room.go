package placement

import (
	"regexp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/exclusive"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/fleet"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// Bound has the UUIDs of the domains of the machines on one host. These domains aren't foreign.
type Bound map[string]bool

// HostOf returns the state of a LibvirtHost with all its networks. The caller sets the fields that depend on the
// cluster or namespace.
//
// Take the snapshot before listing the machines of bound, so that no own domain counts as foreign: a domain is
// created after its machine was bound.
func HostOf(host *infrav1.LibvirtHost, snapshot fleet.Snapshot, bound Bound) Host {
	out := Host{
		Name:          host.Name,
		FailureDomain: host.Spec.FailureDomain,
		Maintenance:   host.Spec.Maintenance,
		Architecture:  infrav1.Architecture(snapshot.Facts.Architecture),
		Features:      snapshot.Facts.Features,
		Pools:         host.Spec.StoragePools.Disks,
		Room:          Room(Lendable(&host.Spec, snapshot), &host.Spec),
		Foreign:       Foreign(&host.Spec, snapshot, bound),
	}
	out.Connecting = isConnecting(host, snapshot)
	if !out.Connecting {
		out.Ready, out.Message = readiness(host, snapshot)
	}
	out.Networks = namesOf(host.Spec.Networks)
	out.ImageVolumes = snapshot.Images(host.Spec.StoragePools.Images)
	return out
}

func namesOf(networks []infrav1.HostNetwork) []string {
	var names []string
	for _, network := range networks {
		names = append(names, network.Name)
	}
	return names
}

// isConnecting reports whether the first connection to a host since the start of the manager is being opened, or its
// result isn't in the status yet. A host with an unreachable status isn't connecting.
func isConnecting(host *infrav1.LibvirtHost, snapshot fleet.Snapshot) bool {
	if !host.DeletionTimestamp.IsZero() || snapshot.Err != nil {
		return false
	}
	condition := conditions.Get(host, infrav1.ReachableCondition)
	if snapshot.Reachable {
		// The status of a paused host isn't written.
		return !annotations.HasPaused(host) && (condition == nil || condition.Status != metav1.ConditionTrue)
	}
	return condition == nil || condition.Status != metav1.ConditionFalse || condition.ObservedGeneration != host.Generation
}

// readiness reports whether machines can be placed on a host, or why not. Both the condition, which may be older, and
// the snapshot must be good.
func readiness(host *infrav1.LibvirtHost, snapshot fleet.Snapshot) (bool, string) {
	condition := conditions.Get(host, infrav1.ReadyCondition)
	switch {
	case !host.DeletionTimestamp.IsZero():
		return false, "being deleted"
	case !snapshot.Reachable && snapshot.Err != nil:
		return false, snapshot.Err.Error()
	case condition == nil:
		return false, "not looked at so far"
	case !conditions.IsTrue(host, infrav1.ReadyCondition):
		return false, condition.Message
	case !snapshot.Reachable:
		return false, "not connected so far"
	}
	return true, ""
}

// Capacity returns the resources of a host. Memory doesn't include huge pages. Only active pools are included.
func Capacity(snapshot fleet.Snapshot) Resources {
	memory := snapshot.Facts.MemoryBytes
	capacity := Resources{}
	for size, bytes := range snapshot.Facts.HugepageBytes {
		capacity[Resource{Kind: Hugepages, Name: string(size)}] = bytes
		memory -= bytes
	}
	capacity[Resource{Kind: CPU}] = int64(snapshot.Facts.CPUs)
	capacity[Resource{Kind: Memory}] = max(memory, 0)
	for name, pool := range snapshot.Pools {
		if pool.Active {
			capacity[Resource{Kind: Disk, Name: name}] = pool.CapacityBytes
		}
	}
	return capacity
}

// uuidInName finds the UUID in the name of a machine's volume.
var uuidInName = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// isOf reports whether the name of a volume has the UUID of a bound machine. Names of this provider begin with it,
// which is faster to check.
func (b Bound) isOf(volume string) bool {
	const length = 36
	return len(volume) > length && b[volume[:length]] || b[uuidInName.FindString(volume)]
}

// Foreign returns the resources of a host that aren't used by bound machines: those of foreign domains, orphans,
// images and other files.
//
// A foreign domain counts while it is active. A domain of a LibvirtMachine always counts: this manager may not see
// the machine. Exclusive CPUs and devices always count too.
func Foreign(spec *infrav1.LibvirtHostSpec, snapshot fleet.Snapshot, bound Bound) Resources {
	foreign := foreignExclusive(spec, snapshot, bound)
	ownDisks := map[string]map[string]bool{}
	for uuid, domain := range snapshot.Domains {
		if !bound[uuid] {
			if domain.State.Active() || domain.Owner != nil {
				foreign[Resource{Kind: CPU}] += sharedCPUs(spec, snapshot, domain)
				foreign[Resource{Kind: Memory}] += domain.MemoryBytes
			}
			continue
		}
		for _, disk := range domain.Disks {
			if ownDisks[disk.Pool] == nil {
				ownDisks[disk.Pool] = map[string]bool{}
			}
			ownDisks[disk.Pool][disk.Name] = true
		}
	}
	for name, pool := range snapshot.Pools {
		if !pool.Active {
			continue
		}
		used := pool.CapacityBytes - pool.AvailableBytes
		for volumeName, volume := range pool.Volumes {
			// Disks of a machine without a domain are recognized by their names.
			if ownDisks[name][volumeName] || bound.isOf(volumeName) {
				used -= volume.AllocatedBytes
			}
		}
		if used > 0 {
			foreign[Resource{Kind: Disk, Name: name}] = used
		}
	}
	return foreign
}

// Lendable is Capacity with dedicated CPUs and devices as separate resources. Dedicated CPUs don't count as
// shared ones.
func Lendable(spec *infrav1.LibvirtHostSpec, snapshot fleet.Snapshot) Resources {
	capacity := Capacity(snapshot)
	for _, resource := range lent(spec, snapshot) {
		capacity[resource]++
	}
	shared := Resource{Kind: CPU}
	capacity[shared] = max(capacity[shared]-capacity[Resource{Kind: DedicatedCPU}], 0)
	return capacity
}

// lent returns the exclusive CPUs and devices of a host, with the resource that each counts as.
func lent(spec *infrav1.LibvirtHostSpec, snapshot fleet.Snapshot) map[exclusive.Resource]Resource {
	resources := map[exclusive.Resource]Resource{}
	for _, cpu := range exclusive.CPUsOf(spec, snapshot.Facts).Dedicated {
		resources[exclusive.CPU(cpu)] = Resource{Kind: DedicatedCPU}
	}
	for _, device := range exclusive.LentOf(spec, snapshot.Devices) {
		if device.Problem == "" {
			resources[exclusive.Device(device.Address)] = DeviceResource(device.VendorID, device.ProductID)
		}
	}
	return resources
}

// foreignExclusive counts the exclusive CPUs and devices that foreign domains use, each once.
func foreignExclusive(spec *infrav1.LibvirtHostSpec, snapshot fleet.Snapshot, bound Bound) Resources {
	foreign := Resources{}
	resources := lent(spec, snapshot)
	if len(resources) == 0 {
		return foreign
	}
	taken := map[exclusive.Resource]bool{}
	for uuid, domain := range snapshot.Domains {
		if bound[uuid] {
			continue
		}
		for thing := range exclusive.Of(domain) {
			if resource, ok := resources[thing]; ok && !taken[thing] {
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
	own := exclusive.Of(domain)
	for _, cpu := range exclusive.CPUsOf(spec, snapshot.Facts).Dedicated {
		if own[exclusive.CPU(cpu)] {
			shared--
		}
	}
	return max(shared, 0)
}

// Given has the resources that a LibvirtMachine uses in the snapshot of its host.
type Given struct {
	// Is reports whether the host has the machine's domain. The spec and the status of the machine prove nothing,
	// because users of the namespace can write both.
	Is bool
	// Domain is that domain.
	Domain hypervisor.Domain
	// Needs has the resources of the machine's domain and disks, whatever its spec asks for now. Without a domain, it
	// has those of the spec.
	Needs Resources
	// Whole says that the sizes of all disks are known. Unknown disks count with the size in the spec.
	Whole bool
}

// GivenTo returns the resources of a machine on its host.
func GivenTo(infra *infrav1.LibvirtMachine, snapshot fleet.Snapshot) Given {
	uuid := strings.TrimPrefix(infra.Spec.ProviderID, infrav1.ProviderIDPrefix)
	domain, exists := snapshot.Domains[uuid]
	if !exists || !domain.IsOf(uuid, infra.Namespace, infra.Name) {
		return Given{Needs: Needs(&infra.Spec)}
	}
	given, disks, prefix := Given{Is: true, Domain: domain}, map[string]int64{}, hypervisor.VolumePrefix(uuid, infra.Namespace, infra.Name)
	for _, ref := range domain.Disks {
		name, own := hypervisor.DiskName(prefix, ref)
		volume, known := snapshot.Pools[ref.Pool].Volumes[ref.Name]
		if own && known {
			disks[name] = volume.CapacityBytes
		}
	}
	given.Whole = len(disks) == 1+len(infra.Spec.ExtraDisks)
	given.Needs = NeedsWith(&infra.Spec, domain.CPUs, domain.MemoryBytes, disks)
	return given
}
