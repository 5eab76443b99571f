package world_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/world"
)

// running waits until a MachineDeployment has the expected number of Machines, all with a node and of a template, and
// returns them by name.
func running(s *world.Scene, deployment *clusterv1.MachineDeployment, replicas int, template string) []clusterv1.Machine {
	var machines []clusterv1.Machine
	s.Eventually(func(g Gomega) {
		s.Get(deployment)
		machines = slices.DeleteFunc(s.Machines(), func(m clusterv1.Machine) bool {
			return m.Labels[clusterv1.MachineDeploymentNameLabel] != deployment.Name
		})
		g.Expect(ptr.Deref(deployment.Status.AvailableReplicas, 0)).To(BeEquivalentTo(replicas), "available of:\n%s", summary(machines))
		g.Expect(machines).To(HaveLen(replicas))
		for _, infra := range workers(s) {
			g.Expect(infra.Annotations).To(HaveKeyWithValue(clusterv1.TemplateClonedFromNameAnnotation, template))
		}
	}).Should(Succeed())
	slices.SortFunc(machines, func(a, b clusterv1.Machine) int { return cmp.Compare(a.Name, b.Name) })
	return machines
}

// summary returns for each Machine why it isn't ready.
func summary(machines []clusterv1.Machine) string {
	var out strings.Builder
	for i := range machines {
		condition := conditions.Get(&machines[i], clusterv1.MachineReadyCondition)
		if condition == nil {
			condition = &metav1.Condition{Message: "no condition"}
		}
		fmt.Fprintf(&out, "%s: %s %s %s\n", machines[i].Name, condition.Status, condition.Reason, condition.Message)
	}
	return out.String()
}

// workers lists the LibvirtMachines of MachineDeployments.
func workers(s *world.Scene) []infrav1.LibvirtMachine {
	return slices.DeleteFunc(s.LibvirtMachines(), func(m infrav1.LibvirtMachine) bool { return m.Labels[clusterv1.MachineDeploymentNameLabel] == "" })
}

// domains counts the domains of all hosts.
func domains(s *world.Scene) int {
	sum := 0
	for _, host := range s.Hosts {
		_, domains := host.Left()
		sum += len(domains)
	}
	return sum
}

// TestLifeOfMachines follows a MachineDeployment through all changes by its users, until its cluster is deleted and
// nothing is left on the hosts.
func TestLifeOfMachines(t *testing.T) {
	t.Parallel()
	s := world.NewScene(t, "rack-a", "rack-a", "rack-b")
	cluster := s.Cluster("blue")
	s.ControlPlane(cluster)
	s.Template("first")
	deployment := s.MachineDeployment(cluster, "workers", 3, "first")
	machines := running(s, deployment, 3, "first")
	used := map[string]bool{}
	for _, infra := range workers(s) {
		used[infra.Spec.HostName] = true
	}
	s.Expect(used).To(HaveLen(3), "machines of one deployment are spread")
	for i := range machines {
		checkMachine(s, &machines[i])
	}

	// More, and fewer.
	world.Change(s, deployment, func(d *clusterv1.MachineDeployment) { d.Spec.Replicas = ptr.To[int32](5) })
	more := running(s, deployment, 5, "first")
	for _, machine := range machines {
		s.Expect(more).To(ContainElement(HaveField("UID", machine.UID)), "no existing machine is replaced")
	}
	world.Change(s, deployment, func(d *clusterv1.MachineDeployment) { d.Spec.Replicas = ptr.To[int32](2) })
	before := running(s, deployment, 2, "first")
	s.Eventually(func() int { return len(workers(s)) }).Should(Equal(2))
	s.Expect(domains(s)).To(Equal(3), "including the control plane's domain")

	// Another template: new machines replace all.
	s.Template("second", func(spec *infrav1.LibvirtMachineSpec) { spec.CPUs = 2 })
	world.Change(s, deployment, func(d *clusterv1.MachineDeployment) { d.Spec.Template.Spec.InfrastructureRef.Name = "second" })
	for _, machine := range running(s, deployment, 2, "second") {
		s.Expect(before).ToNot(ContainElement(HaveField("UID", machine.UID)))
	}

	s.Delete(cluster)
	s.NothingLeft()
	s.Expect(s.LibvirtMachines()).To(BeEmpty())
	s.Expect(s.Log.String()).ToNot(ContainSubstring("is forbidden"), "the manager's role lacks a right")
}

// checkMachine compares a running Machine with its LibvirtMachine, its domain and its node.
func checkMachine(s *world.Scene, machine *clusterv1.Machine) {
	infra := &infrav1.LibvirtMachine{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: machine.Spec.InfrastructureRef.Name}}
	s.Get(infra)
	s.Expect(machine.Spec.ProviderID).To(And(HavePrefix(infrav1.ProviderIDPrefix), Equal(infra.Spec.ProviderID)))
	s.Expect(*machine.Status.Initialization.InfrastructureProvisioned).To(BeTrue())
	s.Expect(machine.Status.Addresses).To(And(Not(BeEmpty()), Equal(infra.Status.Addresses)))
	s.Expect(machine.Status.FailureDomain).To(And(HavePrefix("rack-"), Equal(infra.Status.FailureDomain)))
	s.Expect(infra.Status.InstanceState).To(Equal(infrav1.InstanceRunning))

	uuid := strings.TrimPrefix(infra.Spec.ProviderID, infrav1.ProviderIDPrefix)
	index := slices.IndexFunc(s.Hosts, func(host *world.Host) bool { return host.Name == infra.Spec.HostName })
	s.Expect(index).To(BeNumerically(">=", 0))
	_, domains := s.Hosts[index].Left()
	s.Expect(domains).To(ContainElement(uuid))

	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: machine.Status.NodeRef.Name}}
	s.Get(node)
	s.Expect(node.Spec.ProviderID).To(Equal(infra.Spec.ProviderID))
}

// TestPausedClusterStandsStill checks that nothing is created, changed or removed on any host while a Cluster is
// paused, whatever happens, and that all changes follow afterwards.
func TestPausedClusterStandsStill(t *testing.T) {
	t.Parallel()
	s := world.NewScene(t, "rack")
	cluster := s.Cluster("blue")
	s.ControlPlane(cluster)
	s.Template("first")
	deployment := s.MachineDeployment(cluster, "workers", 1, "first")
	running(s, deployment, 1, "first")
	infra := &workers(s)[0]
	s.Condition(infra, infrav1.SeedRemovedCondition, metav1.ConditionTrue)

	world.Change(s, cluster, func(c *clusterv1.Cluster) { c.Spec.Paused = ptr.To(true) })
	s.Condition(infra, infrav1.PausedCondition, metav1.ConditionTrue)
	s.Condition(&infrav1.LibvirtCluster{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "blue"}}, infrav1.PausedCondition, metav1.ConditionTrue)
	volumes, uuids := s.Hosts[0].Left()
	// The machine is deleted, and its host is unreachable for some time.
	s.Expect(s.Client.Delete(t.Context(), infra)).To(Succeed())
	s.Hosts[0].SetReachable(false)
	s.Hosts[0].SetReachable(true)
	s.AwaitManagers()
	volumesNow, uuidsNow := s.Hosts[0].Left()
	s.Expect(uuidsNow).To(Equal(uuids))
	s.Expect(volumesNow).To(Equal(volumes))
	s.Get(infra)
	s.Expect(infra.Finalizers).To(ContainElement(infrav1.MachineFinalizer))

	world.Change(s, cluster, func(c *clusterv1.Cluster) { c.Spec.Paused = nil })
	s.Gone(infra)
	s.Delete(cluster)
	s.NothingLeft()
}

// TestHostLostWhileMachinesAreMade checks that machines bound to an unreachable host wait for it, that unbound ones are
// placed on other hosts, and that no machine is created twice.
func TestHostLostWhileMachinesAreMade(t *testing.T) {
	t.Parallel()
	s := world.NewScene(t, "rack-a", "rack-b")
	cluster := s.Cluster("blue")
	s.ControlPlane(cluster)
	s.Template("first")
	deployment := s.MachineDeployment(cluster, "workers", 6, "first")
	s.Eventually(func() []infrav1.LibvirtMachine { return workers(s) }).Should(ContainElement(HaveField("Spec.HostName", s.Hosts[0].Name)))
	s.Hosts[0].SetReachable(false)
	s.Condition(&infrav1.LibvirtHost{ObjectMeta: metav1.ObjectMeta{Name: s.Hosts[0].Name}}, infrav1.ReachableCondition, metav1.ConditionFalse)
	s.Hosts[0].SetReachable(true)
	running(s, deployment, 6, "first")
	s.Expect(domains(s)).To(Equal(7), "including the control plane's domain")
	s.Delete(deployment)
	s.Eventually(func() int { return domains(s) }).Should(Equal(1))
	s.Delete(cluster)
	s.NothingLeft()
}
