package e2e

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"
	capie2e "sigs.k8s.io/cluster-api/test/e2e"
	"sigs.k8s.io/cluster-api/test/framework"
	"sigs.k8s.io/cluster-api/test/framework/clusterctl"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// newCluster creates a cluster of the default flavor with one worker, in a namespace of its own, for a spec of this
// project. Both are deleted when the spec ends. prepare may be nil; it is called before the cluster is created.
func newCluster(ctx context.Context, spec string, controlPlaneMachines int64, prepare func(namespace string)) *clusterctl.ApplyClusterTemplateAndWaitResult {
	namespace, cancelWatches := framework.SetupSpecNamespace(ctx, spec, management, folderOf(spec), installNetwork)
	created := new(clusterctl.ApplyClusterTemplateAndWaitResult)
	DeferCleanup(func() {
		framework.DumpSpecResourcesAndCleanup(ctx, spec, management, bed.ClusterctlConfig, folderOf(spec), namespace, cancelWatches, created.Cluster, settings.GetIntervals, *keep)
	})
	if prepare != nil {
		prepare(namespace.Name)
	}
	clusterctl.ApplyClusterTemplateAndWait(ctx, clusterctl.ApplyClusterTemplateAndWaitInput{
		ClusterProxy: management,
		ConfigCluster: clusterctl.ConfigClusterInput{
			LogFolder: folderOf(spec), ClusterctlConfigPath: bed.ClusterctlConfig, KubeconfigPath: bed.Kubeconfig,
			InfrastructureProvider: clusterctl.DefaultInfrastructureProvider, Namespace: namespace.Name, ClusterName: spec + "-" + util.RandomString(6),
			KubernetesVersion: settings.MustGetVariable(capie2e.KubernetesVersion), ControlPlaneMachineCount: &controlPlaneMachines, WorkerMachineCount: ptr.To[int64](1),
		},
		WaitForClusterIntervals:      settings.GetIntervals(spec, "wait-cluster"),
		WaitForControlPlaneIntervals: settings.GetIntervals(spec, "wait-control-plane"),
		WaitForMachineDeployments:    settings.GetIntervals(spec, "wait-worker-nodes"),
	}, created)
	return created
}

// change reads an object of the management cluster, changes it, and patches it.
func change(ctx context.Context, object client.Object, how func()) {
	c := management.GetClient()
	Expect(c.Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
	patch := client.MergeFrom(object.DeepCopyObject().(client.Object))
	how()
	Expect(c.Patch(ctx, object, patch)).To(Succeed())
}
