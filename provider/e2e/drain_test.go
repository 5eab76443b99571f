package e2e

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/test/framework"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

const (
	workerDrain = "worker-drain"
	// drained is the namespace of the pods on the worker.
	drained = "drained"
	// evictable and unevictable are Deployments of one pod each.
	evictable, unevictable = "evictable", "unevictable"
)

// Cluster API's own spec drains control plane machines too, of which it needs three.
var _ = Describe("A worker is drained", Label(workerDrain), func() {
	It("keeps the machine while a pod can't be evicted, until the timeout", func() {
		ctx := context.Background()
		created := newCluster(ctx, workerDrain, 1, nil)
		Expect(created.MachineDeployments).To(HaveLen(1))
		workers := created.MachineDeployments[0]
		var worker clusterv1.Machine
		for _, machine := range machinesOf(ctx, created.Cluster) {
			if !util.IsControlPlaneMachine(&machine) {
				worker = machine
			}
		}
		node := worker.Status.NodeRef.Name
		Expect(node).ToNot(BeEmpty())
		workload := management.GetWorkloadCluster(ctx, created.Cluster.Namespace, created.Cluster.Name)
		deployOn(ctx, workload, workers, node)

		By("Scaling the workers to none, without a timeout of draining")
		change(ctx, workers, func() {
			workers.Spec.Template.Spec.Deletion.NodeDrainTimeoutSeconds = ptr.To[int32](0)
			workers.Spec.Replicas = ptr.To[int32](0)
		})
		Eventually(func(g Gomega) {
			waitsForPod(ctx, g, workload, &worker)
			g.Expect(podsOn(ctx, g, workload, node, evictable)).To(BeEmpty())
		}, settings.GetIntervals(workerDrain, "wait-machine-deleted")...).Should(Succeed())
		Consistently(func(g Gomega) { waitsForPod(ctx, g, workload, &worker) }).WithTimeout(time.Minute).WithPolling(5 * time.Second).Should(Succeed())

		By("Setting a timeout that is over")
		change(ctx, workers, func() { workers.Spec.Template.Spec.Deletion.NodeDrainTimeoutSeconds = ptr.To[int32](1) })
		Eventually(func(g Gomega) {
			g.Expect(machinesOf(ctx, created.Cluster)).ToNot(HaveKey(worker.Name))
			err := management.GetClient().Get(ctx, infrastructureOf(&worker), &infrav1.LibvirtMachine{})
			g.Expect(err).To(MatchError(apierrors.IsNotFound, "not found"))
			g.Expect(boots(ctx, workload)).ToNot(HaveKey(node))
		}, settings.GetIntervals(workerDrain, "wait-machine-deleted")...).Should(Succeed())
	})
})

// deployOn starts a pod on a node that may be evicted, and one that a PodDisruptionBudget protects. Both are CoreDNS,
// whose image each node has.
func deployOn(ctx context.Context, workload framework.ClusterProxy, workers *clusterv1.MachineDeployment, node string) {
	var dns appsv1.Deployment
	Expect(workload.GetClient().Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "coredns"}, &dns)).To(Succeed())
	selector := map[string]string{corev1.LabelHostname: node}
	useImage := func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Containers[0].Image = dns.Spec.Template.Spec.Containers[0].Image
	}
	available := settings.GetIntervals(workerDrain, "wait-deployment-available")
	framework.DeployEvictablePod(ctx, framework.DeployEvictablePodInput{
		WorkloadClusterProxy: workload, MachineDeployment: workers, DeploymentName: evictable, Namespace: drained,
		NodeSelector: selector, ModifyDeployment: useImage, WaitForDeploymentAvailableInterval: available,
	})
	framework.DeployUnevictablePod(ctx, framework.DeployPodAndWaitInput{
		WorkloadClusterProxy: workload, MachineDeployment: workers, DeploymentName: unevictable, Namespace: drained,
		NodeSelector: selector, ModifyDeployment: useImage, WaitForDeploymentAvailableInterval: available,
	})
}

// waitsForPod checks that a machine is being drained and waits for the pod that can't be evicted, which runs on.
func waitsForPod(ctx context.Context, g Gomega, workload framework.ClusterProxy, of *clusterv1.Machine) {
	var machine clusterv1.Machine
	g.Expect(management.GetClient().Get(ctx, client.ObjectKeyFromObject(of), &machine)).To(Succeed())
	g.Expect(conditions.Get(&machine, clusterv1.MachineDeletingCondition)).To(HaveValue(And(
		HaveField("Status", metav1.ConditionTrue), HaveField("Reason", clusterv1.MachineDeletingDrainingNodeReason),
		HaveField("Message", ContainSubstring("would violate the pod's disruption budget")))))
	var infra infrav1.LibvirtMachine
	g.Expect(management.GetClient().Get(ctx, infrastructureOf(of), &infra)).To(Succeed())
	g.Expect(infra.DeletionTimestamp.IsZero()).To(BeTrue(), "the LibvirtMachine is kept")
	g.Expect(podsOn(ctx, g, workload, of.Status.NodeRef.Name, unevictable)).To(ConsistOf(And(
		HaveField("Status.Phase", corev1.PodRunning), HaveField("DeletionTimestamp", BeNil()))))
}

// podsOn returns the pods of a Deployment on a node.
func podsOn(ctx context.Context, g Gomega, workload framework.ClusterProxy, node, deployment string) []corev1.Pod {
	var pods corev1.PodList
	g.Expect(workload.GetClient().List(ctx, &pods, client.InNamespace(drained), client.MatchingLabels{"deployment": deployment}, client.MatchingFields{"spec.nodeName": node})).To(Succeed())
	return pods.Items
}

// infrastructureOf returns the key of a Machine's LibvirtMachine.
func infrastructureOf(machine *clusterv1.Machine) client.ObjectKey {
	return client.ObjectKey{Namespace: machine.Namespace, Name: machine.Spec.InfrastructureRef.Name}
}
