package libvirtmachine

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/loadbalancer"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/fake"
)

// balancer turns the LibvirtMachine into a load balancer.
func balancer(configuration loadbalancer.Configuration) func(*infrav1.LibvirtMachine) {
	return func(infra *infrav1.LibvirtMachine) {
		infra.OwnerReferences = []metav1.OwnerReference{{APIVersion: infrav1.GroupVersion.String(), Kind: "LibvirtCluster", Name: "blue", UID: "1", Controller: ptr.To(true)}}
		infra.Labels[infrav1.LoadBalancerLabel] = "blue"
		infra.Annotations = map[string]string{infrav1.LoadBalancerConfigurationAnnotation: configuration.String()}
	}
}

var oneServer = loadbalancer.Configuration{Port: 6443, Servers: []netip.AddrPort{netip.MustParseAddrPort("198.51.100.1:6443")}}

// newBalancerWorld returns a world with a load balancer, in a Cluster whose infrastructure waits for it.
func newBalancerWorld(t *testing.T, configuration loadbalancer.Configuration) *world {
	w := newWorld(t, balancer(configuration), "a")
	cluster := &clusterv1.Cluster{}
	w.Expect(w.api.Get(t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: "blue"}, cluster)).To(Succeed())
	cluster.Status.Initialization.InfrastructureProvisioned = nil
	w.Expect(w.api.Status().Update(t.Context(), cluster)).To(Succeed())
	return w
}

// disk returns the content of the disk of the load balancer's guest.
func (w *world) disk() string {
	return string(w.hosts["a"].Content(hypervisor.VolumeRef{Pool: "default", Name: w.volumeName("seed")}))
}

func (w *world) reconfigure(configuration loadbalancer.Configuration) {
	infra := w.infra()
	infra.Annotations[infrav1.LoadBalancerConfigurationAnnotation] = configuration.String()
	w.Expect(w.api.Update(context.Background(), infra)).To(Succeed())
}

func (w *world) uploads() int {
	count := 0
	for _, call := range w.hosts["a"].Calls() {
		if call.Operation == fake.UploadVolume && strings.HasSuffix(call.Object, "-seed") {
			count++
		}
	}
	return count
}

// TestLifeOfALoadBalancer: a load balancer is created without a Machine, gets new configurations while it runs, is
// started again, and is deleted completely.
func TestLifeOfALoadBalancer(t *testing.T) {
	w := newBalancerWorld(t, oneServer)
	m := w.until(w.newManager(0), w.hasCondition(infrav1.LoadBalancerConfiguredCondition, infrav1.LoadBalancerConfiguredReason))
	w.Expect(w.isProvisioned()).To(BeTrue())
	made := []string{"a: domain Running", "a: volume uuid-root", "a: volume uuid-seed"}
	w.Expect(w.inventory()).To(Equal(made))
	w.Expect(conditions.IsTrue(w.infra(), infrav1.ReadyCondition)).To(BeTrue())
	w.Expect(conditions.Has(w.infra(), infrav1.SeedRemovedCondition)).To(BeFalse())
	w.Expect(w.disk()).To(And(HaveLen(loadbalancer.AreaOffset+loadbalancer.AreaSize), ContainSubstring("instance-id: "+w.uuid()),
		ContainSubstring("haproxy-configuration"), Not(ContainSubstring(secret))))
	w.Expect(w.disk()[loadbalancer.AreaOffset:]).To(ContainSubstring("server 198-51-100-1-6443 198.51.100.1:6443\n"))

	before, uploads, uuid := w.infra(), w.uploads(), w.uuid()
	for range 3 {
		_, err := m.reconcile()
		w.Expect(err).ToNot(HaveOccurred())
	}
	w.Expect(w.infra()).To(Equal(before), "a reconcile without changes writes nothing")
	w.Expect(w.uploads()).To(Equal(uploads), "and uploads nothing")

	next := loadbalancer.Configuration{Port: 6443, Servers: append(slices.Clone(oneServer.Servers), netip.MustParseAddrPort("198.51.100.2:6443"))}
	seedBefore := w.disk()[:loadbalancer.AreaOffset]
	w.reconfigure(next)
	w.until(m, func() bool { return strings.Contains(w.disk(), "198.51.100.2:6443") })
	w.Expect(w.disk()[:loadbalancer.AreaOffset]).To(Equal(seedBefore), "the files of cloud-init are unchanged")
	w.Expect(w.uploads()).To(Equal(uploads + 1))
	w.Expect(w.inventory()).To(Equal(made))

	w.hosts["a"].SetState(uuid, hypervisor.StateShutOff)
	w.until(m, func() bool { return w.hosts["a"].State(uuid) == hypervisor.StateRunning })
	w.Expect(w.uuid()).To(Equal(uuid))

	w.delete()
	w.until(m, w.isDeleted)
	w.Expect(w.inventory()).To(BeEmpty())
	w.Expect(m.Scheduler.Reserved()).To(BeZero())
}

// TestMovedLoadBalancer: `clusterctl move` drops the status of a running load balancer. Its objects are found again,
// and the configuration is uploaded again.
func TestMovedLoadBalancer(t *testing.T) {
	w := newBalancerWorld(t, oneServer)
	w.until(w.newManager(0), w.hasCondition(infrav1.LoadBalancerConfiguredCondition, infrav1.LoadBalancerConfiguredReason))
	before, left, disk := w.infra(), w.inventory(), w.disk()
	infra := w.infra()
	infra.Status = infrav1.LibvirtMachineStatus{}
	w.Expect(w.api.Status().Update(t.Context(), infra)).To(Succeed())
	w.hosts["a"].ForgetCalls()
	m := w.until(w.newManager(0), w.hasCondition(infrav1.LoadBalancerConfiguredCondition, infrav1.LoadBalancerConfiguredReason))
	w.Expect(w.infra().Status.Addresses).To(Equal(before.Status.Addresses))
	w.Expect(w.isProvisioned()).To(BeTrue())
	w.Expect(w.infra().Spec).To(Equal(before.Spec))
	w.Expect(w.inventory()).To(Equal(left))
	w.Expect(w.disk()).To(Equal(disk))
	for _, call := range w.hosts["a"].Calls() {
		w.Expect(string(call.Operation)).ToNot(Or(HavePrefix("Define"), HavePrefix("Start"), HavePrefix("Create"), HavePrefix("Delete")), "%v", call)
	}
	w.delete()
	w.until(m, w.isDeleted)
	w.Expect(w.inventory()).To(BeEmpty())
}

// TestMovedLoadBalancerIsLost: the domain was lost during the move. No field of the machine shows that it was
// provisioned, so the domain is created again with the same UUID.
func TestMovedLoadBalancerIsLost(t *testing.T) {
	w := newBalancerWorld(t, oneServer)
	w.until(w.newManager(0), w.hasCondition(infrav1.LoadBalancerConfiguredCondition, infrav1.LoadBalancerConfiguredReason))
	left, uuid := w.inventory(), w.uuid()
	infra := w.infra()
	infra.Status = infrav1.LibvirtMachineStatus{}
	w.Expect(w.api.Status().Update(t.Context(), infra)).To(Succeed())
	w.hosts["a"].RemoveDomain(uuid)
	m := w.until(w.newManager(0), w.hasCondition(infrav1.LoadBalancerConfiguredCondition, infrav1.LoadBalancerConfiguredReason))
	w.Expect(w.uuid()).To(Equal(uuid))
	w.Expect(w.inventory()).To(Equal(left))
	w.Expect(w.disk()).To(ContainSubstring("198.51.100.1:6443"))
	w.delete()
	w.until(m, w.isDeleted)
	w.Expect(w.inventory()).To(BeEmpty())
}

// TestLoadBalancerKilledAfterEachCall kills the manager after each of its calls in a load balancer's life, with a
// change of the configuration. The end is always the same.
func TestLoadBalancerKilledAfterEachCall(t *testing.T) {
	next := loadbalancer.Configuration{Port: 6443}
	whole := func(t *testing.T, killAt int) []string {
		w := newBalancerWorld(t, oneServer)
		first := w.newManager(killAt)
		m := w.until(first, w.isProvisioned)
		w.reconfigure(next)
		m = w.until(m, func() bool {
			return !strings.Contains(w.disk(), "198.51.100.1") && w.hasCondition(infrav1.LoadBalancerConfiguredCondition, infrav1.LoadBalancerConfiguredReason)()
		})
		w.Expect(w.inventory()).To(Equal([]string{"a: domain Running", "a: volume uuid-root", "a: volume uuid-seed"}))
		w.delete()
		w.until(m, w.isDeleted)
		w.Expect(w.inventory()).To(BeEmpty())
		return first.calls()
	}
	calls := whole(t, 0)
	w := NewWithT(t)
	w.Expect(len(calls)).To(BeNumerically(">", 15))
	for killAt := 1; killAt <= len(calls); killAt++ {
		t.Run(fmt.Sprintf("%d %s", killAt, calls[killAt-1]), func(t *testing.T) { whole(t, killAt) })
	}
}

// TestLoadBalancerConfigurationFails: a failed upload of the configuration, or an invalid configuration, is reported
// and retried.
func TestLoadBalancerConfigurationFails(t *testing.T) {
	w := newBalancerWorld(t, oneServer)
	m := w.until(w.newManager(0), w.hasCondition(infrav1.LoadBalancerConfiguredCondition, infrav1.LoadBalancerConfiguredReason))
	w.hosts["a"].Inject(fake.Fault{Operation: fake.UploadVolume, Effect: fake.Fail, Reason: hypervisor.ErrOther})
	w.reconfigure(loadbalancer.Configuration{Port: 6443})
	w.until(m, w.hasCondition(infrav1.LoadBalancerConfiguredCondition, infrav1.LoadBalancerConfigurationFailedReason))
	w.Expect(w.disk()).To(ContainSubstring("198.51.100.1:6443"))
	w.until(m, w.hasCondition(infrav1.LoadBalancerConfiguredCondition, infrav1.LoadBalancerConfiguredReason))
	w.Expect(w.disk()).ToNot(ContainSubstring("198.51.100.1:6443"))

	infra := w.infra()
	infra.Annotations[infrav1.LoadBalancerConfigurationAnnotation] = `{"port": 6443, "servers": ["x\nglobal"]}`
	w.Expect(w.api.Update(t.Context(), infra)).To(Succeed())
	w.until(m, w.hasCondition(infrav1.LoadBalancerConfiguredCondition, infrav1.LoadBalancerConfigurationFailedReason))
	w.Expect(conditions.GetMessage(w.infra(), infrav1.LoadBalancerConfiguredCondition)).To(HavePrefix("The annotation " + infrav1.LoadBalancerConfigurationAnnotation))
	w.delete()
	w.until(m, w.isDeleted)
	w.Expect(w.inventory()).To(BeEmpty())
}

// TestAddressesOfLoadBalancers checks the network configuration of the guest and the addresses of the machine.
func TestAddressesOfLoadBalancers(t *testing.T) {
	for name, tc := range map[string]struct {
		configuration loadbalancer.Configuration
		endpoint      string
		silent        bool
		network       []string
		address       string
	}{
		"by DHCP":       {endpoint: "192.0.2.7", address: "192.0.2.7"},
		"from a pool":   {configuration: loadbalancer.Configuration{Address: netip.MustParsePrefix("203.0.113.9/24"), Gateway: netip.MustParseAddr("203.0.113.1")}, endpoint: "203.0.113.9", silent: true, network: []string{"- 203.0.113.9/24", "via: 203.0.113.1"}, address: "203.0.113.9"},
		"virtual":       {configuration: loadbalancer.Configuration{VirtualAddress: netip.MustParseAddr("203.0.113.9")}, endpoint: "203.0.113.9", network: []string{"dhcp4: true", "- 203.0.113.9/32"}, address: "192.0.2.7"},
		"virtual, IPv6": {configuration: loadbalancer.Configuration{VirtualAddress: netip.MustParseAddr("2001:db8::9")}, endpoint: "2001:db8::9", network: []string{"dhcp4: true", "- 2001:db8::9/128"}, address: "192.0.2.7"},
	} {
		t.Run(name, func(t *testing.T) {
			tc.configuration.Port = 6443
			w := newBalancerWorld(t, tc.configuration)
			w.silent = tc.silent
			cluster := &clusterv1.Cluster{}
			w.Expect(w.api.Get(t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: "blue"}, cluster)).To(Succeed())
			cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: tc.endpoint, Port: 6443}
			w.Expect(w.api.Update(t.Context(), cluster)).To(Succeed())
			w.until(w.newManager(0), w.isProvisioned)
			w.Expect(w.infra().Status.Addresses).To(ContainElement(clusterv1.MachineAddress{Type: clusterv1.MachineInternalIP, Address: tc.address}))
			w.Expect(w.infra().Status.Addresses).To(HaveLen(2))
			for _, line := range tc.network {
				w.Expect(w.disk()).To(ContainSubstring(line))
			}
			if tc.network == nil {
				w.Expect(w.disk()).ToNot(ContainSubstring("ethernets"))
			}
		})
	}
}
