package e2e

import (
	"cmp"
	"context"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlcluster "sigs.k8s.io/cluster-api/cmd/clusterctl/client/cluster"
	capie2e "sigs.k8s.io/cluster-api/test/e2e"
	"sigs.k8s.io/cluster-api/test/framework"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// flavors are those of the release, of which the default one has no name.
var flavors = []string{"", "haproxy", "topology", "machinepool"}

var _ = Describe("The quick start", func() {
	for _, flavor := range flavors {
		// The label of the default flavor is quick-start.
		Context("of the flavor "+cmp.Or(flavor, "default"), Label(strings.TrimSuffix("quick-start-"+flavor, "-")), func() {
			capie2e.QuickStartSpec(context.Background(), func() capie2e.QuickStartSpecInput {
				return capie2e.QuickStartSpecInput{
					E2EConfig: settings, ClusterctlConfigPath: bed.ClusterctlConfig, BootstrapClusterProxy: management,
					ArtifactFolder: filepath.Join(*artifacts, "quick-start-"+cmp.Or(flavor, "default")), SkipCleanup: *keep,
					Flavor: ptr.To(flavor), PostNamespaceCreated: installNetwork,
					PostMachinesProvisioned: func(proxy framework.ClusterProxy, namespace, cluster string) {
						ctx := context.Background()
						reachable(ctx, proxy.GetWorkloadCluster(ctx, namespace, cluster))
						if *faultSeed == 0 && !testing.Short() { // faults are changes too
							resilient(ctx, proxy, namespace, cluster, flavor == "topology")
						}
					},
				}
			})
		})
	}
})

// resilient checks a cluster as Cluster API checks those of its own provider for Docker: owner references and
// finalizers that are removed come back, and objects are not written for ever.
func resilient(ctx context.Context, proxy framework.ClusterProxy, namespace, cluster string, topology bool) {
	filter := clusterctlcluster.FilterClusterObjectsWithNameFilter(cluster)
	owners := []map[string]func(types.NamespacedName, []metav1.OwnerReference) error{
		framework.CoreOwnerReferenceAssertion, framework.ExpOwnerReferenceAssertions, libvirtOwners(topology),
		bootstrapOwners(topology), framework.KubeadmControlPlaneOwnerReferenceAssertions(topology),
		framework.KubernetesReferenceAssertions,
	}
	By("Checking that owner references are resilient")
	framework.ValidateOwnerReferencesResilience(ctx, proxy, namespace, cluster, filter, owners...)
	By("Checking that owner references are updated to the correct API version")
	framework.ValidateOwnerReferencesOnUpdate(ctx, proxy, namespace, cluster, filter, owners...)
	By("Checking that finalizers are resilient")
	core := framework.CoreFinalizersAssertionWithLegacyClusters
	if topology {
		core = framework.CoreFinalizersAssertionWithClassyClusters
	}
	framework.ValidateFinalizersResilience(ctx, proxy, namespace, cluster, filter,
		core, framework.KubeadmControlPlaneFinalizersAssertion, framework.ExpFinalizersAssertion, libvirtFinalizers)
	By("Checking that resourceVersions are stable")
	const spec = "quick-start"
	framework.ValidateResourceVersionStable(ctx, framework.ValidateResourceVersionStableInput{
		ClusterProxy: proxy, Namespace: namespace, OwnerGraphFilterFunction: filter,
		WaitToBecomeStable: settings.GetIntervals(spec, "wait-resource-versions-become-stable"),
		WaitToRemainStable: settings.GetIntervals(spec, "wait-resource-versions-remain-stable"),
	})
}

// bootstrapOwners are Cluster API's assertions of the owners of bootstrap objects. Those are for pools of a ClusterClass:
// without one the KubeadmConfig of a pool has no Cluster as an owner.
func bootstrapOwners(topology bool) map[string]func(types.NamespacedName, []metav1.OwnerReference) error {
	assertions := maps.Clone(framework.KubeadmBootstrapOwnerReferenceAssertions)
	if !topology {
		const kind = "KubeadmConfig"
		ofClass := assertions[kind]
		assertions[kind] = func(name types.NamespacedName, owners []metav1.OwnerReference) error {
			ofPool := metav1.OwnerReference{APIVersion: clusterv1.GroupVersion.String(), Kind: "MachinePool", Controller: ptr.To(true)}
			if framework.HasExactOwners(owners, ofPool) == nil {
				return nil
			}
			return ofClass(name, owners)
		}
	}
	return assertions
}

// libvirtOwners are the owners that the provider's objects should have.
func libvirtOwners(topology bool) map[string]func(types.NamespacedName, []metav1.OwnerReference) error {
	owner := func(kind string, controller bool) metav1.OwnerReference {
		reference := metav1.OwnerReference{APIVersion: clusterv1.GroupVersion.String(), Kind: kind}
		if controller {
			reference.Controller = ptr.To(true)
		}
		return reference
	}
	cluster, class := owner("Cluster", false), owner("ClusterClass", false)
	pool := metav1.OwnerReference{APIVersion: infrav1.GroupVersion.String(), Kind: "LibvirtMachinePool"}
	balanced := metav1.OwnerReference{APIVersion: infrav1.GroupVersion.String(), Kind: "LibvirtCluster", Controller: ptr.To(true)}
	one := func(any ...[]metav1.OwnerReference) func(types.NamespacedName, []metav1.OwnerReference) error {
		return func(_ types.NamespacedName, owners []metav1.OwnerReference) error {
			return framework.HasOneOfExactOwners(owners, any...)
		}
	}
	type refs = []metav1.OwnerReference
	return map[string]func(types.NamespacedName, []metav1.OwnerReference) error{
		// The last are load balancers.
		"LibvirtMachine":         one(refs{owner("Machine", true)}, refs{owner("Machine", true), pool}, refs{balanced}),
		"LibvirtMachineTemplate": one(refs{cluster}, refs{class}),
		"LibvirtCluster":         one(refs{owner("Cluster", topology)}),
		"LibvirtClusterTemplate": one(refs{class}),
		// The topology controller adds the Cluster.
		"LibvirtMachinePool":         one(refs{owner("MachinePool", true)}, refs{owner("MachinePool", true), cluster}),
		"LibvirtMachinePoolTemplate": one(refs{class}),
	}
}

// libvirtFinalizers are the finalizers that the provider's objects should have.
var libvirtFinalizers = map[string]func(types.NamespacedName) []string{
	"LibvirtMachine":     func(types.NamespacedName) []string { return []string{infrav1.MachineFinalizer} },
	"LibvirtCluster":     func(types.NamespacedName) []string { return []string{infrav1.ClusterFinalizer} },
	"LibvirtMachinePool": func(types.NamespacedName) []string { return []string{infrav1.MachinePoolFinalizer} },
}
