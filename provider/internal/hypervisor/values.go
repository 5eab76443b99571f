package hypervisor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// Facts are the properties of a host.
type Facts struct {
	// UUID of the hypervisor, in lower case with dashes. It may be empty.
	UUID string
	// LibvirtVersion is the version of the libvirt daemon, for example 9.0.0.
	LibvirtVersion string
	// Architecture of the host, with the name that Kubernetes uses, for example amd64, or libvirt's name if
	// Kubernetes has none.
	Architecture string
	// CPUs is the number of logical CPUs.
	CPUs int32
	// CPUNumbers are the ordered numbers of the logical CPUs. It may be empty.
	CPUNumbers []int
	// MemoryBytes is the memory of the host, in bytes.
	MemoryBytes int64
	// HugepageBytes is the memory in huge pages, in bytes by the size of a page. It has only the page sizes that
	// machines can request.
	HugepageBytes map[infrav1.HugepageSize]int64
	// Features are the features (infrav1.HostFeature constants) that the host has, ordered by name.
	Features []string
}

// AllCPUs returns the numbers of the logical CPUs. They begin with 0 if the host doesn't list them.
func (f Facts) AllCPUs() []int {
	if len(f.CPUNumbers) > 0 {
		return f.CPUNumbers
	}
	var numbers []int
	for number := range int(f.CPUs) {
		numbers = append(numbers, number)
	}
	return numbers
}

// Pool is a storage pool.
type Pool struct {
	// Name of the pool on its host.
	Name string
	// Active reports whether the pool can be used.
	Active bool
	// CapacityBytes and AvailableBytes are the size and the free space of the pool. Overlays grow, so free space
	// isn't the same as unallocated space.
	CapacityBytes, AvailableBytes int64
	// Type of the pool in libvirt, such as dir or logical.
	Type string
	// Folder on the host with the pool's volumes, or links to them. It may be empty.
	Folder string
}

// Network is a libvirt network.
type Network struct {
	// Name of the network on its host.
	Name string
	// Active reports whether machines can use the network.
	Active bool
	// LinuxBridge says that the network uses a bridge of the Linux kernel, and not Open vSwitch, macvtap or
	// passthrough.
	LinuxBridge bool
}

// VolumeRef names a volume on a host.
type VolumeRef struct {
	// Pool and Name are the names of the storage pool and of the volume in it.
	Pool, Name string
}

// String writes the name as pool/volume.
func (r VolumeRef) String() string {
	return r.Pool + "/" + r.Name
}

// VolumeFormat is the format of a volume's content.
type VolumeFormat string

// The formats, in libvirt's words.
const (
	// FormatRaw is the plain bytes of a disk.
	FormatRaw VolumeFormat = "raw"
	// FormatQCOW2 is QEMU's own format.
	FormatQCOW2 VolumeFormat = "qcow2"
)

// Volume is the known state of a volume.
type Volume struct {
	VolumeRef
	// Path of the volume on its host.
	Path string
	// Format of the content, as detected by libvirt. Empty if the pool has no formats.
	Format VolumeFormat
	// CapacityBytes is the size for the guest, and AllocatedBytes the used space.
	CapacityBytes, AllocatedBytes int64
	// BackingPath is the path of the backing volume of an overlay, or empty.
	BackingPath string
}

// UnknownSize is the size of content with unknown length.
const UnknownSize = -1

// VolumeSpec describes a new volume.
type VolumeSpec struct {
	VolumeRef
	// Format of the content. An overlay is always qcow2.
	Format VolumeFormat
	// CapacityBytes is the size that a guest sees, in bytes.
	CapacityBytes int64
	// Backing makes the volume an overlay with the differences from the backing volume, which must not change while
	// the overlay exists.
	Backing *Backing
}

// Backing is the backing volume of an overlay.
type Backing struct {
	// Path of the volume on its host, as Volume has it.
	Path string
	// Format of its content. It isn't detected: a guest could write another format's header to a raw disk to access
	// files of the host.
	Format VolumeFormat
}

// Check validates the description of a volume.
func (s VolumeSpec) Check() error {
	switch {
	case s.Pool == "" || s.Name == "" || s.Name == "." || s.Name == ".." || strings.ContainsAny(s.Name, "/\x00"):
		return fmt.Errorf("%q isn't the name of a volume", s.String())
	case s.Format != FormatRaw && s.Format != FormatQCOW2:
		return fmt.Errorf("the format %q of the volume %s isn't raw or qcow2", s.Format, s)
	case s.CapacityBytes <= 0:
		return fmt.Errorf("the volume %s has a capacity of %d bytes", s, s.CapacityBytes)
	case s.Backing == nil:
		return nil
	case s.Format != FormatQCOW2:
		return fmt.Errorf("the volume %s is an overlay, and its format %q isn't qcow2", s, s.Format)
	case s.Backing.Path == "" || s.Backing.Format != FormatRaw && s.Backing.Format != FormatQCOW2:
		return fmt.Errorf("the backing volume of %s has no path, or a format that isn't raw or qcow2", s)
	}
	return nil
}

// DomainState is the state of a domain.
type DomainState string

// The states, with the names in LibvirtMachine's status.instanceState.
const (
	StateRunning = DomainState(infrav1.InstanceRunning)
	StateBlocked = DomainState(infrav1.InstanceBlocked)
	// StateStarting means that the domain has a process that doesn't run yet. A host that restarts now removes it. In
	// status.instanceState it is Paused.
	StateStarting     DomainState = "Starting"
	StatePaused                   = DomainState(infrav1.InstancePaused)
	StateShuttingDown             = DomainState(infrav1.InstanceShuttingDown)
	StateShutOff                  = DomainState(infrav1.InstanceShutOff)
	StateCrashed                  = DomainState(infrav1.InstanceCrashed)
	StateSuspended                = DomainState(infrav1.InstanceSuspended)
	StateUnknown                  = DomainState(infrav1.InstanceUnknown)
)

// Active reports whether a domain in this state has a process and uses memory.
func (s DomainState) Active() bool {
	return s != StateShutOff && s != StateCrashed
}

// Started reports whether a domain in this state was completely started.
func (s DomainState) Started() bool {
	return s.Active() && s != StateStarting
}

// Domain is the known state of a domain.
type Domain struct {
	// UUID of the domain in lower case with dashes.
	UUID string
	// Name of the domain on its host.
	Name string
	// State of the domain.
	State DomainState
	// CPUs and MemoryBytes are the allocated resources.
	CPUs        int32
	MemoryBytes int64
	// Owner is the LibvirtMachine in the domain's metadata, or nil for a foreign domain.
	Owner *Owner
	// Disks has the disks that the XML names by pool and volume, of the running domain if it is active.
	Disks []VolumeRef
	// DiskFiles has the disks that the XML names by path, without their backing files.
	DiskFiles []string
	// MACs are the MAC addresses of the domain's interfaces, in their order, in lower case with colons.
	MACs []string
	// Files has the paths in DiskFiles and of all backing files, which hosts list for active domains only. Ordered
	// and distinct.
	Files []string
	// ConsoleLog is the path of the log of the first console, or empty.
	ConsoleLog string
	// PinnedCPUs has the numbers of the host's CPUs that virtual CPUs are pinned to, and HostDevices the addresses of
	// the domain's PCI devices, such as 0000:3b:00.0, of the running domain if it is active. Both ordered and
	// distinct.
	PinnedCPUs  []int
	HostDevices []string
}

// HasDisk reports whether a volume is a disk of the domain. A backing volume isn't.
func (d Domain) HasDisk(volume Volume) bool {
	return slices.Contains(d.Disks, volume.VolumeRef) || volume.Path != "" && slices.Contains(d.DiskFiles, volume.Path)
}

// Definition is a domain to define.
type Definition struct {
	// UUID and Name of the domain, as in XML.
	UUID, Name string
	// XML is the domain in libvirt's format (https://libvirt.org/formatdomain.html).
	XML string
}

// AddressSource is a source of the addresses of domains.
type AddressSource string

// The sources. ARP isn't one of them: the host's tables aren't complete.
const (
	// SourceLease is the leases of libvirt's own DHCP servers.
	SourceLease AddressSource = "Lease"
	// SourceAgent is the guest agent in the domain.
	SourceAgent AddressSource = "Agent"
)

// InterfaceAddress is an address of a domain's interface.
type InterfaceAddress struct {
	// MAC is the interface's MAC address in lower case with colons.
	MAC string
	// Address is the IP address.
	Address netip.Addr
}

// Watch is a list of domains and the events since then.
type Watch struct {
	// Domains are all domains, ordered by UUID.
	Domains []Domain
	// Changed has the UUIDs of domains that were created, changed, started, stopped or removed. Several changes of
	// one domain may arrive as one. It is closed when the events end.
	Changed <-chan string
}
