package fleet_test

import (
	"testing"

	. "github.com/onsi/gomega"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/fleet"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/placement"
)

// TestDedicatedCPUs: they aren't shared, and what others have of them is counted once, whether it runs or not.
func TestDedicatedCPUs(t *testing.T) {
	g := NewWithT(t)
	cpu, dedicated := placement.Resource{Kind: placement.CPU}, placement.Resource{Kind: placement.DedicatedCPU}
	spec, snapshot := &infrav1.LibvirtHostSpec{DedicatedCPUs: "8-11,99"}, busy()
	g.Expect(fleet.Lendable(&infrav1.LibvirtHostSpec{}, snapshot)).To(Equal(fleet.Capacity(snapshot)))
	lendable := fleet.Lendable(spec, snapshot)
	g.Expect(lendable[cpu]).To(BeEquivalentTo(12))
	g.Expect(lendable[dedicated]).To(BeEquivalentTo(4))
	g.Expect(fleet.Lendable(&infrav1.LibvirtHostSpec{DedicatedCPUs: "0-99"}, snapshot)[cpu]).To(BeZero())

	g.Expect(fleet.Foreign(spec, snapshot, boundMachines())).ToNot(HaveKey(dedicated))
	for uuid, pinned := range map[string][]int{boundUUID: {8, 9}, othersUUID: {0, 10}, "off": {10, 11}} {
		domain := snapshot.Domains[uuid]
		domain.PinnedCPUs = pinned
		snapshot.Domains[uuid] = domain
	}
	foreign := fleet.Foreign(spec, snapshot, boundMachines())
	g.Expect(foreign[dedicated]).To(BeEquivalentTo(2), "10 and 11")
	g.Expect(foreign[cpu]).To(BeEquivalentTo(6), "one of the seven runs on a dedicated CPU")
	g.Expect(fleet.Foreign(&infrav1.LibvirtHostSpec{}, snapshot, boundMachines())[cpu]).To(BeEquivalentTo(7))

	hypervisorDomain := hypervisor.Domain{PinnedCPUs: []int{8, 9, 10, 11}, Owner: &hypervisor.Owner{Name: "gone"}, CPUs: 2}
	snapshot.Domains = map[string]hypervisor.Domain{"x": hypervisorDomain}
	g.Expect(fleet.Foreign(spec, snapshot, nil)).To(HaveKeyWithValue(cpu, BeZero()), "it has none besides")
}
