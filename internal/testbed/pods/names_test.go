package pods

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func newSlice(name, service string, ready bool, addresses ...string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "system", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: addresses, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
	}
}

// TestNames checks that running and new containers can resolve Services to their ready endpoints, and that files of
// deleted pods aren't written.
func TestNames(t *testing.T) {
	g := NewWithT(t)
	ctx := context.Background()
	b := newSlice("b", "webhook", true, "10.88.0.3")
	c := fake.NewClientBuilder().WithObjects(newSlice("a", "webhook", true, "10.88.0.2"), b, newSlice("c", "other", false, "10.88.0.4"), newSlice("d", "", true, "10.88.0.5")).Build()
	n := &names{client: c}
	newRoot := func() string {
		root := t.TempDir()
		g.Expect(os.Mkdir(filepath.Join(root, "etc"), 0o755)).To(Succeed())
		g.Expect(n.keep(root)).To(Succeed())
		return root
	}
	read := func(root string) string {
		content, err := os.ReadFile(filepath.Join(root, "etc", "hosts"))
		g.Expect(err).ToNot(HaveOccurred())
		return string(content)
	}
	reconcile := func() {
		_, err := n.Reconcile(ctx, ctrl.Request{})
		g.Expect(err).ToNot(HaveOccurred())
	}
	first, deletedRoot := newRoot(), newRoot()
	g.Expect(read(first)).To(Equal("127.0.0.1 localhost\n"))
	g.Expect(os.RemoveAll(deletedRoot)).To(Succeed())
	reconcile()
	const one = "127.0.0.1 localhost\n10.88.0.2 webhook.system.svc webhook.system.svc.cluster.local\n"
	const both = one + "10.88.0.3 webhook.system.svc webhook.system.svc.cluster.local\n"
	g.Expect(read(first)).To(Equal(both))
	g.Expect(read(newRoot())).To(Equal(both))
	g.Expect(n.files).To(HaveLen(2))

	g.Expect(c.Delete(ctx, b)).To(Succeed())
	reconcile()
	g.Expect(read(first)).To(Equal(one))
}
