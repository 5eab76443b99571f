package libvirtmachine

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/domainxml"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

const (
	// A guest that starts has an address after seconds or minutes, and nothing tells. The longer it
	// takes, the less often it is looked.
	minAddressDelay, maxAddressDelay = 2 * time.Second, 30 * time.Second
	// addressInterval is how often, give or take a fifth, the addresses of a machine are looked at that has some.
	addressInterval = 10 * time.Minute
	// maxAddresses is how many addresses a status may have.
	maxAddresses = 256
)

// findAddresses finds the machine's addresses. Those from pools are known without asking; for the other
// interfaces it asks for leases, which cost less, and then the guest agent. What was known stays known
// while a machine doesn't run or doesn't say.
func (s *scope) findAddresses(ctx context.Context) (verdict, error) {
	if err := s.findClaims(ctx); err != nil {
		return s.addressesFailed(err)
	}
	var found []hypervisor.InterfaceAddress
	asked := s.domain != nil && s.domain.State.Active() && len(s.dynamicInterfaces()) > 0
	if asked {
		var err error
		if found, err = s.askForAddresses(ctx); err != nil {
			return s.addressesFailed(err)
		}
	}
	s.setAddresses(found)
	switch {
	case len(s.notGiven) > 0:
		s.setClaimed()
	case len(s.infra.Status.Addresses) > 0:
		s.setTrue(infrav1.AddressesReadyCondition, infrav1.AddressesReadyReason)
		if asked {
			s.lookAgain(s.addressInterval(found))
		}
		return goOn, nil
	default:
		s.lookAgain(s.addressDelay())
		s.set(infrav1.AddressesReadyCondition, metav1.ConditionFalse, infrav1.WaitingForAddressesReason, "Neither a DHCP lease nor a guest agent has given an address so far")
	}
	if s.isProvisioned() {
		return goOn, nil
	}
	return stop, nil
}

// addressesFailed says why the addresses aren't known. A machine that was provisioned goes on: an agent in the
// guest may fail for ever, and the removal of the seed with its secrets doesn't need it.
func (s *scope) addressesFailed(err error) (verdict, error) {
	next, err := s.failed(infrav1.AddressesReadyCondition, infrav1.InternalErrorReason, err)
	if err == nil || !s.isProvisioned() {
		return next, err
	}
	s.errs = append(s.errs, err)
	return goOn, nil
}

// setAddresses sets the addresses in the status from those that were found and those from pools.
func (s *scope) setAddresses(found []hypervisor.InterfaceAddress) {
	addresses := s.nodeAddresses(found)
	if len(addresses) == 0 {
		return
	}
	if len(found) == 0 && !slices.ContainsFunc(addresses, func(a clusterv1.MachineAddress) bool { return !slices.Contains(s.infra.Status.Addresses, a) }) {
		return // what else is known was found earlier
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

// addressDelay is half of the time that the domain has run.
func (s *scope) addressDelay() time.Duration {
	return min(max(s.runningFor()/2, minAddressDelay), maxAddressDelay)
}

// runningFor is for how long the domain has run. Very long when that isn't known.
func (s *scope) runningFor() time.Duration {
	running := conditions.Get(s.infra, infrav1.InstanceReadyCondition)
	if running == nil || running.Status != metav1.ConditionTrue {
		return 2 * addressInterval
	}
	return time.Since(running.LastTransitionTime.Time)
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

func (s *scope) mac(nic int) string {
	return cmp.Or(s.infra.Spec.Interfaces[nic].MACAddress, domainxml.MACAddress(s.uuid, nic))
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
// Interfaces that software in the guest has made aren't the machine's own, and the address of the control
// plane isn't that of one machine.
func (s *scope) usable(found []hypervisor.InterfaceAddress) []hypervisor.InterfaceAddress {
	var endpoint netip.Addr
	if s.cluster != nil && !s.hasOwnEndpoint() {
		endpoint, _ = netip.ParseAddr(s.cluster.Spec.ControlPlaneEndpoint.Host)
	}
	dynamic := s.dynamicInterfaces()
	return slices.DeleteFunc(slices.Clone(found), func(a hypervisor.InterfaceAddress) bool {
		_, own := dynamic[a.MAC]
		return !own || !a.Address.IsValid() || a.Address.IsLinkLocalUnicast() || a.Address.IsLoopback() || a.Address == endpoint
	})
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
