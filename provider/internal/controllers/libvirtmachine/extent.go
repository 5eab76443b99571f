package libvirtmachine

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/placement"
)

// extent is what a machine has on its host of what can be changed in place.
type extent struct {
	hypervisor.Size
	// disks are the capacities of its disks, in bytes, by their names in the spec. That of the root disk
	// has none. One that isn't known isn't there.
	disks map[string]int64
}

// rounding is how much more memory than it was given a domain may have: QEMU wants whole blocks.
var rounding = map[infrav1.Architecture]int64{infrav1.ArchitecturePpc64le: 256 << 20}

const otherRounding = 1 << 20

// hasSize says whether the domain has the CPUs and the memory of a spec.
func (e extent) hasSize(spec *infrav1.LibvirtMachineSpec) bool {
	block, known := rounding[spec.CPU.Architecture]
	if !known {
		block = otherRounding
	}
	more := e.MemoryBytes - spec.Memory.Value()
	return e.CPUs == spec.CPUs && more >= 0 && more < block
}

// missing are the disks that are smaller than a spec wants them.
func (e extent) missing(spec *infrav1.LibvirtMachineSpec) []string {
	var small []string
	for name, wanted := range diskSizes(spec) {
		if has, known := e.disks[name]; known && has < wanted.Value() {
			small = append(small, name)
		}
	}
	return small
}

// covers says whether the machine has what a spec asks for.
func (e extent) covers(spec *infrav1.LibvirtMachineSpec) bool {
	return e.hasSize(spec) && len(e.missing(spec)) == 0
}

// needs is how much room the machine takes as it is.
func (e extent) needs(spec *infrav1.LibvirtMachineSpec) placement.Resources {
	spec = spec.DeepCopy()
	spec.CPUs, spec.Memory = e.CPUs, *resource.NewQuantity(e.MemoryBytes, resource.BinarySI)
	for name, size := range diskSizes(spec) {
		if has, known := e.disks[name]; known {
			*size = *resource.NewQuantity(has, resource.BinarySI)
		}
	}
	return placement.Needs(spec)
}

// diskSizes are the sizes that a spec has for disks, by their names, to be read or changed.
func diskSizes(spec *infrav1.LibvirtMachineSpec) map[string]*resource.Quantity {
	sizes := map[string]*resource.Quantity{"": &spec.RootDisk.Size}
	for i := range spec.ExtraDisks {
		sizes[spec.ExtraDisks[i].Name] = &spec.ExtraDisks[i].Size
	}
	return sizes
}

// diskName is the name that a spec has for one of a machine's volumes, whose names begin with prefix: "" for the root
// disk. false for what isn't a disk of the machine's own.
func diskName(prefix string, ref hypervisor.VolumeRef) (string, bool) {
	what, own := strings.CutPrefix(ref.Name, prefix)
	if !own || what == "seed" {
		return "", false
	}
	if name, extra := strings.CutPrefix(what, "disk-"); extra {
		return name, true
	}
	return "", what == "root" || strings.HasPrefix(what, "root.") // a copy of the image is root.<something>
}

// extentOf asks the host what the machine has.
func (s *scope) extentOf(ctx context.Context, domain hypervisor.Domain) (extent, map[string]hypervisor.VolumeRef, error) {
	has := extent{Size: hypervisor.Size{CPUs: domain.CPUs, MemoryBytes: domain.MemoryBytes}, disks: map[string]int64{}}
	refs := map[string]hypervisor.VolumeRef{}
	for _, ref := range domain.Disks {
		name, own := diskName(s.volumePrefix(), ref)
		if !own {
			continue
		}
		volume, err := s.connection.Volume(ctx, ref)
		if err != nil {
			return has, nil, err
		}
		has.disks[name], refs[name] = volume.CapacityBytes, ref
	}
	return has, refs, nil
}

// lastExtent is what a machine had when its host was last seen, and false when that isn't known.
func lastExtent(infra *infrav1.LibvirtMachine, hosts Hosts) (extent, bool) {
	uuid := strings.TrimPrefix(infra.Spec.ProviderID, infrav1.ProviderIDPrefix)
	snapshot, _ := hosts.Snapshot(infra.Spec.HostName)
	domain, there := snapshot.Domains[uuid]
	if !there {
		return extent{}, false
	}
	has := extent{Size: hypervisor.Size{CPUs: domain.CPUs, MemoryBytes: domain.MemoryBytes}, disks: map[string]int64{}}
	for _, ref := range domain.Disks {
		name, own := diskName(hypervisor.VolumePrefix(uuid, infra.Namespace, infra.Name), ref)
		volume, known := snapshot.Pools[ref.Pool].Volumes[ref.Name]
		if own && known {
			has.disks[name] = volume.CapacityBytes
		}
	}
	return has, true
}

// isChanging says whether a machine may have other than its spec asks for, because it is being changed.
func isChanging(infra *infrav1.LibvirtMachine) (asked, started bool) {
	_, asked = infra.Annotations[clusterv1.UpdateInProgressAnnotation]
	_, started = infra.Annotations[infrav1.UpdateStartedAnnotation]
	return asked, started
}

// willTake is what a machine takes, or will: while it is being changed it is the more of what it has and
// what it gets.
func willTake(infra *infrav1.LibvirtMachine, hosts Hosts) placement.Resources {
	needs := placement.Needs(&infra.Spec)
	if asked, started := isChanging(infra); asked || started {
		if has, known := lastExtent(infra, hosts); known {
			return placement.Most(needs, has.needs(&infra.Spec))
		}
	}
	return needs
}

// hasTaken is what a machine takes without what it was given no room for so far. Otherwise two machines
// that want more, of which one would fit, would both count as if they had it already.
func hasTaken(infra *infrav1.LibvirtMachine, hosts Hosts) placement.Resources {
	if asked, started := isChanging(infra); asked && !started {
		if has, known := lastExtent(infra, hosts); known {
			return has.needs(&infra.Spec)
		}
	}
	return willTake(infra, hosts)
}
