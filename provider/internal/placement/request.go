package placement

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// Machine is a machine that takes room, or asks for it.
type Machine struct {
	// UID tells machines apart: one that was deleted and made again with the same name is another.
	UID types.UID
	// Host is the name of the host that the machine is bound to. Empty while it isn't.
	Host string
	// Domain is the UUID of the machine's domain. Placing doesn't look at it; a Ledger tells it.
	Domain string
	// Claimed says that nothing but its own spec shows that the machine was placed on its host: whoever may write
	// it may have named the host. It takes nothing there as long as a Ledger hasn't placed it.
	Claimed bool
	// Estimated says that Needs come from the machine's own spec, which its owner may change, and not from what it was
	// given. What a Ledger has counted for the machine on its host stays then.
	Estimated bool
	// Cluster is the cluster that the machine belongs to.
	Cluster types.NamespacedName
	// Owner names what the machine has siblings by: its control plane, machine set or pool, in any
	// form that is the same for all siblings. A machine without an owner has no siblings.
	Owner string
	// Needs is how much room the machine takes. Storage in a pool without a name is in the first of
	// the host's pools.
	Needs Resources
}

func (m Machine) equal(other Machine) bool {
	return m.UID == other.UID && m.Host == other.Host && m.Domain == other.Domain && m.Cluster == other.Cluster && m.Owner == other.Owner &&
		maps.Equal(m.Needs, other.Needs)
}

// Request asks for a host.
type Request struct {
	// Machine is what is to be placed. Its host is ignored.
	Machine Machine
	// FailureDomain that the machine must be in. Any when empty.
	FailureDomain string
	// Architecture of the machine.
	Architecture infrav1.Architecture
	// Features that the host must have.
	Features []string
	// Networks that the host must have.
	Networks []string
	// ImageVolume is the volume that the host must have in its pool for images. None when empty.
	ImageVolume string
}

// NewRequest makes a request from the spec of a machine.
func NewRequest(machine Machine, spec *infrav1.LibvirtMachineSpec, failureDomain string) Request {
	machine.Needs = Needs(spec)
	return Request{
		Machine:       machine,
		FailureDomain: failureDomain,
		Architecture:  cmp.Or(spec.CPU.Architecture, infrav1.ArchitectureAmd64),
		Features:      features(spec),
		Networks:      networks(spec),
		ImageVolume:   spec.Image.Volume,
	}
}

// Needs returns how much room a machine takes. A disk takes its whole size, because an overlay may
// grow to that.
func Needs(spec *infrav1.LibvirtMachineSpec) Resources {
	return NeedsWith(spec, spec.CPUs, spec.Memory.Value(), nil)
}

// NeedsWith is how much room a machine takes that has these CPUs and this memory, and disks of these sizes, by their names
// in the spec: "" is the root disk. A disk that isn't among them takes what the spec says. Of what sort its CPUs, its
// memory and its devices are is in the spec, where it doesn't change.
func NeedsWith(spec *infrav1.LibvirtMachineSpec, vcpus int32, memoryBytes int64, disks map[string]int64) Resources {
	memory := Resource{Kind: Memory}
	if spec.Hugepages != nil {
		memory = Resource{Kind: Hugepages, Name: string(pageSize(spec.Hugepages))}
	}
	cpus := Resource{Kind: CPU}
	if spec.CPU.Dedicated != nil && *spec.CPU.Dedicated {
		cpus.Kind = DedicatedCPU
	}
	needs := Resources{
		cpus:   int64(vcpus),
		memory: memoryBytes,
	}
	addDisk := func(name, pool string, wanted int64) {
		if size, known := disks[name]; known {
			wanted = size
		}
		needs[Resource{Kind: Disk, Name: pool}] += wanted
	}
	addDisk("", spec.RootDisk.Pool, spec.RootDisk.Size.Value())
	for _, disk := range spec.ExtraDisks {
		addDisk(disk.Name, disk.Pool, disk.Size.Value())
	}
	for _, device := range spec.HostDevices {
		needs[DeviceResource(device.VendorID, device.ProductID)] += int64(max(device.Count, 1))
	}
	return needs
}

// DeviceResource is the resource of PCI devices of one model. Both IDs are four hexadecimal digits.
func DeviceResource(vendorID, productID string) Resource {
	return Resource{Kind: Device, Name: fmt.Sprintf("%s:%s", vendorID, productID)}
}

func pageSize(hugepages *infrav1.HugepagesSpec) infrav1.HugepageSize {
	return cmp.Or(hugepages.PageSize, infrav1.Hugepages2Mi)
}

// features lists what a host must be able to do for a machine, sorted.
func features(spec *infrav1.LibvirtMachineSpec) []string {
	var features []string
	if spec.CPU.Mode == infrav1.CPUModeHostPassthrough {
		features = append(features, infrav1.HostFeatureKVM)
	}
	if cmp.Or(spec.Firmware.Type, infrav1.FirmwareUEFI) == infrav1.FirmwareUEFI {
		features = append(features, infrav1.HostFeatureUEFI)
	}
	if spec.Firmware.SecureBoot != nil && *spec.Firmware.SecureBoot {
		features = append(features, infrav1.HostFeatureSecureBoot)
	}
	if spec.TPM != nil {
		features = append(features, infrav1.HostFeatureTPM)
	}
	if spec.Hugepages != nil {
		features = append(features, infrav1.HostFeatureHugepagesPrefix+string(pageSize(spec.Hugepages)))
	}
	slices.Sort(features)
	return features
}

// networks lists the networks that a machine is on, sorted, each once.
func networks(spec *infrav1.LibvirtMachineSpec) []string {
	var networks []string
	for _, nic := range spec.Interfaces {
		networks = append(networks, cmp.Or(nic.Network, "default"))
	}
	slices.Sort(networks)
	return slices.Compact(networks)
}
