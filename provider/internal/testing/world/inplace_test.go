package world_test

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/world"
)

// oneByOne lets a MachineDeployment have one machine less than its replicas during a rollout.
func oneByOne(d *clusterv1.MachineDeployment) {
	d.Spec.Rollout.Strategy.Type = clusterv1.RollingUpdateMachineDeploymentStrategyType
	d.Spec.Rollout.Strategy.RollingUpdate.MaxUnavailable = ptr.To(intstr.FromInt32(1))
	d.Spec.Rollout.Strategy.RollingUpdate.MaxSurge = ptr.To(intstr.FromInt32(0))
}

// identities returns the UIDs of machines, in the order of their names.
func identities(machines []clusterv1.Machine) map[types.UID]string {
	out := map[types.UID]string{}
	for i := range machines {
		out[machines[i].UID] = machines[i].Spec.ProviderID
	}
	return out
}

// replaced waits until all machines of a MachineDeployment are new ones of a template.
func replaced(s *world.Scene, deployment *clusterv1.MachineDeployment, replicas int, template string, before map[types.UID]string) {
	s.Eventually(func(g Gomega) {
		for uid := range identities(s.Machines()) {
			g.Expect(before).ToNot(HaveKey(uid), "changes that aren't possible in place need new machines")
		}
	}).Should(Succeed())
	running(s, deployment, replicas, template)
}

// rollOut sets the template of a MachineDeployment.
func rollOut(s *world.Scene, deployment *clusterv1.MachineDeployment, template string) {
	world.Change(s, deployment, func(d *clusterv1.MachineDeployment) { d.Spec.Template.Spec.InfrastructureRef.Name = template })
}

// sizes returns the sizes of the workers' domains, which must all run.
func sizes(s *world.Scene) []hypervisor.Size {
	var sizes []hypervisor.Size
	for _, infra := range workers(s) {
		uuid := infra.Spec.ProviderID[len(infrav1.ProviderIDPrefix):]
		for _, host := range s.Hosts {
			if host.Name != infra.Spec.HostName {
				continue
			}
			text, _ := host.DomainXML(uuid)
			domain, err := hypervisor.ReadDomainXML(text)
			s.Expect(err).ToNot(HaveOccurred())
			s.Expect(host.State(uuid)).To(Equal(hypervisor.StateRunning))
			sizes = append(sizes, hypervisor.Size{CPUs: domain.CPUs, MemoryBytes: domain.MemoryBytes})
		}
	}
	return sizes
}

// TestUpdatesInPlace checks that with the update extension Cluster API's own controllers give existing machines more
// CPUs, memory and disk. Another image still needs new machines.
func TestUpdatesInPlace(t *testing.T) {
	t.Parallel()
	s := world.NewScene(t, "rack-a", "rack-b")
	s.UpdateExtension()
	cluster := s.Cluster("blue")
	s.ControlPlane(cluster)
	s.Template("first")
	deployment := s.MachineDeployment(cluster, "workers", 2, "first", oneByOne, s.Bootstrapped())
	before := identities(running(s, deployment, 2, "first"))

	s.Template("larger", func(spec *infrav1.LibvirtMachineSpec) {
		spec.CPUs, spec.Memory, spec.RootDisk.Size = 3, resource.MustParse("6Gi"), resource.MustParse("40Gi")
	})
	rollOut(s, deployment, "larger")
	s.Eventually(func() []hypervisor.Size { return sizes(s) }).Should(HaveEach(hypervisor.Size{CPUs: 3, MemoryBytes: 6 << 30}))
	s.Expect(identities(running(s, deployment, 2, "larger"))).To(Equal(before), "they are the same machines")
	for _, infra := range workers(s) {
		s.Condition(&infra, infrav1.UpdatedInPlaceCondition, metav1.ConditionTrue)
		s.Eventually(func() map[string]string { s.Get(&infra); return infra.Annotations }).ShouldNot(HaveKey(clusterv1.UpdateInProgressAnnotation))
		s.Expect(infra.Annotations).ToNot(HaveKey(infrav1.UpdateStartedAnnotation))
	}
	s.Eventually(func(g Gomega) {
		for _, machine := range s.Machines() {
			g.Expect(conditions.IsTrue(&machine, clusterv1.MachineUpdatingCondition)).To(BeFalse())
		}
	}).Should(Succeed())

	s.Template("agentless", func(spec *infrav1.LibvirtMachineSpec) {
		spec.CPUs, spec.Memory, spec.RootDisk.Size = 2, resource.MustParse("6Gi"), resource.MustParse("40Gi")
		spec.GuestAgent = ptr.To(false)
	})
	rollOut(s, deployment, "agentless")
	replaced(s, deployment, 2, "agentless", before)
	s.Delete(cluster)
	s.NothingLeft()
}

// TestUpdateNotInPlace checks that machines without a bootstrap provider are replaced: Cluster API would start to
// update them and never finish.
func TestUpdateNotInPlace(t *testing.T) {
	t.Parallel()
	s := world.NewScene(t, "rack")
	s.UpdateExtension()
	cluster := s.Cluster("blue")
	s.ControlPlane(cluster)
	s.Template("first")
	deployment := s.MachineDeployment(cluster, "workers", 1, "first", oneByOne)
	before := identities(running(s, deployment, 1, "first"))
	s.Template("larger", func(spec *infrav1.LibvirtMachineSpec) { spec.CPUs = 3 })
	rollOut(s, deployment, "larger")
	replaced(s, deployment, 1, "larger", before)
	s.Delete(cluster)
	s.NothingLeft()
}

// TestUpdateInPlaceWaitsForRoom checks two machines that need more memory than their host has: one gets it, and the
// other keeps running with a message, until there is enough.
func TestUpdateInPlaceWaitsForRoom(t *testing.T) {
	t.Parallel()
	s := world.NewScene(t, "rack")
	s.UpdateExtension()
	cluster := s.Cluster("blue")
	s.ControlPlane(cluster)
	s.Template("first")
	deployment := s.MachineDeployment(cluster, "workers", 2, "first", oneByOne, s.Bootstrapped())
	before := identities(running(s, deployment, 2, "first"))
	s.Template("larger", func(spec *infrav1.LibvirtMachineSpec) { spec.Memory = resource.MustParse("30Gi") })
	rollOut(s, deployment, "larger")

	var refused *infrav1.LibvirtMachine
	s.Eventually(func() *infrav1.LibvirtMachine {
		for _, infra := range workers(s) {
			if conditions.GetReason(&infra, infrav1.UpdatedInPlaceCondition) == infrav1.NoRoomReason {
				refused = &infra
			}
		}
		return refused
	}).ShouldNot(BeNil())
	s.Expect(conditions.GetMessage(refused, infrav1.UpdatedInPlaceCondition)).To(ContainSubstring("no room (memory: 30Gi needed"))
	s.Expect(sizes(s)).To(ConsistOf(HaveField("MemoryBytes", BeEquivalentTo(30<<30)), HaveField("MemoryBytes", BeEquivalentTo(4<<30))))
	s.Eventually(func() string {
		for _, machine := range s.Machines() {
			if machine.Spec.InfrastructureRef.Name == refused.Name {
				return conditions.GetReason(&machine, clusterv1.MachineUpdatingCondition)
			}
		}
		return ""
	}).Should(Equal(clusterv1.MachineInPlaceUpdateFailedReason))

	host := &infrav1.LibvirtHost{ObjectMeta: metav1.ObjectMeta{Name: s.Hosts[0].Name}}
	world.Change(s, host, func(h *infrav1.LibvirtHost) { h.Spec.Overcommit.MemoryPercent = 200 })
	s.Eventually(func() []hypervisor.Size { return sizes(s) }).Should(HaveEach(HaveField("MemoryBytes", BeEquivalentTo(30<<30))))
	s.Expect(identities(running(s, deployment, 2, "larger"))).To(Equal(before))
	s.Delete(cluster)
	s.NothingLeft()
}
