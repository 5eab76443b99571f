package world_test

import (
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/labels/format"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/world"
)

// withPools returns a scene with an initialized cluster.
func withPools(t *testing.T) (*world.Scene, *clusterv1.Cluster) {
	t.Helper()
	s := world.NewScene(t, "rack-a", "rack-b")
	cluster := s.Cluster("blue")
	s.ControlPlane(cluster)
	return s, cluster
}

// TestPoolScaledExternally checks that with cluster.x-k8s.io/replicas-managed-by a deleted machine isn't replaced, and
// that spec.replicas of the MachinePool follows. A rollout changes neither.
func TestPoolScaledExternally(t *testing.T) {
	t.Parallel()
	s, cluster := withPools(t)
	pool, infra := s.MachinePool(cluster, "workers", 3, func(pool *clusterv1.MachinePool, _ *infrav1.LibvirtMachinePool) {
		pool.Annotations = map[string]string{clusterv1.ReplicasManagedByAnnotation: "external-autoscaler"}
	})
	s.PoolSettled(pool, infra, 3)
	machines, _ := ofPool(s, "workers")
	s.Delete(&machines[1])
	s.PoolSettled(pool, infra, 2)
	s.Expect(*pool.Spec.Replicas).To(BeEquivalentTo(2))
	s.Eventually(func() string { s.Get(pool); return pool.Status.Phase }).Should(Equal(string(clusterv1.MachinePoolPhaseRunning)))

	world.Change(s, infra, func(p *infrav1.LibvirtMachinePool) { p.Spec.Template.Spec.CPUs = 2 })
	s.Condition(infra, infrav1.UpToDateCondition, metav1.ConditionFalse)
	s.Condition(infra, infrav1.UpToDateCondition, metav1.ConditionTrue)
	s.PoolSettled(pool, infra, 2)
	s.Expect(*pool.Spec.Replicas).To(BeEquivalentTo(2))
	_, infras := ofPool(s, "workers")
	for i := range infras {
		s.Expect(infras[i].Spec.CPUs).To(BeEquivalentTo(2))
	}
	s.Delete(cluster)
	s.NothingLeft()
}

// TestPoolWithAHealthCheck checks that only the machines that a MachineHealthCheck finds unhealthy are replaced,
// through their Machines.
func TestPoolWithAHealthCheck(t *testing.T) {
	t.Parallel()
	s, cluster := withPools(t)
	pool, infra := s.MachinePool(cluster, "workers", 3)
	s.PoolSettled(pool, infra, 3)
	s.Create(&clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "workers"}, Spec: clusterv1.MachineHealthCheckSpec{
		ClusterName: cluster.Name, Selector: metav1.LabelSelector{MatchLabels: map[string]string{clusterv1.MachinePoolNameLabel: "workers"}},
		Checks: clusterv1.MachineHealthCheckChecks{UnhealthyNodeConditions: []clusterv1.UnhealthyNodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionFalse, TimeoutSeconds: ptr.To[int32](0)}}}}})
	machines, _ := ofPool(s, "workers")
	sick := &machines[1]
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: sick.Status.NodeRef.Name}}
	s.Get(node)
	before := client.MergeFrom(node.DeepCopy())
	for i := range node.Status.Conditions {
		if condition := &node.Status.Conditions[i]; condition.Type == corev1.NodeReady {
			condition.Status = corev1.ConditionFalse
		}
	}
	s.Expect(s.Client.Status().Patch(t.Context(), node, before)).To(Succeed())
	s.Gone(sick)
	s.PoolSettled(pool, infra, 3)
	now, _ := ofPool(s, "workers")
	s.Expect(now).To(HaveLen(3))
	for _, machine := range []clusterv1.Machine{machines[0], machines[2]} {
		s.Expect(now).To(ContainElement(HaveField("UID", machine.UID)), "a healthy machine was replaced")
	}
	s.Gone(node)
	s.Delete(cluster)
	s.NothingLeft()
}

// TestPoolReplacesDeletedMachines deletes the LibvirtMachine of one Machine and another Machine. Both are replaced, and
// nothing of either is left.
func TestPoolReplacesDeletedMachines(t *testing.T) {
	t.Parallel()
	s, cluster := withPools(t)
	pool, infra := s.MachinePool(cluster, "workers", 3)
	s.PoolSettled(pool, infra, 3)
	machines, infras := ofPool(s, "workers")
	s.Delete(&infras[0])
	s.Gone(&machines[0])
	s.Delete(&machines[1])
	s.Gone(&infras[1])
	s.PoolSettled(pool, infra, 3)
	machines, _ = ofPool(s, "workers")
	var names []string
	for i := range machines {
		names = append(names, machines[i].Name)
	}
	s.Expect(names).To(ConsistOf("workers-3", "workers-4", "workers-5"), "names are never used twice")
	s.Delete(pool)
	s.Gone(infra)
	s.Delete(cluster)
	s.NothingLeft()
}

// TestPoolIsScaledDown checks that machines with the annotation cluster.x-k8s.io/delete-machine on the Machine or the
// LibvirtMachine are deleted first, and otherwise the oldest.
func TestPoolIsScaledDown(t *testing.T) {
	t.Parallel()
	s, cluster := withPools(t)
	pool, infra := s.MachinePool(cluster, "workers", 2, func(pool *clusterv1.MachinePool, _ *infrav1.LibvirtMachinePool) {
		pool.Spec.FailureDomains = []string{"rack-b"}
	})
	s.PoolSettled(pool, infra, 2)
	scale := func(replicas int32) []string {
		world.Change(s, pool, func(p *clusterv1.MachinePool) { p.Spec.Replicas = ptr.To(replicas) })
		s.PoolSettled(pool, infra, int(replicas))
		var names []string
		_, infras := ofPool(s, "workers")
		for i := range infras {
			names = append(names, infras[i].Name)
			s.Expect(infras[i].Status.FailureDomain).To(Equal("rack-b"))
		}
		slices.Sort(names)
		return names
	}
	s.Expect(scale(6)).To(Equal([]string{"workers-1", "workers-2", "workers-3", "workers-4", "workers-5", "workers-6"}))
	chosen := map[string]string{clusterv1.DeleteMachineAnnotation: ""}
	world.Change(s, &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "workers-6"}},
		func(m *clusterv1.Machine) { m.Annotations = chosen })
	world.Change(s, &infrav1.LibvirtMachine{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "workers-4"}},
		func(m *infrav1.LibvirtMachine) { m.Annotations[clusterv1.DeleteMachineAnnotation] = "" })
	s.Expect(scale(4)).To(Equal([]string{"workers-1", "workers-2", "workers-3", "workers-5"}))
	s.Expect(scale(3)).To(Or(Equal([]string{"workers-2", "workers-3", "workers-5"}), Equal([]string{"workers-1", "workers-3", "workers-5"})),
		"the two oldest may be from the same second")
	s.Delete(cluster)
	s.NothingLeft()
}

// TestPoolWithALongName checks that labels have Cluster API's short form of long names, and that the names of the
// machines are valid names of nodes.
func TestPoolWithALongName(t *testing.T) {
	t.Parallel()
	s, cluster := withPools(t)
	name := "a-pool-with-" + strings.Repeat("a-long-name-", 20) + "y"
	s.Expect(name).To(HaveLen(validation.DNS1123SubdomainMaxLength))
	pool, infra := s.MachinePool(cluster, name, 2)
	s.PoolSettled(pool, infra, 2)
	machines, infras := ofPool(s, format.MustFormatValue(name))
	s.Expect(machines).To(HaveLen(2))
	s.Expect(infras).To(HaveLen(2))
	for i := range infras {
		s.Expect(len(infras[i].Name)).To(BeNumerically("<=", 63))
		s.Expect(infras[i].Labels).To(HaveKeyWithValue(infrav1.PoolLabel, format.MustFormatValue(name)))
	}
	s.Delete(&machines[0])
	s.PoolSettled(pool, infra, 2)
	s.Delete(pool)
	s.Gone(infra)
	s.Delete(cluster)
	s.NothingLeft()
}

// TestExternallyManagedPool checks that a LibvirtMachinePool with the annotation cluster.x-k8s.io/managed-by isn't
// changed.
func TestExternallyManagedPool(t *testing.T) {
	t.Parallel()
	s, cluster := withPools(t)
	pool, infra := s.MachinePool(cluster, "workers", 2, func(_ *clusterv1.MachinePool, infra *infrav1.LibvirtMachinePool) {
		infra.Annotations = map[string]string{clusterv1.ManagedByAnnotation: "somebody"}
	})
	s.Eventually(func() []metav1.OwnerReference { s.Get(infra); return infra.OwnerReferences }).ShouldNot(BeEmpty())
	s.AwaitManagers()
	s.Get(infra)
	s.Expect(infra.Finalizers).To(BeEmpty())
	s.Expect(infra.Status).To(BeZero(), "the provider has written the status")
	_, infras := ofPool(s, "workers")
	s.Expect(infras).To(BeEmpty())
	s.Delete(pool)
	s.Delete(cluster)
	s.NothingLeft()
}
