package test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"maps"
	"strings"

	. "github.com/onsi/gomega"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterctl-release/clusterctl-release/internal/testbed"
	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// hostKeyPinned: one host is reached by SSH. With another key in known_hosts it can't be reached, and the condition has
// the reason.
func hostKeyPinned(ctx context.Context, g *WithT, w *world) {
	var host infrav1.LibvirtHost
	g.Expect(w.Client.Get(ctx, client.ObjectKey{Name: "host-b1"}, &host)).To(Succeed())
	g.Expect(host.Spec.URI).To(HavePrefix("qemu+ssh://"))

	credentials := maps.Clone(w.registered.Credentials())
	name, _, _ := strings.Cut(string(credentials[testbed.KnownHostsKey]), " ")
	other, _, err := ed25519.GenerateKey(rand.Reader)
	g.Expect(err).ToNot(HaveOccurred())
	key, err := ssh.NewPublicKey(other)
	g.Expect(err).ToNot(HaveOccurred())
	credentials[testbed.KnownHostsKey] = []byte(knownhosts.Line([]string{name}, key) + "\n")
	const forged = "forged"
	g.Expect(w.CreateIdentity(ctx, forged, credentials)).To(Succeed())
	g.Expect(w.CreateHost(ctx, testbed.HostSpec{Name: forged, FailureDomain: host.Spec.FailureDomain}, host.Spec.URI, forged)).To(Succeed())
	eventually(g, func(g Gomega) {
		var got infrav1.LibvirtHost
		g.Expect(w.Client.Get(ctx, client.ObjectKey{Name: forged}, &got)).To(Succeed())
		g.Expect(got.Status.Conditions).To(ContainElement(And(
			isCondition(infrav1.ReachableCondition, "False"), HaveField("Message", ContainSubstring("the host's key isn't one of known_hosts")))))
		g.Expect(got.Status.Conditions).To(ContainElement(isCondition(infrav1.ReadyCondition, "False")))
	})
	for _, object := range []client.Object{
		&infrav1.LibvirtHost{ObjectMeta: metav1.ObjectMeta{Name: forged}},
		&infrav1.LibvirtClusterIdentity{ObjectMeta: metav1.ObjectMeta{Name: forged}},
	} {
		g.Expect(w.Client.Delete(ctx, object)).To(Succeed())
		eventually(g, func(g Gomega) {
			g.Expect(w.Client.Get(ctx, client.ObjectKeyFromObject(object), object)).To(MatchError(apierrors.IsNotFound, "not found"))
		})
	}
}
