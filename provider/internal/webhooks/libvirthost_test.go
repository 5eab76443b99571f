package webhooks

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

func TestLibvirtHostDefault(t *testing.T) {
	g := NewWithT(t)

	host := &infrav1.LibvirtHost{ObjectMeta: named("host-1")}
	g.Expect(LibvirtHostDefaulter{}.Default(context.Background(), host)).To(Succeed())
	g.Expect(host.Spec.FailureDomain).To(Equal("host-1"))

	host.Spec.FailureDomain = "rack-a"
	g.Expect(LibvirtHostDefaulter{}.Default(context.Background(), host)).To(Succeed())
	g.Expect(host.Spec.FailureDomain).To(Equal("rack-a"))
}

func TestLibvirtHost(t *testing.T) {
	host := &infrav1.LibvirtHost{ObjectMeta: named("host-1"), Spec: infrav1.LibvirtHostSpec{
		URI:         "qemu+tls://host-1.example.com/system",
		IdentityRef: &infrav1.ClusterIdentityReference{Name: "fleet"},
	}}
	uri := func(uri string, identity bool) func(*infrav1.LibvirtHost) {
		return func(h *infrav1.LibvirtHost) {
			h.Spec.URI = uri
			if !identity {
				h.Spec.IdentityRef = nil
			}
		}
	}
	changes := []change[*infrav1.LibvirtHost]{
		{name: "unchanged", change: func(*infrav1.LibvirtHost) {}},
		{name: "SSH", change: uri("qemu+ssh://caplv@host-1/system", true)},
		{name: "this machine", change: uri("qemu+unix:///system", false)},
		{name: "the test driver", change: uri("test:///default", false)},
		{name: "TLS without identity", change: uri("qemu+tls://host-1/system", false),
			refused: "spec.identityRef: Required value: qemu+tls needs credentials: name a LibvirtClusterIdentity"},
		{name: "SSH without identity", change: uri("qemu+ssh://caplv@host-1/system", false),
			refused: "spec.identityRef: Required value: qemu+ssh needs credentials"},
		{name: "TCP", change: uri("qemu+tcp://host-1/system", true), refused: "spec.uri: Invalid value: scheme \"qemu+tcp\" isn't one of qemu+tls, qemu+ssh, qemu+unix and test"},
		{name: "a password", change: uri("qemu+ssh://caplv:hunter2@host-1/system", true), refused: "store credentials in the Secret"},
		{name: "dedicated CPUs", change: func(h *infrav1.LibvirtHost) { h.Spec.DedicatedCPUs = "4-15,20" }},
		{name: "dedicated CPUs from the last to the first", change: func(h *infrav1.LibvirtHost) { h.Spec.DedicatedCPUs = "15-4" },
			refused: "spec.dedicatedCPUs: Invalid value: \"15-4\": \"15-4\" isn't a set of CPUs such as 4-15,20"},
		{name: "a pool twice", change: func(h *infrav1.LibvirtHost) { h.Spec.StoragePools.Disks = []string{"a", "b", "a"} },
			refused: "spec.storagePools.disks[2]: Duplicate value: \"a\""},
		{name: "networks of tenants", change: func(h *infrav1.LibvirtHost) {
			h.Spec.Networks = []infrav1.HostNetwork{{Name: "blue", AllowedNamespaces: &infrav1.AllowedNamespaces{List: []string{"blue"}}}, {Name: "green"}}
		}},
		{name: "an invalid selector of a network", change: func(h *infrav1.LibvirtHost) {
			h.Spec.Networks = []infrav1.HostNetwork{{Name: "blue"}, {Name: "green", AllowedNamespaces: &infrav1.AllowedNamespaces{
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a b": "c"}}}}}
		}, refused: "spec.networks[1].allowedNamespaces.selector.matchLabels"},
	}
	testCreations(t, libvirtHostValidator(), host, changes)
	testChanges(t, libvirtHostValidator(), host, changes)
}

func TestPasswordOfAURIIsNotRepeated(t *testing.T) {
	g := NewWithT(t)
	for _, uri := range []string{"qemu+ssh://caplv:hunter2@host-1/system", "qemu+ssh://caplv:hunter2@host-1:x/system", "xen://caplv:hunter2@host"} {
		host := &infrav1.LibvirtHost{ObjectMeta: named("host-1"), Spec: infrav1.LibvirtHostSpec{URI: uri}}
		_, err := libvirtHostValidator().ValidateCreate(requestContext(false), host)
		g.Expect(err).To(HaveOccurred())
		g.Expect(err.Error()).ToNot(ContainSubstring("hunter2"))
	}
}

func TestLibvirtClusterIdentityDefault(t *testing.T) {
	g := NewWithT(t)
	defaulter := LibvirtClusterIdentityDefaulter{Namespace: "caplv-system"}

	identity := &infrav1.LibvirtClusterIdentity{}
	g.Expect(defaulter.Default(context.Background(), identity)).To(Succeed())
	g.Expect(identity.Spec.SecretRef.Namespace).To(Equal("caplv-system"))

	identity.Spec.SecretRef.Namespace = "elsewhere"
	g.Expect(defaulter.Default(context.Background(), identity)).To(Succeed())
	g.Expect(identity.Spec.SecretRef.Namespace).To(Equal("elsewhere"))
}

func TestLibvirtClusterIdentity(t *testing.T) {
	identity := &infrav1.LibvirtClusterIdentity{ObjectMeta: named("fleet"), Spec: infrav1.LibvirtClusterIdentitySpec{
		SecretRef: infrav1.SecretReference{Name: "fleet", Namespace: "caplv-system"},
	}}
	changes := []change[*infrav1.LibvirtClusterIdentity]{
		{name: "no namespaces", change: func(*infrav1.LibvirtClusterIdentity) {}},
		{name: "everybody", change: func(i *infrav1.LibvirtClusterIdentity) { i.Spec.AllowedNamespaces = &infrav1.AllowedNamespaces{} }},
		{name: "some", change: func(i *infrav1.LibvirtClusterIdentity) {
			i.Spec.AllowedNamespaces = &infrav1.AllowedNamespaces{
				List:     []string{"team-a"},
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "production"}},
			}
		}},
		{name: "an invalid selector", change: func(i *infrav1.LibvirtClusterIdentity) {
			i.Spec.AllowedNamespaces = &infrav1.AllowedNamespaces{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a b": "c"}}}
		}, refused: "spec.allowedNamespaces.selector.matchLabels"},
	}
	testCreations(t, libvirtClusterIdentityValidator(), identity, changes)
	testChanges(t, libvirtClusterIdentityValidator(), identity, changes)
}
