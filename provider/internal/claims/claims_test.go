package claims_test

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/claims"
)

var (
	pool  = ipamv1.IPPoolReference{APIGroup: "ipam.test", Kind: "Pool", Name: "p"}
	owner = &infrav1.LibvirtMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "m", UID: "1"}}
)

func newClient(g *WithT, objects ...client.Object) client.WithWatch {
	scheme := runtime.NewScheme()
	g.Expect(ipamv1.AddToScheme(scheme)).To(Succeed())
	g.Expect(infrav1.AddToScheme(scheme)).To(Succeed())
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&ipamv1.IPAddressClaim{}).Build()
}

// claimOf returns the owner's claim c with a change.
func claimOf(change func(*ipamv1.IPAddressClaim)) *ipamv1.IPAddressClaim {
	claim := &ipamv1.IPAddressClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "c", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: infrav1.GroupVersion.String(), Kind: "LibvirtMachine", Name: "m", UID: "1", Controller: ptr.To(true)}}},
		Spec: ipamv1.IPAddressClaimSpec{PoolRef: pool}}
	change(claim)
	return claim
}

// TestEnsureChecksTheClaim checks that an existing claim is used only if it is the owner's, for the pool.
func TestEnsureChecksTheClaim(t *testing.T) {
	for _, tc := range []struct {
		name    string
		change  func(*ipamv1.IPAddressClaim)
		failed  bool
		message string
	}{
		{name: "no owner", change: func(c *ipamv1.IPAddressClaim) { c.OwnerReferences = nil }, failed: true, message: "it has no owner"},
		{name: "other pool", change: func(c *ipamv1.IPAddressClaim) { c.Spec.PoolRef.Name = "q" }, failed: true, message: "it is for Pool q (ipam.test), and not for Pool p"},
		{name: "going", change: func(c *ipamv1.IPAddressClaim) {
			c.Finalizers, c.DeletionTimestamp = []string{"a/b"}, ptr.To(metav1.Now())
		}, failed: true, message: "it is being deleted"},
		{name: "no IPAddress", change: func(c *ipamv1.IPAddressClaim) { c.Status.AddressRef.Name = "x" }, message: "waiting for IPAddress x"},
		{name: "no status", change: func(*ipamv1.IPAddressClaim) {}, message: "waiting for the IPAM provider"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := NewWithT(t)
			c := newClient(g, claimOf(tc.change))
			_, err := claims.Claimer{Client: c, APIReader: c, Owner: owner, Cluster: "blue"}.Ensure(t.Context(), "c", pool)
			notGiven := claims.NotGiven(err)
			g.Expect(notGiven).ToNot(BeNil(), "%v", err)
			g.Expect(notGiven.Failed).To(Equal(tc.failed))
			g.Expect(err).To(MatchError(And(HavePrefix("IPAddressClaim c: "), ContainSubstring(tc.message))))
		})
	}
}

// TestClaimWithoutOwner checks that a lost owner reference is restored, and that the claim keeps its address.
func TestClaimWithoutOwner(t *testing.T) {
	g := NewWithT(t)
	claim := claimOf(func(c *ipamv1.IPAddressClaim) {
		c.OwnerReferences, c.Labels, c.Status.AddressRef.Name = nil, map[string]string{clusterv1.ClusterNameLabel: "blue"}, "x"
	})
	address := &ipamv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "x"}, Spec: ipamv1.IPAddressSpec{
		ClaimRef: ipamv1.IPAddressClaimReference{Name: "c"}, PoolRef: pool, Address: "192.0.2.7", Prefix: ptr.To[int32](24)}}
	c := newClient(g, claim, address)
	given, err := claims.Claimer{Client: c, APIReader: c, Owner: owner, Cluster: "blue"}.Ensure(t.Context(), "c", pool)
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(given.Addr().String()).To(Equal("192.0.2.7"))
	g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(claim), claim)).To(Succeed())
	g.Expect(metav1.IsControlledBy(claim, owner)).To(BeTrue())
}

// TestToOwner checks that claims and addresses map to their owners, and other objects to nothing.
func TestToOwner(t *testing.T) {
	g := NewWithT(t)
	claim := claimOf(func(*ipamv1.IPAddressClaim) {})
	address := &ipamv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "x"}, Spec: ipamv1.IPAddressSpec{ClaimRef: ipamv1.IPAddressClaimReference{Name: "c"}}}
	toMachine := claims.ToOwner(newClient(g, claim), infrav1.GroupVersion.WithKind("LibvirtMachine").GroupKind())
	toCluster := claims.ToOwner(newClient(g, claim), infrav1.GroupVersion.WithKind("LibvirtCluster").GroupKind())
	want := []ctrl.Request{{NamespacedName: client.ObjectKeyFromObject(owner)}}
	g.Expect(toMachine(t.Context(), claim)).To(Equal(want))
	g.Expect(toMachine(t.Context(), address)).To(Equal(want))
	g.Expect(toCluster(t.Context(), claim)).To(BeEmpty())
	address.Spec.ClaimRef.Name = "unknown"
	g.Expect(toMachine(t.Context(), address)).To(BeEmpty())
}
