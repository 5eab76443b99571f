package libvirtmachine

import (
	"cmp"
	"context"
	"errors"
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

// findAddresses asks for the machine's addresses: first for leases, which cost less, then the guest
// agent. What was known stays known while a machine doesn't run or doesn't say.
func (s *scope) findAddresses(ctx context.Context) (verdict, error) {
	if s.domain != nil && s.domain.State.Active() {
		found, err := s.askForAddresses(ctx)
		if err != nil {
			return s.failed(infrav1.AddressesReadyCondition, infrav1.InternalErrorReason, err)
		}
		if len(found) > 0 {
			s.infra.Status.Addresses = found
		}
	}
	if len(s.infra.Status.Addresses) > 0 {
		s.setTrue(infrav1.AddressesReadyCondition, infrav1.AddressesReadyReason)
		s.lookAgain(addressInterval*4/5 + rand.N(addressInterval*2/5)) //nolint:gosec // spreads calls and keeps no secret
		return goOn, nil
	}
	s.lookAgain(s.addressDelay())
	verdict, err := s.waitFor(infrav1.AddressesReadyCondition, infrav1.WaitingForAddressesReason, "Neither a DHCP lease nor a guest agent has given an address so far")
	if s.isProvisioned() {
		return goOn, nil
	}
	return verdict, err
}

// addressDelay is half of the time that the domain has run.
func (s *scope) addressDelay() time.Duration {
	running := conditions.Get(s.infra, infrav1.InstanceReadyCondition)
	if running == nil || running.Status != metav1.ConditionTrue {
		return maxAddressDelay
	}
	return min(max(time.Since(running.LastTransitionTime.Time)/2, minAddressDelay), maxAddressDelay)
}

func (s *scope) askForAddresses(ctx context.Context) (clusterv1.MachineAddresses, error) {
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
		if addresses := s.nodeAddresses(found); len(addresses) > 0 {
			return addresses, nil
		}
	}
	return nil, nil
}

// nodeAddresses are the name of the machine, and those addresses of its own interfaces by which others
// reach it, those of the first interface first. Interfaces that software in the guest has made aren't
// its own, and the address of the control plane isn't that of one machine. None when there is no IP address.
func (s *scope) nodeAddresses(found []hypervisor.InterfaceAddress) clusterv1.MachineAddresses {
	index := map[string]int{}
	for i, nic := range s.infra.Spec.Interfaces {
		index[cmp.Or(nic.MACAddress, domainxml.MACAddress(s.uuid, i))] = i
	}
	var endpoint netip.Addr
	if s.cluster != nil {
		endpoint, _ = netip.ParseAddr(s.cluster.Spec.ControlPlaneEndpoint.Host)
	}
	found = slices.DeleteFunc(slices.Clone(found), func(a hypervisor.InterfaceAddress) bool {
		_, own := index[a.MAC]
		return !own || !a.Address.IsValid() || a.Address.IsLinkLocalUnicast() || a.Address.IsLoopback() || a.Address == endpoint
	})
	if len(found) == 0 {
		return nil
	}
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
