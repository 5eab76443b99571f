package testbed_test

import (
	"context"
	"os"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterctl-release/clusterctl-release/internal/testbed"
	"github.com/clusterctl-release/clusterctl-release/internal/testbed/sandbox"
)

func TestMain(m *testing.M) {
	os.Exit(sandbox.Main(testbed.Prepare, m.Run))
}

// managers has the Deployments that clusterctl installs, with the leases of their pods.
var managers = map[client.ObjectKey]string{
	{Namespace: "capi-system", Name: "capi-controller-manager"}:                                             "controller-leader-election-capi",
	{Namespace: "capi-kubeadm-bootstrap-system", Name: "capi-kubeadm-bootstrap-controller-manager"}:         "kubeadm-bootstrap-manager-leader-election-capi",
	{Namespace: "capi-kubeadm-control-plane-system", Name: "capi-kubeadm-control-plane-controller-manager"}: "kubeadm-control-plane-manager-leader-election-capi",
	{Namespace: "capi-ipam-in-cluster-system", Name: "capi-ipam-in-cluster-controller-manager"}:             "7bb7acb4.ipam.cluster.x-k8s.io",
	{Namespace: "caplv-system", Name: "caplv-controller-manager"}:                                           "controller-leader-election-caplv",
}

// TestInit checks that clusterctl installs the unmodified release of the provider next to Cluster API's providers, with
// its RBAC, leader election, certificates and webhooks, and deletes it again.
func TestInit(t *testing.T) {
	g := NewWithT(t)
	ctx := t.Context()
	bed, err := testbed.Start(ctx, testbed.Options{})
	g.Expect(err).ToNot(HaveOccurred())
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(bed.Logs())
		}
		g.Expect(bed.Stop()).To(Succeed())
	})
	g.Expect(bed.Init(ctx)).To(Succeed())

	for key, lease := range managers {
		expectLeader(ctx, g, bed, key, lease)
	}
	expectWebhooks(ctx, g, bed)

	// Not --all: clusterctl may still list kinds whose CRDs it has just deleted, and fails then.
	_, err = bed.Clusterctl(ctx, "delete", "--infrastructure=libvirt", "--include-crd", "--include-namespace")
	g.Expect(err).ToNot(HaveOccurred())
	g.Eventually(func(g Gomega) {
		g.Expect(bed.Client.Get(ctx, client.ObjectKey{Name: "caplv-system"}, &corev1.Namespace{})).To(MatchError(apierrors.IsNotFound, "not found"))
		var crds apiextensionsv1.CustomResourceDefinitionList
		g.Expect(bed.Client.List(ctx, &crds)).To(Succeed())
		g.Expect(crds.Items).ToNot(ContainElement(HaveField("Spec.Group", "infrastructure.cluster.x-k8s.io")))
		g.Expect(crds.Items).To(ContainElement(HaveField("Spec.Group", "cluster.x-k8s.io")))
	}).WithTimeout(2 * time.Minute).Should(Succeed())
}

// expectLeader checks that a Deployment is available, and that its pod was never restarted and has its lease.
func expectLeader(ctx context.Context, g *WithT, bed *testbed.Testbed, key client.ObjectKey, lease string) {
	var deployment appsv1.Deployment
	g.Expect(bed.Client.Get(ctx, key, &deployment)).To(Succeed())
	g.Expect(deployment.Status.AvailableReplicas).To(Equal(int32(1)), key.String())

	var pods corev1.PodList
	selector, err := metav1.LabelSelectorAsSelector(deployment.Spec.Selector)
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(bed.Client.List(ctx, &pods, client.InNamespace(key.Namespace), client.MatchingLabelsSelector{Selector: selector})).To(Succeed())
	g.Expect(pods.Items).To(HaveLen(1))
	g.Expect(pods.Items[0].Status.ContainerStatuses).To(HaveLen(1))
	g.Expect(pods.Items[0].Status.ContainerStatuses[0].RestartCount).To(BeZero(), key.String())
	g.Eventually(func(g Gomega) {
		var leases coordinationv1.LeaseList
		g.Expect(bed.Client.List(ctx, &leases, client.InNamespace(key.Namespace))).To(Succeed())
		g.Expect(leases.Items).To(ContainElement(And(
			HaveField("Name", lease),
			HaveField("Spec.HolderIdentity", HaveValue(HavePrefix(pods.Items[0].Name))))))
	}).WithTimeout(time.Minute).Should(Succeed(), key.String())
}

// expectWebhooks checks that the API server calls the providers' webhooks through their Services.
func expectWebhooks(ctx context.Context, g *WithT, bed *testbed.Testbed) {
	host := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "LibvirtHost", "metadata": map[string]any{"name": "one"},
		// Only the webhook refuses this URI without credentials.
		"spec": map[string]any{"uri": "qemu+tls://host.example.com/system"},
	}}
	g.Expect(bed.Client.Create(ctx, host)).To(MatchError(And(
		ContainSubstring("admission webhook"), ContainSubstring("spec.identityRef"))))
	cluster := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": map[string]any{"name": "one", "namespace": "default"},
		"spec": map[string]any{"clusterNetwork": map[string]any{"pods": map[string]any{"cidrBlocks": []any{"not an address"}}}},
	}}
	g.Expect(bed.Client.Create(ctx, cluster)).To(MatchError(And(ContainSubstring("admission webhook"), ContainSubstring("cidrBlocks"))))
	pool := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "InClusterIPPool", "metadata": map[string]any{"name": "one", "namespace": "default"},
		"spec": map[string]any{"addresses": []any{"192.0.2.1-192.0.2.9"}, "prefix": int64(24), "gateway": "not an address"},
	}}
	g.Expect(bed.Client.Create(ctx, pool)).To(MatchError(And(ContainSubstring("admission webhook"), ContainSubstring("spec.gateway"))))
}
