package hypervisor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// Facts are what a host has and can do.
type Facts struct {
	// UUID says which hypervisor this is, in lower case with dashes. Empty when it doesn't say.
	UUID string
	// LibvirtVersion is the version of the libvirt daemon, for example 9.0.0.
	LibvirtVersion string
	// Architecture of the host in the words of Kubernetes, for example amd64. What libvirt calls
	// something that Kubernetes has no word for stays as it is.
	Architecture string
	// CPUs is the number of logical CPUs.
	CPUs int32
	// CPUNumbers are the numbers of the logical CPUs, ordered, as far as the host says.
	CPUNumbers []int
	// MemoryBytes is the memory of the host, in bytes.
	MemoryBytes int64
	// HugepageBytes is how much of the memory is set aside as huge pages, in bytes by the size of a page.
	// Only sizes that machines can ask for are in it, and none that no page is set aside of.
	HugepageBytes map[infrav1.HugepageSize]int64
	// Features are the features (infrav1.HostFeature constants) that the host has, ordered by name.
	Features []string
}

// AllCPUs returns the numbers of the logical CPUs. Of a host that doesn't say they begin with 0.
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
	// Active says whether the pool can be used.
	Active bool
	// CapacityBytes and AvailableBytes are the size of the pool and what is free of it, in bytes.
	// Overlays grow: what is free is not what may be allocated.
	CapacityBytes, AvailableBytes int64
	// Type of the pool in libvirt's words, such as dir or logical.
	Type string
	// Folder on the host that has the pool's volumes, or links to them. Empty when the pool has none.
	Folder string
}

// Network is a libvirt network.
type Network struct {
	// Name of the network on its host.
	Name string
	// Active says whether machines can be on it.
	Active bool
	// LinuxBridge says whether machines on it are on a bridge of the Linux kernel, and not on an Open vSwitch, macvtap
	// or a device of their own.
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

// Volume is what is known of a volume.
type Volume struct {
	VolumeRef
	// Path of the volume on its host.
	Path string
	// Format of the content, as libvirt found it. Empty where a pool knows no formats.
	Format VolumeFormat
	// CapacityBytes is the size that a guest sees; AllocatedBytes is what the volume takes.
	CapacityBytes, AllocatedBytes int64
	// BackingPath is the path of the volume that this one is an overlay of, or empty.
	BackingPath string
}

// UnknownSize is the size of content whose end alone says how long it is.
const UnknownSize = -1

// VolumeSpec says what a new volume is to be like.
type VolumeSpec struct {
	VolumeRef
	// Format of the content. An overlay is always qcow2.
	Format VolumeFormat
	// CapacityBytes is the size that a guest sees, in bytes.
	CapacityBytes int64
	// Backing makes the volume an overlay, which holds only what differs from the backing volume. It
	// must not change as long as the overlay is there.
	Backing *Backing
}

// Backing is the volume below an overlay.
type Backing struct {
	// Path of the volume on its host, as Volume has it.
	Path string
	// Format of its content. Given, not found out: a guest could write a header of another format
	// into a raw disk, and so reach files of the host.
	Format VolumeFormat
}

// Check says what is wrong with the description of a volume, if anything.
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

// The states, in the words of LibvirtMachine's status.instanceState, where Starting is Paused.
const (
	StateRunning = DomainState(infrav1.InstanceRunning)
	StateBlocked = DomainState(infrav1.InstanceBlocked)
	// StateStarting means that the domain has a process, which its host hasn't begun to run: a host that is
	// stopped now takes it away when it begins again.
	StateStarting     DomainState = "Starting"
	StatePaused                   = DomainState(infrav1.InstancePaused)
	StateShuttingDown             = DomainState(infrav1.InstanceShuttingDown)
	StateShutOff                  = DomainState(infrav1.InstanceShutOff)
	StateCrashed                  = DomainState(infrav1.InstanceCrashed)
	StateSuspended                = DomainState(infrav1.InstanceSuspended)
	StateUnknown                  = DomainState(infrav1.InstanceUnknown)
)

// Active says whether a domain in this state has a process and uses memory of its host.
func (s DomainState) Active() bool {
	return s != StateShutOff && s != StateCrashed
}

// Started says whether a domain in this state has been started, and stays so when its host is stopped.
func (s DomainState) Started() bool {
	return s.Active() && s != StateStarting
}

// Domain is what is known of a domain.
type Domain struct {
	// UUID of the domain in lower case with dashes.
	UUID string
	// Name of the domain on its host.
	Name string
	// State of the domain.
	State DomainState
	// CPUs and MemoryBytes are what the domain was allocated.
	CPUs        int32
	MemoryBytes int64
	// Owner is the LibvirtMachine that the domain was made for, or nil when it isn't ours.
	Owner *Owner
	// Disks are the volumes that the domain has as disks by their pools and names, those of the
	// running domain if it is active. Disks that are given by a path aren't among them.
	Disks []VolumeRef
	// DiskFiles are the paths of disks that are given by one, without what they are overlays of.
	DiskFiles []string
	// MACs are the MAC addresses of the domain's interfaces, in their order, in lower case with colons.
	MACs []string
	// Files are the paths of disks that are given by one, and of what disks are overlays of, as far as
	// the host says: it does for domains that are active. Ordered, each once.
	Files []string
	// ConsoleLog is the path of the file that has what the guest writes to its first console. Empty when there is none.
	ConsoleLog string
	// PinnedCPUs are the numbers of the host's CPUs that virtual CPUs of the domain are pinned to one by one,
	// and HostDevices the addresses of the host's PCI devices that the domain has, such as 0000:3b:00.0:
	// those of the running domain if it is active. Both ordered, each once.
	PinnedCPUs  []int
	HostDevices []string
}

// HasDisk says whether the domain has a volume as a disk. It doesn't if only a disk of it is an overlay of the volume.
func (d Domain) HasDisk(volume Volume) bool {
	return slices.Contains(d.Disks, volume.VolumeRef) || volume.Path != "" && slices.Contains(d.DiskFiles, volume.Path)
}

// Definition is a domain to be made.
type Definition struct {
	// UUID and Name of the domain. XML says the same.
	UUID, Name string
	// XML is the domain in libvirt's format (https://libvirt.org/formatdomain.html).
	XML string
}

// AddressSource is where a host knows addresses of its domains from.
type AddressSource string

// The sources. There is none for ARP: the host's tables forget, and not every kernel has them.
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

// Watch is a list of domains and the news since.
type Watch struct {
	// Domains are all domains, ordered by UUID.
	Domains []Domain
	// Changed gives the UUIDs of domains that something has happened to: made, changed, started,
	// stopped, removed. Several changes of one domain may arrive as one. Closed when there are no
	// more news.
	Changed <-chan string
}
