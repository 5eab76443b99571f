package world

import (
	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// MachinePool creates a MachinePool of a cluster with a LibvirtMachinePool of the same name, with small machines that
// start from ImageVolume, and a bootstrap data Secret. The functions in change edit both before.
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

// PoolSettled waits until a LibvirtMachinePool is Ready with the given number of machines in its current generation,
// and Cluster API has as many nodes.
func (s *Scene) PoolSettled(pool *clusterv1.MachinePool, infra *infrav1.LibvirtMachinePool, replicas int) {
	s.t.Helper()
	s.Eventually(func(g gomega.Gomega) {
		s.Get(infra)
		s.Get(pool)
		g.Expect(isSettled(infra)).To(gomega.BeTrue(), "%+v", infra.Status.Conditions)
		g.Expect(ptr.Deref(infra.Status.Replicas, -1)).To(gomega.BeEquivalentTo(replicas))
		g.Expect(ptr.Deref(pool.Status.Replicas, -1)).To(gomega.BeEquivalentTo(replicas))
		g.Expect(pool.Status.NodeRefs).To(gomega.HaveLen(replicas))
		g.Expect(pool.Spec.ProviderIDList).To(gomega.HaveLen(replicas))
	}).WithTimeout(2 * soon).Should(gomega.Succeed())
}

// isSettled reports whether the conditions of a LibvirtMachinePool are good for its current spec.
func isSettled(infra *infrav1.LibvirtMachinePool) bool {
	ready := conditions.Get(infra, infrav1.ReadyCondition)
	return ready != nil && ready.Status == metav1.ConditionTrue && ready.ObservedGeneration == infra.Generation
}
