package placement

import (
	"regexp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/fleet"
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
		// Nobody writes the status of a host that is paused.
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
		for volume, is := range pool.Volumes {
			// Disks of a machine that has no domain so far are known by their names.
			if ownDisks[name][volume] || bound.isOf(volume) {
				used -= is.AllocatedBytes
			}
		}
		if used > 0 {
			foreign[Resource{Kind: Disk, Name: name}] = used
		}
	}
	return foreign
}
