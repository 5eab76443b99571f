package world_test

import (
	"os"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/world"
)

// lateForClusterAPI delays the watches of Cluster API's manager.
var lateForClusterAPI world.LateWatches

func TestMain(m *testing.M) {
	world.Configure(world.Settings{ClusterAPITransport: lateForClusterAPI.Wrap})
	os.Exit(world.Main(m))
}

// TestClusterFromHostsToDeletion checks that the provider's status of a cluster reaches the Cluster and follows its
// hosts, and that deletion completes.
func TestClusterFromHostsToDeletion(t *testing.T) {
	t.Parallel()
	s := world.NewScene(t, "rack-b", "rack-a", "rack-b")
	cluster := s.Cluster("blue")
	infra := &infrav1.LibvirtCluster{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: cluster.Name}}
	s.Get(infra)
	s.Expect(infra.Spec.ControlPlaneEndpoint.IsValid()).To(BeTrue())
	s.Expect(cluster.Spec.ControlPlaneEndpoint).To(Equal(infra.Spec.ControlPlaneEndpoint))
	s.Eventually(func(g Gomega) {
		s.Get(cluster)
		g.Expect(cluster.Status.FailureDomains).To(HaveExactElements(
			clusterv1.FailureDomain{Name: "rack-a", ControlPlane: ptr.To(true)}, clusterv1.FailureDomain{Name: "rack-b", ControlPlane: ptr.To(true)}))
	}).Should(Succeed())
	s.Condition(cluster, clusterv1.ClusterInfrastructureReadyCondition, metav1.ConditionTrue)

	for _, host := range s.Hosts {
		host.SetReachable(false)
	}
	s.Condition(cluster, clusterv1.ClusterInfrastructureReadyCondition, metav1.ConditionFalse)
	s.Expect(*cluster.Status.Initialization.InfrastructureProvisioned).To(BeTrue(), "provisioned stays true")
	s.Expect(cluster.Status.FailureDomains).To(HaveLen(2))
	s.Hosts[1].SetReachable(true)
	s.Condition(cluster, clusterv1.ClusterInfrastructureReadyCondition, metav1.ConditionTrue)

	s.Delete(cluster)
	s.Gone(&infrav1.LibvirtCluster{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "blue"}})
}

// TestMachineDeploymentMakesLibvirtMachines checks that Cluster API's controllers can clone templates with the
// provider's webhooks and CRDs, with the owners that `clusterctl move` needs.
func TestMachineDeploymentMakesLibvirtMachines(t *testing.T) {
	t.Parallel()
	s := world.NewScene(t, "rack")
	cluster := s.Cluster("blue")
	template := s.Template("workers", func(spec *infrav1.LibvirtMachineSpec) { spec.CPUs = 3 })
	s.MachineDeployment(cluster, "workers", 2, template.Name)
	s.Eventually(func(g Gomega) {
		machines := s.Machines()
		g.Expect(machines).To(HaveLen(2))
		infra := s.LibvirtMachines()
		g.Expect(infra).To(HaveLen(2))
		for i := range infra {
			g.Expect(infra[i].Spec.CPUs).To(BeEquivalentTo(3))
			g.Expect(infra[i].Spec.Image.Volume).To(Equal(world.ImageVolume.Name))
			g.Expect(infra[i].Labels).To(HaveKeyWithValue(clusterv1.ClusterNameLabel, "blue"))
			g.Expect(infra[i].Annotations).To(HaveKeyWithValue(clusterv1.TemplateClonedFromNameAnnotation, template.Name))
			g.Expect(infra[i].OwnerReferences).To(ContainElement(And(HaveField("Kind", "Machine"), HaveField("Name", infra[i].Name))))
		}
	}).Should(Succeed())
	s.Eventually(func(g Gomega) {
		s.Get(template)
		g.Expect(template.Status.Capacity.Cpu().Value()).To(BeEquivalentTo(3))
		g.Expect(template.OwnerReferences).To(ContainElement(HaveField("Kind", "Cluster")))
	}).Should(Succeed())
}

// TestLateWatchesOfClusterAPI checks that Cluster API's controllers wait until their caches have the objects that they
// created. A MachineSet that doesn't would delete the LibvirtMachine of a Machine that isn't in its cache as an orphan,
// and the Machine would never get another one. The test isn't parallel, because it delays all of Cluster API.
func TestLateWatchesOfClusterAPI(t *testing.T) {
	s := world.NewScene(t, "rack")
	template := s.Template("workers")
	deployment := s.MachineDeployment(s.Cluster("blue"), "workers", 1, template.Name)
	owned := func(machines int) func(g Gomega) {
		return func(g Gomega) {
			infra := s.LibvirtMachines()
			g.Expect(infra).To(HaveLen(machines))
			for i := range infra {
				g.Expect(infra[i].OwnerReferences).To(ContainElement(HaveField("Kind", "Machine")))
			}
		}
	}
	s.Eventually(owned(1)).Should(Succeed())

	lateForClusterAPI.Hold("machines")
	t.Cleanup(lateForClusterAPI.Release)
	world.Change(s, deployment, func(d *clusterv1.MachineDeployment) { d.Spec.Replicas = ptr.To[int32](2) })
	s.Eventually(func() int { return len(s.Machines()) }).Should(BeNumerically(">", 1))
	s.Consistently(func(g Gomega) {
		g.Expect(s.LibvirtMachines()).To(HaveLen(2))
		g.Expect(s.Machines()).To(HaveLen(2))
	}, 5*time.Second).Should(Succeed())
	lateForClusterAPI.Release()
	s.Eventually(owned(2)).Should(Succeed())
}

// TestHostOfTheWorld checks a host that is unreachable for some time, with Cluster API running.
func TestHostOfTheWorld(t *testing.T) {
	t.Parallel()
	s := world.NewScene(t, "rack")
	host := &infrav1.LibvirtHost{ObjectMeta: metav1.ObjectMeta{Name: s.Hosts[0].Name}}
	s.Hosts[0].SetReachable(false)
	s.Condition(host, infrav1.ReachableCondition, metav1.ConditionFalse)
	s.Hosts[0].SetReachable(true)
	s.Condition(host, infrav1.ReadyCondition, metav1.ConditionTrue)
	world.Change(s, host, func(h *infrav1.LibvirtHost) { h.Spec.Networks[0].LibvirtNetwork = "none" })
	s.Expect(s.Condition(host, infrav1.NetworksReadyCondition, metav1.ConditionFalse).Message).To(Equal("libvirt network none doesn't exist"))
	s.Expect(conditions.Get(host, infrav1.ReachableCondition).ObservedGeneration).To(Equal(host.Generation))
	s.Delete(host)
	s.Eventually(s.Hosts[0].Connections).Should(BeZero())
}
