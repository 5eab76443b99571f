package api

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net"
	"net/http"
	"testing"

	. "github.com/onsi/gomega"

	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
)

// TestUpdateExtensionIsServed: with the feature gate the update extension is served with the webhooks' certificate,
// also by a manager that isn't the leader. Without the gate it isn't served.
func TestUpdateExtensionIsServed(t *testing.T) {
	w, g := theWorld(t), NewWithT(t)
	status, _, err := get(http.DefaultClient, w.manager.healthURL+"/readyz/update-extension", "")
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(status).To(Equal(http.StatusNotFound), "the feature is off")

	addresses, err := freeAddresses(2)
	g.Expect(err).ToNot(HaveOccurred())
	_, webhookPort, err := net.SplitHostPort(addresses[0])
	g.Expect(err).ToNot(HaveOccurred())
	_, port, err := net.SplitHostPort(addresses[1])
	g.Expect(err).ToNot(HaveOccurred())
	manager, err := w.startManager("--leader-elect", "--feature-gates=InPlaceUpdates=true", "--webhook-port="+webhookPort, "--update-extension-port="+port)
	g.Expect(err).ToNot(HaveOccurred())
	t.Cleanup(manager.stop)
	status, body, err := get(http.DefaultClient, manager.healthURL+"/readyz/update-extension", "")
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(status).To(Equal(http.StatusOK), body)

	pool := x509.NewCertPool()
	g.Expect(pool.AppendCertsFromPEM(w.environment.WebhookInstallOptions.LocalServingCAData)).To(BeTrue())
	caller := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
		"https://127.0.0.1:"+port+"/hooks.runtime.cluster.x-k8s.io/v1alpha1/discovery", bytes.NewReader([]byte("{}")))
	g.Expect(err).ToNot(HaveOccurred())
	answer, err := caller.Do(request)
	g.Expect(err).ToNot(HaveOccurred())
	discovered := &runtimehooksv1.DiscoveryResponse{}
	g.Expect(json.NewDecoder(answer.Body).Decode(discovered)).To(Succeed())
	g.Expect(answer.Body.Close()).To(Succeed())
	g.Expect(discovered.Handlers).To(ConsistOf(
		HaveField("RequestHook.Hook", "CanUpdateMachine"), HaveField("RequestHook.Hook", "CanUpdateMachineSet"), HaveField("RequestHook.Hook", "UpdateMachine")))
}
