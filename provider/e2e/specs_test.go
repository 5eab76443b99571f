package e2e

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	capie2e "sigs.k8s.io/cluster-api/test/e2e"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// folderOf returns the folder for what a spec leaves.
func folderOf(spec string) string { return filepath.Join(*artifacts, spec) }

var _ = Describe("Workers are scaled", Label("md-scale"), func() {
	capie2e.MachineDeploymentScaleSpec(context.Background(), func() capie2e.MachineDeploymentScaleSpecInput {
		return capie2e.MachineDeploymentScaleSpecInput{
			E2EConfig: settings, ClusterctlConfigPath: bed.ClusterctlConfig, BootstrapClusterProxy: management,
			ArtifactFolder: folderOf("md-scale"), SkipCleanup: *keep, PostNamespaceCreated: installNetwork,
		}
	})
})

var _ = Describe("An unhealthy worker is replaced", Label("md-remediation"), func() {
	capie2e.MachineDeploymentRemediationSpec(context.Background(), func() capie2e.MachineDeploymentRemediationSpecInput {
		return capie2e.MachineDeploymentRemediationSpecInput{
			E2EConfig: settings, ClusterctlConfigPath: bed.ClusterctlConfig, BootstrapClusterProxy: management,
			ArtifactFolder: folderOf("md-remediation"), SkipCleanup: *keep, PostNamespaceCreated: installNetwork,
			Flavor: ptr.To(healthCheckFlavor),
		}
	})
})

var _ = Describe("An unhealthy control plane machine is replaced", Label("kcp-remediation"), func() {
	capie2e.KCPRemediationSpec(context.Background(), func() capie2e.KCPRemediationSpecInput {
		publishServer(context.Background())
		return capie2e.KCPRemediationSpecInput{
			E2EConfig: settings, ClusterctlConfigPath: bed.ClusterctlConfig, BootstrapClusterProxy: management,
			ArtifactFolder: folderOf("kcp-remediation"), SkipCleanup: *keep, PostNamespaceCreated: installNetwork,
			Flavor: ptr.To(controlPlaneHealthCheckFlavor),
		}
	})
})

var _ = Describe("A cluster is deleted in phases", Label("cluster-deletion"), func() {
	capie2e.ClusterDeletionSpec(context.Background(), func() capie2e.ClusterDeletionSpecInput {
		return capie2e.ClusterDeletionSpecInput{
			E2EConfig: settings, ClusterctlConfigPath: bed.ClusterctlConfig, BootstrapClusterProxy: management,
			ArtifactFolder: folderOf("cluster-deletion"), SkipCleanup: *keep, PostNamespaceCreated: installNetwork,
			Flavor: ptr.To("topology"),
			ClusterDeletionPhases: []capie2e.ClusterDeletionPhase{
				deletedWith("Machine", "MachineDeployment", "MachineSet"),
				deletedWith("Machine", "KubeadmControlPlane"),
				deletedWith("LibvirtCluster"),
			},
		}
	})
})

var _ = Describe("A machine pool is scaled", Label("machine-pool"), func() {
	capie2e.MachinePoolSpec(context.Background(), func() capie2e.MachinePoolInput {
		return capie2e.MachinePoolInput{
			E2EConfig: settings, ClusterctlConfigPath: bed.ClusterctlConfig, BootstrapClusterProxy: management,
			ArtifactFolder: folderOf("machine-pool"), SkipCleanup: *keep, PostNamespaceCreated: installNetwork,
			Flavor: ptr.To("machinepool"),
		}
	})
})

var _ = Describe("Workers are rolled out", Label("md-rollout"), func() {
	capie2e.KCPAndMachineDeploymentRolloutSpec(context.Background(), func() capie2e.KCPAndMachineDeploymentRolloutSpecInput {
		return capie2e.KCPAndMachineDeploymentRolloutSpecInput{
			E2EConfig: settings, ClusterctlConfigPath: bed.ClusterctlConfig, BootstrapClusterProxy: management,
			ArtifactFolder: folderOf("md-rollout"), SkipCleanup: *keep, PostNamespaceCreated: installNetwork,
			Flavor: taintsFlavor,
		}
	})
})

var _ = Describe("Nodes are drained", Label("node-drain"), func() {
	capie2e.NodeDrainTimeoutSpec(context.Background(), func() capie2e.NodeDrainTimeoutSpecInput {
		// The spec's pods are of an image that nodes of the old version have: pause 3.10.1.
		old := settings.DeepCopy()
		old.Variables[capie2e.KubernetesVersion] = old.MustGetVariable(capie2e.KubernetesVersionUpgradeFrom)
		return capie2e.NodeDrainTimeoutSpecInput{
			E2EConfig: old, ClusterctlConfigPath: bed.ClusterctlConfig, BootstrapClusterProxy: management,
			ArtifactFolder: folderOf("node-drain"), SkipCleanup: *keep, PostNamespaceCreated: installNetwork,
			Flavor: ptr.To(oldTopologyFlavor),
		}
	})
})

var _ = Describe("A cluster is upgraded", func() {
	for label, flavor := range map[string]string{"k8s-upgrade": upgradesFlavor, "k8s-upgrade-topology": topologyUpgradesFlavor} {
		Context("of the flavor "+flavor, Label(label), func() {
			capie2e.ClusterUpgradeConformanceSpec(context.Background(), func() capie2e.ClusterUpgradeConformanceSpecInput {
				return capie2e.ClusterUpgradeConformanceSpecInput{
					E2EConfig: settings, ClusterctlConfigPath: bed.ClusterctlConfig, BootstrapClusterProxy: management,
					ArtifactFolder: folderOf(label), SkipCleanup: *keep, PostNamespaceCreated: installNetwork,
					Flavor: ptr.To(flavor), WorkerMachineCount: ptr.To[int64](1), SkipConformanceTests: true,
					ClusterctlVariables: map[string]string{"LIBVIRT_POOL_MACHINE_COUNT": "1"},
				}
			})
		})
	}
})

var _ = Describe("A ClusterClass is changed", Label("clusterclass-changes"), func() {
	capie2e.ClusterClassChangesSpec(context.Background(), func() capie2e.ClusterClassChangesSpecInput {
		return capie2e.ClusterClassChangesSpecInput{
			E2EConfig: settings, ClusterctlConfigPath: bed.ClusterctlConfig, BootstrapClusterProxy: management,
			ArtifactFolder: folderOf("clusterclass-changes"), SkipCleanup: *keep, PostNamespaceCreated: installNetwork,
			Flavor:                   "topology",
			ModifyControlPlaneFields: map[string]any{"spec.kubeadmConfigSpec.verbosity": int64(4)},
			ModifyMachineDeploymentBootstrapConfigTemplateFields:       map[string]any{"spec.template.spec.verbosity": int64(4)},
			ModifyMachineDeploymentInfrastructureMachineTemplateFields: map[string]any{"spec.template.spec.autostart": false},
			ModifyMachinePoolBootstrapConfigTemplateFields:             map[string]any{"spec.template.spec.verbosity": int64(4)},
			ModifyMachinePoolInfrastructureMachinePoolTemplateFields:   map[string]any{"spec.template.spec.template.spec.autostart": false},
		}
	})
})

var _ = Describe("Changes of a ClusterClass are rolled out", Label("clusterclass-rollout"), func() {
	capie2e.ClusterClassRolloutSpec(context.Background(), func() capie2e.ClusterClassRolloutSpecInput {
		return capie2e.ClusterClassRolloutSpecInput{
			E2EConfig: settings, ClusterctlConfigPath: bed.ClusterctlConfig, BootstrapClusterProxy: management,
			ArtifactFolder: folderOf("clusterclass-rollout"), SkipCleanup: *keep, PostNamespaceCreated: installNetwork,
			Flavor: topologyTaintsFlavor, FilterMetadataBeforeValidation: withoutOwnMetadata,
		}
	})
})

// withoutOwnMetadata returns the labels and annotations of an object without those that the provider sets, such as the
// label with the host of a LibvirtMachine. ClusterClassRolloutSpec expects all others.
func withoutOwnMetadata(object client.Object) clusterv1.ObjectMeta {
	isOwn := func(key, _ string) bool { return strings.HasPrefix(key, "libvirt."+infrav1.GroupVersion.Group+"/") }
	filtered := clusterv1.ObjectMeta{Labels: maps.Clone(object.GetLabels()), Annotations: maps.Clone(object.GetAnnotations())}
	maps.DeleteFunc(filtered.Labels, isOwn)
	maps.DeleteFunc(filtered.Annotations, isOwn)
	return filtered
}

// deletedWith returns a phase of a cluster's deletion: objects of the owner kinds, and those objects of the kind that
// they own, go in it together. The objects of the kind have to be gone before the next phase begins.
func deletedWith(kind string, owners ...string) capie2e.ClusterDeletionPhase {
	return capie2e.ClusterDeletionPhase{
		ObjectFilter: func(object corev1.ObjectReference, references []metav1.OwnerReference) bool {
			owned := len(owners) == 0 || slices.ContainsFunc(references, func(reference metav1.OwnerReference) bool {
				return slices.Contains(owners, reference.Kind)
			})
			return object.Kind == kind && owned || slices.Contains(owners, object.Kind)
		},
		BlockingObjectFilter: func(object corev1.ObjectReference, _ []metav1.OwnerReference) bool { return object.Kind == kind },
	}
}

// publishServer writes where machines reach the management cluster to the ConfigMap that KCPRemediationSpec reads, which
// kubeadm writes in other clusters.
func publishServer(ctx context.Context) {
	kubeconfig, err := clientcmd.Write(clientcmdapi.Config{Clusters: map[string]*clientcmdapi.Cluster{"": {Server: management.GetRESTConfig().Host}}})
	Expect(err).ToNot(HaveOccurred())
	err = management.GetClient().Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespacePublic, Name: "cluster-info"},
		Data:       map[string]string{"kubeconfig": string(kubeconfig)},
	})
	Expect(client.IgnoreAlreadyExists(err)).To(Succeed())
}
