// Package domainxml translates a machine's spec into a domain in libvirt's format
// (https://libvirt.org/formatdomain.html).
package domainxml

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"

	"libvirt.org/go/libvirtxml"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// Machine is a machine's spec with its volumes, networks and devices.
type Machine struct {
	// UUID of the domain in lower case with dashes.
	UUID string
	// Name of the domain on its host.
	Name string
	// Owner is the LibvirtMachine, which goes into the domain's metadata.
	Owner hypervisor.Owner
	// Spec of the machine with its defaults set.
	Spec *infrav1.LibvirtMachineSpec
	// Emulated is for hosts without hardware virtualization.
	Emulated bool
	// RootDisk is the volume that the machine starts from.
	RootDisk Disk
	// ExtraDisks are the volumes of spec.extraDisks by their names.
	ExtraDisks map[string]Disk
	// Seed is the volume with the NoCloud data, or nil for Ignition.
	Seed *hypervisor.VolumeRef
	// IgnitionPath is the path of the Ignition configuration on the host, or empty for cloud-config.
	IgnitionPath string
	// AvailabilityZone and Host are for machines with Ignition, which have no meta-data. Both may be empty.
	AvailabilityZone, Host string
	// ConsoleLog is the file on the host for the output of the serial console. It may be empty.
	ConsoleLog string
	// Networks are the host's networks, as in LibvirtHost.spec.networks.
	Networks []infrav1.HostNetwork
	// Addresses has the known addresses by the index of the interface, for a network's filter. Without any the filter
	// learns them.
	Addresses map[int][]netip.Addr
	// HostDevices has PCI addresses on the host, such as 0000:3b:00.0, by the names in spec.hostDevices.
	HostDevices map[string][]string
	// DedicatedCPUs are the numbers of the host's CPUs for spec.cpu.dedicated, one for each virtual CPU.
	DedicatedCPUs []int
	// SharedCPUs are the host's CPUs for other machines, for example 0-3,16-19. Empty means all.
	SharedCPUs string
}

// Disk is a volume as a disk.
type Disk struct {
	hypervisor.VolumeRef
	// Format of the volume's content.
	Format hypervisor.VolumeFormat
}

var uuidPattern = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// platform has the differences between architectures.
type platform struct {
	arch, machine string
	acpi, apic    bool
	bios, uefi    bool
	tpm           map[infrav1.TPMModel]string
}

var platforms = map[infrav1.Architecture]platform{
	infrav1.ArchitectureAmd64: {
		arch: "x86_64", machine: "q35", acpi: true, apic: true, bios: true, uefi: true,
		tpm: map[infrav1.TPMModel]string{infrav1.TPMModelCRB: "tpm-crb", infrav1.TPMModelTIS: "tpm-tis"},
	},
	infrav1.ArchitectureArm64: {
		arch: "aarch64", machine: "virt", acpi: true, uefi: true,
		tpm: map[infrav1.TPMModel]string{infrav1.TPMModelTIS: "tpm-tis"},
	},
	// These two have their own firmware, without a choice.
	infrav1.ArchitectureS390x:   {arch: "s390x", machine: "s390-ccw-virtio"},
	infrav1.ArchitecturePpc64le: {arch: "ppc64le", machine: "pseries"},
}

// Definition returns the domain of a machine. Errors name the field of the spec.
func (m Machine) Definition() (hypervisor.Definition, error) {
	domain, err := m.Domain()
	if err != nil {
		return hypervisor.Definition{}, err
	}
	text, err := domain.Marshal()
	if err != nil {
		return hypervisor.Definition{}, fmt.Errorf("writing the XML of domain %s: %w", m.Name, err)
	}
	definition := hypervisor.Definition{UUID: m.UUID, Name: m.Name, XML: text}
	if err := definition.Check(); err != nil {
		return hypervisor.Definition{}, fmt.Errorf("writing the XML of domain %s: %w", m.Name, err)
	}
	return definition, nil
}

// Domain returns the domain of a machine. The same machine gives the same domain.
func (m Machine) Domain() (*libvirtxml.Domain, error) {
	if !uuidPattern.MatchString(m.UUID) || m.Name == "" {
		return nil, fmt.Errorf("a domain needs a name and a UUID in lower case: it has %q and %q", m.Name, m.UUID)
	}
	target, known := platforms[m.Spec.CPU.Architecture]
	if !known {
		return nil, fmt.Errorf("cpu.architecture %q isn't one of amd64, arm64, s390x and ppc64le", m.Spec.CPU.Architecture)
	}
	metadata, err := m.Owner.Metadata()
	if err != nil {
		return nil, err
	}
	domain := &libvirtxml.Domain{
		Type: "kvm", Name: m.Name, UUID: m.UUID,
		Metadata:   &libvirtxml.DomainMetadata{XML: metadata},
		Features:   &libvirtxml.DomainFeatureList{},
		Clock:      clock(m.Spec.CPU.Architecture),
		OnPoweroff: "destroy", OnReboot: "restart", OnCrash: "destroy",
		Devices: &libvirtxml.DomainDeviceList{},
	}
	if m.Emulated {
		domain.Type = "qemu"
	}
	if target.acpi {
		domain.Features.ACPI = &libvirtxml.DomainFeature{}
	}
	if target.apic {
		domain.Features.APIC = &libvirtxml.DomainFeatureAPIC{}
	}
	for _, add := range []func(*libvirtxml.Domain) error{
		m.addProcessors, m.addPinning, m.addMemory, m.addFirmware, m.addTPM, m.addDisks, m.addBootstrap, m.addInterfaces, m.addHostDevices,
	} {
		if err := add(domain); err != nil {
			return nil, err
		}
	}
	m.addChannels(domain)
	return domain, nil
}

func clock(architecture infrav1.Architecture) *libvirtxml.DomainClock {
	clock := &libvirtxml.DomainClock{Offset: "utc"}
	if architecture == infrav1.ArchitectureAmd64 {
		// libvirt's own tools choose these timers for guests with a clock of the hypervisor.
		clock.Timer = []libvirtxml.DomainTimer{{Name: "rtc", TickPolicy: "catchup"}, {Name: "pit", TickPolicy: "delay"}, {Name: "hpet", Present: "no"}}
	}
	return clock
}

func (m Machine) addProcessors(domain *libvirtxml.Domain) error {
	if m.Spec.CPUs < 1 {
		return fmt.Errorf("cpus is %d, and must be at least 1", m.Spec.CPUs)
	}
	switch m.Spec.CPU.Mode {
	case infrav1.CPUModeHostModel, infrav1.CPUModeMaximum:
	case infrav1.CPUModeHostPassthrough:
		if m.Emulated {
			return errors.New("cpu.mode host-passthrough needs hardware virtualization, which the host doesn't have")
		}
	default:
		return fmt.Errorf("cpu.mode %q isn't one of host-model, host-passthrough and maximum", m.Spec.CPU.Mode)
	}
	domain.VCPU = &libvirtxml.DomainVCPU{Placement: "static", Value: uint(m.Spec.CPUs)}
	domain.CPU = &libvirtxml.DomainCPU{Mode: string(m.Spec.CPU.Mode)}
	return nil
}

func (m Machine) addMemory(domain *libvirtxml.Domain) error {
	bytes := m.Spec.Memory.Value()
	if bytes < 1<<20 {
		return fmt.Errorf("memory is %s, which is too little", m.Spec.Memory.String())
	}
	domain.Memory = &libvirtxml.DomainMemory{Value: uint((bytes + 1023) / 1024), Unit: "KiB"}
	if m.Spec.Hugepages == nil {
		return nil
	}
	pages := map[infrav1.HugepageSize]uint{infrav1.Hugepages2Mi: 2 << 10, infrav1.Hugepages1Gi: 1 << 20}
	size, known := pages[m.Spec.Hugepages.PageSize]
	if !known {
		return fmt.Errorf("hugepages.pageSize %q isn't one of 2Mi and 1Gi", m.Spec.Hugepages.PageSize)
	}
	if domain.Memory.Value%size != 0 {
		return fmt.Errorf("memory is %s, and must be a multiple of hugepages.pageSize, which is %s", m.Spec.Memory.String(), m.Spec.Hugepages.PageSize)
	}
	domain.MemoryBacking = &libvirtxml.DomainMemoryBacking{MemoryHugePages: &libvirtxml.DomainMemoryHugepages{
		Hugepages: []libvirtxml.DomainMemoryHugepage{{Size: size, Unit: "KiB"}},
	}}
	return nil
}

func (m Machine) addFirmware(domain *libvirtxml.Domain) error {
	target := platforms[m.Spec.CPU.Architecture]
	secure := m.Spec.Firmware.SecureBoot != nil && *m.Spec.Firmware.SecureBoot
	domain.OS = &libvirtxml.DomainOS{Type: &libvirtxml.DomainOSType{Arch: target.arch, Machine: target.machine, Type: "hvm"}}
	switch {
	case secure && (m.Spec.Firmware.Type != infrav1.FirmwareUEFI || !target.uefi):
		return fmt.Errorf("firmware.secureBoot needs UEFI, which %s with firmware.type %s doesn't have", m.Spec.CPU.Architecture, m.Spec.Firmware.Type)
	case m.Spec.Firmware.Type == infrav1.FirmwareBIOS && !target.bios:
		return fmt.Errorf("firmware.type BIOS is for amd64 only, and cpu.architecture is %s", m.Spec.CPU.Architecture)
	case m.Spec.Firmware.Type != infrav1.FirmwareBIOS && m.Spec.Firmware.Type != infrav1.FirmwareUEFI:
		return fmt.Errorf("firmware.type %q isn't one of BIOS and UEFI", m.Spec.Firmware.Type)
	case m.Spec.Firmware.Type == infrav1.FirmwareBIOS || !target.uefi:
		return nil
	}
	domain.OS.Firmware = "efi"
	// Firmware that supports secure boot refuses unsigned boot loaders only if it has enrolled keys.
	features := []libvirtxml.DomainOSFirmwareFeature{{Name: "enrolled-keys", Enabled: yesNo(secure)}}
	if secure {
		features = append(features, libvirtxml.DomainOSFirmwareFeature{Name: "secure-boot", Enabled: "yes"})
	}
	domain.OS.FirmwareInfo = &libvirtxml.DomainOSFirmwareInfo{Features: features}
	return nil
}

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}

func (m Machine) addTPM(domain *libvirtxml.Domain) error {
	if m.Spec.TPM == nil {
		return nil
	}
	model, known := platforms[m.Spec.CPU.Architecture].tpm[m.Spec.TPM.Model]
	if !known {
		return fmt.Errorf("tpm.model %q isn't available with cpu.architecture %s: amd64 has CRB and TIS, arm64 has TIS", m.Spec.TPM.Model, m.Spec.CPU.Architecture)
	}
	domain.Devices.TPMs = []libvirtxml.DomainTPM{{
		Model:   model,
		Backend: &libvirtxml.DomainTPMBackend{Emulator: &libvirtxml.DomainTPMBackendEmulator{Version: "2.0"}},
	}}
	return nil
}

// addChannels adds the agent's channel, the console, the random number generator and the memory balloon.
func (m Machine) addChannels(domain *libvirtxml.Domain) {
	if m.Spec.GuestAgent == nil || *m.Spec.GuestAgent {
		domain.Devices.Channels = []libvirtxml.DomainChannel{{
			Source: &libvirtxml.DomainChardevSource{UNIX: &libvirtxml.DomainChardevSourceUNIX{}},
			Target: &libvirtxml.DomainChannelTarget{VirtIO: &libvirtxml.DomainChannelTargetVirtIO{Name: "org.qemu.guest_agent.0"}},
		}}
	}
	console := libvirtxml.DomainConsole{Source: &libvirtxml.DomainChardevSource{Pty: &libvirtxml.DomainChardevSourcePty{}}}
	if m.ConsoleLog != "" {
		// A start of the domain doesn't empty the log: the end of the last run is often the interesting part.
		console.Log = &libvirtxml.DomainChardevLog{File: m.ConsoleLog, Append: "on"}
	}
	domain.Devices.Consoles = []libvirtxml.DomainConsole{console}
	domain.Devices.RNGs = []libvirtxml.DomainRNG{{
		Model:   "virtio",
		Backend: &libvirtxml.DomainRNGBackend{Random: &libvirtxml.DomainRNGBackendRandom{Device: "/dev/urandom"}},
	}}
	domain.Devices.MemBalloon = &libvirtxml.DomainMemBalloon{Model: "virtio"}
}

// MACAddress returns the MAC address of an interface without one: locally administered, with 40 bits of a hash of the
// machine's UUID and the index. QEMU's usual 24 bits would clash in a fleet of thousands.
func MACAddress(uuid string, index int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d", uuid, index))
	return net.HardwareAddr{2, sum[0], sum[1], sum[2], sum[3], sum[4]}.String()
}

// addPinning restricts the machine to CPUs of the host. With dedicated CPUs each virtual CPU is on one of them, and
// QEMU's other threads are on shared ones. Other machines use shared CPUs only.
func (m Machine) addPinning(domain *libvirtxml.Domain) error {
	dedicated := m.Spec.CPU.Dedicated != nil && *m.Spec.CPU.Dedicated
	switch {
	case !dedicated && len(m.DedicatedCPUs) > 0:
		return fmt.Errorf("cpu.dedicated is false, and there are %d CPUs for it", len(m.DedicatedCPUs))
	case !dedicated:
		domain.VCPU.CPUSet = m.SharedCPUs
		return nil
	case len(m.DedicatedCPUs) != int(m.Spec.CPUs):
		return fmt.Errorf("cpu.dedicated: there are %d CPUs of the host for it, and cpus is %d", len(m.DedicatedCPUs), m.Spec.CPUs)
	}
	tune := &libvirtxml.DomainCPUTune{}
	seen := map[int]bool{}
	for i, cpu := range m.DedicatedCPUs {
		if cpu < 0 || seen[cpu] {
			return fmt.Errorf("cpu.dedicated: %d isn't the number of a CPU, or is in use by the machine already", cpu)
		}
		seen[cpu] = true
		tune.VCPUPin = append(tune.VCPUPin, libvirtxml.DomainCPUTuneVCPUPin{VCPU: uint(i), CPUSet: fmt.Sprint(cpu)})
	}
	if m.SharedCPUs != "" {
		tune.EmulatorPin = &libvirtxml.DomainCPUTuneEmulatorPin{CPUSet: m.SharedCPUs}
	}
	domain.CPUTune = tune
	return nil
}
