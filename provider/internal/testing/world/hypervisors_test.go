package world_test

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/world"
)

// TestURIOfAnotherHypervisor checks that while spec.uri leads to another hypervisor, no machine counts as missing, no
// load balancer is recreated, no deletion succeeds, and nothing is created there.
func TestURIOfAnotherHypervisor(t *testing.T) {
	t.Parallel()
	s := world.NewScene(t, "rack", "other")
	right, other := hostObject(s, 0), hostObject(s, 1)
	s.Get(right)
	s.Get(other)
	s.Delete(other)
	cluster := s.Cluster("blue", func(_ *clusterv1.Cluster, infra *infrav1.LibvirtCluster) {
		infra.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{}
		infra.Spec.ControlPlaneLoadBalancer = infrav1.ControlPlaneLoadBalancerSpec{Type: infrav1.LoadBalancerHAProxy,
			HAProxy: &infrav1.HAProxySpec{Image: infrav1.ImageSpec{Volume: world.ImageVolume.Name}}}
	})
	s.ControlPlane(cluster)
	s.Template("first")
	deployment := s.MachineDeployment(cluster, "workers", 1, "first")
	machine := running(s, deployment, 1, "first")[0]
	balancer := &infrav1.LibvirtMachine{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "blue-lb"}}
	s.Condition(balancer, infrav1.LoadBalancerConfiguredCondition, metav1.ConditionTrue)
	wasBalancer, wasThere := balancer.UID, domains(s)

	uri := right.Spec.URI
	world.Change(s, right, func(h *infrav1.LibvirtHost) { h.Spec.URI = other.Spec.URI })
	s.Eventually(func() string {
		s.Get(right)
		return conditions.GetReason(right, infrav1.ReachableCondition)
	}).Should(Equal(infrav1.OtherHypervisorReason))
	s.Expect(s.Client.Delete(t.Context(), &machine)).To(Succeed())
	infra := &infrav1.LibvirtMachine{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: machine.Spec.InfrastructureRef.Name}}
	s.Eventually(func() string {
		s.Get(infra)
		return conditions.GetMessage(infra, infrav1.ReadyCondition)
	}).Should(ContainSubstring("another hypervisor answers"))
	for _, machine := range []*infrav1.LibvirtMachine{balancer, infra} {
		s.Eventually(func() metav1.ConditionStatus {
			s.Get(machine)
			return conditions.Get(machine, infrav1.InstanceReadyCondition).Status
		}).ShouldNot(Equal(metav1.ConditionFalse))
	}
	world.NewScene(t, "elsewhere").AwaitManagers()
	s.Get(balancer)
	s.Expect(balancer.UID).To(Equal(wasBalancer))
	s.Expect(conditions.GetReason(balancer, infrav1.InstanceReadyCondition)).To(Equal(infrav1.HostUnreachableReason))
	s.Get(infra)
	s.Expect(infra.Finalizers).To(ContainElement(infrav1.MachineFinalizer))
	s.Expect(domains(s)).To(Equal(wasThere))
	volumes, _ := s.Hosts[1].Left()
	s.Expect(volumes).To(ConsistOf(world.ImageVolume), "volumes of the other hypervisor")

	world.Change(s, right, func(h *infrav1.LibvirtHost) { h.Spec.URI = uri })
	s.Gone(infra)
	s.Delete(cluster)
	s.NothingLeft()
}
