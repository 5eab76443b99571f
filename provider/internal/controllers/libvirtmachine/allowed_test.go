package libvirtmachine

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// restrict gives hosts an identity that allows namespaces with the label tenant=blue.
func (w *world) restrict(hosts ...string) {
	w.t.Helper()
	w.Expect(w.api.Create(w.t.Context(), &infrav1.LibvirtClusterIdentity{ObjectMeta: metav1.ObjectMeta{Name: "key-of-blue"},
		Spec: infrav1.LibvirtClusterIdentitySpec{AllowedNamespaces: &infrav1.AllowedNamespaces{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"tenant": "blue"}}}}})).To(Succeed())
	for _, name := range hosts {
		w.changeHost(name, func(h *infrav1.LibvirtHost) {
			h.Spec.IdentityRef = &infrav1.ClusterIdentityReference{Name: "key-of-blue"}
		})
	}
}

// setTenant sets the tenant label of the machine's namespace.
func (w *world) setTenant(tenant string) {
	w.t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: key.Namespace, Labels: map[string]string{"tenant": tenant}}}
	w.Expect(w.api.Update(w.t.Context(), namespace)).To(Succeed())
}

// notAllowed reconciles until the machine is refused, and checks that conditions and events don't have the name of a
// host, identity or failure domain.
func (w *world) notAllowed(m *manager) {
	w.t.Helper()
	message := w.message(m, infrav1.HostBoundCondition, infrav1.NamespaceNotAllowedReason)
	w.Expect(message).To(ContainSubstring("namespace team"))
	text := message
	for _, condition := range w.infra().Status.Conditions {
		text += condition.Message + "\n"
	}
	for len(w.events.Events) > 0 {
		text += <-w.events.Events + "\n"
	}
	for _, name := range []string{"hidden-host", "key-of-blue", "rack-hidden-host"} {
		w.Expect(text).ToNot(ContainSubstring(name))
	}
}

// TestOtherNamespacesGetNothing: machines of namespaces that aren't allowed don't get a host, and the messages don't
// reveal any. A host that is open to all namespaces is named.
func TestOtherNamespacesGetNothing(t *testing.T) {
	w := newWorld(t, nil, "hidden-host", "open")
	w.restrict("hidden-host", "open")
	m := w.newManager(0)
	w.notAllowed(m)
	w.Expect(w.infra().Spec.HostName).To(BeEmpty())
	w.Expect(w.inventory()).To(BeEmpty())

	w.changeHost("open", func(h *infrav1.LibvirtHost) {
		h.Spec.IdentityRef, h.Spec.Maintenance = nil, &infrav1.HostMaintenance{}
	})
	w.Expect(w.message(m, infrav1.HostBoundCondition, infrav1.NoHostFitsReason)).To(Equal("no host fits (0 of 1 Ready and selected): open: in maintenance; hosts that the namespace may not use are not listed"))

	w.setTenant("blue")
	w.until(m, w.isProvisioned)
	w.Expect(w.infra().Spec.HostName).To(Equal("hidden-host"))
}

// TestIdentityOfOthersCantBeRead: an invalid selector of an identity excludes the hosts with that identity only.
func TestIdentityOfOthersCantBeRead(t *testing.T) {
	w := newWorld(t, nil, "hidden-host", "open")
	w.restrict("hidden-host")
	identity := &infrav1.LibvirtClusterIdentity{}
	w.Expect(w.api.Get(t.Context(), client.ObjectKey{Name: "key-of-blue"}, identity)).To(Succeed())
	identity.Spec.AllowedNamespaces.Selector.MatchLabels = map[string]string{"a b": "c"} // written before the webhook existed
	w.Expect(w.api.Update(t.Context(), identity)).To(Succeed())
	w.until(w.newManager(0), w.isProvisioned)
	w.Expect(w.infra().Spec.HostName).To(Equal("open"))
}

// TestHostNamedByHand: a user who writes spec.hostName gets no access to a host that the namespace may not use.
func TestHostNamedByHand(t *testing.T) {
	w := newWorld(t, func(infra *infrav1.LibvirtMachine) {
		infra.Spec.HostName, infra.Spec.ProviderID = "hidden-host", infrav1.ProviderIDPrefix+"11111111-1111-4111-8111-111111111111"
	}, "hidden-host")
	w.restrict("hidden-host")
	m := w.newManager(0)
	message := w.message(m, infrav1.HostBoundCondition, infrav1.NamespaceNotAllowedReason)
	w.Expect(message).ToNot(ContainSubstring("hidden-host"))
	for _, call := range w.hosts["hidden-host"].Calls() {
		w.Expect(call.Operation).To(BeElementOf(fixtureCalls), "the host isn't queried for the machine")
	}
	w.Expect(w.infra().Status.FailureDomain).To(BeEmpty())
	w.delete()
	w.until(m, w.isDeleted)
}

// TestLabelsChangeLater: when the namespace's labels change, a machine that isn't provisioned yet isn't continued. A
// provisioned one is unchanged and can be deleted.
func TestLabelsChangeLater(t *testing.T) {
	for name, until := range map[string]func(w *world) func() bool{
		"bound":       func(w *world) func() bool { return func() bool { return w.infra().Spec.HostName != "" } },
		"provisioned": func(w *world) func() bool { return w.isProvisioned },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil, "hidden-host")
			w.restrict("hidden-host")
			w.setTenant("blue")
			m := w.until(w.newManager(0), until(w))
			w.setTenant("green")
			if name == "bound" {
				w.hosts["hidden-host"].ForgetCalls()
				w.notAllowed(m)
				w.Expect(w.inventory()).To(BeEmpty())
				w.setTenant("blue")
				w.until(m, w.isProvisioned)
				w.setTenant("green")
			}
			before := w.inventory()
			w.joinNode()
			w.until(m, w.hasCondition(infrav1.SeedRemovedCondition, infrav1.SeedRemovedReason))
			w.Expect(conditions.IsTrue(w.infra(), infrav1.ReadyCondition)).To(BeTrue())
			w.Expect(before).To(ContainElement("hidden-host: domain Running"))
			w.delete()
			w.until(m, w.isDeleted)
			w.Expect(w.inventory()).To(BeEmpty())
		})
	}
}

// TestNetworksOfOthers: a machine isn't placed for a network that its namespace may not use, even on a host in its
// spec. It gets no domain with a network that it may no longer use.
func TestNetworksOfOthers(t *testing.T) {
	ofBlue := func(w *world) {
		w.changeHost("a", func(h *infrav1.LibvirtHost) {
			h.Spec.Networks[0].AllowedNamespaces = &infrav1.AllowedNamespaces{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"tenant": "blue"}}}
		})
	}
	t.Run("unbound", func(t *testing.T) {
		w := newWorld(t, nil, "a")
		ofBlue(w)
		m := w.newManager(0)
		w.Expect(w.message(m, infrav1.HostBoundCondition, infrav1.NoHostFitsReason)).To(ContainSubstring("a: lacks network default"))
		w.setTenant("blue")
		w.until(m, w.isProvisioned)
	})
	t.Run("bound by hand", func(t *testing.T) {
		w := newWorld(t, func(infra *infrav1.LibvirtMachine) {
			infra.Spec.HostName, infra.Spec.ProviderID = "a", infrav1.ProviderIDPrefix+"5c4f1ab6-7c5e-4a55-8f0e-2a3c6a1f0b51"
		}, "a")
		ofBlue(w)
		w.Expect(w.message(w.newManager(0), infrav1.HostBoundCondition, infrav1.NoHostFitsReason)).To(ContainSubstring("a: lacks network default"))
		w.Expect(w.inventory()).To(BeEmpty())
	})
	t.Run("bound while allowed", func(t *testing.T) {
		w := newWorld(t, nil, "a")
		m := w.until(w.newManager(0), func() bool {
			return conditions.IsTrue(w.infra(), infrav1.HostBoundCondition) && w.infra().Spec.HostName != ""
		})
		ofBlue(w)
		w.Expect(w.message(m, infrav1.InstanceReadyCondition, infrav1.InstanceCreationFailedReason)).To(
			Equal(`spec: interfaces[0].network: the host has no network "default"`))
		_, domains := w.hosts["a"].Left()
		w.Expect(domains).To(BeEmpty())
	})
}
