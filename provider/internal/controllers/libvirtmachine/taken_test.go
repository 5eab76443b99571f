package libvirtmachine

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// TestWhoHasAMACAddress: what belongs to other namespaces isn't named.
func TestWhoHasAMACAddress(t *testing.T) {
	const mac = "52:54:00:00:00:01"
	for _, tc := range []struct {
		name   string
		locked bool
		owner  *hypervisor.Owner
		want   string
	}{
		{name: "nobody's", want: "the domain printer on host a"},
		{name: "nobody's, on a host of others", locked: true, want: "a domain on a host of others"},
		{name: "of the namespace", owner: &hypervisor.Owner{Cluster: "c", Namespace: "team", Name: "old"}, want: "the domain of LibvirtMachine team/old"},
		{name: "of another namespace", owner: &hypervisor.Owner{Cluster: "c", Namespace: "secretive", Name: "old"}, want: "the domain of a LibvirtMachine of another namespace"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, func(infra *infrav1.LibvirtMachine) { infra.Spec.Interfaces[0].MACAddress = mac }, "a", "b")
			if tc.locked {
				w.lockUp("a")
			}
			metadata := ""
			if tc.owner != nil {
				text, err := tc.owner.Metadata()
				w.Expect(err).ToNot(HaveOccurred())
				metadata = "<metadata>" + text + "</metadata>"
			}
			by, err := w.hosts["a"].Connect(t.Context())
			w.Expect(err).ToNot(HaveOccurred())
			w.Expect(by.DefineDomain(t.Context(), hypervisor.Definition{UUID: theirs, Name: "printer", XML: fmt.Sprintf(`<domain><name>printer</name><uuid>%s</uuid>%s
<memory>1</memory><devices><interface type="bridge"><mac address="52:54:00:00:00:02"/></interface><interface type="bridge"><mac address=%q/></interface></devices></domain>`,
				theirs, metadata, mac)})).To(Succeed())
			w.Expect(by.StartDomain(t.Context(), theirs)).To(Succeed())
			m := w.newManager(0)
			w.Expect(w.message(m, infrav1.HostBoundCondition, infrav1.MACAddressTakenReason)).To(
				Equal("spec.interfaces[0].macAddress: " + tc.want + " has " + mac + " already: give one of them another address, or stop the domain"))
			w.Expect(by.StopDomain(t.Context(), theirs)).To(Succeed())
			w.mac = mac
			w.until(m, w.isProvisioned)
		})
	}
}
