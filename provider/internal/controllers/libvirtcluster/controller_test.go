package libvirtcluster

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

var key = client.ObjectKey{Namespace: "team", Name: "blue"}

// newClient returns a client of objects in memory: a Cluster that has an endpoint and owns a LibvirtCluster, and a host
// that is Ready. change changes the LibvirtCluster first.
func newClient(g *WithT, functions interceptor.Funcs, change func(*infrav1.LibvirtCluster)) client.WithWatch {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, clusterv1.AddToScheme, ipamv1.AddToScheme, infrav1.AddToScheme,
		apiextensionsv1.AddToScheme, clusterctlv1.AddToScheme} { // clusterctl reads the CRDs for a move
		g.Expect(add(scheme)).To(Succeed())
	}
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "1"},
		Spec: clusterv1.ClusterSpec{ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: "192.0.2.10", Port: 6443}}}
	infra := &infrav1.LibvirtCluster{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: key.Name, UID: "1"}}}}
	host := newHost("host", "rack")
	change(infra)
	return fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(functions).WithStatusSubresource(infra, &ipamv1.IPAddressClaim{}).
		WithObjects(cluster, infra, &host, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: key.Namespace}}).Build()
}

func newReconciler(c client.Client) (*Reconciler, *events.FakeRecorder) {
	recorder := events.NewFakeRecorder(100)
	return &Reconciler{Client: c, APIReader: c, recorder: recorder}, recorder
}

func get(g *WithT, c client.Client) *infrav1.LibvirtCluster {
	infra := &infrav1.LibvirtCluster{}
	g.Expect(c.Get(context.Background(), key, infra)).To(Succeed())
	return infra
}

// TestEachWriteIsAReconcile checks the order of writes: after a kill at any of them, the controller continues with the
// next one. Each reconcile has one write, also of a status with all its conditions.
func TestEachWriteIsAReconcile(t *testing.T) {
	g := NewWithT(t)
	writes := 0
	c := newClient(g, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			writes++
			return c.Patch(ctx, object, patch, options...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			writes++
			return c.SubResource(sub).Patch(ctx, object, patch, options...)
		},
	}, func(*infrav1.LibvirtCluster) {})
	for _, check := range []func(*infrav1.LibvirtCluster){
		func(infra *infrav1.LibvirtCluster) {
			g.Expect(infra.Finalizers).To(ConsistOf(infrav1.ClusterFinalizer))
			g.Expect(infra.Status).To(BeZero())
		},
		func(infra *infrav1.LibvirtCluster) {
			g.Expect(infra.Status.Conditions).To(HaveExactElements(HaveField("Type", infrav1.PausedCondition)))
			g.Expect(infra.Spec.ControlPlaneEndpoint).To(BeZero())
		},
		func(infra *infrav1.LibvirtCluster) {
			g.Expect(infra.Spec.ControlPlaneEndpoint.String()).To(Equal("192.0.2.10:6443"))
			g.Expect(infra.Status.Initialization.Provisioned).To(BeNil())
		},
		func(infra *infrav1.LibvirtCluster) {
			g.Expect(*infra.Status.Initialization.Provisioned).To(BeTrue())
			g.Expect(infra.Status.FailureDomains).To(HaveExactElements(HaveField("Name", "rack")))
			g.Expect(infra.Status.FailureDomainNames).To(Equal("rack"))
		},
	} {
		r, _ := newReconciler(c) // as after a restart
		writes = 0
		_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
		g.Expect(err).ToNot(HaveOccurred())
		g.Expect(writes).To(Equal(1))
		check(get(g, c))
	}
	writes = 0
	r, recorder := newReconciler(c)
	before := get(g, c)
	_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(get(g, c)).To(Equal(before), "a reconcile without changes writes nothing")
	g.Expect(writes).To(BeZero())
	g.Expect(recorder.Events).To(BeEmpty())
}

func TestObjectsOfOthersAreLeftAlone(t *testing.T) {
	for name, change := range map[string]func(*infrav1.LibvirtCluster){
		"without the watch filter's label": func(infra *infrav1.LibvirtCluster) { infra.Labels = nil },
		"with another label":               func(infra *infrav1.LibvirtCluster) { infra.Labels[clusterv1.WatchLabel] = "green" },
		"managed externally, by a label":   func(infra *infrav1.LibvirtCluster) { infra.Labels[clusterv1.ManagedByAnnotation] = "x" },
		"managed externally": func(infra *infrav1.LibvirtCluster) {
			infra.Annotations = map[string]string{clusterv1.ManagedByAnnotation: "x"}
		},
		"without an owner":                     func(infra *infrav1.LibvirtCluster) { infra.OwnerReferences = nil },
		"with an owner that doesn't exist yet": func(infra *infrav1.LibvirtCluster) { infra.OwnerReferences[0].Name = "other" },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := newClient(g, interceptor.Funcs{}, func(infra *infrav1.LibvirtCluster) {
				infra.Labels = map[string]string{clusterv1.WatchLabel: "blue"}
				change(infra)
			})
			r, _ := newReconciler(c)
			r.WatchFilterValue = "blue"
			before := get(g, c)
			result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
			g.Expect(err).ToNot(HaveOccurred())
			g.Expect(result).To(BeZero())
			g.Expect(get(g, c)).To(Equal(before))
		})
	}
}

func TestConflictOnTheEndpointIsTriedAgain(t *testing.T) {
	g := NewWithT(t)
	conflicts := 2
	c := newClient(g, interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
		if infra, ok := object.(*infrav1.LibvirtCluster); ok && infra.Spec.ControlPlaneEndpoint.IsValid() && conflicts > 0 {
			conflicts--
			return apierrors.NewConflict(schema.GroupResource{Resource: "libvirtclusters"}, object.GetName(), nil)
		}
		return c.Patch(ctx, object, patch, options...)
	}}, func(*infrav1.LibvirtCluster) {})
	r, _ := newReconciler(c)
	for i := range 6 {
		result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
		g.Expect(err).ToNot(HaveOccurred())
		g.Expect(result.RequeueAfter > 0).To(Equal(i == 2 || i == 3), "reconcile %d", i)
	}
	g.Expect(*get(g, c).Status.Initialization.Provisioned).To(BeTrue())
}

// TestConcurrentEndpointStays: a concurrent write of the endpoint isn't overwritten.
func TestConcurrentEndpointStays(t *testing.T) {
	g := NewWithT(t)
	first := true
	c := newClient(g, interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
		if infra, ok := object.(*infrav1.LibvirtCluster); ok && infra.Spec.ControlPlaneEndpoint.IsValid() && first {
			first = false
			faster := get(g, c)
			faster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "192.0.2.99", Port: 6443}
			if err := c.Update(ctx, faster); err != nil {
				return err
			}
		}
		return c.Patch(ctx, object, patch, options...)
	}}, func(*infrav1.LibvirtCluster) {})
	r, _ := newReconciler(c)
	for range 5 {
		_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
		g.Expect(err).ToNot(HaveOccurred())
	}
	infra := get(g, c)
	g.Expect(infra.Spec.ControlPlaneEndpoint.Host).To(Equal("192.0.2.99"))
	g.Expect(infra.Status.Initialization.Provisioned).To(BeNil())
	g.Expect(infra.Status.Conditions).To(ContainElement(HaveField("Reason", infrav1.ControlPlaneEndpointMismatchReason)))
}

// TestErrorsShow: an object that can't be read is neither reported as present nor as missing.
func TestErrorsShow(t *testing.T) {
	g := NewWithT(t)
	c := newClient(g, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
		if _, ok := list.(*infrav1.LibvirtHostList); ok {
			return apierrors.NewTooManyRequestsError("slow down")
		}
		return c.List(ctx, list, options...)
	}}, func(infra *infrav1.LibvirtCluster) {
		infra.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "192.0.2.10", Port: 6443}
	})
	r, _ := newReconciler(c)
	var err error
	for range 3 {
		_, err = r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
	}
	g.Expect(err).To(MatchError(ContainSubstring("listing LibvirtHosts: Too many requests: slow down")))
	infra := get(g, c)
	g.Expect(infra.Status.Initialization.Provisioned).To(BeNil())
	g.Expect(infra.Status.Conditions).To(ContainElements(
		And(HaveField("Type", infrav1.ReadyCondition), HaveField("Status", metav1.ConditionUnknown), HaveField("Reason", infrav1.ReadyUnknownReason)),
		And(HaveField("Type", infrav1.HostsAvailableCondition), HaveField("Reason", infrav1.InternalErrorReason)),
		And(HaveField("Type", infrav1.ControlPlaneEndpointReadyCondition), HaveField("Status", metav1.ConditionTrue)),
	))
}

// TestDeletionWithoutACluster: a LibvirtCluster without an owner, or with a deleted Cluster, can be deleted.
func TestDeletionWithoutACluster(t *testing.T) {
	for name, change := range map[string]func(*infrav1.LibvirtCluster){
		"no owner":         func(infra *infrav1.LibvirtCluster) { infra.OwnerReferences = nil },
		"owner is missing": func(infra *infrav1.LibvirtCluster) { infra.OwnerReferences[0].Name = "other" },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := newClient(g, interceptor.Funcs{}, func(infra *infrav1.LibvirtCluster) {
				infra.Finalizers = []string{infrav1.ClusterFinalizer}
				change(infra)
			})
			g.Expect(c.Delete(t.Context(), get(g, c))).To(Succeed())
			r, _ := newReconciler(c)
			for range 2 { // the Paused condition comes first
				_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
				g.Expect(err).ToNot(HaveOccurred())
			}
			g.Expect(apierrors.IsNotFound(c.Get(t.Context(), key, &infrav1.LibvirtCluster{}))).To(BeTrue())
		})
	}
}
