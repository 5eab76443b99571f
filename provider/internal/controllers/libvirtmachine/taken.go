package libvirtmachine

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/fleet"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/placement"
)

// place chooses a host for the machine, or says which of the MAC addresses that its spec asks for is taken.
// Of machines that ask for the same one at once, the first that has a reservation gets it: those that ask for
// any are placed one after the other.
func (s *scope) place(ctx context.Context, request placement.Request, hosts []placement.Host, snapshots map[string]fleet.Snapshot) (host, taken string, err error) {
	if wanted := s.wantedMACs(); len(wanted) > 0 {
		s.macs.Lock()
		defer s.macs.Unlock()
		if taken, err := s.takenMAC(ctx, wanted, hosts, snapshots); err != nil || taken != "" {
			return "", taken, err
		}
	}
	s.told.again(s.Reconciler)
	host, err = s.Ledger.Place(request, hosts)
	return host, "", err
}

// wantedMACs are the MAC addresses that the spec asks for, with the indexes of their interfaces. Those that
// are derived from UUIDs don't clash.
func (s *scope) wantedMACs() map[string]int {
	wanted := map[string]int{}
	for i, nic := range s.infra.Spec.Interfaces {
		if nic.MACAddress != "" {
			wanted[nic.MACAddress] = i
		}
	}
	return wanted
}

// takenMAC says which of some MAC addresses another machine has, or a domain on a host that isn't ours. hosts
// are those that the namespace may use, and snapshots what was last seen of all hosts.
func (s *scope) takenMAC(ctx context.Context, wanted map[string]int, hosts []placement.Host, snapshots map[string]fleet.Snapshot) (string, error) {
	// Reservations first: one that has ended by now is of a machine that the list shows to be bound.
	reserved := map[types.UID]bool{}
	for _, machine := range s.Ledger.Reservations() {
		reserved[machine.UID] = true
	}
	machines, err := s.allMachines(ctx)
	if err != nil {
		return "", err
	}
	for i := range machines {
		other := &machines[i]
		if other.UID == s.infra.UID || other.Spec.HostName == "" && !reserved[other.UID] {
			continue
		}
		for _, nic := range other.Spec.Interfaces {
			if index, clashes := wanted[nic.MACAddress]; clashes {
				return fmt.Sprintf("spec.interfaces[%d].macAddress: %s has %s already", index, s.nameOf(other.Namespace, other.Name), nic.MACAddress), nil
			}
		}
	}
	for _, host := range slices.Sorted(maps.Keys(snapshots)) {
		allowed := slices.ContainsFunc(hosts, func(h placement.Host) bool { return h.Name == host })
		if taken := s.takenOn(host, allowed, snapshots[host].Domains, wanted); taken != "" {
			return taken, nil
		}
	}
	return "", nil
}

// takenOn says which of some MAC addresses a domain on a host has: hosts share networks, also with hosts
// that this namespace may not use and gets no names of. As with room, a domain counts while it is active:
// an old one that is shut off may be what the machine replaces.
func (s *scope) takenOn(host string, allowed bool, domains map[string]hypervisor.Domain, wanted map[string]int) string {
	for _, uuid := range slices.Sorted(maps.Keys(domains)) {
		domain := domains[uuid]
		for _, mac := range domain.MACs {
			index, clashes := wanted[mac]
			if !clashes || !domain.State.Active() {
				continue
			}
			whose := fmt.Sprintf("the domain %s on host %s", domain.Name, host)
			switch {
			case domain.Owner != nil:
				whose = "the domain of " + s.nameOf(domain.Owner.Namespace, domain.Owner.Name)
			case !allowed:
				whose = "a domain on a host of others"
			}
			return fmt.Sprintf("spec.interfaces[%d].macAddress: %s has %s already: give one of them another address, or stop the domain", index, whose, mac)
		}
	}
	return ""
}

// macTaken says that the machine asks for a MAC address that is taken.
func (s *scope) macTaken(taken string) (verdict, error) {
	s.lookAgain(noFitDelay)
	return s.waitFor(infrav1.HostBoundCondition, infrav1.MACAddressTakenReason, "%s", taken)
}

// nameTaken says that another domain has the name of the machine's.
func (s *scope) nameTaken() (verdict, error) {
	s.lookAgain(noFitDelay)
	return s.waitFor(infrav1.InstanceReadyCondition, infrav1.DomainNameTakenReason,
		"Host %s has another domain with the name %s, or with the UUID of spec.providerID, which is left alone: rename or undefine it there, or delete the Machine",
		s.host.Name, s.domainName())
}

// uuidTaken says that the domain with the machine's UUID is somebody else's.
func (s *scope) uuidTaken(domain hypervisor.Domain) (verdict, error) {
	s.lookAgain(noFitDelay)
	whose := "nobody's that is known here"
	if domain.Owner != nil {
		whose = "that of " + s.nameOf(domain.Owner.Namespace, domain.Owner.Name)
	}
	return s.waitFor(infrav1.InstanceReadyCondition, infrav1.DomainNameTakenReason,
		"The domain on host %s with the UUID of spec.providerID is %s, and is left alone", s.host.Name, whose)
}
