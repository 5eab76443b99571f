package libvirtmachine

import (
	"context"

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
	return placement.NeedsWith(spec, e.CPUs, e.MemoryBytes, e.disks)
}

// diskSizes are the sizes that a spec has for disks, by their names, to be read or changed.
func diskSizes(spec *infrav1.LibvirtMachineSpec) map[string]*resource.Quantity {
	sizes := map[string]*resource.Quantity{"": &spec.RootDisk.Size}
	for i := range spec.ExtraDisks {
		sizes[spec.ExtraDisks[i].Name] = &spec.ExtraDisks[i].Size
	}
	return sizes
}

// extentOf asks the host what the machine has.
func (s *scope) extentOf(ctx context.Context, domain hypervisor.Domain) (extent, map[string]hypervisor.VolumeRef, error) {
	has := extent{Size: hypervisor.Size{CPUs: domain.CPUs, MemoryBytes: domain.MemoryBytes}, disks: map[string]int64{}}
	refs := map[string]hypervisor.VolumeRef{}
	for _, ref := range domain.Disks {
		name, own := hypervisor.DiskName(s.volumePrefix(), ref)
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

// isChanging says whether a machine may have other than its spec asks for, because it is being changed.
func isChanging(infra *infrav1.LibvirtMachine) (asked, started bool) {
	_, asked = infra.Annotations[clusterv1.UpdateInProgressAnnotation]
	_, started = infra.Annotations[infrav1.UpdateStartedAnnotation]
	return asked, started
}
