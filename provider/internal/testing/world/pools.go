package world

import (
	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// MachinePool makes a MachinePool of a cluster with a LibvirtMachinePool of the same name, of small
// machines that start from ImageVolume, and bootstrap data by hand. Each is changed by a function of
// change before.
func (s *Scene) MachinePool(cluster *clusterv1.Cluster, name string, replicas int32,
	change ...func(*clusterv1.MachinePool, *infrav1.LibvirtMachinePool)) (*clusterv1.MachinePool, *infrav1.LibvirtMachinePool) {
	s.t.Helper()
	infra := &infrav1.LibvirtMachinePool{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name}}
	infra.Spec.Template.Spec.Image.Volume = ImageVolume.Name
	infra.Spec.Template.Spec.CPUs = 1
	infra.Spec.Template.Spec.Memory = resource.MustParse("1Gi")
	pool := &clusterv1.MachinePool{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name}, Spec: clusterv1.MachinePoolSpec{
		ClusterName: cluster.Name, Replicas: ptr.To(replicas),
		Template: clusterv1.MachineTemplateSpec{Spec: clusterv1.MachineSpec{
			ClusterName: cluster.Name, Version: "v1.36.3",
			Bootstrap: clusterv1.Bootstrap{DataSecretName: ptr.To(name)},
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{
				APIGroup: infrav1.GroupVersion.Group, Kind: "LibvirtMachinePool", Name: name},
		}},
	}}
	for _, f := range change {
		f(pool, infra)
	}
	s.Create(s.BootstrapData(name), infra, pool)
	return pool, infra
}

// PoolSettled waits until a LibvirtMachinePool says that it is Ready with so many machines, of this
// generation, and Cluster API has as many nodes.
func (s *Scene) PoolSettled(pool *clusterv1.MachinePool, infra *infrav1.LibvirtMachinePool, replicas int) {
	s.t.Helper()
	s.Eventually(func(g gomega.Gomega) {
		s.Get(infra)
		s.Get(pool)
		g.Expect(Claims(infra)).To(gomega.BeTrue(), "%+v", infra.Status.Conditions)
		g.Expect(ptr.Deref(infra.Status.Replicas, -1)).To(gomega.BeEquivalentTo(replicas))
		g.Expect(ptr.Deref(pool.Status.Replicas, -1)).To(gomega.BeEquivalentTo(replicas))
		g.Expect(pool.Status.NodeRefs).To(gomega.HaveLen(replicas))
		g.Expect(pool.Spec.ProviderIDList).To(gomega.HaveLen(replicas))
	}).WithTimeout(2 * soon).Should(gomega.Succeed())
}

// Claims says whether a LibvirtMachinePool says that it is as it was asked for, as its spec is now.
func Claims(infra *infrav1.LibvirtMachinePool) bool {
	for _, condition := range infra.Status.Conditions {
		if condition.Type == infrav1.ReadyCondition {
			return condition.Status == metav1.ConditionTrue && condition.ObservedGeneration == infra.Generation
		}
	}
	return false
}
