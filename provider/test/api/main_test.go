package api

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"testing"

	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

func TestHealth(t *testing.T) {
	w := theWorld(t)
	for _, path := range []string{"/healthz", "/readyz", "/readyz/webhook"} {
		g := NewWithT(t)
		status, body, err := get(http.DefaultClient, w.manager.healthURL+path, "")
		g.Expect(err).ToNot(HaveOccurred())
		g.Expect(status).To(Equal(http.StatusOK), body)
	}
}

func TestMetricsNeedAuthorization(t *testing.T) {
	w := theWorld(t)
	g := NewWithT(t)
	// The self-signed certificate is created at the start.
	insecure := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}

	metrics := "https://" + w.manager.diagnostics + "/metrics"
	// The metrics server starts after the webhook server.
	g.Eventually(func() (int, error) {
		status, _, err := get(insecure, metrics, "")
		return status, err
	}).WithTimeout(soon).Should(Equal(http.StatusUnauthorized), "without a token")

	status, _, err := get(insecure, metrics, w.tokenOf(t, unique("stranger")))
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(status).To(Equal(http.StatusForbidden), "with a token that may do nothing")

	scraper := unique("scraper")
	g.Expect(w.client.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: scraper},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: testNamespace, Name: scraper}},
	})).To(Succeed())
	token := w.tokenOf(t, scraper)
	g.Eventually(func(g Gomega) { // the controllers start last
		status, body, err := get(insecure, metrics, token)
		g.Expect(err).ToNot(HaveOccurred())
		g.Expect(status).To(Equal(http.StatusOK), body)
		g.Expect(body).To(ContainSubstring("controller_runtime_reconcile_total{controller=\"libvirtmachine\""))
	}).WithTimeout(soon).Should(Succeed())
}

func (w *world) tokenOf(t *testing.T, name string) string {
	t.Helper()
	g := NewWithT(t)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: testNamespace, Name: name}}
	g.Expect(w.client.Create(t.Context(), account)).To(Succeed())
	request, err := w.clientset.CoreV1().ServiceAccounts(testNamespace).
		CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	g.Expect(err).ToNot(HaveOccurred())
	return request.Status.Token
}

func TestManagerIsLeader(t *testing.T) {
	w := theWorld(t)
	g := NewWithT(t)
	g.Eventually(func(g Gomega) {
		lease, err := w.clientset.CoordinationV1().Leases(testNamespace).Get(context.Background(), "controller-leader-election-caplv", metav1.GetOptions{})
		g.Expect(err).ToNot(HaveOccurred())
		g.Expect(lease.Spec.HolderIdentity).ToNot(BeNil())
	}).WithTimeout(soon).Should(Succeed())
	g.Expect(w.manager.log.String()).ToNot(ContainSubstring("forbidden"), "the manager's roles lack a right")
}

// TestNamespaceAndWatchFilter runs a second manager with --namespace and --watch-filter, and without machine pools.
func TestNamespaceAndWatchFilter(t *testing.T) {
	w, g := theWorld(t), NewWithT(t)
	team, elsewhere, green, pool, blue := unique("team"), unique("elsewhere"), unique("green"), unique("pool"), unique("blue")
	g.Expect(w.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: team}})).To(Succeed())
	create := func(kind, namespace, name, filter string) {
		object := minimalObjects(name)[kind]
		object.SetNamespace(namespace)
		object.SetLabels(map[string]string{clusterv1.WatchLabel: filter})
		g.Expect(w.client.Create(t.Context(), object)).To(Succeed())
	}
	create("LibvirtMachine", "default", elsewhere, "blue")
	create("LibvirtMachine", team, green, "green")
	create("LibvirtMachinePool", team, pool, "blue")
	create("LibvirtMachine", team, blue, "blue")

	addresses, err := freeAddresses(1)
	g.Expect(err).ToNot(HaveOccurred())
	_, port, err := net.SplitHostPort(addresses[0])
	g.Expect(err).ToNot(HaveOccurred())
	second, err := w.startManager("--namespace="+team, "--watch-filter=blue", "--feature-gates=MachinePool=false",
		"--insecure-diagnostics", "--webhook-port="+port)
	g.Expect(err).ToNot(HaveOccurred())
	t.Cleanup(second.stop)

	g.Eventually(second.log.String).WithTimeout(soon).Should(MatchRegexp(`"Waiting for the Machine controller .*/%s"`, blue))
	// A controller of a namespaced kind that reads cluster-scoped hosts works with --namespace too.
	g.Eventually(second.log.String).WithTimeout(soon).Should(MatchRegexp(`"Starting workers" .*controller="libvirtcluster"`))
	g.Expect(second.log.String()).ToNot(ContainSubstring("forbidden"), "the manager's roles lack a right")
	g.Expect(second.log.String()).ToNot(ContainSubstring(`"Read LibvirtMachinePool"`))
	g.Expect(second.log.String()).ToNot(MatchRegexp(`"Waiting for the Machine controller .*/(%s|%s)"`, green, elsewhere))
	g.Eventually(func() (int, error) {
		status, _, err := get(http.DefaultClient, "http://"+second.diagnostics+"/metrics", "")
		return status, err
	}).WithTimeout(soon).Should(Equal(http.StatusOK), "metrics without a token")
}
