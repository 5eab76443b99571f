package libvirt

import (
	"context"
	"slices"
	"testing"

	golibvirt "github.com/digitalocean/go-libvirt"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/cpuset"
	"k8s.io/utils/ptr"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/domainxml"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/libvirtd"
)

// pinsOf returns the CPUs of the host that each virtual CPU of a running domain, and the rest of its QEMU, may use.
func pinsOf(t *testing.T, connection hypervisor.Hypervisor, uuid string, cpus int32) (virtual []cpuset.CPUSet, emulator cpuset.CPUSet) {
	t.Helper()
	g := NewWithT(t)
	domain, err := domainOf(uuid)
	g.Expect(err).ToNot(HaveOccurred())
	const bytes = 16 // for 128 CPUs
	read := func(mask []byte) cpuset.CPUSet {
		var numbers []int
		for i, bits := range mask {
			for bit := range 8 {
				if bits&(1<<bit) != 0 {
					numbers = append(numbers, 8*i+bit)
				}
			}
		}
		return cpuset.New(numbers...)
	}
	err = run(t.Context(), &connection.(*host).calls, "asking for pins", uuid, func(client *golibvirt.Libvirt) error {
		masks, _, err := client.DomainGetVcpuPinInfo(domain, cpus, bytes, uint32(golibvirt.DomainAffectLive))
		if err != nil {
			return err
		}
		for mask := range slices.Chunk(masks, bytes) {
			virtual = append(virtual, read(mask))
		}
		mask, _, err := client.DomainGetEmulatorPinInfo(domain, bytes, golibvirt.DomainAffectLive)
		emulator = read(mask)
		return err
	})
	g.Expect(err).ToNot(HaveOccurred())
	return virtual, emulator
}

// TestPinnedCPUs checks that libvirt and QEMU keep the virtual CPUs of a machine on its dedicated CPUs, and those of
// another machine off them. The domain that is read back equals the definition, before the start and while it runs.
func TestPinnedCPUs(t *testing.T) {
	d := theDaemon(t)
	t.Cleanup(func() { d.empty(t) })
	g := NewWithT(t)
	ctx, cancel := context.WithTimeout(t.Context(), daemonTimeout)
	defer cancel()
	connection, err := d.connect(ctx)
	g.Expect(err).ToNot(HaveOccurred())
	defer func() { _ = connection.Close() }()
	facts, err := connection.Facts(ctx)
	g.Expect(err).ToNot(HaveOccurred())
	all := facts.AllCPUs()
	g.Expect(all).To(HaveLen(int(facts.CPUs)))
	if len(all) < 2 {
		libvirtd.Without(t, "a second CPU")
	}
	shared, own := all[:len(all)-1], all[len(all)-1]
	for _, tc := range []struct {
		name, uuid string
		dedicated  bool
	}{
		{name: "dedicated", uuid: "5c4f1ab6-7c5e-4a55-8f0e-2a3c6a1f0b31", dedicated: true},
		{name: "shared", uuid: "5c4f1ab6-7c5e-4a55-8f0e-2a3c6a1f0b32"},
	} {
		root := hypervisor.VolumeRef{Pool: "default", Name: tc.uuid + "-root"}
		_, err = connection.CreateVolume(ctx, hypervisor.VolumeSpec{VolumeRef: root, Format: hypervisor.FormatQCOW2, CapacityBytes: 1 << 30})
		g.Expect(err).ToNot(HaveOccurred())
		machine := domainxml.Machine{
			UUID: tc.uuid, Name: tc.name, Owner: hypervisor.Owner{Cluster: "c", Namespace: "default", Name: tc.name}, Emulated: true,
			Spec: &infrav1.LibvirtMachineSpec{
				CPUs: 1, Memory: resource.MustParse("256Mi"),
				CPU:             infrav1.CPUSpec{Mode: infrav1.CPUModeMaximum, Architecture: infrav1.ArchitectureAmd64, Dedicated: ptr.To(tc.dedicated)},
				Firmware:        infrav1.FirmwareSpec{Type: infrav1.FirmwareBIOS},
				BootstrapFormat: infrav1.BootstrapFormatCloudConfig, GuestAgent: ptr.To(false),
			},
			RootDisk:   domainxml.Disk{VolumeRef: root, Format: hypervisor.FormatQCOW2},
			SharedCPUs: cpuset.New(shared...).String(),
		}
		var held []int
		wantPin := cpuset.New(shared...)
		if tc.dedicated {
			machine.DedicatedCPUs, held, wantPin = []int{own}, []int{own}, cpuset.New(own)
		}
		definition, err := machine.Definition()
		g.Expect(err).ToNot(HaveOccurred())
		g.Expect(connection.DefineDomain(ctx, definition)).To(Succeed())
		defined, err := connection.Domain(ctx, tc.uuid)
		g.Expect(err).ToNot(HaveOccurred())
		g.Expect(defined.PinnedCPUs).To(Equal(held), tc.name)

		g.Expect(connection.StartDomain(ctx, tc.uuid)).To(Succeed())
		running, err := connection.Domain(ctx, tc.uuid)
		g.Expect(err).ToNot(HaveOccurred())
		g.Expect(running.State).To(Equal(hypervisor.StateRunning))
		g.Expect(running.PinnedCPUs).To(Equal(held), tc.name)
		virtual, emulator := pinsOf(t, connection, tc.uuid, 1)
		g.Expect(virtual).To(HaveLen(1))
		g.Expect(virtual[0].String()).To(Equal(wantPin.String()), tc.name)
		g.Expect(emulator.String()).To(Equal(cpuset.New(shared...).String()), tc.name)
		t.Logf("%s: virtual CPU on %s, emulator on %s, of %v", tc.name, virtual[0], emulator, all)
	}
}
