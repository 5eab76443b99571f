package seed

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"sigs.k8s.io/yaml"
)

// These are the part of cloud-init's network configuration, version 2, that is needed here
// (https://docs.cloud-init.io/en/latest/reference/network-config-format-v2.html).
type (
	networkVersion2 struct {
		Version   int                 `json:"version"`
		Ethernets map[string]ethernet `json:"ethernets"`
	}
	ethernet struct {
		Match       match        `json:"match"`
		DHCP4       bool         `json:"dhcp4,omitempty"`
		Addresses   []string     `json:"addresses,omitempty"`
		Routes      []route      `json:"routes,omitempty"`
		Nameservers *nameservers `json:"nameservers,omitempty"`
	}
	match struct {
		MACAddress string `json:"macaddress"`
	}
	route struct {
		To     string `json:"to"`
		Via    string `json:"via"`
		Metric int    `json:"metric,omitempty"`
		OnLink bool   `json:"on-link,omitempty"`
	}
	nameservers struct {
		Addresses []string `json:"addresses"`
	}
)

// networkConfig writes the configuration of interfaces. They keep the names that the image gives
// them, and are found by their MAC addresses.
func networkConfig(interfaces []Interface) ([]byte, error) {
	config := networkVersion2{Version: 2, Ethernets: map[string]ethernet{}}
	all, err := ethernets(interfaces)
	if err != nil {
		return nil, err
	}
	for i, one := range all {
		config.Ethernets[fmt.Sprintf("id%d", i)] = one
	}
	out, err := yaml.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("writing network-config: %w", err)
	}
	return out, nil
}

func ethernets(interfaces []Interface) ([]ethernet, error) {
	var all []ethernet
	seen := map[string]bool{}
	for i, nic := range interfaces {
		mac, err := net.ParseMAC(nic.MAC)
		if err != nil || len(mac) != 6 {
			return nil, fmt.Errorf("interface %d: %q isn't a MAC address", i, nic.MAC)
		}
		if seen[mac.String()] {
			return nil, fmt.Errorf("interface %d: an earlier one has the MAC address %s too", i, mac)
		}
		seen[mac.String()] = true
		one, err := nic.ethernet()
		if err != nil {
			return nil, fmt.Errorf("interface %d (%s): %w", i, mac, err)
		}
		one.Match.MACAddress = mac.String()
		all = append(all, one)
	}
	return all, nil
}

func (i Interface) ethernet() (ethernet, error) {
	one := ethernet{DHCP4: i.DHCP || len(i.Addresses) == 0}
	if len(i.Addresses) == 0 && len(i.Gateways) > 0 {
		return one, errors.New("it has a gateway and no address")
	}
	for _, address := range i.Addresses {
		if !address.IsValid() {
			return one, errors.New("an address or the length of its network is missing")
		}
		one.Addresses = append(one.Addresses, address.String())
	}
	families := map[bool]bool{}
	for _, gateway := range i.Gateways {
		if !gateway.IsValid() || families[gateway.Is4()] {
			return one, errors.New("a gateway is missing, or there are two of one address family")
		}
		families[gateway.Is4()] = true
		inNetwork := slices.ContainsFunc(i.Addresses, func(p netip.Prefix) bool { return p.Contains(gateway) })
		one.Routes = append(one.Routes, route{To: everything(gateway), Via: gateway.String(), Metric: i.Metric,
			OnLink: !inNetwork && !gateway.IsLinkLocalUnicast()})
	}
	for _, server := range i.Nameservers {
		if !server.IsValid() {
			return one, errors.New("the address of a DNS server is missing")
		}
		if one.Nameservers == nil {
			one.Nameservers = &nameservers{}
		}
		one.Nameservers.Addresses = append(one.Nameservers.Addresses, server.String())
	}
	return one, nil
}

// everything is the default route of an address's family, in the form that every version of
// cloud-init understands.
func everything(address netip.Addr) string {
	if address.Is4() {
		return "0.0.0.0/0"
	}
	return "::/0"
}
