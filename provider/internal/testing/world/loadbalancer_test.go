package world_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/loadbalancer"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/world"
)

// TestLoadBalancer follows a cluster with HAProxy: the address of the load balancer becomes the endpoint, its disk
// lists the control plane machines, it is recreated when its domain is lost, and it is deleted last.
func TestLoadBalancer(t *testing.T) {
	t.Parallel()
	s := world.NewScene(t, "rack")
	cluster := s.Cluster("blue", func(_ *clusterv1.Cluster, infra *infrav1.LibvirtCluster) {
		infra.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{}
		infra.Spec.ControlPlaneLoadBalancer = infrav1.ControlPlaneLoadBalancerSpec{Type: infrav1.LoadBalancerHAProxy,
			HAProxy: &infrav1.HAProxySpec{Image: infrav1.ImageSpec{Volume: world.ImageVolume.Name}}}
	})
	infra := &infrav1.LibvirtCluster{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "blue"}}
	balancer := &infrav1.LibvirtMachine{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "blue-lb"}}
	s.Condition(balancer, infrav1.LoadBalancerConfiguredCondition, metav1.ConditionTrue)
	s.Get(infra)
	s.Expect(metav1.IsControlledBy(balancer, infra)).To(BeTrue())
	endpoint := cluster.Spec.ControlPlaneEndpoint
	s.Expect(balancer.Status.Addresses).To(ContainElement(HaveField("Address", endpoint.Host)))
	s.Expect(balancer.Spec.Memory.String()).To(Equal("1Gi"), "the default of LibvirtCluster")
	disk := func() string {
		s.Get(balancer)
		uuid := strings.TrimPrefix(balancer.Spec.ProviderID, infrav1.ProviderIDPrefix)
		content := s.Hosts[0].Content(hypervisor.VolumeRef{Pool: "default", Name: hypervisor.VolumePrefix(uuid, balancer.Namespace, balancer.Name) + "seed"})
		if len(content) <= loadbalancer.AreaOffset {
			return ""
		}
		return string(content[loadbalancer.AreaOffset:])
	}
	s.Expect(disk()).ToNot(ContainSubstring("\n    server "))

	machine := s.ControlPlane(cluster)
	controlPlane := &infrav1.LibvirtMachine{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: machine.Name}}
	// Control plane providers set labels on the machines that they create.
	world.Change(s, controlPlane, func(m *infrav1.LibvirtMachine) { m.Labels[clusterv1.MachineControlPlaneLabel] = "" })
	// The first one is the host's name.
	server := controlPlane.Status.Addresses[1].Address + ":6443\n"
	s.Eventually(disk).Should(ContainSubstring(server))

	was := balancer.DeepCopy()
	s.Hosts[0].RemoveDomain(strings.TrimPrefix(was.Spec.ProviderID, infrav1.ProviderIDPrefix))
	s.Eventually(func(g Gomega) {
		g.Expect(s.Client.Get(t.Context(), client.ObjectKeyFromObject(balancer), balancer)).To(Succeed())
		g.Expect(balancer.UID).ToNot(Equal(was.UID))
		g.Expect(conditions.IsTrue(balancer, infrav1.LoadBalancerConfiguredCondition)).To(BeTrue())
	}).Should(Succeed())
	s.Expect(balancer.Spec.Interfaces[0].MACAddress).To(And(Not(BeEmpty()), Equal(was.Spec.Interfaces[0].MACAddress)))
	s.Expect(disk()).To(ContainSubstring(server), "the first disk lists the control plane")
	// The guests of these hosts get a new address at each start.
	s.Eventually(func() string {
		s.Get(infra)
		return conditions.GetReason(infra, infrav1.ControlPlaneEndpointReadyCondition)
	}).Should(Equal(infrav1.LoadBalancerAddressChangedReason))
	s.Expect(infra.Spec.ControlPlaneEndpoint).To(Equal(endpoint))

	s.Delete(cluster)
	s.Gone(balancer)
	s.NothingLeft()
	s.Expect(s.Log.String()).ToNot(ContainSubstring("is forbidden"), "the manager's role lacks a right")
}
