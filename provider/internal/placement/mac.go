package placement

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
)

// MACTakenError says that a MAC address of a machine is in use.
type MACTakenError struct{ message string }

// Error implements error. It names the user of the address only if that is in the machine's namespace.
func (e *MACTakenError) Error() string { return e.message }

// wantedMACs returns the MAC addresses that may clash, with the indexes of their interfaces: those in the spec, and
// those derived from a UUID in the spec, which may be copied from another machine. Addresses from a new UUID don't
// clash.
func wantedMACs(infra *infrav1.LibvirtMachine) map[string]int {
	wanted := map[string]int{}
	for i, mac := range macsOf(infra) {
		if mac != "" {
			wanted[mac] = i
		}
	}
	return wanted
}

// macsOf returns the MAC addresses of a machine's interfaces. A derived address is empty until there is a UUID.
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

// checkMACs returns a *MACTakenError if another machine or a foreign domain on any host has one of the MAC addresses.
// All hosts may share networks, including those that this namespace may not use. Machines that aren't placed don't
// count, nor do domains that aren't active: a stopped one may be what the machine replaces.
func (s *Scheduler) checkMACs(ctx context.Context, infra *infrav1.LibvirtMachine, wanted map[string]int, snapshots map[string]fleet.Snapshot) error {
	machines, err := s.machines(ctx)
	if err != nil {
		return err
	}
	for i := range machines {
		other := &machines[i]
		if other.UID == infra.UID || !s.Counts(other.UID) {
			continue
		}
		for _, mac := range macsOf(other) {
			if index, clashes := wanted[mac]; clashes && mac != "" {
				return macTaken(ctx, infra, index, mac, "LibvirtMachine ", other.Namespace, other.Name)
			}
		}
	}
	own := strings.TrimPrefix(infra.Spec.ProviderID, infrav1.ProviderIDPrefix)
	for _, host := range slices.Sorted(maps.Keys(snapshots)) {
		domains := snapshots[host].Domains
		for _, uuid := range slices.Sorted(maps.Keys(domains)) {
			domain := domains[uuid]
			if !domain.State.Active() || uuid == own && domain.IsOf(own, infra.Namespace, infra.Name) {
				continue
			}
			for _, mac := range domain.MACs {
				index, clashes := wanted[mac]
				switch {
				case !clashes:
				case domain.Owner != nil:
					return macTaken(ctx, infra, index, mac, "the domain of LibvirtMachine ", domain.Owner.Namespace, domain.Owner.Name)
				default:
					return macTaken(ctx, infra, index, mac, "the domain ", "", domain.Name)
				}
			}
		}
	}
	return nil
}

// macTaken returns the error for a used MAC address. It names the user if that is in the machine's namespace, and
// logs it otherwise.
func macTaken(ctx context.Context, infra *infrav1.LibvirtMachine, index int, mac, what, namespace, name string) error {
	field := fmt.Sprintf("spec.interfaces[%d].macAddress", index)
	if infra.Spec.Interfaces[index].MACAddress == "" {
		field = fmt.Sprintf("spec.interfaces[%d], whose MAC address comes from spec.providerID", index)
	}
	if namespace == infra.Namespace {
		return &MACTakenError{fmt.Sprintf("%s: %s%s/%s has %s already: give one of them another address, or delete it", field, what, namespace, name, mac)}
	}
	ctrl.LoggerFrom(ctx).Info("The MAC address of a machine is taken", "macAddress", mac, "by", what+strings.TrimPrefix(namespace+"/"+name, "/"))
	return &MACTakenError{fmt.Sprintf("%s: %s is in use outside of namespace %s: choose another address", field, mac, infra.Namespace)}
}
