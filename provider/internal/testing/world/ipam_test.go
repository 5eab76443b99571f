package world_test

import (
	"maps"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/world"
)

// TestAddressesFromPools follows addresses of pools through the life of a cluster: its endpoint, machines of a
// MachineDeployment and of a MachinePool, a missing, a full and an enlarged pool, a pause, and the deletion, which
// releases all of them.
func TestAddressesFromPools(t *testing.T) {
	t.Parallel()
	s := world.NewScene(t, "rack")
	vips, v6 := s.Pool("vips", "192.0.2.0/24", "192.0.2.99", 1), s.Pool("v6", "2001:db8::/64", "2001:db8::1", 1000)
	v4 := v6
	v4.Name = "v4" // created later
	cluster := s.Cluster("blue", func(_ *clusterv1.Cluster, infra *infrav1.LibvirtCluster) {
		infra.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{}
		infra.Spec.ControlPlaneLoadBalancer.AddressFromPool = &vips
	})
	s.Eventually(func() string { s.Get(cluster); return cluster.Spec.ControlPlaneEndpoint.String() }).Should(Equal("192.0.2.100:6443"))
	s.ControlPlane(cluster)

	interfaces := []infrav1.InterfaceSpec{{Network: "default", AddressesFromPools: []ipamv1.IPPoolReference{v4, v6}}, {Network: "default"}}
	s.Template("first", func(spec *infrav1.LibvirtMachineSpec) { spec.Interfaces = interfaces })
	deployment := s.MachineDeployment(cluster, "workers", 2, "first")
	// The IPAM provider reports that the pool doesn't exist.
	s.Eventually(func(g Gomega) {
		g.Expect(workers(s)).To(HaveLen(2))
		for _, infra := range workers(s) {
			g.Expect(conditions.GetReason(&infra, infrav1.AddressesReadyCondition)).To(Equal(infrav1.AddressClaimFailedReason))
			g.Expect(conditions.GetMessage(&infra, infrav1.ReadyCondition)).To(ContainSubstring("-0-0: no address of AddressPool v4 (ipam.world.test): PoolNotReady"))
		}
	}).Should(Succeed())
	s.Pool("v4", "198.51.100.0/24", "198.51.100.1", 4)
	for _, machine := range running(s, deployment, 2, "first") {
		s.Expect(machine.Status.Addresses).To(HaveExactElements(HaveField("Address", machine.Name),
			HaveField("Address", HavePrefix("198.51.100.")), HaveField("Address", HavePrefix("2001:db8::"))))
	}
	pool, infraPool := s.MachinePool(cluster, "pooled", 2, func(_ *clusterv1.MachinePool, infra *infrav1.LibvirtMachinePool) {
		infra.Spec.Template.Spec.Interfaces = interfaces
	})
	s.PoolSettled(pool, infraPool, 2)
	given := slices.Sorted(maps.Values(s.Given()))
	s.Expect(given).To(HaveLen(9))
	s.Expect(slices.Compact(given)).To(HaveLen(9), "each is allocated once")
	for _, claim := range s.Claims() {
		s.Expect(metav1.GetControllerOf(&claim)).ToNot(BeNil())
		s.Expect(claim.Labels).To(HaveKeyWithValue(clusterv1.ClusterNameLabel, "blue"))
	}

	// The pool is full. The waiting machine is deleted while incomplete, and its address of the other pool is released.
	world.Change(s, deployment, func(d *clusterv1.MachineDeployment) { d.Spec.Replicas = ptr.To[int32](3) })
	full := func() int {
		return len(slices.DeleteFunc(workers(s), func(m infrav1.LibvirtMachine) bool {
			return conditions.GetReason(&m, infrav1.AddressesReadyCondition) != infrav1.AddressClaimFailedReason
		}))
	}
	s.Eventually(full).Should(Equal(1))
	s.Eventually(s.Given).Should(HaveLen(10))
	world.Change(s, deployment, func(d *clusterv1.MachineDeployment) { d.Spec.Replicas = ptr.To[int32](2) })
	running(s, deployment, 2, "first")
	s.Eventually(func() int { return len(s.Claims()) }).Should(Equal(9))
	s.Eventually(s.Given).Should(HaveLen(9))

	// While the cluster is paused no address is released.
	s.Eventually(func(g Gomega) {
		world.Change(s, cluster, func(c *clusterv1.Cluster) { c.Spec.Paused = ptr.To(true) })
		for _, infra := range workers(s) {
			g.Expect(conditions.IsTrue(&infra, infrav1.PausedCondition)).To(BeTrue())
		}
	}).Should(Succeed())
	infra := &workers(s)[0]
	s.Expect(s.Client.Delete(t.Context(), infra)).To(Succeed())
	s.AwaitManagers()
	s.Expect(s.Claims()).To(HaveLen(9))
	s.Expect(s.Claims()).To(HaveEach(HaveField("DeletionTimestamp", BeNil())))
	world.Change(s, cluster, func(c *clusterv1.Cluster) { c.Spec.Paused = nil })
	s.Gone(infra)

	s.Delete(cluster)
	s.NothingLeft()
	s.Expect(s.Claims()).To(BeEmpty())
	s.Expect(s.Given()).To(BeEmpty())
	s.Expect(s.Log.String()).ToNot(ContainSubstring("is forbidden"), "the manager's role lacks a right")
}
