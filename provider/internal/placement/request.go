package placement

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/exclusive"
)

// Machine is a machine with its needs.
type Machine struct {
	// UID identifies the machine. A recreated machine with the same name has another one.
	UID types.UID
	// Host is the name of the machine's host. It is empty until the machine is bound.
	Host string
	// Domain is the UUID of the machine's domain. Placement ignores it; Ledger.Domains returns it.
	Domain string
	// Claimed says that only the spec names the host, where a user may have written it. The machine doesn't count
	// until a Ledger has placed it.
	Claimed bool
	// Estimated says that Needs are from the spec, which users can change, and not from the host. They don't replace
	// the counted resources of a placed machine.
	Estimated bool
	// Cluster is the cluster that the machine belongs to.
	Cluster types.NamespacedName
	// Owner identifies the control plane, machine set or pool of the machine. Machines with the same Owner are
	// siblings. It may be empty.
	Owner string
	// Needs has the resources of the machine. Storage without a pool counts in the first of the host's pools.
	Needs Resources
}

func (m Machine) equal(other Machine) bool {
	return m.UID == other.UID && m.Host == other.Host && m.Domain == other.Domain && m.Cluster == other.Cluster && m.Owner == other.Owner &&
		maps.Equal(m.Needs, other.Needs)
}

// Request asks for a host.
type Request struct {
	// Machine is the machine to place. Its host is ignored.
	Machine Machine
	// FailureDomain is the required failure domain, or empty for any.
	FailureDomain string
	// Architecture of the machine.
	Architecture infrav1.Architecture
	// Features that the host must have.
	Features []string
	// Networks that the host must have.
	Networks []string
	// ImageVolume is the required volume in the host's pool for images, or empty.
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

// Needs returns the resources of a machine. A disk counts with its full size, because an overlay may grow to it.
func Needs(spec *infrav1.LibvirtMachineSpec) Resources {
	return NeedsWith(spec, spec.CPUs, spec.Memory.Value(), nil)
}

// NeedsWith returns the resources of a machine with the given CPUs, memory and sizes of disks, by their names in the
// spec ("" is the root disk). A missing disk counts with its size in the spec. The kinds of CPUs, memory and devices
// are from the spec, where they are immutable.
func NeedsWith(spec *infrav1.LibvirtMachineSpec, vcpus int32, memoryBytes int64, disks map[string]int64) Resources {
	memory := Resource{Kind: Memory}
	if spec.Hugepages != nil {
		memory = Resource{Kind: Hugepages, Name: string(pageSize(spec.Hugepages))}
	}
	cpus := Resource{Kind: CPU}
	if exclusive.Dedicated(spec) {
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

// features lists the features that a host must have for a machine, sorted.
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
