package libvirtmachine

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/fake"
)

// TestHardwareStaysWithoutIgnition: when the Ignition configuration is removed from the domain, the rest of the
// definition stays, including the original machine type after an upgrade of the host's QEMU.
func TestHardwareStaysWithoutIgnition(t *testing.T) {
	w := newWorld(t, func(infra *infrav1.LibvirtMachine) { infra.Spec.BootstrapFormat = infrav1.BootstrapFormatIgnition }, "a")
	m := w.until(w.newManager(0), w.isProvisioned)
	connection, err := w.hosts["a"].Connect(t.Context())
	w.Expect(err).ToNot(HaveOccurred())
	xml, _ := w.hosts["a"].DomainXML(w.uuid())
	for _, name := range hypervisor.IgnitionEntries {
		w.Expect(xml).To(ContainSubstring(name))
	}
	domain, err := connection.Domain(t.Context(), w.uuid())
	w.Expect(err).ToNot(HaveOccurred())
	xml = strings.Replace(xml, `machine="q35"`, `machine="pc-q35-6.2"`, 1)
	w.Expect(connection.DefineDomain(t.Context(), hypervisor.Definition{UUID: domain.UUID, Name: domain.Name, XML: xml})).To(Succeed())
	w.changeHost("a", func(h *infrav1.LibvirtHost) { h.Spec.Networks[0].LibvirtNetwork = "another" })
	w.hosts["a"].ForgetCalls()

	w.joinNode()
	w.until(m, w.hasCondition(infrav1.SeedRemovedCondition, infrav1.SeedRemovedReason))
	now, _ := w.hosts["a"].DomainXML(w.uuid())
	for _, name := range hypervisor.IgnitionEntries {
		w.Expect(now).ToNot(ContainSubstring(name))
	}
	w.Expect(now).To(ContainSubstring(`machine="pc-q35-6.2"`))
	want, err := hypervisor.RemoveIgnitionXML(xml)
	w.Expect(err).ToNot(HaveOccurred())
	w.Expect(now).To(Equal(want))
	for _, call := range w.hosts["a"].Calls() {
		w.Expect(call.Operation).ToNot(Equal(fake.DefineDomain))
	}
}
