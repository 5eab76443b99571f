package libvirtmachine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/claims"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

const (
	// The delay between two look-ups for a machine without addresses: half of its running time, within these bounds.
	minAddressDelay, maxAddressDelay = 2 * time.Second, 30 * time.Second
	// addressInterval is the interval between look-ups for a machine with addresses, plus or minus a fifth.
	addressInterval = 10 * time.Minute
	// addressPatience is how long a running machine waits for its first address before it is provisioned without one.
	addressPatience = 2 * time.Minute
	// maxAddresses is the maximum number of addresses in a status.
	maxAddresses = 256
)

// findAddresses looks up the machine's addresses. Addresses from pools are known. For the other interfaces it requests
// leases first, which is cheapest, then the addresses of the guest agent, and then those of the machine's node. Known
// addresses stay while no source answers.
//
// Addresses are optional in Cluster API's contract: a machine without addresses is provisioned too.
func (s *scope) findAddresses(ctx context.Context) (verdict, error) {
	if err := s.findClaims(ctx); err != nil {
		return s.addressesFailed(err)
	}
	var answers []hypervisor.InterfaceAddress
	var failure, nodeFailure error
	queried := s.domain != nil && s.domain.State.Active() && len(s.dynamicInterfaces()) > 0
	if queried {
		if answers, failure = s.queryAddresses(ctx); errors.Is(failure, hypervisor.ErrUnreachable) {
			return s.addressesFailed(failure)
		}
	}
	addresses := s.nodeAddresses(answers)
	if queried && len(addresses) == 0 {
		addresses, nodeFailure = s.addressesOfNode(ctx)
	}
	s.setAddresses(addresses, len(answers) > 0)
	switch {
	case failure != nil:
		return s.addressesFailed(failure)
	case len(s.unallocated) > 0:
		s.setClaimed()
	case len(s.infra.Status.Addresses) > 0:
		s.setTrue(infrav1.AddressesReadyCondition, infrav1.AddressesReadyReason)
		if queried {
			s.requeueWithin(s.addressInterval(answers))
		}
		return goOn, nil
	default:
		s.setNoAddress(nodeFailure)
	}
	if s.needsAddress() {
		return stop, nil
	}
	return goOn, nil
}

// setNoAddress sets the condition of a machine without addresses, and schedules the next look-up.
func (s *scope) setNoAddress(nodeFailure error) {
	if !s.hasAddressSource() {
		s.requeueWithin(s.addressInterval(nil)) // the spec of its host may change
		s.set(infrav1.AddressesReadyCondition, metav1.ConditionFalse, infrav1.NoAddressSourceReason,
			"No interface is on a libvirt network, guestAgent is false, and the feature NodeProviderIDs is off: the machine's addresses can't be found")
		return
	}
	s.requeueWithin(s.addressDelay())
	message := "Neither a DHCP lease, nor a guest agent, nor the machine's node has given an address so far"
	if nodeFailure != nil {
		message += ": " + nodeFailure.Error()
	}
	message += ". " + s.seeConsole()
	s.set(infrav1.AddressesReadyCondition, metav1.ConditionFalse, infrav1.WaitingForAddressesReason, "%s", message)
}

// needsAddress reports whether provisioning waits for an address. It waits only while an address may still be found
// soon. A load balancer always needs an address.
func (s *scope) needsAddress() bool {
	if s.isProvisioned() || len(s.infra.Status.Addresses) > 0 && len(s.unallocated) == 0 {
		return false
	}
	return s.isLoadBalancer() || len(s.unallocated) > 0 || !conditions.IsTrue(s.infra, infrav1.InstanceReadyCondition) ||
		s.hasAddressSource() && s.runningFor() < addressPatience
}

// hasAddressSource reports whether the machine has a source of addresses: a pool, leases of a libvirt network, the
// guest agent or the node.
func (s *scope) hasAddressSource() bool {
	if ptr.Deref(s.infra.Spec.GuestAgent, true) || s.hasMachine() && s.Workload != nil {
		return true
	}
	return slices.ContainsFunc(s.infra.Spec.Interfaces, func(nic infrav1.InterfaceSpec) bool {
		return len(nic.AddressesFromPools) > 0 || slices.ContainsFunc(s.host.Spec.Networks, func(network infrav1.HostNetwork) bool {
			return network.Name == nic.Network && network.LibvirtNetwork != ""
		})
	})
}

// addressesFailed sets the condition after an error. A machine that doesn't need addresses continues: a guest agent
// may fail permanently, and the seed with its secrets must be removed.
func (s *scope) addressesFailed(err error) (verdict, error) {
	next, err := s.failed(infrav1.AddressesReadyCondition, infrav1.InternalErrorReason, err)
	if err == nil || s.needsAddress() {
		return next, err
	}
	s.errs = append(s.errs, err)
	return goOn, nil
}

// setAddresses sets the addresses in the status. If no lease or agent answered, addresses from pools or the node
// replace earlier ones only if they include new ones.
func (s *scope) setAddresses(addresses clusterv1.MachineAddresses, answered bool) {
	if len(addresses) == 0 {
		return
	}
	if !answered && !slices.ContainsFunc(addresses, func(a clusterv1.MachineAddress) bool { return !slices.Contains(s.infra.Status.Addresses, a) }) {
		return
	}
	s.infra.Status.Addresses = addresses
}

// addressInterval returns the delay until the next look-up for a machine with addresses. It is shorter for a machine
// that has just started, if it has addresses from pools and an interface without any.
func (s *scope) addressInterval(answers []hypervisor.InterfaceAddress) time.Duration {
	interval := addressInterval*4/5 + rand.N(addressInterval*2/5) //nolint:gosec // spreads calls and keeps no secret
	if len(s.claimed) == 0 {
		return interval
	}
	for mac := range s.dynamicInterfaces() {
		if !slices.ContainsFunc(answers, func(a hypervisor.InterfaceAddress) bool { return a.MAC == mac }) {
			return min(max(s.runningFor()/2, minAddressDelay), interval)
		}
	}
	return interval
}

// addressDelay returns half of the running time of the domain. A machine that has joined its cluster is looked up
// less often: a new address of its node triggers a reconcile.
func (s *scope) addressDelay() time.Duration {
	if s.hasMachine() && s.machine.Status.NodeRef != (clusterv1.MachineNodeReference{}) {
		return s.addressInterval(nil)
	}
	return min(max(s.runningFor()/2, minAddressDelay), maxAddressDelay)
}

// interfaces returns the indexes of the machine's interfaces by MAC address.
func (s *scope) interfaces() map[string]int {
	index := map[string]int{}
	for i := range s.infra.Spec.Interfaces {
		index[s.mac(i)] = i
	}
	return index
}

// isStatic reports whether an interface has configured addresses, from pools or as a load balancer.
func (s *scope) isStatic(nic int) bool {
	return len(s.infra.Spec.Interfaces[nic].AddressesFromPools) > 0 || nic == 0 && s.balancer.Address.IsValid()
}

// dynamicInterfaces returns the interfaces without configured addresses.
func (s *scope) dynamicInterfaces() map[string]int {
	index := s.interfaces()
	maps.DeleteFunc(index, func(_ string, i int) bool { return s.isStatic(i) })
	return index
}

// queryAddresses requests the addresses of the dynamic interfaces from the host.
func (s *scope) queryAddresses(ctx context.Context) ([]hypervisor.InterfaceAddress, error) {
	sources := []hypervisor.AddressSource{hypervisor.SourceLease}
	if ptr.Deref(s.infra.Spec.GuestAgent, true) {
		sources = append(sources, hypervisor.SourceAgent)
	}
	for _, source := range sources {
		answers, err := s.connection.Addresses(ctx, s.uuid, source)
		switch {
		case errors.Is(err, hypervisor.ErrUnsupported): // no agent answers
			continue
		case errors.Is(err, hypervisor.ErrNotFound):
			return nil, nil // the domain is missing: an event triggers a reconcile
		case err != nil:
			return nil, err
		}
		if answers = s.usable(answers); len(answers) > 0 {
			return answers, nil
		}
	}
	return nil, nil
}

// usable returns the reachable addresses of dynamic interfaces. Interfaces that software in the guest has created are
// ignored.
func (s *scope) usable(answers []hypervisor.InterfaceAddress) []hypervisor.InterfaceAddress {
	dynamic := s.dynamicInterfaces()
	return slices.DeleteFunc(slices.Clone(answers), func(a hypervisor.InterfaceAddress) bool {
		_, own := dynamic[a.MAC]
		return !own || !s.isReachable(a.Address)
	})
}

// isReachable reports whether an address leads to this machine. The control plane endpoint doesn't.
func (s *scope) isReachable(address netip.Addr) bool {
	var endpoint netip.Addr
	if s.cluster != nil && !s.hasOwnEndpoint() {
		endpoint, _ = netip.ParseAddr(s.cluster.Spec.ControlPlaneEndpoint.Host)
	}
	return address.IsValid() && !address.IsUnspecified() && !address.IsLinkLocalUnicast() && !address.IsLoopback() && address != endpoint
}

// addressesOfNode returns the name of the machine and the IP addresses of its node, or nothing if the node isn't
// known.
func (s *scope) addressesOfNode(ctx context.Context) (clusterv1.MachineAddresses, error) {
	if !s.hasMachine() || s.Workload == nil {
		return nil, nil
	}
	node, err := s.findNode(ctx)
	if errors.Is(err, clustercache.ErrClusterNotConnected) { // a new connection triggers a reconcile
		return nil, nil
	}
	if err != nil || node == nil || node.Spec.ProviderID != "" && node.Spec.ProviderID != s.infra.Spec.ProviderID {
		return nil, err
	}
	addresses := clusterv1.MachineAddresses{{Type: clusterv1.MachineHostName, Address: s.infra.Name}}
	for _, one := range node.Status.Addresses {
		address, err := netip.ParseAddr(one.Address)
		known := one.Type == corev1.NodeInternalIP || one.Type == corev1.NodeExternalIP
		if err == nil && known && s.isReachable(address) && len(addresses) < maxAddresses {
			addresses = append(addresses, clusterv1.MachineAddress{Type: clusterv1.MachineAddressType(one.Type), Address: address.String()})
		}
	}
	if len(addresses) == 1 {
		return nil, nil
	}
	return addresses, nil
}

// nodeAddresses returns the name of the machine and the IP addresses of its interfaces, in the order of the interfaces:
// the given addresses and those from pools. It returns nothing if there is no IP address.
func (s *scope) nodeAddresses(answers []hypervisor.InterfaceAddress) clusterv1.MachineAddresses {
	answers = slices.Clone(answers)
	for i, claimed := range s.claimed {
		for _, address := range claimed {
			answers = append(answers, hypervisor.InterfaceAddress{MAC: s.mac(i), Address: address.Addr()})
		}
	}
	if len(answers) == 0 {
		return nil
	}
	index := s.interfaces()
	slices.SortFunc(answers, func(a, b hypervisor.InterfaceAddress) int {
		family := func(x hypervisor.InterfaceAddress) int { return x.Address.BitLen() }
		return cmp.Or(cmp.Compare(index[a.MAC], index[b.MAC]), cmp.Compare(family(a), family(b)), a.Address.Compare(b.Address))
	})
	answers = slices.Compact(answers)
	addresses := clusterv1.MachineAddresses{{Type: clusterv1.MachineHostName, Address: s.infra.Name}}
	for _, one := range answers[:min(len(answers), maxAddresses-1)] {
		addresses = append(addresses, clusterv1.MachineAddress{Type: clusterv1.MachineInternalIP, Address: one.Address.String()})
	}
	return addresses
}

// +kubebuilder:rbac:groups=ipam.cluster.x-k8s.io,resources=ipaddressclaims,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=ipam.cluster.x-k8s.io,resources=ipaddresses,verbs=get;list;watch

// claimName returns the name of the IPAddressClaim for a pool of an interface, both counted from 0. It is unique in
// the namespace.
func claimName(infra *infrav1.LibvirtMachine, nic, pool int) string {
	return fmt.Sprintf("%s-%d-%d", infra.Name, nic, pool)
}

func (s *scope) claimer() claims.Claimer {
	return claims.Claimer{Client: s.Client, APIReader: s.APIReader, Owner: s.infra, Cluster: s.clusterName()}
}

// claimsAddresses reports whether any interface has configured addresses.
func (s *scope) claimsAddresses() bool {
	for i := range s.infra.Spec.Interfaces {
		if s.isStatic(i) {
			return true
		}
	}
	return false
}

// ensureClaims creates the claims of a new machine. It doesn't wait: the image and the disks follow, and ensureSeed
// waits.
func (s *scope) ensureClaims(ctx context.Context) (verdict, error) {
	if !s.claimsAddresses() {
		return goOn, nil
	}
	if err := s.readClaims(ctx, s.claimer().Ensure); err != nil {
		return s.failed(infrav1.AddressesReadyCondition, infrav1.AddressClaimFailedReason, err)
	}
	s.setClaimed()
	return goOn, nil
}

// findClaims reads the claims of a machine that has a domain.
func (s *scope) findClaims(ctx context.Context) error {
	if s.claimed != nil || !s.claimsAddresses() {
		return nil
	}
	return s.readClaims(ctx, s.claimer().Find)
}

// readClaims reads allocated addresses into claimed, and claims without an address into unallocated.
func (s *scope) readClaims(ctx context.Context, read func(context.Context, string, ipamv1.IPPoolReference) (claims.Address, error)) error {
	s.claimed, s.unallocated = map[int][]claims.Address{}, nil
	if s.balancer.Address.IsValid() {
		s.claimed[0] = []claims.Address{{Prefix: s.balancer.Address, Gateway: s.balancer.Gateway}}
	}
	for i, nic := range s.infra.Spec.Interfaces {
		for j, pool := range nic.AddressesFromPools {
			address, err := read(ctx, claimName(s.infra, i, j), pool)
			if unallocated := claims.NotGiven(err); unallocated != nil {
				s.unallocated = append(s.unallocated, unallocated)
				continue
			}
			if err != nil {
				return fmt.Errorf("spec.interfaces[%d].addressesFromPools[%d]: %w", i, j, err)
			}
			s.claimed[i] = append(s.claimed[i], address)
		}
	}
	return nil
}

// setClaimed sets the condition from the claims.
func (s *scope) setClaimed() {
	if len(s.unallocated) == 0 {
		s.setTrue(infrav1.AddressesReadyCondition, infrav1.AddressesReadyReason)
		return
	}
	reason, messages := infrav1.WaitingForAddressesReason, []string{}
	for _, one := range s.unallocated {
		if one.Failed {
			reason = infrav1.AddressClaimFailedReason
		}
		messages = append(messages, one.Error())
	}
	s.set(infrav1.AddressesReadyCondition, metav1.ConditionFalse, reason, "%s", strings.Join(messages, "; "))
}

// releaseClaims deletes the claims and reports whether some still exist. The caller has made sure that the host doesn't
// use the addresses any more. The machine waits for its claims, because IPAM providers don't release claims of a
// deleted Cluster, and the Cluster waits for its machines.
func (s *scope) releaseClaims(ctx context.Context) (bool, error) {
	var names []string
	for i, nic := range s.infra.Spec.Interfaces {
		for j := range nic.AddressesFromPools {
			names = append(names, claimName(s.infra, i, j))
		}
	}
	left, err := s.claimer().Release(ctx, names)
	if err != nil {
		s.deleting("%s", err.Error())
		return false, err
	}
	if len(left) > 0 {
		ctrl.LoggerFrom(ctx).Info("Waiting for the deletion of IPAddressClaims", "IPAddressClaims", left)
		s.deleting("Waiting for the IPAM provider to release IPAddressClaims: %s", strings.Join(left, ", "))
	}
	return len(left) > 0, nil
}
