package libvirtclusteridentity

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/outcome"
)

// TestSecretIsOwnedOnce: a conflict on the Secret is retried, and an existing owner reference isn't written again.
func TestSecretIsOwnedOnce(t *testing.T) {
	g := NewWithT(t)
	scheme := runtime.NewScheme()
	g.Expect(corev1.AddToScheme(scheme)).To(Succeed())
	g.Expect(infrav1.AddToScheme(scheme)).To(Succeed())
	identity := &infrav1.LibvirtClusterIdentity{ObjectMeta: metav1.ObjectMeta{Name: "fleet", UID: "1", Labels: map[string]string{clusterv1.WatchLabel: "blue"}},
		Spec: infrav1.LibvirtClusterIdentitySpec{SecretRef: infrav1.SecretReference{Namespace: "caplv-system", Name: "fleet"}}}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "caplv-system", Name: "fleet"}, Data: sshData(t, "")}
	patches := 0
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(identity, secret).WithStatusSubresource(identity).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			if _, ok := object.(*corev1.Secret); ok {
				if patches++; patches == 1 { // a concurrent write
					faster := secret.DeepCopy()
					faster.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "other", UID: "2"}}
					faster.ResourceVersion = ""
					if err := c.Update(ctx, faster); err != nil {
						return err
					}
				}
			}
			return c.Patch(ctx, object, patch, options...)
		}}).Build()

	key := client.ObjectKeyFromObject(identity)
	reconcile := func(filter string) ctrl.Result {
		r := &Reconciler{Client: c, WatchFilterValue: filter, recorder: events.NewFakeRecorder(10)}
		result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
		g.Expect(err).ToNot(HaveOccurred())
		g.Expect(c.Get(t.Context(), key, identity)).To(Succeed())
		return result
	}
	reconcile("green")
	g.Expect(identity.Finalizers).To(BeEmpty(), "another manager reconciles it")
	reconcile("blue")
	g.Expect(identity.Finalizers).To(ConsistOf(infrav1.ClusterIdentityFinalizer))
	g.Expect(identity.Status.Conditions).To(BeEmpty())
	reconcile("blue")
	g.Expect(identity.Status.Conditions).To(HaveExactElements(HaveField("Type", infrav1.PausedCondition)))
	g.Expect(reconcile("blue").RequeueAfter).To(Equal(outcome.ConflictDelay))
	g.Expect(conditions.Get(identity, infrav1.ReadyCondition)).To(BeNil())
	for range 3 {
		g.Expect(reconcile("blue").RequeueAfter).To(Equal(secretInterval), "a Secret that isn't watched is read at intervals")
		g.Expect(conditions.IsTrue(identity, infrav1.ReadyCondition)).To(BeTrue())
	}
	g.Expect(patches).To(Equal(2))
	g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(secret), secret)).To(Succeed())
	g.Expect(secret.OwnerReferences).To(HaveExactElements(HaveField("Name", "other"), HaveField("Name", "fleet")))
}

// TestInvalidSelector: an invalid selector allows no namespace, and is reported in a condition and an event.
func TestInvalidSelector(t *testing.T) {
	g := NewWithT(t)
	scheme := runtime.NewScheme()
	g.Expect(corev1.AddToScheme(scheme)).To(Succeed())
	g.Expect(infrav1.AddToScheme(scheme)).To(Succeed())
	identity := &infrav1.LibvirtClusterIdentity{ObjectMeta: metav1.ObjectMeta{Name: "fleet", UID: "1", Finalizers: []string{infrav1.ClusterIdentityFinalizer}},
		Spec: infrav1.LibvirtClusterIdentitySpec{SecretRef: infrav1.SecretReference{Namespace: "caplv-system", Name: "fleet"},
			AllowedNamespaces: &infrav1.AllowedNamespaces{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a b": "c"}}}}}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "caplv-system", Name: "fleet"}, Data: sshData(t, "")}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(identity, secret).WithStatusSubresource(identity).Build()
	recorder := events.NewFakeRecorder(10)
	r := &Reconciler{Client: c, recorder: recorder}
	for range 3 { // writing the Paused condition ends the first reconcile
		_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(identity)})
		g.Expect(err).ToNot(HaveOccurred())
	}
	g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(identity), identity)).To(Succeed())
	ready := conditions.Get(identity, infrav1.ReadyCondition)
	g.Expect(ready.Status).To(Equal(metav1.ConditionFalse))
	g.Expect(ready.Reason).To(Equal(infrav1.AllowedNamespacesInvalidReason))
	g.Expect(ready.Message).To(ContainSubstring(`spec.allowedNamespaces.selector of LibvirtClusterIdentity fleet: `))
	g.Expect(<-recorder.Events).To(HavePrefix("Warning " + infrav1.AllowedNamespacesInvalidReason))
	g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(secret), secret)).To(Succeed())
	g.Expect(secret.OwnerReferences).To(HaveLen(1), "`clusterctl move` moves it nevertheless")
}

// TestSecretsOfOtherNamespacesAreNotChanged: the manager may not change Secrets of other namespaces, and the condition
// has the consequence.
func TestSecretsOfOtherNamespacesAreNotChanged(t *testing.T) {
	g := NewWithT(t)
	scheme := runtime.NewScheme()
	g.Expect(corev1.AddToScheme(scheme)).To(Succeed())
	g.Expect(infrav1.AddToScheme(scheme)).To(Succeed())
	identity := &infrav1.LibvirtClusterIdentity{ObjectMeta: metav1.ObjectMeta{Name: "fleet", UID: "1", Finalizers: []string{infrav1.ClusterIdentityFinalizer}},
		Spec: infrav1.LibvirtClusterIdentitySpec{SecretRef: infrav1.SecretReference{Namespace: "vault", Name: "fleet"}}}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "vault", Name: "fleet"}, Data: sshData(t, "")}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(identity, secret).WithStatusSubresource(identity).Build()
	r := &Reconciler{Client: c, Namespace: "caplv-system", recorder: events.NewFakeRecorder(10)}
	for range 3 { // writing the Paused condition ends the first reconcile
		_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(identity)})
		g.Expect(err).ToNot(HaveOccurred())
	}
	g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(identity), identity)).To(Succeed())
	ready := conditions.Get(identity, infrav1.ReadyCondition)
	g.Expect(ready.Status).To(Equal(metav1.ConditionTrue))
	g.Expect(ready.Message).To(Equal("`clusterctl move` doesn't move Secret vault/fleet: it isn't in namespace caplv-system"))
	g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(secret), secret)).To(Succeed())
	g.Expect(secret.OwnerReferences).To(BeEmpty())
}
