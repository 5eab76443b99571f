package libvirtmachine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	ctrl "sigs.k8s.io/controller-runtime"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/domainxml"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/fleet"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/placement"
)

// place chooses a host for the machine, or says which of the MAC addresses of its interfaces is taken.
// Of machines that want the same one at once, the first that has a reservation gets it: those whose addresses
// may clash are placed one after the other.
func (s *scope) place(ctx context.Context, request placement.Request, hosts []placement.Host, snapshots map[string]fleet.Snapshot) (host, taken string, err error) {
	s.told.again(s.Reconciler)
	if wanted := s.wantedMACs(); len(wanted) > 0 {
		s.macs.Lock()
		defer s.macs.Unlock()
		if taken, err := s.takenMAC(ctx, wanted, snapshots); err != nil || taken != "" {
			return "", taken, err
		}
	}
	host, err = s.Ledger.Place(request, hosts)
	return host, "", err
}

// wantedMACs are the MAC addresses that may clash, with the indexes of their interfaces: those that the spec asks for,
// and those that are derived from a UUID that the spec has already. It may be another machine's. Those that are derived
// from a new UUID don't clash.
func (s *scope) wantedMACs() map[string]int {
	wanted := map[string]int{}
	for i, mac := range macsOf(s.infra) {
		if mac != "" {
			wanted[mac] = i
		}
	}
	return wanted
}

// macsOf are the MAC addresses of a machine's interfaces. One that is derived is empty as long as there is no UUID.
func macsOf(infra *infrav1.LibvirtMachine) []string {
	macs := make([]string, len(infra.Spec.Interfaces))
	for i, nic := range infra.Spec.Interfaces {
		macs[i] = nic.MACAddress
		if uuid := strings.TrimPrefix(infra.Spec.ProviderID, infrav1.ProviderIDPrefix); nic.MACAddress == "" && uuid != "" {
			macs[i] = domainxml.MACAddress(uuid, i)
		}
	}
	return macs
}

// takenMAC says which of some MAC addresses another machine has, or a domain on a host that isn't ours. snapshots is
// what was last seen of all hosts: they share networks, also with those that this namespace may not use. A machine that
// is placed nowhere has none, whatever its spec says.
func (s *scope) takenMAC(ctx context.Context, wanted map[string]int, snapshots map[string]fleet.Snapshot) (string, error) {
	machines, err := s.allMachines(ctx)
	if err != nil {
		return "", err
	}
	for i := range machines {
		other := &machines[i]
		if other.UID == s.infra.UID || !s.Ledger.Counts(other.UID) {
			continue
		}
		for _, mac := range macsOf(other) {
			if index, clashes := wanted[mac]; clashes && mac != "" {
				return s.hasMAC(ctx, index, mac, "LibvirtMachine ", other.Namespace, other.Name), nil
			}
		}
	}
	for _, host := range slices.Sorted(maps.Keys(snapshots)) {
		if taken := s.takenOn(ctx, snapshots[host].Domains, wanted); taken != "" {
			return taken, nil
		}
	}
	return "", nil
}

// takenOn says which of some MAC addresses a domain on a host has. As with room, a domain counts while it is active:
// an old one that is shut off may be what the machine replaces.
func (s *scope) takenOn(ctx context.Context, domains map[string]hypervisor.Domain, wanted map[string]int) string {
	for _, uuid := range slices.Sorted(maps.Keys(domains)) {
		domain := domains[uuid]
		if !domain.State.Active() || uuid == s.uuid && !s.isTheirs(domain) {
			continue
		}
		for _, mac := range domain.MACs {
			index, clashes := wanted[mac]
			switch {
			case !clashes:
			case domain.Owner != nil:
				return s.hasMAC(ctx, index, mac, "the domain of LibvirtMachine ", domain.Owner.Namespace, domain.Owner.Name)
			default:
				return s.hasMAC(ctx, index, mac, "the domain ", "", domain.Name)
			}
		}
	}
	return ""
}

// hasMAC says that something has the MAC address of an interface, and names it if it is in the machine's namespace. The
// log names whatever else has it.
func (s *scope) hasMAC(ctx context.Context, index int, mac, what, namespace, name string) string {
	field := fmt.Sprintf("spec.interfaces[%d].macAddress", index)
	if s.infra.Spec.Interfaces[index].MACAddress == "" {
		field = fmt.Sprintf("spec.interfaces[%d], whose MAC address comes from spec.providerID", index)
	}
	if namespace == s.infra.Namespace {
		return fmt.Sprintf("%s: %s%s/%s has %s already: give one of them another address, or delete it", field, what, namespace, name, mac)
	}
	ctrl.LoggerFrom(ctx).Info("The MAC address of a machine is taken", "macAddress", mac, "by", what+strings.TrimPrefix(namespace+"/"+name, "/"))
	return fmt.Sprintf("%s: %s is in use outside of namespace %s: choose another address", field, mac, s.infra.Namespace)
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
