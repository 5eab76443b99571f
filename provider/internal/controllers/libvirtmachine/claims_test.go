package libvirtmachine

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"libvirt.org/go/libvirtxml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// fromPools gives the first interface addresses from pools, and adds a second one with DHCP.
func fromPools(infra *infrav1.LibvirtMachine, pools ...string) {
	infra.Spec.Interfaces = []infrav1.InterfaceSpec{{Network: "default", Nameservers: []string{"192.0.2.53"}}, {Network: "bridged"}}
	for _, name := range pools {
		infra.Spec.Interfaces[0].AddressesFromPools = append(infra.Spec.Interfaces[0].AddressesFromPools,
			ipamv1.IPPoolReference{APIGroup: "ipam.test", Kind: "Pool", Name: name})
	}
}

// ipam implements the contract for IPAM providers. Its pools are v4, v6, bare without a gateway, and bad, which
// allocates invalid addresses. All other pools are empty.
type ipam struct {
	// silent disables the provider.
	silent bool
	// given counts the allocated addresses, each of which is unique.
	given int
	// lock is needed because reconciles may overlap.
	lock sync.Mutex
}

const ipamFinalizer = "ipam.test/address"

func (i *ipam) run(w *world) {
	i.lock.Lock()
	defer i.lock.Unlock()
	if i.silent {
		return
	}
	for _, claim := range w.claims() {
		switch {
		case !claim.DeletionTimestamp.IsZero():
			i.release(w, &claim)
		case claim.Status.AddressRef.Name == "":
			i.give(w, &claim)
		}
	}
}

// release releases an address, and checks that no domain still uses it.
func (i *ipam) release(w *world, claim *ipamv1.IPAddressClaim) {
	for name, host := range w.hosts {
		_, domains := host.Left()
		w.Expect(domains).To(BeEmpty(), "the address of %s is released while %s has the domain", claim.Name, name)
	}
	address := &ipamv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: claim.Namespace, Name: claim.Name}}
	w.Expect(client.IgnoreNotFound(w.api.Delete(context.Background(), address))).To(Succeed())
	controllerutil.RemoveFinalizer(claim, ipamFinalizer)
	w.try(w.api.Update(context.Background(), claim))
}

// try reports whether a write of a claim has succeeded. After a conflict the next run repeats it.
func (w *world) try(err error) bool {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return false
	}
	w.Expect(err).ToNot(HaveOccurred())
	return true
}

func (i *ipam) give(w *world, claim *ipamv1.IPAddressClaim) {
	i.given++
	spec := ipamv1.IPAddressSpec{ClaimRef: ipamv1.IPAddressClaimReference{Name: claim.Name}, PoolRef: claim.Spec.PoolRef}
	switch claim.Spec.PoolRef.Name {
	case "v4":
		spec.Address, spec.Prefix, spec.Gateway = fmt.Sprintf("198.51.100.%d", i.given), ptr.To[int32](24), "198.51.100.254"
	case "v6":
		spec.Address, spec.Prefix, spec.Gateway = fmt.Sprintf("2001:db8::%d", i.given), ptr.To[int32](64), "2001:db8::ffff"
	case "bare":
		spec.Address, spec.Prefix = fmt.Sprintf("203.0.113.%d", i.given), ptr.To[int32](25)
	case "bad":
		spec.Address, spec.Prefix = "198.51.100.0.1", ptr.To[int32](24)
	default:
		conditions.Set(claim, metav1.Condition{Type: ipamv1.IPAddressClaimReadyCondition, Status: metav1.ConditionFalse,
			Reason: ipamv1.IPAddressClaimReadyPoolExhaustedReason, Message: "all are taken"})
		w.try(w.api.Status().Update(context.Background(), claim))
		return
	}
	controllerutil.AddFinalizer(claim, ipamFinalizer)
	if !w.try(w.api.Update(context.Background(), claim)) {
		return
	}
	err := w.api.Create(context.Background(), &ipamv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: claim.Namespace, Name: claim.Name}, Spec: spec})
	if !apierrors.IsAlreadyExists(err) {
		w.Expect(err).ToNot(HaveOccurred())
	}
	claim.Status.AddressRef.Name = claim.Name
	w.try(w.api.Status().Update(context.Background(), claim))
}

func (w *world) claims() []ipamv1.IPAddressClaim {
	list := &ipamv1.IPAddressClaimList{}
	w.Expect(w.api.List(context.Background(), list)).To(Succeed())
	return list.Items
}

// seedOf returns the machine's seed as text.
func (w *world) seedOf() string {
	return string(w.hosts["a"].Content(hypervisor.VolumeRef{Pool: "default", Name: w.volumeName("seed")}))
}

// TestAddressesFromPools: claims follow the contract, the guest gets the allocated addresses, and the machine has its
// addresses without a lease.
func TestAddressesFromPools(t *testing.T) {
	w := newWorld(t, func(infra *infrav1.LibvirtMachine) {
		fromPools(infra, "v4", "v6", "bare")
		infra.Spec.Interfaces = append(infra.Spec.Interfaces, infrav1.InterfaceSpec{Network: "tapped",
			AddressesFromPools: []ipamv1.IPPoolReference{{APIGroup: "ipam.test", Kind: "Pool", Name: "v4"}}})
		infra.Labels[clusterv1.WatchLabel] = "mine"
	}, "a")
	w.changeHost("a", func(h *infrav1.LibvirtHost) {
		h.Spec.Networks[0].Filter, h.Spec.Networks[1].Filter = &infrav1.NetworkFilter{Name: "clean-traffic"}, &infrav1.NetworkFilter{Name: "clean-traffic"}
	})
	w.silent = true
	w.ipam.silent = true
	m := w.until(w.newManager(0), func() bool { return len(w.claims()) == 4 })
	for i, claim := range w.claims() {
		w.Expect(claim.Name).To(Equal([]string{"blue-1-0-0", "blue-1-0-1", "blue-1-0-2", "blue-1-2-0"}[i]))
		w.Expect(claim.Spec).To(Equal(ipamv1.IPAddressClaimSpec{ClusterName: "blue",
			PoolRef: ipamv1.IPPoolReference{APIGroup: "ipam.test", Kind: "Pool", Name: []string{"v4", "v6", "bare", "v4"}[i]}}))
		w.Expect(claim.Labels).To(Equal(map[string]string{clusterv1.ClusterNameLabel: "blue", clusterv1.WatchLabel: "mine"}))
		w.Expect(claim.OwnerReferences).To(Equal([]metav1.OwnerReference{{APIVersion: infrav1.GroupVersion.String(), Kind: "LibvirtMachine", Name: key.Name,
			UID: "uid-1", Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true)}}))
	}
	// The image and the disks are created while the claims are pending, and the domain isn't.
	w.until(m, func() bool { return conditions.IsTrue(w.infra(), infrav1.DisksReadyCondition) })
	w.Expect(conditions.GetReason(w.infra(), infrav1.AddressesReadyCondition)).To(Equal(infrav1.WaitingForAddressesReason))
	w.Expect(conditions.GetMessage(w.infra(), infrav1.AddressesReadyCondition)).To(ContainSubstring(
		"IPAddressClaim blue-1-0-1: waiting for the IPAM provider to allocate an address of Pool v6 (ipam.test)"))
	result, err := m.reconcile()
	w.Expect(err).ToNot(HaveOccurred())
	w.Expect(result.RequeueAfter).To(BeZero(), "claims are watched")
	w.Expect(w.seedOf()).To(BeEmpty())

	w.ipam.silent = false
	m = w.until(m, w.isProvisioned)
	w.Expect(w.infra().Status.Addresses).To(Equal(clusterv1.MachineAddresses{
		{Type: clusterv1.MachineHostName, Address: key.Name}, {Type: clusterv1.MachineInternalIP, Address: "198.51.100.1"},
		{Type: clusterv1.MachineInternalIP, Address: "203.0.113.3"}, {Type: clusterv1.MachineInternalIP, Address: "2001:db8::2"},
		{Type: clusterv1.MachineInternalIP, Address: "198.51.100.4"}}))
	w.Expect(w.seedOf()).To(And(
		ContainSubstring("- 198.51.100.1/24\n    - 2001:db8::2/64\n    - 203.0.113.3/25\n"),
		ContainSubstring("nameservers:\n      addresses:\n      - 192.0.2.53\n    routes:\n    - to: 0.0.0.0/0\n      via: 198.51.100.254\n    - to: ::/0\n      via: 2001:db8::ffff\n"),
		ContainSubstring("id1:\n    dhcp4: true\n"), ContainSubstring("metric: 1026\n      to: 0.0.0.0/0\n      via: 198.51.100.254\n")))

	xml, _ := w.hosts["a"].DomainXML(w.uuid())
	domain := &libvirtxml.Domain{}
	w.Expect(domain.Unmarshal(xml)).To(Succeed())
	w.Expect(domain.Devices.Interfaces[0].FilterRef).To(Equal(&libvirtxml.DomainInterfaceFilterRef{Filter: "clean-traffic", Parameters: []libvirtxml.DomainInterfaceFilterParam{
		{Name: "IP", Value: "198.51.100.1"}, {Name: "IPV6", Value: "2001:db8::2"}, {Name: "IP", Value: "203.0.113.3"}}}))
	w.Expect(domain.Devices.Interfaces[1].FilterRef).To(Equal(&libvirtxml.DomainInterfaceFilterRef{Filter: "clean-traffic"}), "with DHCP")

	// The DHCP address of the second interface appears later, and stays when the host doesn't report it any more.
	w.mac, w.silent = strings.ToLower(macOf(w, 1)), false
	withLease := func() bool {
		return len(w.infra().Status.Addresses) == 6 && w.infra().Status.Addresses[4].Address == "192.0.2.7"
	}
	w.until(m, withLease)
	w.hosts["a"].SetAddresses(w.uuid(), hypervisor.SourceLease)
	_, err = m.reconcile()
	w.Expect(err).ToNot(HaveOccurred())
	w.Expect(withLease()).To(BeTrue())

	// A move drops the status: the address is found again.
	change(w, &infrav1.LibvirtMachine{}, key.Name, func(m *infrav1.LibvirtMachine) { m.Status = infrav1.LibvirtMachineStatus{} })
	w.until(m, w.isProvisioned)
	w.Expect(w.infra().Status.Addresses).To(ContainElement(HaveField("Address", "198.51.100.4")))

	w.ipam.silent = true
	w.delete()
	w.until(m, func() bool { return len(w.inventory()) == 4 })
	w.until(m, func() bool {
		return strings.Contains(conditions.GetMessage(w.infra(), infrav1.ReadyCondition), "blue-1-0-0, blue-1-0-1, blue-1-0-2, blue-1-2-0")
	})
	w.ipam.silent = false
	w.until(m, w.isDeleted)
	w.Expect(w.inventory()).To(BeEmpty())
}

func macOf(w *world, nic int) string {
	return (&scope{infra: w.infra(), uuid: w.uuid()}).mac(nic)
}

// TestAddressesNotAllocated: the condition has the reason, the machine isn't started, and its deletion deletes the
// claims.
func TestAddressesNotAllocated(t *testing.T) {
	for _, tc := range []struct {
		name, reason, message string
		pools                 []string
		change                func(*infrav1.LibvirtMachine)
		before                func(w *world)
	}{
		{name: "no IPAM provider", pools: []string{"v4"}, reason: infrav1.WaitingForAddressesReason, message: "blue-1-0-0: waiting for the IPAM provider",
			before: func(w *world) { w.ipam.silent = true }},
		{name: "one of two pools is exhausted", pools: []string{"v4", "full"}, reason: infrav1.AddressClaimFailedReason,
			message: "IPAddressClaim blue-1-0-1: no address of Pool full (ipam.test): PoolExhausted: all are taken"},
		{name: "no address", pools: []string{"bad"}, reason: infrav1.AddressClaimFailedReason,
			message: `its IPAddress blue-1-0-0: spec.address "198.51.100.0.1" isn't the IP address of one machine`},
		{name: "claim of another owner", pools: []string{"v4"}, reason: infrav1.AddressClaimFailedReason, message: "it is owned by LibvirtMachine blue-1 (UID older): delete the claim",
			before: func(w *world) {
				w.Expect(w.api.Create(t.Context(), &ipamv1.IPAddressClaim{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "blue-1-0-0",
					OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "LibvirtMachine", Name: key.Name, UID: "older", Controller: ptr.To(true)}}}})).To(Succeed())
			}},
		{name: "the claim is refused", pools: []string{"v4"}, reason: infrav1.AddressClaimFailedReason,
			message: "spec.interfaces[0].addressesFromPools[0]: creating IPAddressClaim blue-1-0-0: ipaddressclaims.ipam.cluster.x-k8s.io is forbidden: the quota is used up",
			before: func(w *world) {
				w.functions = interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
					return &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonForbidden,
						Message: schema.GroupResource{Group: ipamv1.GroupVersion.Group, Resource: "ipaddressclaims"}.String() + " is forbidden: the quota is used up"}}
				}}
			}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, func(infra *infrav1.LibvirtMachine) {
				fromPools(infra, tc.pools...)
				if tc.change != nil {
					tc.change(infra)
				}
			}, "a")
			if tc.before != nil {
				tc.before(w)
			}
			m := w.newManager(0)
			w.Expect(w.message(m, infrav1.AddressesReadyCondition, tc.reason)).To(ContainSubstring(tc.message))
			w.Expect(conditions.GetMessage(w.infra(), infrav1.ReadyCondition)).To(ContainSubstring(tc.message), "in Ready too")
			for range 5 {
				_, _ = m.reconcile()
				w.giveAddresses()
			}
			w.Expect(strings.Join(w.inventory(), "\n")).ToNot(Or(ContainSubstring("domain"), ContainSubstring("seed")))
			w.delete()
			w.until(m, w.isDeleted)
			if tc.name == "claim of another owner" {
				w.Expect(w.inventory()).To(Equal([]string{"claim blue-1-0-0"}), "the claim belongs to another owner")
				return
			}
			w.Expect(w.inventory()).To(BeEmpty())
		})
	}
}

// TestClaimDeletedWhileInUse: the machine keeps its address, and the condition has a warning. The machine doesn't claim
// another address, which the guest wouldn't have.
func TestClaimDeletedWhileInUse(t *testing.T) {
	w := newWorld(t, func(infra *infrav1.LibvirtMachine) { fromPools(infra, "v4") }, "a")
	m := w.until(w.newManager(0), w.isProvisioned)
	before := w.infra().Status.Addresses
	claim := w.claims()[0]
	claim.Finalizers = nil
	w.Expect(w.api.Update(t.Context(), &claim)).To(Succeed())
	w.Expect(w.api.Delete(t.Context(), &claim)).To(Succeed())
	w.Expect(w.message(m, infrav1.AddressesReadyCondition, infrav1.AddressClaimFailedReason)).To(ContainSubstring("it was deleted while its address is in use"))
	w.Expect(w.claims()).To(BeEmpty())
	w.Expect(w.infra().Status.Addresses).To(Equal(before))
	w.Expect(w.isProvisioned()).To(BeTrue())
	w.delete()
	w.until(m, w.isDeleted)
}

// TestAddressesFromPoolsWithIgnition: the addresses are in files that are added to the bootstrap provider's
// configuration.
func TestAddressesFromPoolsWithIgnition(t *testing.T) {
	w := newWorld(t, func(infra *infrav1.LibvirtMachine) {
		fromPools(infra, "v4")
		infra.Spec.BootstrapFormat = infrav1.BootstrapFormatIgnition
	}, "a")
	change(w, &corev1.Secret{}, "blue-1", func(s *corev1.Secret) {
		s.Data = map[string][]byte{"format": []byte("ignition"), "value": []byte(`{"ignition":{"version":"3.4.0"},"systemd":{"units":[{"name":"kubeadm.service"}]}}`)}
	})
	w.until(w.newManager(0), w.isProvisioned)
	w.Expect(w.seedOf()).To(And(ContainSubstring("kubeadm.service"), ContainSubstring(base64.StdEncoding.EncodeToString([]byte(
		"[Match]\nMACAddress="+macOf(w, 0)+"\nType=ether\n\n[Network]\nAddress=198.51.100.1/24\nDNS=192.0.2.53\n\n[Route]\nDestination=0.0.0.0/0\nGateway=198.51.100.254\n")))))
}
