package libvirtmachine

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/claims"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/seed"
)

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
	if s.infra.Spec.BootstrapFormat == infrav1.BootstrapFormatIgnition {
		return s.waitFor(infrav1.AddressesReadyCondition, infrav1.AddressesFromPoolsNotSupportedReason,
			"spec.bootstrapFormat is ignition, in which there is no place for a network configuration that every image understands: leave addressesFromPools out")
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
		s.deleting("Waiting for the IPAM provider to let IPAddressClaims go: %s", strings.Join(left, ", "))
	}
	return len(left) > 0, nil
}

// knownAddresses are the addresses that interfaces were given from pools, by their index.
func (s *scope) knownAddresses() map[int][]netip.Addr {
	known := map[int][]netip.Addr{}
	for i, given := range s.claimed {
		for _, address := range given {
			known[i] = append(known[i], address.Addr())
		}
	}
	return known
}

// laterMetric is the metric of the default routes of the second interface, the third has one more, and so
// on: above what systemd-networkd and NetworkManager give to routes that they learn by DHCP, so that the
// first interface leads out of the machine, whether it has DHCP or not.
const laterMetric = 1024

// seedInterfaces are how the guest is to configure its interfaces. None when the image is to decide, as
// it is when nothing is asked for.
func (s *scope) seedInterfaces() []seed.Interface {
	var all []seed.Interface
	asked := false
	for i, nic := range s.infra.Spec.Interfaces {
		asked = asked || s.isStatic(i) || len(nic.Nameservers) > 0
		one := seed.Interface{MAC: s.mac(i)}
		if virtual := s.balancer.VirtualAddress; i == 0 && virtual.IsValid() {
			asked, one.DHCP, one.Addresses = true, true, []netip.Prefix{netip.PrefixFrom(virtual, virtual.BitLen())}
		}
		if i > 0 {
			one.Metric = laterMetric + i
		}
		leadsOut := map[bool]bool{}
		for _, address := range s.claimed[i] {
			one.Addresses = append(one.Addresses, address.Prefix)
			if v4 := address.Addr().Is4(); address.Gateway.IsValid() && !leadsOut[v4] {
				leadsOut[v4] = true // of several pools of a family, the first one's
				one.Gateways = append(one.Gateways, address.Gateway)
			}
		}
		for _, server := range nic.Nameservers {
			address, _ := netip.ParseAddr(server) // the webhook has looked at it, and seed refuses what isn't one
			one.Nameservers = append(one.Nameservers, address)
		}
		all = append(all, one)
	}
	if !asked {
		return nil
	}
	return all
}
