package libvirthost

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/fleet"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// TestInvalidCredentialsKeepConnection: invalid or missing credentials don't close a working connection, the condition
// reports them, and the host stays Ready.
func TestInvalidCredentialsKeepConnection(t *testing.T) {
	identity := &infrav1.LibvirtClusterIdentity{ObjectMeta: metav1.ObjectMeta{Name: "id"},
		Spec: infrav1.LibvirtClusterIdentitySpec{SecretRef: infrav1.SecretReference{Namespace: "system", Name: "secret"}}}
	secret := func(key string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "secret"}, Data: map[string][]byte{"tls.key": []byte(key)}}
	}
	f := newFixture(t, func(host *infrav1.LibvirtHost) {
		host.Spec.IdentityRef = &infrav1.ClusterIdentityReference{Name: "id"}
	}, identity, secret("good"))
	f.connect = func(ctx context.Context, target fleet.Target) (hypervisor.Hypervisor, error) {
		if string(target.Credentials.Key) == "bad" {
			return nil, &hypervisor.Error{Operation: "connecting", Reason: hypervisor.ErrDenied}
		}
		return f.host.Connect(ctx)
	}
	f.eventuallyReady()
	connection, err := f.Fleet.Hypervisor(key.Name)
	f.Expect(err).ToNot(HaveOccurred())
	still := func(message string) {
		t.Helper()
		f.Expect(f.eventually(infrav1.ReachableCondition, metav1.ConditionTrue, infrav1.EarlierCredentialsReason)).To(Equal(
			"The open connection uses earlier credentials; connecting with the current ones fails: " + message))
		f.eventuallyReady()
		now, err := f.Fleet.Hypervisor(key.Name)
		f.Expect(err).ToNot(HaveOccurred())
		f.Expect(now).To(BeIdenticalTo(connection))
	}
	f.Expect(f.client.Update(t.Context(), secret("bad"))).To(Succeed())
	still("connecting: not allowed")
	f.Expect(f.client.Update(t.Context(), secret("good"))).To(Succeed())
	f.eventually(infrav1.ReachableCondition, metav1.ConditionTrue, infrav1.ReachableReason)

	f.Expect(f.client.Delete(t.Context(), secret("good"))).To(Succeed())
	still("Secret system/secret of LibvirtClusterIdentity id doesn't exist")
	var events []string
	for len(f.recorder.Events) > 0 {
		events = append(events, <-f.recorder.Events)
	}
	f.Expect(events).To(ContainElement(HavePrefix("Warning EarlierCredentials ")))

	// An unreachable host has no working credentials.
	f.host.SetReachable(false)
	f.eventually(infrav1.ReachableCondition, metav1.ConditionFalse, infrav1.IdentityNotFoundReason)
	f.host.SetReachable(true)
	f.reconcile()
	f.Expect(f.client.Create(t.Context(), secret("good"))).To(Succeed())
	f.eventually(infrav1.ReachableCondition, metav1.ConditionTrue, infrav1.ReachableReason)

	// The connection isn't to the new URI.
	f.Expect(f.client.Delete(t.Context(), secret("good"))).To(Succeed())
	host := f.get()
	host.Spec.URI = "qemu+tls://elsewhere/system"
	f.Expect(f.client.Update(t.Context(), host)).To(Succeed())
	f.eventually(infrav1.ReachableCondition, metav1.ConditionFalse, infrav1.IdentityNotFoundReason)
	_, there := f.Fleet.Snapshot(client.ObjectKeyFromObject(host).Name)
	f.Expect(there).To(BeFalse())
}
