package libvirtmachine

import (
	"context"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// TestMACAddressOwner: the owner of a MAC address is named only if it is in the same namespace.
func TestMACAddressOwner(t *testing.T) {
	const mac = "52:54:00:00:00:01"
	const outside = mac + " is in use outside of namespace team: choose another address"
	for _, tc := range []struct {
		name   string
		locked bool
		owner  *hypervisor.Owner
		want   string
	}{
		{name: "no owner", want: outside},
		{name: "no owner, on another namespace's host", locked: true, want: outside},
		{name: "of the namespace", owner: &hypervisor.Owner{Cluster: "c", Namespace: "team", Name: "old"},
			want: "the domain of LibvirtMachine team/old has " + mac + " already: give one of them another address, or delete it"},
		{name: "of another namespace", owner: &hypervisor.Owner{Cluster: "c", Namespace: "secretive", Name: "old"}, want: outside},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, func(infra *infrav1.LibvirtMachine) { infra.Spec.Interfaces[0].MACAddress = mac }, "a", "b")
			if tc.locked {
				w.restrict("a")
			}
			metadata := ""
			if tc.owner != nil {
				text, err := tc.owner.Metadata()
				w.Expect(err).ToNot(HaveOccurred())
				metadata = "<metadata>" + text + "</metadata>"
			}
			by, err := w.hosts["a"].Connect(t.Context())
			w.Expect(err).ToNot(HaveOccurred())
			w.Expect(by.DefineDomain(t.Context(), hypervisor.Definition{UUID: foreign, Name: "printer", XML: fmt.Sprintf(`<domain><name>printer</name><uuid>%s</uuid>%s
<memory>1</memory><devices><interface type="bridge"><mac address="52:54:00:00:00:02"/></interface><interface type="bridge"><mac address=%q/></interface></devices></domain>`,
				foreign, metadata, mac)})).To(Succeed())
			w.Expect(by.StartDomain(t.Context(), foreign)).To(Succeed())
			m := w.newManager(0)
			w.Expect(w.message(m, infrav1.HostBoundCondition, infrav1.MACAddressTakenReason)).To(
				Equal("spec.interfaces[0].macAddress: " + tc.want))
			if tc.want == outside {
				w.Expect(w.log.String()).To(ContainSubstring("The MAC address of a machine is taken"), "the log has the owner for operators")
			}
			w.Expect(by.StopDomain(t.Context(), foreign)).To(Succeed())
			w.mac = mac
			w.until(m, w.isProvisioned)
		})
	}
}

// TestConcurrentUseOfOneMACAddress: while the host of the first machine is being written, before any cache has it, the
// condition of the second machine reports that the address is in use.
func TestConcurrentUseOfOneMACAddress(t *testing.T) {
	const mac = "52:54:00:00:00:01"
	w := newWorld(t, func(infra *infrav1.LibvirtMachine) { infra.Spec.Interfaces[0].MACAddress = mac }, "a")
	m := w.until(w.newManager(0), func() bool { return len(w.infra().Finalizers) > 0 })
	second := w.infra()
	second.Name, second.UID, second.ResourceVersion = "second", "uid-2", ""
	w.Expect(w.api.Create(t.Context(), second)).To(Succeed())
	machine, cluster, err := m.owners(t.Context(), second)
	w.Expect(err).ToNot(HaveOccurred())

	var concurrent *scope
	w.functions.Patch = func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
		if infra, is := object.(*infrav1.LibvirtMachine); is && infra.Name == key.Name && infra.Spec.HostName != "" && concurrent == nil {
			concurrent = &scope{Reconciler: m.Reconciler, infra: second, machine: machine, cluster: cluster}
			_, err := m.Reconciler.reconcile(ctx, concurrent)
			w.Expect(err).ToNot(HaveOccurred())
		}
		return c.Patch(ctx, object, patch, options...)
	}
	m = w.newManager(0)
	w.until(m, func() bool { return w.infra().Spec.HostName != "" })
	w.Expect(conditions.GetReason(second, infrav1.HostBoundCondition)).To(Equal(infrav1.MACAddressTakenReason))
	w.Expect(conditions.GetMessage(second, infrav1.HostBoundCondition)).To(ContainSubstring("LibvirtMachine team/blue-1 has " + mac))
	w.Expect(second.Spec.HostName).To(BeEmpty())
}
