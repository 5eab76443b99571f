package domainxml_test

import (
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	"libvirt.org/go/libvirtxml"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/domainxml"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

var update = flag.Bool("update", false, "write the golden files")

const uuid = "5c4f1ab6-7c5e-4a55-8f0e-2a3c6a1f0b11"

// small returns a machine with the defaults of its CRD.
func small() domainxml.Machine {
	return domainxml.Machine{
		UUID: uuid, Name: "default-m-1",
		Owner: hypervisor.Owner{Cluster: "c", Namespace: "default", Name: "m-1"},
		Spec: &infrav1.LibvirtMachineSpec{
			CPUs: 2, Memory: resource.MustParse("4Gi"),
			CPU:             infrav1.CPUSpec{Mode: infrav1.CPUModeHostModel, Architecture: infrav1.ArchitectureAmd64},
			Firmware:        infrav1.FirmwareSpec{Type: infrav1.FirmwareUEFI, SecureBoot: ptr.To(false)},
			Interfaces:      []infrav1.InterfaceSpec{{Network: "default"}},
			GuestAgent:      ptr.To(true),
			BootstrapFormat: infrav1.BootstrapFormatCloudConfig,
		},
		RootDisk: domainxml.Disk{VolumeRef: hypervisor.VolumeRef{Pool: "default", Name: uuid + "-root"}, Format: hypervisor.FormatQCOW2},
		Seed:     &hypervisor.VolumeRef{Pool: "default", Name: uuid + "-seed"},
		Networks: []infrav1.HostNetwork{
			{Name: "default", LibvirtNetwork: "default"}, {Name: "storage", Bridge: "br0"}, {Name: "public", MacvtapDevice: "enp1s0"},
		},
	}
}

// large returns a machine with all fields set.
func large() domainxml.Machine {
	m := small()
	m.Owner.Name = `m<&>"'1`
	m.Spec.CPUs, m.Spec.Memory = 64, resource.MustParse("256Gi")
	m.Spec.CPU.Mode = infrav1.CPUModeHostPassthrough
	m.Spec.Firmware.SecureBoot = ptr.To(true)
	m.Spec.TPM = &infrav1.TPMSpec{Model: infrav1.TPMModelCRB}
	m.Spec.Hugepages = &infrav1.HugepagesSpec{PageSize: infrav1.Hugepages1Gi}
	m.Spec.GuestAgent = ptr.To(false)
	m.Spec.ExtraDisks = []infrav1.ExtraDiskSpec{{Name: "etcd"}, {Name: "data"}}
	m.ExtraDisks = map[string]domainxml.Disk{
		"data": {VolumeRef: hypervisor.VolumeRef{Pool: "slow", Name: uuid + "-data"}, Format: hypervisor.FormatRaw},
		"etcd": {VolumeRef: hypervisor.VolumeRef{Pool: "fast", Name: uuid + "-etcd"}, Format: hypervisor.FormatQCOW2},
	}
	m.Spec.Interfaces = []infrav1.InterfaceSpec{{Network: "default"}, {Network: "storage", MACAddress: "52:54:00:00:00:01"}, {Network: "public"}}
	m.Spec.HostDevices = []infrav1.HostDeviceSpec{{Name: "gpu", VendorID: "10de", ProductID: "20b5", Count: 2}, {Name: "nic", Count: 1}}
	m.HostDevices = map[string][]string{"gpu": {"0000:3b:00.0", "0000:af:1f.7"}, "nic": {"0001:00:00.0"}}
	return m
}

// TestGolden checks the XML that libvirt gets. libvirtxml reads it back; the tests of hypervisor/libvirt define and
// start such domains on a real libvirt.
func TestGolden(t *testing.T) {
	tests := map[string]func() domainxml.Machine{
		"small": small,
		"large": large,
		"bios": func() domainxml.Machine {
			m := small()
			m.Spec.Firmware = infrav1.FirmwareSpec{Type: infrav1.FirmwareBIOS}
			m.Spec.TPM = &infrav1.TPMSpec{Model: infrav1.TPMModelTIS}
			m.Spec.Hugepages = &infrav1.HugepagesSpec{PageSize: infrav1.Hugepages2Mi}
			m.Emulated = true
			return m
		},
		"arm64-ignition": func() domainxml.Machine {
			m := small()
			m.Spec.CPU = infrav1.CPUSpec{Mode: infrav1.CPUModeMaximum, Architecture: infrav1.ArchitectureArm64}
			m.Spec.BootstrapFormat, m.Seed, m.IgnitionPath = infrav1.BootstrapFormatIgnition, nil, "/var/lib/libvirt/images/x.ign"
			m.AvailabilityZone, m.Host = "rack-1", "host-1"
			m.Spec.Memory = resource.MustParse("300000001") // not a multiple of 1 KiB: rounded up
			return m
		},
		"console-log": func() domainxml.Machine {
			m := small()
			m.ConsoleLog = "/var/log/libvirt/qemu/default-m-1-console.log"
			return m
		},
		"s390x": func() domainxml.Machine {
			m := small()
			m.Spec.CPU.Architecture = infrav1.ArchitectureS390x
			return m
		},
		"maximum": func() domainxml.Machine {
			m := small()
			m.Spec.CPU.Mode = infrav1.CPUModeMaximum
			return m
		},
		"passthrough": func() domainxml.Machine {
			m := small()
			m.Spec.CPU.Mode = infrav1.CPUModeHostPassthrough
			return m
		},
		"hugepages-2Mi": func() domainxml.Machine {
			m := small()
			m.Spec.Hugepages = &infrav1.HugepagesSpec{PageSize: infrav1.Hugepages2Mi}
			return m
		},
		"hugepages-1Gi": func() domainxml.Machine {
			m := small()
			m.Spec.Hugepages = &infrav1.HugepagesSpec{PageSize: infrav1.Hugepages1Gi}
			return m
		},
		"dedicated": func() domainxml.Machine {
			m := small()
			m.Spec.CPU.Dedicated = ptr.To(true)
			m.DedicatedCPUs, m.SharedCPUs = []int{5, 20}, "0-3,16-19"
			return m
		},
		"dedicated-all": func() domainxml.Machine { // on a host without shared CPUs
			m := small()
			m.Spec.CPU.Dedicated = ptr.To(true)
			m.DedicatedCPUs = []int{0, 1}
			return m
		},
		"networks": func() domainxml.Machine {
			m := small()
			m.Networks = []infrav1.HostNetwork{
				{Name: "tenant", Bridge: "br0", VLAN: 42, MTU: 9000, Isolated: ptr.To(true), Filter: &infrav1.NetworkFilter{Name: "clean-traffic",
					Parameters: []infrav1.FilterParameter{{Name: "DHCPSERVER", Value: "192.0.2.1"}, {Name: "DHCPSERVER", Value: "192.0.2.2"}}}},
				{Name: "switch", Bridge: "ovsbr0", BridgeType: infrav1.BridgeTypeOpenVSwitch, VLAN: 4094},
				{Name: "nat", LibvirtNetwork: "default", Isolated: ptr.To(false), Filter: &infrav1.NetworkFilter{Name: "no-mac-spoofing"}},
			}
			m.Spec.Interfaces = []infrav1.InterfaceSpec{{Network: "tenant"}, {Network: "switch"}, {Network: "nat"}}
			m.Addresses = map[int][]netip.Addr{0: {netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("2001:db8::7")}, 1: {netip.MustParseAddr("203.0.113.7")}}
			return m
		},
		"shared-cpus": func() domainxml.Machine {
			m := small()
			m.SharedCPUs = "0-3,16-19"
			return m
		},
	}
	for name, machine := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			definition, err := machine().Definition()
			g.Expect(err).ToNot(HaveOccurred())
			g.Expect(machine().Definition()).To(Equal(definition), "the same machine gives the same domain")
			g.Expect(definition.UUID).To(Equal(uuid))
			g.Expect(definition.Name).To(Equal("default-m-1"))

			file := filepath.Join("testdata", name+".xml")
			if *update {
				g.Expect(os.WriteFile(file, []byte(definition.XML+"\n"), 0o600)).To(Succeed())
			}
			want, err := os.ReadFile(file)
			g.Expect(err).ToNot(HaveOccurred())
			g.Expect(definition.XML+"\n").To(Equal(string(want)), "run with -update if the change is intended")

			var again libvirtxml.Domain
			g.Expect(again.Unmarshal(definition.XML)).To(Succeed())
			read, err := hypervisor.ReadDomainXML(definition.XML)
			g.Expect(err).ToNot(HaveOccurred())
			owner := machine().Owner
			g.Expect(read.Owner).To(Equal(&owner))
			g.Expect(read.CPUs).To(Equal(machine().Spec.CPUs))
			g.Expect(read.PinnedCPUs).To(Equal(machine().DedicatedCPUs))
			var devices []string
			for _, addresses := range machine().HostDevices {
				devices = append(devices, addresses...)
			}
			g.Expect(read.HostDevices).To(ConsistOf(devices))
			memory := machine().Spec.Memory
			g.Expect(read.MemoryBytes).To(And(BeNumerically(">=", memory.Value()), BeNumerically("<", memory.Value()+1024)))
		})
	}
}

func TestRefuses(t *testing.T) {
	tests := map[string]struct {
		change  func(m *domainxml.Machine)
		failure string
	}{
		"no name":          {func(m *domainxml.Machine) { m.Name = "" }, "needs a name and a UUID"},
		"UUID in capitals": {func(m *domainxml.Machine) { m.UUID = strings.ToUpper(uuid) }, "needs a name and a UUID"},
		"no owner":         {func(m *domainxml.Machine) { m.Owner = hypervisor.Owner{} }, "the owner of a domain has no"},
		"architecture":     {func(m *domainxml.Machine) { m.Spec.CPU.Architecture = "" }, `cpu.architecture ""`},
		"no cpus":          {func(m *domainxml.Machine) { m.Spec.CPUs = 0 }, "cpus is 0"},
		"cpu mode":         {func(m *domainxml.Machine) { m.Spec.CPU.Mode = "custom" }, `cpu.mode "custom"`},
		"emulated": {func(m *domainxml.Machine) { m.Emulated, m.Spec.CPU.Mode = true, infrav1.CPUModeHostPassthrough },
			"needs hardware virtualization"},
		"no memory": {func(m *domainxml.Machine) { m.Spec.Memory = resource.Quantity{} }, "memory is 0"},
		"hugepages": {func(m *domainxml.Machine) { m.Spec.Hugepages = &infrav1.HugepagesSpec{} }, `hugepages.pageSize ""`},
		"odd memory": {func(m *domainxml.Machine) {
			m.Spec.Hugepages = &infrav1.HugepagesSpec{PageSize: "1Gi"}
			m.Spec.Memory = resource.MustParse("1500Mi")
		}, "multiple of hugepages.pageSize"},
		"firmware": {func(m *domainxml.Machine) { m.Spec.Firmware.Type = "" }, `firmware.type ""`},
		"secure BIOS": {func(m *domainxml.Machine) {
			m.Spec.Firmware = infrav1.FirmwareSpec{Type: "BIOS", SecureBoot: ptr.To(true)}
		}, "secureBoot needs UEFI"},
		"arm64 BIOS": {func(m *domainxml.Machine) {
			m.Spec.CPU.Architecture = "arm64"
			m.Spec.Firmware.Type = "BIOS"
		}, "BIOS is for amd64 only"},
		"secure s390x": {func(m *domainxml.Machine) {
			m.Spec.CPU.Architecture = "s390x"
			m.Spec.Firmware.SecureBoot = ptr.To(true)
		}, "secureBoot needs UEFI"},
		"arm64 CRB": {func(m *domainxml.Machine) {
			m.Spec.CPU.Architecture = "arm64"
			m.Spec.TPM = &infrav1.TPMSpec{Model: "CRB"}
		}, `tpm.model "CRB"`},
		"no root disk":    {func(m *domainxml.Machine) { m.RootDisk = domainxml.Disk{} }, "the root disk: the volume"},
		"no extra volume": {func(m *domainxml.Machine) { m.Spec.ExtraDisks = []infrav1.ExtraDiskSpec{{Name: "a"}} }, "extraDisks a: there is no volume"},
		"volume too many": {func(m *domainxml.Machine) { m.ExtraDisks = map[string]domainxml.Disk{"a": m.RootDisk} }, "1 volumes for the 0 disks"},
		"format of an extra": {func(m *domainxml.Machine) {
			m.Spec.ExtraDisks = []infrav1.ExtraDiskSpec{{Name: "a"}}
			m.ExtraDisks = map[string]domainxml.Disk{"a": {}}
		}, "extraDisks a: the volume"},
		"no seed":    {func(m *domainxml.Machine) { m.Seed = &hypervisor.VolumeRef{} }, "the seed: the volume"},
		"both seeds": {func(m *domainxml.Machine) { m.IgnitionPath = "/x" }, "the other format"},
		"wrong seed": {func(m *domainxml.Machine) { m.Spec.BootstrapFormat = infrav1.BootstrapFormatIgnition }, "the other format"},
		"ignition on s390x": {func(m *domainxml.Machine) {
			m.Spec.BootstrapFormat, m.Seed, m.IgnitionPath = infrav1.BootstrapFormatIgnition, nil, "/x"
			m.Spec.CPU.Architecture = "s390x"
		}, "firmware configuration device"},
		"no such network": {func(m *domainxml.Machine) { m.Spec.Interfaces[0].Network = "x" }, `interfaces[0].network: the host has no network "x"`},
		"empty network":   {func(m *domainxml.Machine) { m.Networks = []infrav1.HostNetwork{{Name: "default"}} }, "interfaces[0].network: the host's network"},
		"same MAC address": {func(m *domainxml.Machine) {
			nic := infrav1.InterfaceSpec{Network: "default", MACAddress: "52:54:00:00:00:01"}
			m.Spec.Interfaces = []infrav1.InterfaceSpec{nic, nic}
		}, "interfaces[1].macAddress"},
		"devices missing": {func(m *domainxml.Machine) { m.Spec.HostDevices = []infrav1.HostDeviceSpec{{Name: "gpu", Count: 1}} }, "hostDevices gpu: there are 0 devices"},
		"not an address": {func(m *domainxml.Machine) {
			m.Spec.HostDevices = []infrav1.HostDeviceSpec{{Name: "gpu", Count: 1}}
			m.HostDevices = map[string][]string{"gpu": {"3b:00.0"}}
		}, "isn't the address of a PCI device"},
		"CPUs missing": {func(m *domainxml.Machine) { m.Spec.CPU.Dedicated, m.DedicatedCPUs = ptr.To(true), []int{4} },
			"cpu.dedicated: there are 1 CPUs of the host for it, and cpus is 2"},
		"CPU twice":              {func(m *domainxml.Machine) { m.Spec.CPU.Dedicated, m.DedicatedCPUs = ptr.To(true), []int{4, 4} }, "in use by the machine already"},
		"CPUs without dedicated": {func(m *domainxml.Machine) { m.DedicatedCPUs = []int{4, 5} }, "cpu.dedicated is false"},
		"address twice": {func(m *domainxml.Machine) {
			m.Spec.HostDevices = []infrav1.HostDeviceSpec{{Name: "gpu", Count: 2}}
			m.HostDevices = map[string][]string{"gpu": {"0000:3b:00.0", "0000:3b:00.0"}}
		}, "in use by the machine already"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := small()
			test.change(&m)
			_, err := m.Definition()
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring(test.failure)))
		})
	}
}

func TestMACAddress(t *testing.T) {
	g := NewWithT(t)
	g.Expect(domainxml.MACAddress(uuid, 0)).To(MatchRegexp("^02(:[0-9a-f]{2}){5}$"))
	g.Expect(domainxml.MACAddress(uuid, 0)).To(Equal(domainxml.MACAddress(uuid, 0)))
	g.Expect(domainxml.MACAddress(uuid, 0)).ToNot(Equal(domainxml.MACAddress(uuid, 1)))
	g.Expect(domainxml.MACAddress(uuid, 0)).ToNot(Equal(domainxml.MACAddress("x", 0)))
}
