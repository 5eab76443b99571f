package domainxml

import (
	"cmp"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"

	"libvirt.org/go/libvirtxml"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// addDisks adds the root disk, the extra disks and the seed, all with virtio: kernels for clouds often have no other
// drivers.
func (m Machine) addDisks(domain *libvirtxml.Domain) error {
	root, err := disk(m.RootDisk, 0)
	if err != nil {
		return fmt.Errorf("the root disk: %w", err)
	}
	root.Boot = &libvirtxml.DomainDeviceBoot{Order: 1}
	domain.Devices.Disks = append(domain.Devices.Disks, root)
	for _, spec := range m.Spec.ExtraDisks {
		volume, exists := m.ExtraDisks[spec.Name]
		if !exists {
			return fmt.Errorf("extraDisks %s: there is no volume for it", spec.Name)
		}
		extra, err := disk(volume, len(domain.Devices.Disks))
		if err != nil {
			return fmt.Errorf("extraDisks %s: %w", spec.Name, err)
		}
		extra.Serial = spec.Name
		domain.Devices.Disks = append(domain.Devices.Disks, extra)
	}
	if len(m.ExtraDisks) != len(m.Spec.ExtraDisks) {
		return fmt.Errorf("there are %d volumes for the %d disks of extraDisks", len(m.ExtraDisks), len(m.Spec.ExtraDisks))
	}
	return nil
}

func disk(volume Disk, index int) (libvirtxml.DomainDisk, error) {
	if volume.Pool == "" || volume.Name == "" || volume.Format != hypervisor.FormatRaw && volume.Format != hypervisor.FormatQCOW2 {
		return libvirtxml.DomainDisk{}, fmt.Errorf("the volume %q with format %q is invalid", volume.String(), volume.Format)
	}
	if index > 'z'-'a' {
		return libvirtxml.DomainDisk{}, fmt.Errorf("it would be disk %d of the machine, which is too many", index+1)
	}
	return libvirtxml.DomainDisk{
		Device: "disk",
		Driver: &libvirtxml.DomainDiskDriver{Name: "qemu", Type: string(volume.Format), Discard: "unmap"},
		Source: &libvirtxml.DomainDiskSource{Volume: &libvirtxml.DomainDiskSourceVolume{Pool: volume.Pool, Volume: volume.Name}},
		Target: &libvirtxml.DomainDiskTarget{Dev: "vd" + "abcdefghijklmnopqrstuvwxyz"[index:index+1], Bus: "virtio"},
	}, nil
}

// The entries of the firmware configuration device with the failure domain and the host, which a guest reads below
// /sys/firmware/qemu_fw_cfg/by_name.
const (
	zoneEntry = "opt/io.x-k8s.libvirt/availability-zone"
	hostEntry = "opt/io.x-k8s.libvirt/host"
)

// addBootstrap adds a disk for NoCloud, or the firmware configuration device for Ignition
// (https://coreos.github.io/ignition/supported-platforms/). The disk is the last one, so that removing it renames no
// disk.
func (m Machine) addBootstrap(domain *libvirtxml.Domain) error {
	ignition := m.Spec.BootstrapFormat == infrav1.BootstrapFormatIgnition
	if m.Seed != nil && m.IgnitionPath != "" || m.Seed != nil && ignition || m.IgnitionPath != "" && !ignition {
		return fmt.Errorf("bootstrapFormat is %s, and the seed has the other format", m.Spec.BootstrapFormat)
	}
	if m.Seed != nil {
		seed, err := disk(Disk{VolumeRef: *m.Seed, Format: hypervisor.FormatRaw}, len(domain.Devices.Disks))
		if err != nil {
			return fmt.Errorf("the seed: %w", err)
		}
		seed.Driver.Discard = ""
		seed.ReadOnly = &libvirtxml.DomainDiskReadOnly{}
		domain.Devices.Disks = append(domain.Devices.Disks, seed)
	}
	if m.IgnitionPath != "" {
		if m.Spec.CPU.Architecture != infrav1.ArchitectureAmd64 && m.Spec.CPU.Architecture != infrav1.ArchitectureArm64 {
			return fmt.Errorf("bootstrapFormat ignition needs a firmware configuration device, which cpu.architecture %s doesn't have", m.Spec.CPU.Architecture)
		}
		var entries []libvirtxml.DomainSysInfoEntry
		for _, name := range hypervisor.IgnitionEntries {
			entries = append(entries, libvirtxml.DomainSysInfoEntry{Name: name, File: m.IgnitionPath})
		}
		for _, entry := range []libvirtxml.DomainSysInfoEntry{{Name: zoneEntry, Value: m.AvailabilityZone}, {Name: hostEntry, Value: m.Host}} {
			if entry.Value != "" {
				entries = append(entries, entry)
			}
		}
		domain.SysInfo = []libvirtxml.DomainSysInfo{{FWCfg: &libvirtxml.DomainSysInfoFWCfg{Entry: entries}}}
	}
	return nil
}

func (m Machine) addInterfaces(domain *libvirtxml.Domain) error {
	seen := map[string]bool{}
	for i, spec := range m.Spec.Interfaces {
		index := slices.IndexFunc(m.Networks, func(network infrav1.HostNetwork) bool { return network.Name == spec.Network })
		if index < 0 {
			return fmt.Errorf("interfaces[%d].network: the host has no network %q", i, spec.Network)
		}
		nic, err := networkInterface(m.Networks[index], m.Addresses[i])
		if err != nil {
			return fmt.Errorf("interfaces[%d].network: %w", i, err)
		}
		mac := cmp.Or(spec.MACAddress, MACAddress(m.UUID, i))
		if seen[mac] {
			return fmt.Errorf("interfaces[%d].macAddress: an earlier interface has %s too", i, mac)
		}
		seen[mac] = true
		nic.MAC = &libvirtxml.DomainInterfaceMAC{Address: mac}
		domain.Devices.Interfaces = append(domain.Devices.Interfaces, nic)
	}
	return nil
}

// networkInterface returns an interface on a network of the host.
func networkInterface(network infrav1.HostNetwork, addresses []netip.Addr) (libvirtxml.DomainInterface, error) {
	source, err := interfaceSource(network)
	if err != nil {
		return libvirtxml.DomainInterface{}, err
	}
	nic := libvirtxml.DomainInterface{Source: source, Model: &libvirtxml.DomainInterfaceModel{Type: "virtio"}}
	if network.BridgeType == infrav1.BridgeTypeOpenVSwitch {
		nic.VirtualPort = &libvirtxml.DomainInterfaceVirtualPort{
			Params: &libvirtxml.DomainInterfaceVirtualPortParams{OpenVSwitch: &libvirtxml.DomainInterfaceVirtualPortParamsOpenVSwitch{}},
		}
	}
	if network.VLAN != 0 {
		nic.VLan = &libvirtxml.DomainInterfaceVLan{Tags: []libvirtxml.DomainInterfaceVLanTag{{ID: uint(network.VLAN)}}} //nolint:gosec // from 1 to 4094
	}
	if network.MTU != 0 {
		nic.MTU = &libvirtxml.DomainInterfaceMTU{Size: uint(network.MTU)} //nolint:gosec // from 1280 to 65521
	}
	if network.Isolated != nil && *network.Isolated {
		nic.PortOptions = &libvirtxml.DomainInterfacePortOptions{Isolated: "yes"}
	}
	if network.Filter != nil {
		nic.FilterRef = filterRef(network.Filter, addresses)
	}
	return nic, nil
}

// filterRef returns a reference to a filter. IP and IPV6 are libvirt's names for an interface's addresses
// (https://libvirt.org/formatnwfilter.html#reserved-variables).
func filterRef(filter *infrav1.NetworkFilter, addresses []netip.Addr) *libvirtxml.DomainInterfaceFilterRef {
	ref := &libvirtxml.DomainInterfaceFilterRef{Filter: filter.Name}
	for _, address := range addresses {
		name := "IPV6"
		if address.Is4() {
			name = "IP"
		}
		ref.Parameters = append(ref.Parameters, libvirtxml.DomainInterfaceFilterParam{Name: name, Value: address.String()})
	}
	for _, parameter := range filter.Parameters {
		ref.Parameters = append(ref.Parameters, libvirtxml.DomainInterfaceFilterParam{Name: parameter.Name, Value: parameter.Value})
	}
	return ref
}

func interfaceSource(network infrav1.HostNetwork) (*libvirtxml.DomainInterfaceSource, error) {
	switch {
	case network.LibvirtNetwork != "":
		return &libvirtxml.DomainInterfaceSource{Network: &libvirtxml.DomainInterfaceSourceNetwork{Network: network.LibvirtNetwork}}, nil
	case network.Bridge != "":
		return &libvirtxml.DomainInterfaceSource{Bridge: &libvirtxml.DomainInterfaceSourceBridge{Bridge: network.Bridge}}, nil
	case network.MacvtapDevice != "":
		return &libvirtxml.DomainInterfaceSource{Direct: &libvirtxml.DomainInterfaceSourceDirect{Dev: network.MacvtapDevice, Mode: "bridge"}}, nil
	}
	return nil, fmt.Errorf("the host's network %q is neither a libvirt network, nor a bridge, nor a device", network.Name)
}

var pciPattern = regexp.MustCompile(`^([0-9a-f]{4}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])$`)

func (m Machine) addHostDevices(domain *libvirtxml.Domain) error {
	seen := map[string]bool{}
	for _, spec := range m.Spec.HostDevices {
		addresses := m.HostDevices[spec.Name]
		if len(addresses) != int(spec.Count) {
			return fmt.Errorf("hostDevices %s: there are %d devices for it, and its count is %d", spec.Name, len(addresses), spec.Count)
		}
		for _, address := range addresses {
			parts := pciPattern.FindStringSubmatch(address)
			if parts == nil || seen[address] {
				return fmt.Errorf("hostDevices %s: %q isn't the address of a PCI device, or is in use by the machine already", spec.Name, address)
			}
			seen[address] = true
			var numbers [4]uint
			for i := range numbers {
				number, _ := strconv.ParseUint(parts[i+1], 16, 16) // the pattern allows only numbers
				numbers[i] = uint(number)
			}
			domain.Devices.Hostdevs = append(domain.Devices.Hostdevs, libvirtxml.DomainHostdev{
				Managed: "yes",
				SubsysPCI: &libvirtxml.DomainHostdevSubsysPCI{Source: &libvirtxml.DomainHostdevSubsysPCISource{Address: &libvirtxml.DomainAddressPCI{
					Domain: &numbers[0], Bus: &numbers[1], Slot: &numbers[2], Function: &numbers[3],
				}}},
			})
		}
	}
	return nil
}
