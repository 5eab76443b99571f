package e2e

import (
	"context"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/cluster-api/test/framework"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/clusterctl-release/clusterctl-release/internal/pinned"
	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

const inPlace = "in-place"

// Cluster API's own spec changes files of nodes, which the provider's extension leaves to others: these change hardware.
var _ = Describe("Machines are updated in place", func() {
	It("gives a worker more memory, and doesn't replace it", Label(inPlace), func() { updateInPlace(inPlace, 1) })
	// Cluster API updates a control plane in place when it scales in before it scales out, which needs three machines.
	It("gives a control plane of three and a worker more memory, and none is replaced", Label(inPlace+"-control-plane"), func() {
		updateInPlace(inPlace+"-control-plane", 3)
	})
})

// updateInPlace makes a cluster with a worker and gives the worker more memory, and the control plane too if it has more
// than one machine.
func updateInPlace(spec string, controlPlaneMachines int64) {
	ctx := context.Background()
	created := newCluster(ctx, spec, controlPlaneMachines, func(namespace string) { extend(ctx, namespace) })
	namespace := created.Cluster.Namespace
	workload := management.GetWorkloadCluster(ctx, namespace, created.Cluster.Name)
	before := machinesOf(ctx, created.Cluster)
	booted := boots(ctx, workload)
	Expect(booted).To(HaveLen(int(controlPlaneMachines) + 1))

	By("Giving machines more memory")
	changesControlPlane := controlPlaneMachines > 1
	isChanged := func(machine *clusterv1.Machine) bool {
		return changesControlPlane || !util.IsControlPlaneMachine(machine)
	}
	if changesControlPlane {
		moreMemory(ctx, created.ControlPlane, &created.ControlPlane.Spec.MachineTemplate.Spec.InfrastructureRef, func() {
			created.ControlPlane.Spec.Rollout.Strategy.Type = controlplanev1.RollingUpdateStrategyType
			created.ControlPlane.Spec.Rollout.Strategy.RollingUpdate.MaxSurge = ptr.To(intstr.FromInt32(0))
		})
	}
	Expect(created.MachineDeployments).To(HaveLen(1))
	workers := created.MachineDeployments[0]
	moreMemory(ctx, workers, &workers.Spec.Template.Spec.InfrastructureRef, func() {
		workers.Spec.Rollout.Strategy.Type = clusterv1.RollingUpdateMachineDeploymentStrategyType
		workers.Spec.Rollout.Strategy.RollingUpdate.MaxSurge = ptr.To(intstr.FromInt32(0))
		workers.Spec.Rollout.Strategy.RollingUpdate.MaxUnavailable = ptr.To(intstr.FromInt32(1))
	})

	Eventually(func(g Gomega) {
		current := boots(ctx, workload)
		for name, machine := range machinesOf(ctx, created.Cluster) {
			g.Expect(before).To(HaveKeyWithValue(name, HaveField("UID", machine.UID)), "Machine %s is another one", name)
			g.Expect(conditions.IsTrue(&machine, clusterv1.MachineUpToDateCondition)).To(BeTrue(), "Machine %s is up to date", name)
			g.Expect(conditions.IsFalse(&machine, clusterv1.MachineUpdatingCondition)).To(BeTrue(), "Machine %s is not being updated", name)
			node := machine.Status.NodeRef.Name
			g.Expect(current).To(HaveKey(node))
			hasRestarted := current[node] != booted[node]
			g.Expect(hasRestarted).To(Equal(isChanged(&machine)), "node %s has started again: %t", node, hasRestarted)
		}
	}, settings.GetIntervals(spec, "wait-machine-upgrade")...).Should(Succeed())
	framework.WaitForMachinesReady(ctx, framework.WaitForMachinesReadyInput{Lister: management.GetClient(), Name: created.Cluster.Name, Namespace: namespace, Intervals: settings.GetIntervals(spec, "wait-nodes-ready")})
	framework.VerifyClusterAvailable(ctx, framework.VerifyClusterAvailableInput{Getter: management.GetClient(), Name: created.Cluster.Name, Namespace: namespace})
	Expect(machinesOf(ctx, created.Cluster)).To(HaveLen(len(before)))
	reachable(ctx, workload)
}

// machinesOf returns the Machines of a cluster by their names.
func machinesOf(ctx context.Context, cluster *clusterv1.Cluster) map[string]clusterv1.Machine {
	var machines clusterv1.MachineList
	Eventually(func() error {
		return management.GetClient().List(ctx, &machines, client.InNamespace(cluster.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name})
	}).Should(Succeed())
	byName := map[string]clusterv1.Machine{}
	for _, machine := range machines.Items {
		byName[machine.Name] = machine
	}
	return byName
}

// moreMemory gives an owner of machines a template in the place of the one that ref names, which differs in memory, and
// calls and for another change together with it.
func moreMemory(ctx context.Context, owner client.Object, ref *clusterv1.ContractVersionedObjectReference, and func()) {
	c := management.GetClient()
	var template infrav1.LibvirtMachineTemplate
	Expect(c.Get(ctx, client.ObjectKey{Namespace: owner.GetNamespace(), Name: ref.Name}, &template)).To(Succeed())
	larger := &infrav1.LibvirtMachineTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: owner.GetNamespace(), Name: ref.Name + "-larger"}, Spec: template.Spec}
	larger.Spec.Template.Spec.Memory.Add(resource.MustParse("256Mi"))
	Expect(c.Create(ctx, larger)).To(Succeed())
	change(ctx, owner, func() {
		ref.Name = larger.Name
		and()
	})
}

// extend has Cluster API ask the provider's extension about updates of machines in a namespace.
func extend(ctx context.Context, namespace string) {
	root, err := pinned.FindRoot()
	Expect(err).ToNot(HaveOccurred())
	manifest, err := os.ReadFile(filepath.Join(root, "provider", "config", "inplaceupdates", "extensionconfig.yaml"))
	Expect(err).ToNot(HaveOccurred())
	config := &runtimev1.ExtensionConfig{}
	Expect(yaml.UnmarshalStrict(manifest, config)).To(Succeed())
	config.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}}
	c := management.GetClient()
	Expect(c.Create(ctx, config)).To(Succeed())
	DeferCleanup(func() { Expect(c.Delete(ctx, config)).To(Succeed()) })
	Eventually(func(g Gomega) {
		g.Expect(c.Get(ctx, client.ObjectKeyFromObject(config), config)).To(Succeed())
		g.Expect(conditions.IsTrue(config, runtimev1.ExtensionConfigDiscoveredCondition)).To(BeTrue())
	}, settings.GetIntervals(inPlace, "wait-controllers")...).Should(Succeed())
}
