package libvirtmachinepool_test

import (
	"testing"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/world"
)

// TestOwnerReferencesAreRestored: removed owner references of a pool's machines are restored, and no machine is
// replaced.
func TestOwnerReferencesAreRestored(t *testing.T) {
	t.Parallel()
	s := world.NewScene(t, "a", "b")
	cluster := s.Cluster("blue")
	s.ControlPlane(cluster)
	pool, infra := s.MachinePool(cluster, "workers", 2, func(*clusterv1.MachinePool, *infrav1.LibvirtMachinePool) {})
	s.PoolSettled(pool, infra, 2)
	before := map[string]any{}
	for _, machine := range libvirtMachines(s) {
		before[machine.Name] = machine.UID
		world.Change(s, &machine, func(m *infrav1.LibvirtMachine) { m.OwnerReferences = nil })
	}
	s.Eventually(func(g Gomega) {
		for _, machine := range libvirtMachines(s) {
			g.Expect(before).To(HaveKeyWithValue(machine.Name, machine.UID))
			g.Expect(machine.OwnerReferences).To(ConsistOf(
				And(HaveField("Kind", "LibvirtMachinePool"), HaveField("UID", infra.UID), HaveField("Controller", BeNil())),
				And(HaveField("Kind", "Machine"), HaveField("Name", machine.Name), HaveField("Controller", HaveValue(BeTrue())))))
		}
	}).Should(Succeed())
	s.PoolSettled(pool, infra, 2)
	s.Expect(libvirtMachines(s)).To(HaveLen(len(before)))
	for _, machine := range libvirtMachines(s) {
		s.Expect(before).To(HaveKeyWithValue(machine.Name, machine.UID))
	}
}
