package world_test

import (
	"maps"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/world"
)

// elsewhereOfPools has the rules of InfraMachinePool that need no running controllers, with the place that checks them,
// in addition to the rules of all contracts.
var elsewhereOfPools = map[string]string{
	"InfraMachinePool, InfraMachinePoolList resource definition":                 "`clusterctl-release contract`",
	"InfraMachinePoolTemplate, InfraMachineTemplatePoolList resource definition": "`clusterctl-release contract`",
	"InfraMachinePool: terminal failures":                                        "removed from the contract: `clusterctl-release contract` checks that the fields don't exist",
}

// drivenOfPools has the rules of InfraMachinePool that need running controllers.
var drivenOfPools = map[string]func(t *testing.T, s *contractScene){
	"InfraMachinePool: instances": func(_ *testing.T, s *contractScene) {
		s.Expect(s.infraPool.Status.Instances).To(HaveLen(2))
		for _, one := range s.infraPool.Status.Instances {
			machine := &infrav1.LibvirtMachine{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: one.InstanceName}}
			s.Get(machine)
			s.Expect(one).To(Equal(infrav1.LibvirtMachinePoolInstanceStatus{InstanceName: machine.Name, ProviderID: machine.Spec.ProviderID,
				Addresses: machine.Status.Addresses, Version: s.machinePool.Spec.Template.Spec.Version, Ready: ptr.To(true)}))
			s.Expect(one.Addresses).ToNot(BeEmpty())
		}
	},
	"MachinePoolMachines support": func(t *testing.T, s *contractScene) {
		s.Expect(s.infraPool.Status.InfrastructureMachineKind).To(Equal("LibvirtMachine"))
		machines, _ := ofPool(s.Scene, s.machinePool.Name)
		s.Expect(machines).To(HaveLen(2))
		for _, machine := range machines {
			s.Expect(machine.Spec.InfrastructureRef).To(And(HaveField("Kind", "LibvirtMachine"), HaveField("Name", machine.Name)))
			s.Expect(machine.Status.NodeRef.Name).ToNot(BeEmpty())
			s.Expect(metav1.IsControlledBy(&machine, s.machinePool)).To(BeTrue())
		}
		// Scaling down deletes Machines, so that nodes are drained. Here a hook holds the deletion before the drain.
		chosen := &machines[1]
		const hook = clusterv1.PreDrainDeleteHookAnnotationPrefix + "/test"
		world.Change(s.Scene, chosen, func(m *clusterv1.Machine) {
			m.Annotations = map[string]string{hook: "", clusterv1.DeleteMachineAnnotation: ""}
		})
		world.Change(s.Scene, s.machinePool, func(p *clusterv1.MachinePool) { p.Spec.Replicas = ptr.To[int32](1) })
		s.Eventually(func() *metav1.Time { s.Get(chosen); return chosen.DeletionTimestamp }).ShouldNot(BeNil())
		s.AwaitManagers()
		infra := &infrav1.LibvirtMachine{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: chosen.Name}}
		s.Get(infra)
		s.Expect(infra.DeletionTimestamp).To(BeNil(), "the machine is deleted before its node is drained")
		s.Get(s.infraPool)
		s.Expect(s.infraPool.Spec.ProviderIDList).To(ContainElement(infra.Spec.ProviderID), "Cluster API deletes nodes that aren't in the list")
		world.Change(s.Scene, chosen, func(m *clusterv1.Machine) { delete(m.Annotations, hook) })
		s.PoolSettled(s.machinePool, s.infraPool, 1)
		s.Gone(infra)
		world.Change(s.Scene, s.machinePool, func(p *clusterv1.MachinePool) { p.Spec.Replicas = ptr.To[int32](2) })
		s.PoolSettled(s.machinePool, s.infraPool, 2)
		if err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(chosen), chosen); !apierrors.IsNotFound(err) {
			t.Errorf("the chosen machine still exists, or its name was reused: %v", err)
		}
	},
	"InfraMachinePool: providerID": func(_ *testing.T, s *contractScene) {
		s.Expect(s.infraPool.Spec.ProviderID).To(Equal("libvirt:///" + s.Namespace + "/" + s.infraPool.Name))
	},
	"InfraMachinePool: providerIDList": func(_ *testing.T, s *contractScene) {
		_, infras := ofPool(s.Scene, s.machinePool.Name)
		var ids, nodes []string
		for _, machine := range infras {
			ids = append(ids, machine.Spec.ProviderID)
		}
		for _, reference := range s.machinePool.Status.NodeRefs {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: reference.Name}}
			s.Get(node)
			nodes = append(nodes, node.Spec.ProviderID)
		}
		slices.Sort(ids)
		s.Expect(s.infraPool.Spec.ProviderIDList).To(Equal(ids))
		s.Expect(s.machinePool.Spec.ProviderIDList).To(Equal(ids))
		s.Expect(nodes).To(ConsistOf(ids))
	},
	"InfraMachinePool: initialization completed": func(_ *testing.T, s *contractScene) {
		s.Expect(*s.infraPool.Status.Initialization.Provisioned).To(BeTrue())
		s.Expect(*s.infraPool.Status.Ready).To(BeTrue(), "Cluster API's controller still reads it")
		s.Expect(*s.machinePool.Status.Initialization.InfrastructureProvisioned).To(BeTrue())
	},
	"InfraMachinePool: pausing": func(_ *testing.T, s *contractScene) {
		pausing(s, s.infraPool)
		world.Change(s.Scene, s.cluster, func(c *clusterv1.Cluster) { c.Spec.Paused = ptr.To(true) })
		s.Condition(s.infraPool, infrav1.PausedCondition, metav1.ConditionTrue)
		world.Change(s.Scene, s.machinePool, func(p *clusterv1.MachinePool) { p.Spec.Replicas = ptr.To[int32](3) })
		s.AwaitManagers()
		_, infras := ofPool(s.Scene, s.machinePool.Name)
		s.Expect(infras).To(HaveLen(2), "a machine is created while the Cluster is paused")
		world.Change(s.Scene, s.machinePool, func(p *clusterv1.MachinePool) { p.Spec.Replicas = ptr.To[int32](2) })
		world.Change(s.Scene, s.cluster, func(c *clusterv1.Cluster) { c.Spec.Paused = nil })
		s.Condition(s.infraPool, infrav1.PausedCondition, metav1.ConditionFalse)
	},
	// Cluster API doesn't mirror these conditions so far, according to the contract. They always exist.
	"InfraMachinePool: conditions": func(t *testing.T, s *contractScene) {
		s.Condition(s.infraPool, infrav1.ReadyCondition, metav1.ConditionTrue)
		pool, infra := s.MachinePool(s.cluster, "nowhere", 1, func(pool *clusterv1.MachinePool, _ *infrav1.LibvirtMachinePool) {
			pool.Spec.FailureDomains = []string{"no-host-is-there"}
		})
		s.Eventually(func(g Gomega) {
			ready := s.Condition(infra, infrav1.ReadyCondition, metav1.ConditionFalse)
			g.Expect(ready.Message).To(ContainSubstring("0 of 1 machines are ready; not ready: nowhere-1"))
		}).Should(Succeed())
		s.Expect(infra.Status.Initialization.Provisioned).To(BeNil())
		_, infras := ofPool(s.Scene, pool.Name)
		s.Condition(&infras[0], infrav1.ReadyCondition, metav1.ConditionFalse) // its controller has set the finalizer
		world.Change(s.Scene, &infras[0], func(m *infrav1.LibvirtMachine) { m.Finalizers = append(m.Finalizers, "test/hold") })
		s.Expect(s.Client.Delete(t.Context(), pool)).To(Succeed())
		s.Eventually(func(g Gomega) {
			g.Expect(s.Condition(infra, infrav1.ReadyCondition, metav1.ConditionFalse).Reason).To(Equal(infrav1.DeletingReason))
		}).Should(Succeed())
		s.Eventually(func() []string { s.Get(&infras[0]); return infras[0].Finalizers }).Should(Equal([]string{"test/hold"}))
		world.Change(s.Scene, &infras[0], func(m *infrav1.LibvirtMachine) { m.Finalizers = nil })
		s.Gone(infra)
		s.Gone(pool)
	},
	"InfraMachinePool: replicas": func(_ *testing.T, s *contractScene) {
		s.Expect(*s.infraPool.Status.Replicas).To(BeEquivalentTo(2))
		s.Expect(*s.machinePool.Status.Replicas).To(BeEquivalentTo(2))
	},
	"InfraMachinePoolTemplate: support for SSA dry run": func(t *testing.T, s *contractScene) {
		template := &infrav1.LibvirtMachinePoolTemplate{
			TypeMeta:   metav1.TypeMeta{APIVersion: infrav1.GroupVersion.String(), Kind: "LibvirtMachinePoolTemplate"},
			ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "pools"}}
		template.Spec.Template.Spec = *s.infraPool.Spec.DeepCopy()
		template.Spec.Template.Spec.ProviderID, template.Spec.Template.Spec.ProviderIDList = "", nil
		apply := func(annotations map[string]string, options ...client.PatchOption) error {
			changed := template.DeepCopy()
			changed.Annotations = annotations
			changed.Spec.Template.Spec.Template.Spec.CPUs = 7
			return s.Client.Patch(t.Context(), changed, client.Apply, append(options, client.ForceOwnership, client.FieldOwner("topology"))...) //nolint:staticcheck // typed objects have no apply configurations here
		}
		s.Create(template.DeepCopy())
		dryRun := map[string]string{clusterv1.TopologyDryRunAnnotation: ""}
		s.Expect(apply(dryRun, client.DryRunAll)).To(Succeed())
		s.Expect(apply(nil, client.DryRunAll)).To(Satisfy(apierrors.IsInvalid), "immutable for other writers")
		s.Expect(apply(dryRun)).To(Satisfy(apierrors.IsInvalid), "the annotation alone doesn't allow the change")
	},
}

// ofPool lists the Machines and LibvirtMachines of a MachinePool, by name.
func ofPool(s *world.Scene, pool string) ([]clusterv1.Machine, []infrav1.LibvirtMachine) {
	is := func(object client.Object) bool { return object.GetLabels()[clusterv1.MachinePoolNameLabel] == pool }
	machines := slices.DeleteFunc(s.Machines(), func(m clusterv1.Machine) bool { return !is(&m) })
	return machines, slices.DeleteFunc(s.LibvirtMachines(), func(m infrav1.LibvirtMachine) bool { return !is(&m) })
}

func init() {
	maps.Copy(elsewhere, elsewhereOfPools)
	maps.Copy(driven, drivenOfPools)
}
