package libvirtcluster

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// TestEndpointOfAnotherCluster: of two clusters with one endpoint, only the first one is provisioned. A condition of
// the other one has the reason, and that cluster continues when the first one is deleted.
func TestEndpointOfAnotherCluster(t *testing.T) {
	created := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		// namespace and change define the other cluster, which is a minute older.
		namespace string
		change    func(*infrav1.LibvirtCluster)
		taken     string
	}{
		"of this namespace": {namespace: key.Namespace, change: func(*infrav1.LibvirtCluster) {},
			taken: "LibvirtCluster other has the endpoint 192.0.2.10:6443: recreate this cluster with another endpoint, or delete the other cluster"},
		"of another namespace": {namespace: "secret", change: func(*infrav1.LibvirtCluster) {},
			taken: "A LibvirtCluster of another namespace has the endpoint 192.0.2.10:6443: recreate this cluster with another endpoint, or delete the other cluster"},
		"younger, and provisioned": {namespace: key.Namespace, change: func(other *infrav1.LibvirtCluster) {
			other.CreationTimestamp = metav1.NewTime(created.Add(time.Hour))
			other.Status.Initialization.Provisioned = ptr.To(true)
		}, taken: "LibvirtCluster other has the endpoint 192.0.2.10:6443: recreate this cluster with another endpoint, or delete the other cluster"},
		"younger": {namespace: key.Namespace, change: func(other *infrav1.LibvirtCluster) {
			other.CreationTimestamp = metav1.NewTime(created.Add(time.Hour))
		}},
		"another port": {namespace: key.Namespace, change: func(other *infrav1.LibvirtCluster) { other.Spec.ControlPlaneEndpoint.Port = 443 }},
		"not ours":     {namespace: key.Namespace, change: func(other *infrav1.LibvirtCluster) { other.Finalizers = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := newClient(g, interceptor.Funcs{}, func(infra *infrav1.LibvirtCluster) {
				infra.CreationTimestamp = metav1.NewTime(created)
			})
			other := &infrav1.LibvirtCluster{ObjectMeta: metav1.ObjectMeta{Namespace: tc.namespace, Name: "other", Finalizers: []string{infrav1.ClusterFinalizer},
				CreationTimestamp: metav1.NewTime(created.Add(-time.Minute))},
				Spec: infrav1.LibvirtClusterSpec{ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: "192.0.2.10", Port: 6443}}}
			tc.change(other)
			status := other.Status
			g.Expect(c.Create(t.Context(), other)).To(Succeed())
			other.Status = status
			g.Expect(c.Status().Update(t.Context(), other)).To(Succeed())
			r, _ := newReconciler(c)
			reconcile := func() *infrav1.LibvirtCluster {
				for range 5 {
					_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
					g.Expect(err).ToNot(HaveOccurred())
				}
				return get(g, c)
			}
			infra := reconcile()
			g.Expect(ptr.Deref(infra.Status.Initialization.Provisioned, false)).To(Equal(tc.taken == ""))
			if tc.taken == "" {
				return
			}
			g.Expect(conditions.GetReason(infra, infrav1.ControlPlaneEndpointReadyCondition)).To(Equal(infrav1.ControlPlaneEndpointTakenReason))
			g.Expect(conditions.GetMessage(infra, infrav1.ControlPlaneEndpointReadyCondition)).To(Equal(tc.taken))
			g.Expect(r.endpointToClusters(t.Context(), other)).To(ContainElement(ctrl.Request{NamespacedName: key}))
			before := client.MergeFrom(other.DeepCopy())
			other.Finalizers = nil
			g.Expect(c.Patch(t.Context(), other, before)).To(Succeed())
			g.Expect(c.Delete(t.Context(), other)).To(Succeed())
			g.Expect(*reconcile().Status.Initialization.Provisioned).To(BeTrue())
		})
	}
}
