package placement

import (
	"strings"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/fleet"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// Given has the resources of a LibvirtMachine in the snapshot of its host.
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
	domain, there := snapshot.Domains[uuid]
	if !there || !domain.IsOf(uuid, infra.Namespace, infra.Name) {
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
