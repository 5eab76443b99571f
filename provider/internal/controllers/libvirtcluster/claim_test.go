package libvirtcluster

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// TestEndpointFromAPool: the claim is created once and belongs to the LibvirtCluster, the allocated address is the
// endpoint, and both are deleted together. A new reconciler at each step simulates a restart after each write.
func TestEndpointFromAPool(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*clusterv1.Cluster, *infrav1.LibvirtCluster)
		want   string
	}{
		"default port":     {change: func(*clusterv1.Cluster, *infrav1.LibvirtCluster) {}, want: "198.51.100.7:6443"},
		"the API server's": {change: func(c *clusterv1.Cluster, _ *infrav1.LibvirtCluster) { c.Spec.ClusterNetwork.APIServerPort = 7443 }, want: "198.51.100.7:7443"},
		"its own port":     {change: func(_ *clusterv1.Cluster, i *infrav1.LibvirtCluster) { i.Spec.ControlPlaneEndpoint.Port = 443 }, want: "198.51.100.7:443"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := newClient(g, interceptor.Funcs{}, func(infra *infrav1.LibvirtCluster) {
				infra.UID = "uid-blue"
				infra.Spec.ControlPlaneLoadBalancer.AddressFromPool = &ipamv1.IPPoolReference{APIGroup: "ipam.test", Kind: "Pool", Name: "vips"}
			})
			cluster := &clusterv1.Cluster{}
			g.Expect(c.Get(t.Context(), key, cluster)).To(Succeed())
			cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{}
			infra := get(g, c)
			tc.change(cluster, infra)
			g.Expect(c.Update(t.Context(), cluster)).To(Succeed())
			g.Expect(c.Update(t.Context(), infra)).To(Succeed())
			reconcile := func() {
				r, _ := newReconciler(c)
				for range 5 {
					_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
					g.Expect(err).ToNot(HaveOccurred())
				}
			}
			reconcile()
			g.Expect(conditions.GetReason(get(g, c), infrav1.ControlPlaneEndpointReadyCondition)).To(Equal(infrav1.WaitingForAddressReason))
			claim := &ipamv1.IPAddressClaim{}
			g.Expect(c.Get(t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: "blue-control-plane-endpoint"}, claim)).To(Succeed())
			g.Expect(metav1.IsControlledBy(claim, get(g, c))).To(BeTrue())
			g.Expect(claim.Spec.ClusterName).To(Equal("blue"))

			g.Expect(c.Create(t.Context(), &ipamv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: claim.Name}, Spec: ipamv1.IPAddressSpec{
				ClaimRef: ipamv1.IPAddressClaimReference{Name: claim.Name}, PoolRef: claim.Spec.PoolRef, Address: "198.51.100.7", Prefix: ptr.To[int32](24)}})).To(Succeed())
			claim.Finalizers = []string{"ipam.test/address"}
			g.Expect(c.Update(t.Context(), claim)).To(Succeed())
			claim.Status.AddressRef.Name = claim.Name
			g.Expect(c.Status().Update(t.Context(), claim)).To(Succeed())
			reconcile()
			endpoint := get(g, c).Spec.ControlPlaneEndpoint
			g.Expect(endpoint.String()).To(Equal(tc.want))
			g.Expect(*get(g, c).Status.Initialization.Provisioned).To(BeTrue())

			g.Expect(c.Delete(t.Context(), get(g, c))).To(Succeed())
			reconcile()
			g.Expect(conditions.GetMessage(get(g, c), infrav1.ReadyCondition)).To(ContainSubstring("release IPAddressClaims: blue-control-plane-endpoint"))
			g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(claim), claim)).To(Succeed())
			g.Expect(claim.DeletionTimestamp).ToNot(BeNil())
			claim.Finalizers = nil
			g.Expect(c.Update(t.Context(), claim)).To(Succeed())
			reconcile()
			g.Expect(apierrors.IsNotFound(c.Get(t.Context(), key, &infrav1.LibvirtCluster{}))).To(BeTrue())
		})
	}
}

// TestNoClaimForAnEndpointThatIsSet: no address is claimed for an endpoint that is set.
func TestNoClaimForAnEndpointThatIsSet(t *testing.T) {
	g := NewWithT(t)
	c := newClient(g, interceptor.Funcs{}, func(infra *infrav1.LibvirtCluster) { // its Cluster has an endpoint
		infra.Spec.ControlPlaneLoadBalancer.AddressFromPool = &ipamv1.IPPoolReference{APIGroup: "ipam.test", Kind: "Pool", Name: "vips"}
	})
	r, _ := newReconciler(c)
	for range 5 {
		_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
		g.Expect(err).ToNot(HaveOccurred())
	}
	list := &ipamv1.IPAddressClaimList{}
	g.Expect(c.List(t.Context(), list)).To(Succeed())
	g.Expect(list.Items).To(BeEmpty())
	g.Expect(strings.HasPrefix(get(g, c).Spec.ControlPlaneEndpoint.Host, "192.0.2.")).To(BeTrue())
}
