package claims

import (
	"errors"
	"fmt"
	"net/netip"

	"k8s.io/utils/ptr"

	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
)

// Address is an address that was given for a claim.
type Address struct {
	// Prefix is the address, with the length of its network.
	netip.Prefix
	// Gateway leads out of the network. Not valid when the network has none.
	Gateway netip.Addr
}

// readAddress reads what an IPAddress gives for the claim of a name. What an IPAM provider writes goes
// into the guest's network configuration, so that it is looked at closely.
func readAddress(object *ipamv1.IPAddress, claim string) (Address, error) {
	if object.Spec.ClaimRef.Name != claim {
		return Address{}, fmt.Errorf("spec.claimRef.name is %q", object.Spec.ClaimRef.Name)
	}
	address, err := readAddr("spec.address", object.Spec.Address)
	if err != nil {
		return Address{}, err
	}
	if object.Spec.Prefix == nil {
		return Address{}, errors.New("spec.prefix is missing")
	}
	prefix := netip.PrefixFrom(address, int(ptr.Deref(object.Spec.Prefix, 0)))
	if !prefix.IsValid() {
		return Address{}, fmt.Errorf("spec.prefix is %d, and spec.address %s has %d bits", *object.Spec.Prefix, address, address.BitLen())
	}
	given := Address{Prefix: prefix}
	if object.Spec.Gateway == "" {
		return given, nil
	}
	if given.Gateway, err = readAddr("spec.gateway", object.Spec.Gateway); err != nil {
		return Address{}, err
	}
	if given.Gateway.Is4() != address.Is4() {
		return Address{}, fmt.Errorf("spec.gateway %s isn't of the address family of spec.address %s", given.Gateway, address)
	}
	return given, nil
}

func readAddr(field, text string) (netip.Addr, error) {
	address, err := netip.ParseAddr(text)
	if err != nil || address.Zone() != "" || address.IsUnspecified() || address.IsMulticast() {
		return netip.Addr{}, fmt.Errorf("%s %q isn't the IP address of one machine", field, text)
	}
	return address.Unmap(), nil
}
