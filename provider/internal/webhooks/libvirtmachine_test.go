package webhooks

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

const (
	someProviderID  = "libvirt:///00000000-0000-4000-8000-000000000001"
	otherProviderID = "libvirt:///00000000-0000-4000-8000-000000000002"
)

func TestLibvirtMachineCreate(t *testing.T) {
	machine := &infrav1.LibvirtMachine{ObjectMeta: named("machine"), Spec: machineSpec()}
	pool := ipamv1.IPPoolReference{APIGroup: "ipam.cluster.x-k8s.io", Kind: "InClusterIPPool", Name: "nodes"}

	testCreations(t, libvirtMachineValidator(), machine, []change[*infrav1.LibvirtMachine]{
		{name: "unchanged", change: func(*infrav1.LibvirtMachine) {}},
		{name: "already bound, as after clusterctl move", change: func(m *infrav1.LibvirtMachine) {
			m.Spec.ProviderID, m.Spec.HostName = someProviderID, "host-1"
		}},
		{name: "a seed as image", refused: "spec.image.volume: Invalid value: \"00000000-0000-4000-8000-000000000001-seed\": is a name of the provider's own volumes",
			change: func(m *infrav1.LibvirtMachine) { m.Spec.Image.Volume = "00000000-0000-4000-8000-000000000001-seed" }},
		{name: "an image from a URL", refused: "spec.image.volume: Invalid value",
			change: func(m *infrav1.LibvirtMachine) { m.Spec.Image.Volume = "caplv-image-sha256-0.qcow2" }},
		{name: "BIOS on amd64", change: func(m *infrav1.LibvirtMachine) { m.Spec.Firmware.Type = infrav1.FirmwareBIOS }},
		{name: "BIOS on arm64", refused: "spec.firmware.type: Invalid value: \"BIOS\": only amd64 has BIOS: use UEFI for arm64",
			change: func(m *infrav1.LibvirtMachine) {
				m.Spec.Firmware.Type = infrav1.FirmwareBIOS
				m.Spec.CPU.Architecture = infrav1.ArchitectureArm64
			}},
		{name: "huge pages that fit", change: func(m *infrav1.LibvirtMachine) {
			m.Spec.Hugepages = &infrav1.HugepagesSpec{PageSize: infrav1.Hugepages1Gi}
		}},
		{name: "huge pages that don't fit", refused: "spec.memory: Invalid value: \"4000Mi\": must be a multiple of hugepages.pageSize, which is 1Gi",
			change: func(m *infrav1.LibvirtMachine) {
				m.Spec.Hugepages = &infrav1.HugepagesSpec{PageSize: infrav1.Hugepages1Gi}
				m.Spec.Memory = resource.MustParse("4000Mi")
			}},
		{name: "two MAC addresses", change: func(m *infrav1.LibvirtMachine) {
			m.Spec.Interfaces = []infrav1.InterfaceSpec{{MACAddress: "52:54:00:00:00:01"}, {MACAddress: "52:54:00:00:00:02"}, {}, {}}
		}},
		{name: "a MAC address twice", refused: "spec.interfaces[1].macAddress: Duplicate value",
			change: func(m *infrav1.LibvirtMachine) {
				m.Spec.Interfaces = []infrav1.InterfaceSpec{{MACAddress: "52:54:00:00:00:01"}, {MACAddress: "52:54:00:00:00:01"}}
			}},
		{name: "a pool on two interfaces", change: func(m *infrav1.LibvirtMachine) {
			m.Spec.Interfaces = []infrav1.InterfaceSpec{
				{AddressesFromPools: []ipamv1.IPPoolReference{pool}}, {AddressesFromPools: []ipamv1.IPPoolReference{pool}}}
		}},
		{name: "a pool and DNS servers with Ignition", change: func(m *infrav1.LibvirtMachine) {
			m.Spec.BootstrapFormat = infrav1.BootstrapFormatIgnition
			m.Spec.Interfaces = []infrav1.InterfaceSpec{{AddressesFromPools: []ipamv1.IPPoolReference{pool}, Nameservers: []string{"192.0.2.53"}}}
		}},
		{name: "DNS servers", change: func(m *infrav1.LibvirtMachine) {
			m.Spec.Interfaces = []infrav1.InterfaceSpec{{Nameservers: []string{"192.0.2.53", "2001:db8::53"}}}
		}},
		{name: "a DNS server by name", refused: "spec.interfaces[0].nameservers[1]: Invalid value: \"dns.example\": must be an IP address",
			change: func(m *infrav1.LibvirtMachine) {
				m.Spec.Interfaces = []infrav1.InterfaceSpec{{Nameservers: []string{"192.0.2.53", "dns.example"}}}
			}},
		{name: "a pool twice on one interface", refused: "spec.interfaces[0].addressesFromPools[1]: Duplicate value",
			change: func(m *infrav1.LibvirtMachine) {
				m.Spec.Interfaces = []infrav1.InterfaceSpec{{AddressesFromPools: []ipamv1.IPPoolReference{pool, pool}}}
			}},
	})
}

func TestLibvirtMachineUpdate(t *testing.T) {
	machine := &infrav1.LibvirtMachine{ObjectMeta: named("machine"), Spec: machineSpec()}
	machine.Spec.ProviderID, machine.Spec.HostName = someProviderID, "host-1"

	testChanges(t, libvirtMachineValidator(), machine, []change[*infrav1.LibvirtMachine]{
		{name: "nothing", change: func(*infrav1.LibvirtMachine) {}},
		{name: "cpus", change: func(m *infrav1.LibvirtMachine) { m.Spec.CPUs = 8 }},
		{name: "runPolicy", change: func(m *infrav1.LibvirtMachine) { m.Spec.RunPolicy = infrav1.RunManual }},
		{name: "less memory", change: func(m *infrav1.LibvirtMachine) { m.Spec.Memory = resource.MustParse("2Gi") }},
		{name: "the same memory in another unit", change: func(m *infrav1.LibvirtMachine) { m.Spec.Memory = resource.MustParse("4096Mi") }},
		{name: "a larger root disk", change: func(m *infrav1.LibvirtMachine) { m.Spec.RootDisk.Size = resource.MustParse("40Gi") }},
		{name: "a larger extra disk", change: func(m *infrav1.LibvirtMachine) { m.Spec.ExtraDisks[0].Size = resource.MustParse("40Gi") }},
		{name: "a smaller root disk", change: func(m *infrav1.LibvirtMachine) { m.Spec.RootDisk.Size = resource.MustParse("10Gi") },
			refused: "spec.rootDisk.size: Invalid value: \"10Gi\": a disk can grow and can't shrink: must be at least 20Gi"},
		{name: "a smaller extra disk", change: func(m *infrav1.LibvirtMachine) { m.Spec.ExtraDisks[0].Size = resource.MustParse("1Gi") },
			refused: "spec.extraDisks[0].size"},
		{name: "another extra disk", change: func(m *infrav1.LibvirtMachine) {
			m.Spec.ExtraDisks = append(m.Spec.ExtraDisks, infrav1.ExtraDiskSpec{Name: "more", Size: resource.MustParse("1Gi")})
		}, refused: "spec.extraDisks: Forbidden: is immutable"},
		{name: "an extra disk's name", change: func(m *infrav1.LibvirtMachine) { m.Spec.ExtraDisks[0].Name = "x" }, refused: "spec.extraDisks[0].name: Forbidden"},
		{name: "an extra disk's pool", change: func(m *infrav1.LibvirtMachine) { m.Spec.ExtraDisks[0].Pool = "x" }, refused: "spec.extraDisks[0].pool: Forbidden"},
		{name: "providerID", change: func(m *infrav1.LibvirtMachine) { m.Spec.ProviderID = otherProviderID },
			refused: "spec.providerID: Forbidden: is immutable once set"},
		{name: "hostName", change: func(m *infrav1.LibvirtMachine) { m.Spec.HostName = "host-2" },
			refused: "spec.hostName: Forbidden: is immutable once set"},
		{name: "the host removed", change: func(m *infrav1.LibvirtMachine) { m.Spec.HostName = "" }, refused: "spec.hostName: Forbidden"},
		{name: "image", change: func(m *infrav1.LibvirtMachine) { m.Spec.Image.Volume = "x" },
			refused: "spec.image: Forbidden: is immutable: the machine has to be replaced, by a new template in its owner"},
		{name: "rootDisk.pool", change: func(m *infrav1.LibvirtMachine) { m.Spec.RootDisk.Pool = "x" }, refused: "spec.rootDisk.pool: Forbidden"},
		{name: "rootDisk.clone", change: func(m *infrav1.LibvirtMachine) { m.Spec.RootDisk.Clone = infrav1.CloneFull }, refused: "spec.rootDisk.clone: Forbidden"},
		{name: "cpu", change: func(m *infrav1.LibvirtMachine) { m.Spec.CPU.Mode = infrav1.CPUModeMaximum }, refused: "spec.cpu: Forbidden"},
		{name: "firmware", change: func(m *infrav1.LibvirtMachine) { m.Spec.Firmware.SecureBoot = ptr.To(true) }, refused: "spec.firmware: Forbidden"},
		{name: "tpm", change: func(m *infrav1.LibvirtMachine) { m.Spec.TPM = &infrav1.TPMSpec{} }, refused: "spec.tpm: Forbidden"},
		{name: "interfaces", change: func(m *infrav1.LibvirtMachine) { m.Spec.Interfaces[0].Network = "x" }, refused: "spec.interfaces: Forbidden"},
		{name: "hostDevices", change: func(m *infrav1.LibvirtMachine) { m.Spec.HostDevices = []infrav1.HostDeviceSpec{{Name: "gpu"}} },
			refused: "spec.hostDevices: Forbidden"},
		{name: "hugepages", change: func(m *infrav1.LibvirtMachine) {
			m.Spec.Hugepages = &infrav1.HugepagesSpec{PageSize: infrav1.Hugepages2Mi}
		}, refused: "spec.hugepages: Forbidden"},
		{name: "autostart", change: func(m *infrav1.LibvirtMachine) { m.Spec.Autostart = ptr.To(false) }, refused: "spec.autostart: Forbidden"},
		{name: "guestAgent", change: func(m *infrav1.LibvirtMachine) { m.Spec.GuestAgent = ptr.To(false) }, refused: "spec.guestAgent: Forbidden"},
		{name: "bootstrapFormat", change: func(m *infrav1.LibvirtMachine) { m.Spec.BootstrapFormat = infrav1.BootstrapFormatIgnition },
			refused: "spec.bootstrapFormat: Forbidden"},
	})
}

// TestDedicatedCPUsAreOfOneSize checks that the number of dedicated CPUs, which are chosen at creation, is immutable.
func TestDedicatedCPUsAreOfOneSize(t *testing.T) {
	machine := &infrav1.LibvirtMachine{ObjectMeta: named("machine"), Spec: machineSpec()}
	machine.Spec.CPU.Dedicated = ptr.To(true)
	testChanges(t, libvirtMachineValidator(), machine, []change[*infrav1.LibvirtMachine]{
		{name: "memory", change: func(m *infrav1.LibvirtMachine) { m.Spec.Memory = resource.MustParse("2Gi") }},
		{name: "cpus", change: func(m *infrav1.LibvirtMachine) { m.Spec.CPUs = 8 },
			refused: "spec.cpus: Forbidden: the machine has dedicated CPUs: is immutable"},
		{name: "dedicated", change: func(m *infrav1.LibvirtMachine) { m.Spec.CPU.Dedicated = nil }, refused: "spec.cpu: Forbidden: is immutable"},
	})
}

func TestLibvirtMachineIsBoundOnce(t *testing.T) {
	g := NewWithT(t)
	before := &infrav1.LibvirtMachine{ObjectMeta: named("machine"), Spec: machineSpec()}
	after := before.DeepCopy()
	after.Spec.ProviderID, after.Spec.HostName = someProviderID, "host-1"

	_, err := libvirtMachineValidator().ValidateUpdate(requestContext(false), before, after)
	g.Expect(err).ToNot(HaveOccurred())
}

// TestUpdateOfMetadataIsNeverRefused checks that a machine that is invalid by newer rules can lose its finalizer.
func TestUpdateOfMetadataIsNeverRefused(t *testing.T) {
	g := NewWithT(t)
	before := &infrav1.LibvirtMachine{ObjectMeta: named("machine"), Spec: machineSpec()}
	before.Finalizers = []string{infrav1.MachineFinalizer}
	before.Spec.Interfaces = []infrav1.InterfaceSpec{{MACAddress: "52:54:00:00:00:01"}, {MACAddress: "52:54:00:00:00:01"}}
	after := before.DeepCopy()
	after.Finalizers = nil

	_, err := libvirtMachineValidator().ValidateUpdate(requestContext(false), before, after)
	g.Expect(err).ToNot(HaveOccurred())
	_, err = libvirtMachineValidator().ValidateDelete(requestContext(false), before)
	g.Expect(err).ToNot(HaveOccurred())
}
