package placement

import (
	"strings"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/fleet"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// Given is what a LibvirtMachine has of its host, as far as the snapshot of the host shows.
type Given struct {
	// Is says whether the host has the machine's domain. Spec and status of the machine prove nothing: whoever may do
	// everything in its namespace can write both.
	Is bool
	// Domain is that domain.
	Domain hypervisor.Domain
	// Needs is how much room the machine takes: by its domain and its disks, whatever its spec has asked for since.
	// Without a domain it is what the spec asks for.
	Needs Resources
	// Whole says that the sizes of all disks are known. Those that aren't count as the spec has them.
	Whole bool
}

// GivenTo looks at what a machine has of its host.
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
