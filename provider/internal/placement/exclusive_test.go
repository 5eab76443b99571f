package placement_test

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/fleet"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/placement"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/fake"
)

// TestDedicatedCPUs checks that dedicated CPUs aren't shared, and that those of foreign domains count once in any
// state.
func TestDedicatedCPUs(t *testing.T) {
	g := NewWithT(t)
	cpu, dedicated := placement.Resource{Kind: placement.CPU}, placement.Resource{Kind: placement.DedicatedCPU}
	spec, snapshot := &infrav1.LibvirtHostSpec{DedicatedCPUs: "8-11,99"}, busy()
	g.Expect(placement.Lendable(&infrav1.LibvirtHostSpec{}, snapshot)).To(Equal(placement.Capacity(snapshot)))
	lendable := placement.Lendable(spec, snapshot)
	g.Expect(lendable[cpu]).To(BeEquivalentTo(12))
	g.Expect(lendable[dedicated]).To(BeEquivalentTo(4))
	g.Expect(placement.Lendable(&infrav1.LibvirtHostSpec{DedicatedCPUs: "0-99"}, snapshot)[cpu]).To(BeZero())

	g.Expect(placement.Foreign(spec, snapshot, boundMachines())).ToNot(HaveKey(dedicated))
	for uuid, pinned := range map[string][]int{boundUUID: {8, 9}, othersUUID: {0, 10}, "off": {10, 11}} {
		domain := snapshot.Domains[uuid]
		domain.PinnedCPUs = pinned
		snapshot.Domains[uuid] = domain
	}
	foreign := placement.Foreign(spec, snapshot, boundMachines())
	g.Expect(foreign[dedicated]).To(BeEquivalentTo(2), "CPUs 10 and 11")
	g.Expect(foreign[cpu]).To(BeEquivalentTo(6), "one of the seven runs on a dedicated CPU")
	g.Expect(placement.Foreign(&infrav1.LibvirtHostSpec{}, snapshot, boundMachines())[cpu]).To(BeEquivalentTo(7))

	hypervisorDomain := hypervisor.Domain{PinnedCPUs: []int{8, 9, 10, 11}, Owner: &hypervisor.Owner{Name: "gone"}, CPUs: 2}
	snapshot.Domains = map[string]hypervisor.Domain{"x": hypervisorDomain}
	g.Expect(placement.Foreign(spec, snapshot, nil)).To(HaveKeyWithValue(cpu, BeZero()), "no shared CPUs are left")
}

// TestLentDevices checks that devices that can't be lent don't count, and that those of foreign domains do.
func TestLentDevices(t *testing.T) {
	g := NewWithT(t)
	gpus := placement.DeviceResource("10de", "20b5")
	spec := &infrav1.LibvirtHostSpec{HostDevices: []infrav1.LentDevices{{VendorID: "10de", ProductID: "20b5"}}}
	snapshot := fleet.Snapshot{Devices: []hypervisor.PCIDevice{
		{Address: "0000:3b:00.0", VendorID: "10de", ProductID: "20b5", IOMMUGroup: ptr.To(1)},
		{Address: "0000:3c:00.0", VendorID: "10de", ProductID: "20b5", IOMMUGroup: ptr.To(2)},
		{Address: "0000:3d:00.0", VendorID: "10de", ProductID: "20b5"},
		{Address: "0000:3e:00.0", VendorID: "8086", ProductID: "20b5", IOMMUGroup: ptr.To(3)},
	}, Domains: map[string]hypervisor.Domain{
		"shut off": {HostDevices: []string{"0000:3b:00.0", "0000:3e:00.0"}, State: hypervisor.StateShutOff},
		boundUUID:  {HostDevices: []string{"0000:3c:00.0"}},
	}}
	g.Expect(placement.Lendable(spec, snapshot)).To(HaveKeyWithValue(gpus, BeEquivalentTo(2)))
	g.Expect(placement.Foreign(spec, snapshot, boundMachines())).To(Equal(placement.Resources{gpus: 1}))
	g.Expect(placement.Lendable(&infrav1.LibvirtHostSpec{}, snapshot)).ToNot(HaveKey(gpus))
}

// TestDevicesAreRead checks that devices are read only from hosts that lend some.
func TestDevicesAreRead(t *testing.T) {
	for _, lends := range []bool{false, true} {
		g := NewWithT(t)
		spec := &infrav1.LibvirtHostSpec{URI: "test:///default"}
		if lends {
			spec.HostDevices = []infrav1.LentDevices{{VendorID: "10de", ProductID: "20b5"}}
		}
		target, err := fleet.TargetOf(spec, nil)
		g.Expect(err).ToNot(HaveOccurred())
		g.Expect(target.Devices).To(Equal(lends))
		host := fake.NewHost()
		host.SetPCIDevices(hypervisor.PCIDevice{Address: "0000:3b:00.0"})
		sessions := fleet.New(func(ctx context.Context, _ fleet.Target) (hypervisor.Hypervisor, error) { return host.Connect(ctx) }, fleet.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- sessions.Start(ctx) }()
		sessions.Ensure("h", target)
		g.Eventually(func() bool {
			snapshot, _ := sessions.Snapshot("h")
			return snapshot.Reachable
		}, "1m").Should(BeTrue())
		snapshot, _ := sessions.Snapshot("h")
		g.Expect(snapshot.Devices).To(HaveLen(map[bool]int{true: 1}[lends]))
		asked := 0
		for _, call := range host.Calls() {
			if call.Operation == fake.PCIDevices {
				asked++
			}
		}
		g.Expect(asked > 0).To(Equal(lends))
		cancel()
		g.Expect(<-ended).To(Succeed())
	}
}
