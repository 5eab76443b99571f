package api

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// TestLifeOfAnIdentity tests an identity from an invalid Secret to its deletion, which waits for a host.
func TestLifeOfAnIdentity(t *testing.T) {
	t.Parallel()
	w, g := theWorld(t), NewWithT(t)
	name := unique("identity")
	key := client.ObjectKey{Name: name}
	eventually := func(conditionType string, status metav1.ConditionStatus, reason string) string {
		t.Helper()
		var message string
		g.Eventually(func(g Gomega) {
			identity := &infrav1.LibvirtClusterIdentity{}
			g.Expect(w.client.Get(t.Context(), key, identity)).To(Succeed())
			condition := conditions.Get(identity, conditionType)
			g.Expect(condition).ToNot(BeNil())
			g.Expect(condition.Status).To(Equal(status), "%v", condition)
			g.Expect(condition.Reason).To(Equal(reason), "%v", condition)
			message = condition.Message
		}).WithTimeout(soon).Should(Succeed())
		return message
	}

	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: testNamespace, Name: name, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "Namespace", Name: testNamespace, UID: "1"}}},
		Data: map[string][]byte{"tls.key": []byte("hunter2")}}
	g.Expect(w.client.Create(t.Context(), secret)).To(Succeed())
	identity := &infrav1.LibvirtClusterIdentity{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: infrav1.LibvirtClusterIdentitySpec{SecretRef: infrav1.SecretReference{Name: name}}}
	g.Expect(w.client.Create(t.Context(), identity)).To(Succeed())
	g.Expect(eventually(infrav1.ReadyCondition, metav1.ConditionFalse, infrav1.SecretInvalidReason)).
		To(Equal("Secret " + testNamespace + "/" + name + " lacks tls.crt, ca.crt"))

	// The identity is an additional owner of the Secret even before the Secret is valid.
	g.Expect(w.client.Get(t.Context(), client.ObjectKeyFromObject(secret), secret)).To(Succeed())
	g.Expect(secret.OwnerReferences).To(HaveExactElements(HaveField("Kind", "Namespace"),
		And(HaveField("Kind", "LibvirtClusterIdentity"), HaveField("UID", identity.UID), HaveField("Controller", BeNil()))))

	// Any certificate works: the API server's certificate for webhooks is used.
	certDir := w.environment.WebhookInstallOptions.LocalServingCertDir
	for file, keys := range map[string][]string{"tls.key": {"tls.key"}, "tls.crt": {"tls.crt", "ca.crt"}} {
		content, err := os.ReadFile(filepath.Join(certDir, file))
		g.Expect(err).ToNot(HaveOccurred())
		for _, key := range keys {
			secret.Data[key] = content
		}
	}
	g.Expect(w.client.Update(t.Context(), secret)).To(Succeed())
	eventually(infrav1.ReadyCondition, metav1.ConditionTrue, infrav1.ReadyReason)
	eventually(infrav1.PausedCondition, metav1.ConditionFalse, infrav1.NotPausedReason)

	host := &infrav1.LibvirtHost{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: infrav1.LibvirtHostSpec{
		URI: "qemu+tls://host/system", IdentityRef: &infrav1.ClusterIdentityReference{Name: name}}}
	g.Expect(w.client.Create(t.Context(), host)).To(Succeed())
	g.Eventually(func(g Gomega) { // waits for the manager's cache
		g.Expect(w.client.Get(t.Context(), key, host)).To(Succeed())
		g.Expect(conditions.Has(host, infrav1.ReachableCondition)).To(BeTrue())
	}).WithTimeout(soon).Should(Succeed())
	// The identity is an owner of the recreated Secret too, because a move would leave it behind otherwise.
	g.Expect(w.client.Delete(t.Context(), secret)).To(Succeed())
	eventually(infrav1.ReadyCondition, metav1.ConditionFalse, infrav1.SecretNotFoundReason)
	secret.ResourceVersion, secret.OwnerReferences = "", nil
	g.Expect(w.client.Create(t.Context(), secret)).To(Succeed())
	g.Eventually(func(g Gomega) {
		g.Expect(w.client.Get(t.Context(), client.ObjectKeyFromObject(secret), secret)).To(Succeed())
		g.Expect(secret.OwnerReferences).To(ConsistOf(HaveField("UID", identity.UID)))
	}).WithTimeout(soon).Should(Succeed())
	eventually(infrav1.ReadyCondition, metav1.ConditionTrue, infrav1.ReadyReason)
	g.Expect(w.client.Delete(t.Context(), identity)).To(Succeed())
	g.Expect(eventually(infrav1.ReadyCondition, metav1.ConditionFalse, infrav1.DeletingReason)).
		To(ContainSubstring("Waiting for 1 LibvirtHosts to be deleted or to get another identity, the first is " + name))
	g.Expect(w.client.Delete(t.Context(), host)).To(Succeed())
	g.Eventually(func() bool { return apierrors.IsNotFound(w.client.Get(t.Context(), key, identity)) }).WithTimeout(soon).Should(BeTrue())
	g.Expect(w.manager.log.String()).ToNot(ContainSubstring("hunter2"))
}

func TestIdentityWithoutASecretAndPaused(t *testing.T) {
	t.Parallel()
	w, g := theWorld(t), NewWithT(t)
	for name, tc := range map[string]struct {
		annotations           map[string]string
		conditionType, reason string
		status                metav1.ConditionStatus
		conditions            int
	}{
		unique("no-secret"): {conditionType: infrav1.ReadyCondition, status: metav1.ConditionFalse, reason: infrav1.SecretNotFoundReason, conditions: 2},
		unique("paused"): {annotations: map[string]string{clusterv1.PausedAnnotation: ""},
			conditionType: infrav1.PausedCondition, status: metav1.ConditionTrue, reason: infrav1.PausedReason, conditions: 1},
	} {
		identity := &infrav1.LibvirtClusterIdentity{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: tc.annotations},
			Spec: infrav1.LibvirtClusterIdentitySpec{SecretRef: infrav1.SecretReference{Name: name}}}
		g.Expect(w.client.Create(t.Context(), identity)).To(Succeed())
		g.Eventually(func(g Gomega) {
			g.Expect(w.client.Get(t.Context(), client.ObjectKeyFromObject(identity), identity)).To(Succeed())
			g.Expect(identity.Status.Conditions).To(And(HaveLen(tc.conditions), ContainElement(And(
				HaveField("Type", tc.conditionType), HaveField("Status", tc.status), HaveField("Reason", tc.reason)))))
		}).WithTimeout(soon).Should(Succeed())
		g.Expect(identity.Finalizers).To(ConsistOf(infrav1.ClusterIdentityFinalizer))
	}
}
