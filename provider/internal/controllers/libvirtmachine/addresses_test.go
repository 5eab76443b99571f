package libvirtmachine

import (
	"context"
	"net/netip"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/domainxml"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/index"
)

// onBridge is a machine without a guest agent, on a bridge with a DHCP server that the provider can't query.
func onBridge(m *infrav1.LibvirtMachine) {
	m.Spec.Interfaces, m.Spec.GuestAgent = []infrav1.InterfaceSpec{{Network: "bridged"}}, ptr.To(false)
}

// withNodes gives a manager a workload cluster with some nodes.
func (w *world) withNodes(m *manager, nodes ...client.Object) client.Client {
	workload := clientfake.NewClientBuilder().WithIndex(&corev1.Node{}, index.NodeDomain, index.DomainsOf).WithObjects(nodes...).Build()
	m.Workload = clustercache.NewFakeClusterCache(workload, client.ObjectKey{Namespace: key.Namespace, Name: "blue"}, "libvirtmachine-nodes")
	return workload
}

func nodeWithAddresses(uuid string, addresses ...string) *corev1.Node {
	node := node("a-node", uuid, "")
	for _, address := range addresses {
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address})
	}
	return node
}

// TestAddressesOfNode: a machine without lease and agent gets the addresses of its node, and is provisioned with them.
// Later addresses of the guest agent take precedence.
func TestAddressesOfNode(t *testing.T) {
	w := newWorld(t, func(m *infrav1.LibvirtMachine) {
		m.Spec.Interfaces = []infrav1.InterfaceSpec{{Network: "bridged"}}
	}, "a")
	w.silent = true
	cluster := &clusterv1.Cluster{}
	w.Expect(w.api.Get(t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: "blue"}, cluster)).To(Succeed())
	cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "192.0.2.100", Port: 6443}
	w.Expect(w.api.Update(t.Context(), cluster)).To(Succeed())
	m := w.newManager(0)
	workload := w.withNodes(m)
	w.until(m, w.hasCondition(infrav1.AddressesReadyCondition, infrav1.WaitingForAddressesReason))
	w.Expect(w.isProvisioned()).To(BeFalse())

	joined := nodeWithAddresses(w.uuid(), "192.0.2.100", "169.254.0.1", "192.0.2.30", "2001:db8::30", "127.0.0.1")
	joined.Status.Addresses = append(joined.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: "a-node"},
		corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "198.51.100.30"})
	w.Expect(workload.Create(t.Context(), joined)).To(Succeed())
	w.until(m, w.isProvisioned)
	w.Expect(w.infra().Status.Addresses).To(Equal(clusterv1.MachineAddresses{{Type: clusterv1.MachineHostName, Address: key.Name},
		{Type: clusterv1.MachineInternalIP, Address: "192.0.2.30"}, {Type: clusterv1.MachineInternalIP, Address: "2001:db8::30"},
		{Type: clusterv1.MachineExternalIP, Address: "198.51.100.30"}}))
	w.Expect(conditions.IsTrue(w.infra(), infrav1.ReadyCondition)).To(BeTrue())

	is := func(text string) func() bool {
		return func() bool { return w.infra().Status.Addresses[1].Address == text }
	}
	// The Machine has a reference to its node, so its system UUID isn't needed.
	now := nodeWithAddresses("", "192.0.2.31")
	w.Expect(workload.Delete(t.Context(), joined)).To(Succeed())
	now.Name = key.Name
	w.Expect(workload.Create(t.Context(), now)).To(Succeed())
	w.joinNode()
	w.until(m, is("192.0.2.31"))

	agent := hypervisor.InterfaceAddress{MAC: domainxml.MACAddress(w.uuid(), 0), Address: netip.MustParseAddr("192.0.2.32")}
	w.hosts["a"].SetAddresses(w.uuid(), hypervisor.SourceAgent, agent)
	w.until(m, is("192.0.2.32"))
}

// TestNodeOfAnotherMachine: the addresses of a node with another provider ID aren't used.
func TestNodeOfAnotherMachine(t *testing.T) {
	w := newWorld(t, onBridge, "a")
	w.silent = true
	m := w.until(w.newManager(0), func() bool { return w.infra().Spec.ProviderID != "" })
	other := nodeWithAddresses(w.uuid(), "192.0.2.30")
	other.Spec.ProviderID = infrav1.ProviderIDPrefix + uuidOfOthers
	w.withNodes(m, other)
	w.until(m, w.hasCondition(infrav1.AddressesReadyCondition, infrav1.WaitingForAddressesReason))
	for range 3 {
		_, err := m.reconcile()
		w.Expect(err).ToNot(HaveOccurred())
	}
	w.Expect(w.infra().Status.Addresses).To(BeEmpty())
}

// TestProvisionedWithoutAddress: a machine without addresses is provisioned, its seed with the secrets is removed when
// it has joined, and then it is Ready.
func TestProvisionedWithoutAddress(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*infrav1.LibvirtMachine)
		nodes  bool
		reason string
	}{
		{name: "no source", change: onBridge, reason: infrav1.NoAddressSourceReason},
		{name: "the agent doesn't answer", change: func(m *infrav1.LibvirtMachine) { m.Spec.Interfaces[0].Network = "tapped" }, reason: infrav1.WaitingForAddressesReason},
		{name: "no DHCP in the libvirt network", change: func(m *infrav1.LibvirtMachine) { m.Spec.GuestAgent = ptr.To(false) }, reason: infrav1.WaitingForAddressesReason},
		{name: "no node", change: onBridge, nodes: true, reason: infrav1.WaitingForAddressesReason},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, tc.change, "a")
			w.silent = true
			m := w.newManager(0)
			if tc.nodes {
				w.withNodes(m)
			}
			w.until(m, w.hasCondition(infrav1.AddressesReadyCondition, tc.reason))
			w.Expect(w.isProvisioned()).To(Equal(tc.reason == infrav1.NoAddressSourceReason))
			w.setRunningFor(addressPatience - 10*time.Second)
			_, err := m.reconcile()
			w.Expect(err).ToNot(HaveOccurred())
			w.Expect(w.isProvisioned()).To(Equal(tc.reason == infrav1.NoAddressSourceReason), "waiting for an address")
			w.setRunningFor(addressPatience)
			w.until(m, w.isProvisioned)
			w.Expect(w.infra().Status.Addresses).To(BeEmpty())
			w.Expect(conditions.IsFalse(w.infra(), infrav1.ReadyCondition)).To(BeTrue(), "the machine may be unreachable")

			w.joinNode()
			w.until(m, w.hasCondition(infrav1.SeedRemovedCondition, infrav1.SeedRemovedReason))
			w.Expect(w.inventory()).ToNot(ContainElement(ContainSubstring("seed")))
			w.Expect(conditions.IsTrue(w.infra(), infrav1.ReadyCondition)).To(BeTrue(), "%+v", w.infra().Status.Conditions)
			w.Expect(conditions.GetReason(w.infra(), infrav1.AddressesReadyCondition)).To(Equal(tc.reason))
		})
	}
}

// setRunningFor sets in the status since when the domain runs.
func (w *world) setRunningFor(duration time.Duration) {
	infra := w.infra()
	for i := range infra.Status.Conditions {
		if infra.Status.Conditions[i].Type == infrav1.InstanceReadyCondition {
			infra.Status.Conditions[i].LastTransitionTime = metav1.NewTime(time.Now().Add(-duration))
		}
	}
	w.Expect(w.api.Status().Update(context.Background(), infra)).To(Succeed())
}
