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
	// A guest that starts has an address after seconds or minutes, and nothing tells. The longer it
	// takes, the less often it is looked.
	minAddressDelay, maxAddressDelay = 2 * time.Second, 30 * time.Second
	// addressInterval is how often, give or take a fifth, the addresses of a machine are looked at that has some.
	addressInterval = 10 * time.Minute
	// addressPatience is how long a machine that runs waits for its first address before it is provisioned without.
	addressPatience = 2 * time.Minute
	// maxAddresses is how many addresses a status may have.
	maxAddresses = 256
)

// findAddresses finds the machine's addresses. Those from pools are known without asking; for the other
// interfaces it asks for leases, which cost less, then the guest agent, and then the machine's node. What
// was known stays known while a machine doesn't run or doesn't say.
//
// Addresses are optional in Cluster API's contract: a machine that nobody gives one is provisioned without.
func (s *scope) findAddresses(ctx context.Context) (verdict, error) {
	if err := s.findClaims(ctx); err != nil {
		return s.addressesFailed(err)
	}
	var found []hypervisor.InterfaceAddress
	var failure, nodeFailure error
	asked := s.domain != nil && s.domain.State.Active() && len(s.dynamicInterfaces()) > 0
	if asked {
		if found, failure = s.askForAddresses(ctx); errors.Is(failure, hypervisor.ErrUnreachable) {
			return s.addressesFailed(failure)
		}
	}
	addresses := s.nodeAddresses(found)
	if asked && len(addresses) == 0 {
		addresses, nodeFailure = s.addressesOfNode(ctx)
	}
	s.setAddresses(addresses, len(found) > 0)
	switch {
	case failure != nil:
		return s.addressesFailed(failure)
	case len(s.notGiven) > 0:
		s.setClaimed()
	case len(s.infra.Status.Addresses) > 0:
		s.setTrue(infrav1.AddressesReadyCondition, infrav1.AddressesReadyReason)
		if asked {
			s.lookAgain(s.addressInterval(found))
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

// setNoAddress says that the machine has no address, and when to look again.
func (s *scope) setNoAddress(nodeFailure error) {
	if !s.hasAddressSource() {
		s.lookAgain(s.addressInterval(nil)) // the spec of its host may change
		s.set(infrav1.AddressesReadyCondition, metav1.ConditionFalse, infrav1.NoAddressSourceReason,
			"No interface is on a libvirt network, guestAgent is false, and the feature NodeProviderIDs is off: the machine's addresses can't be found")
		return
	}
	s.lookAgain(s.addressDelay())
	message := "Neither a DHCP lease, nor a guest agent, nor the machine's node has given an address so far"
	if nodeFailure != nil {
		message += ": " + nodeFailure.Error()
	}
	message += ". " + s.seeConsole()
	s.set(infrav1.AddressesReadyCondition, metav1.ConditionFalse, infrav1.WaitingForAddressesReason, "%s", message)
}

// needsAddress says whether the machine isn't provisioned before it has an address: as long as one may still
// come soon. Nothing else than its address leads to a load balancer.
func (s *scope) needsAddress() bool {
	if s.isProvisioned() || len(s.infra.Status.Addresses) > 0 && len(s.notGiven) == 0 {
		return false
	}
	return s.isLoadBalancer() || len(s.notGiven) > 0 || !conditions.IsTrue(s.infra, infrav1.InstanceReadyCondition) ||
		s.hasAddressSource() && s.runningFor() < addressPatience
}

// hasAddressSource says whether anything can give the machine an address: pools, leases, which libvirt
// networks have, the guest agent, or the node.
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

// addressesFailed says why the addresses aren't known. A machine that doesn't need them goes on: an agent in the
// guest may fail for ever, and the removal of the seed with its secrets doesn't need it.
func (s *scope) addressesFailed(err error) (verdict, error) {
	next, err := s.failed(infrav1.AddressesReadyCondition, infrav1.InternalErrorReason, err)
	if err == nil || s.needsAddress() {
		return next, err
	}
	s.errs = append(s.errs, err)
	return goOn, nil
}

// setAddresses sets the addresses in the status. Those that nobody was asked for (from pools), and those of
// the node, replace others only when these are out of date: what else is known was found earlier.
func (s *scope) setAddresses(addresses clusterv1.MachineAddresses, answered bool) {
	if len(addresses) == 0 {
		return
	}
	if !answered && !slices.ContainsFunc(addresses, func(a clusterv1.MachineAddress) bool { return !slices.Contains(s.infra.Status.Addresses, a) }) {
		return
	}
	s.infra.Status.Addresses = addresses
}

// addressInterval is when to look again at the addresses of a machine that has some. When it has those
// from pools already, and some interface has none so far, that is sooner for a machine that has just started.
func (s *scope) addressInterval(found []hypervisor.InterfaceAddress) time.Duration {
	interval := addressInterval*4/5 + rand.N(addressInterval*2/5) //nolint:gosec // spreads calls and keeps no secret
	if len(s.claimed) == 0 {
		return interval
	}
	for mac := range s.dynamicInterfaces() {
		if !slices.ContainsFunc(found, func(a hypervisor.InterfaceAddress) bool { return a.MAC == mac }) {
			return min(max(s.runningFor()/2, minAddressDelay), interval)
		}
	}
	return interval
}

// addressDelay is half of the time that the domain has run. A machine that has joined its cluster isn't asked
// often: that its node has an address brings it here.
func (s *scope) addressDelay() time.Duration {
	if s.hasMachine() && s.machine.Status.NodeRef != (clusterv1.MachineNodeReference{}) {
		return s.addressInterval(nil)
	}
	return min(max(s.runningFor()/2, minAddressDelay), maxAddressDelay)
}

// interfaces are the MAC addresses of the machine's interfaces, with their indexes.
func (s *scope) interfaces() map[string]int {
	index := map[string]int{}
	for i := range s.infra.Spec.Interfaces {
		index[s.mac(i)] = i
	}
	return index
}

// isStatic says whether an interface has addresses that are known without asking anybody.
func (s *scope) isStatic(nic int) bool {
	return len(s.infra.Spec.Interfaces[nic].AddressesFromPools) > 0 || nic == 0 && s.balancer.Address.IsValid()
}

// dynamicInterfaces are those of the interfaces that have no addresses from pools.
func (s *scope) dynamicInterfaces() map[string]int {
	index := s.interfaces()
	maps.DeleteFunc(index, func(_ string, i int) bool { return s.isStatic(i) })
	return index
}

// askForAddresses asks for the addresses of the interfaces that have none from pools.
func (s *scope) askForAddresses(ctx context.Context) ([]hypervisor.InterfaceAddress, error) {
	sources := []hypervisor.AddressSource{hypervisor.SourceLease}
	if ptr.Deref(s.infra.Spec.GuestAgent, true) {
		sources = append(sources, hypervisor.SourceAgent)
	}
	for _, source := range sources {
		found, err := s.connection.Addresses(ctx, s.uuid, source)
		switch {
		case errors.Is(err, hypervisor.ErrUnsupported): // no agent answers
			continue
		case errors.Is(err, hypervisor.ErrNotFound):
			return nil, nil // it is gone, and news of that come
		case err != nil:
			return nil, err
		}
		if found = s.usable(found); len(found) > 0 {
			return found, nil
		}
	}
	return nil, nil
}

// usable are those of the found addresses by which others reach an interface that has none from pools.
// Interfaces that software in the guest has made aren't the machine's own.
func (s *scope) usable(found []hypervisor.InterfaceAddress) []hypervisor.InterfaceAddress {
	dynamic := s.dynamicInterfaces()
	return slices.DeleteFunc(slices.Clone(found), func(a hypervisor.InterfaceAddress) bool {
		_, own := dynamic[a.MAC]
		return !own || !s.isReachable(a.Address)
	})
}

// isReachable says whether others reach the machine by an address. That of the control plane isn't that of
// one machine.
func (s *scope) isReachable(address netip.Addr) bool {
	var endpoint netip.Addr
	if s.cluster != nil && !s.hasOwnEndpoint() {
		endpoint, _ = netip.ParseAddr(s.cluster.Spec.ControlPlaneEndpoint.Host)
	}
	return address.IsValid() && !address.IsUnspecified() && !address.IsLinkLocalUnicast() && !address.IsLoopback() && address != endpoint
}

// addressesOfNode are the name of the machine and the IP addresses that its node says it has. None when the
// node isn't known.
func (s *scope) addressesOfNode(ctx context.Context) (clusterv1.MachineAddresses, error) {
	if !s.hasMachine() || s.Workload == nil {
		return nil, nil
	}
	node, err := s.findNode(ctx)
	if errors.Is(err, clustercache.ErrClusterNotConnected) { // that there is a connection brings the object here
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

// nodeAddresses are the name of the machine, and the addresses of its interfaces: those that were found
// and are usable, and those from pools, the first interface's first. None when there is no IP address.
func (s *scope) nodeAddresses(found []hypervisor.InterfaceAddress) clusterv1.MachineAddresses {
	found = slices.Clone(found)
	for i, given := range s.claimed {
		for _, address := range given {
			found = append(found, hypervisor.InterfaceAddress{MAC: s.mac(i), Address: address.Addr()})
		}
	}
	if len(found) == 0 {
		return nil
	}
	index := s.interfaces()
	slices.SortFunc(found, func(a, b hypervisor.InterfaceAddress) int {
		family := func(x hypervisor.InterfaceAddress) int { return x.Address.BitLen() }
		return cmp.Or(cmp.Compare(index[a.MAC], index[b.MAC]), cmp.Compare(family(a), family(b)), a.Address.Compare(b.Address))
	})
	found = slices.Compact(found)
	addresses := clusterv1.MachineAddresses{{Type: clusterv1.MachineHostName, Address: s.infra.Name}}
	for _, one := range found[:min(len(found), maxAddresses-1)] {
		addresses = append(addresses, clusterv1.MachineAddress{Type: clusterv1.MachineInternalIP, Address: one.Address.String()})
	}
	return addresses
}

// +kubebuilder:rbac:groups=ipam.cluster.x-k8s.io,resources=ipaddressclaims,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups=ipam.cluster.x-k8s.io,resources=ipaddresses,verbs=get;list;watch

// claimName is the name of the IPAddressClaim for a pool of an interface, both counted from 0. No two
// machines of a namespace have the same.
func claimName(infra *infrav1.LibvirtMachine, nic, pool int) string {
	return fmt.Sprintf("%s-%d-%d", infra.Name, nic, pool)
}

func (s *scope) claimer() claims.Claimer {
	return claims.Claimer{Client: s.Client, APIReader: s.APIReader, Owner: s.infra, Cluster: s.clusterName()}
}

// claimsAddresses says whether any interface has addresses from pools: its own, or those of the endpoint.
func (s *scope) claimsAddresses() bool {
	for i := range s.infra.Spec.Interfaces {
		if s.isStatic(i) {
			return true
		}
	}
	return false
}

// ensureClaims makes the claims of a machine that is being made. It waits for none: the image and the
// disks are made meanwhile, and awaitClaims waits.
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

// awaitClaims waits until all addresses are given: the seed has them.
func (s *scope) awaitClaims(context.Context) (verdict, error) {
	if len(s.notGiven) > 0 {
		return stop, nil
	}
	return goOn, nil
}

// findClaims reads the claims of a machine whose domain is made.
func (s *scope) findClaims(ctx context.Context) error {
	if s.claimed != nil || !s.claimsAddresses() {
		return nil
	}
	return s.readClaims(ctx, s.claimer().Find)
}

// readClaims brings what was given into claimed, and what wasn't into notGiven.
func (s *scope) readClaims(ctx context.Context, read func(context.Context, string, ipamv1.IPPoolReference) (claims.Address, error)) error {
	s.claimed, s.notGiven = map[int][]claims.Address{}, nil
	if s.balancer.Address.IsValid() {
		s.claimed[0] = []claims.Address{{Prefix: s.balancer.Address, Gateway: s.balancer.Gateway}}
	}
	for i, nic := range s.infra.Spec.Interfaces {
		for j, pool := range nic.AddressesFromPools {
			address, err := read(ctx, claimName(s.infra, i, j), pool)
			if notGiven := claims.NotGiven(err); notGiven != nil {
				s.notGiven = append(s.notGiven, notGiven)
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

// setClaimed says in the condition which claims are without an address.
func (s *scope) setClaimed() {
	if len(s.notGiven) == 0 {
		s.setTrue(infrav1.AddressesReadyCondition, infrav1.AddressesReadyReason)
		return
	}
	reason, messages := infrav1.WaitingForAddressesReason, []string{}
	for _, one := range s.notGiven {
		if one.Failed {
			reason = infrav1.AddressClaimFailedReason
		}
		messages = append(messages, one.Error())
	}
	s.set(infrav1.AddressesReadyCondition, metav1.ConditionFalse, reason, "%s", strings.Join(messages, "; "))
}

// releaseClaims gives the machine's addresses back, and says whether some are still to be let go. It is
// called when nothing on the host can use them any more. The machine waits for its claims: an IPAM
// provider leaves claims alone whose Cluster is gone, and the Cluster waits for the machine.
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
		ctrl.LoggerFrom(ctx).Info("Waiting for claims of addresses to be gone", "IPAddressClaims", left)
		s.deleting("Waiting for the IPAM provider to release IPAddressClaims: %s", strings.Join(left, ", "))
	}
	return len(left) > 0, nil
}
