package placement

import (
	"regexp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/fleet"
)

// Bound are the UUIDs of the domains of the LibvirtMachines that are placed on one host: what is
// counted for each machine and not as somebody else's.
type Bound map[string]bool

// HostOf returns a LibvirtHost as it was last seen, with all its networks. What depends on the cluster or namespace is left for
// the caller.
//
// Take the snapshot first and list the machines of bound afterwards: a domain is made after its
// machine was bound, so that no domain of ours is taken for somebody else's.
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

// isConnecting says whether nothing is known of a host so far: the first try to connect to it since the
// manager began hasn't ended, or what came of it isn't in the status yet. A host that couldn't be reached
// when it was last looked at stays so until it is known better.
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

// readiness says whether machines can be placed on a host, and if not, why. The condition lags behind the
// snapshot, and either is enough to say no.
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

// Capacity returns what a host has. Memory is what isn't set aside as huge pages; storage is that of
// each pool that can be used.
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

// uuidInName finds the UUID that the names of a machine's volumes have in them.
var uuidInName = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// isOf says whether a volume is named from the UUID of a bound machine. The names of our own begin with it,
// which is quicker to see.
func (b Bound) isOf(volume string) bool {
	const length = 36
	return len(volume) > length && b[volume[:length]] || b[uuidInName.FindString(volume)]
}

// Foreign returns how much of a host is taken by what isn't a bound machine: domains of others, domains
// that were ours and have no machine any more, images, and files of other kinds.
//
// A domain of others counts while it is active. One that is shut off takes nothing, and hosts have old
// ones; when somebody starts it, news of it come at once. A domain that was made for a LibvirtMachine
// counts always: this manager may not see the machine, which is being made or is stopped for a while. What
// only one domain can have counts always, too.
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
