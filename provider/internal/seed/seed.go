// Package seed writes the disk that configures a machine at its first start, for cloud-init's data source NoCloud
// (https://docs.cloud-init.io/en/latest/reference/datasources/nocloud.html). For images with Ignition it adds the
// interfaces to the bootstrap provider's configuration.
//
// A seed has secrets. It is in memory only, and never in a local file.
package seed

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"sigs.k8s.io/yaml"
)

// label is the file system label that cloud-init looks for.
const label = "cidata"

// maxSize is the maximum size of all files of a seed, in bytes. User data comes from a Secret of at most 1 MiB.
const maxSize = 16 << 20

// Seed is the configuration of a machine for its first start.
type Seed struct {
	// InstanceID is the UUID of the machine. cloud-init runs again when it changes.
	InstanceID string
	// Hostname of the machine.
	Hostname string
	// AvailabilityZone is the failure domain of the machine, and Host its hypervisor, for labels of the node. Both may
	// be empty.
	AvailabilityZone, Host string
	// UserData is the unchanged bootstrap data.
	UserData []byte
	// Interfaces are the configurations of interfaces. Without any, the image decides, which usually means DHCP on the
	// first one.
	Interfaces []Interface
}

// Interface is the configuration of a network interface.
type Interface struct {
	// MAC is the interface's MAC address.
	MAC string
	// Addresses are the addresses with the lengths of their networks. Without any the interface uses DHCP.
	Addresses []netip.Prefix
	// DHCP requests an additional address.
	DHCP bool
	// Gateways of the default routes, at most one for each address family.
	Gateways []netip.Addr
	// Metric of the default routes. A route with a lower one is preferred. The image decides if it is 0.
	Metric int
	// Nameservers are the DNS servers.
	Nameservers []netip.Addr
}

// ISO returns the seed as an ISO 9660 file system with the label cidata. The same seed gives the same bytes.
func (s Seed) ISO() ([]byte, error) {
	files, err := s.files()
	if err != nil {
		return nil, fmt.Errorf("writing the seed: %w", err)
	}
	size := 0
	for _, file := range files {
		size += len(file.content)
	}
	if size > maxSize {
		return nil, fmt.Errorf("writing the seed: it has %d bytes, and at most %d are allowed", size, maxSize)
	}
	return writeISO(label, files), nil
}

// files returns the files of the data source, ordered by name.
func (s Seed) files() ([]isoFile, error) {
	if s.InstanceID == "" || s.Hostname == "" {
		return nil, errors.New("the instance ID or the host name is missing")
	}
	if len(s.UserData) == 0 {
		return nil, errors.New("the bootstrap data is empty")
	}
	values := map[string]string{"instance-id": s.InstanceID, "local-hostname": s.Hostname}
	for key, value := range map[string]string{"availability-zone": s.AvailabilityZone, "libvirt-host": s.Host} {
		if value != "" {
			values[key] = value
		}
	}
	metaData, err := yaml.Marshal(values)
	if err != nil {
		return nil, fmt.Errorf("writing meta-data: %w", err)
	}
	files := []isoFile{{name: "meta-data", content: metaData}}
	if len(s.Interfaces) > 0 {
		networkConfig, err := networkConfig(s.Interfaces)
		if err != nil {
			return nil, err
		}
		files = append(files, isoFile{name: "network-config", content: networkConfig})
	}
	return append(files, isoFile{name: "user-data", content: s.UserData}), nil
}

// The types for the used part of cloud-init's network configuration, version 2
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

// networkConfig writes the configuration of interfaces, which are found by their MAC addresses and keep their names.
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

// everything returns the default route of a family, in the form that all versions of cloud-init accept.
func everything(address netip.Addr) string {
	if address.Is4() {
		return "0.0.0.0/0"
	}
	return "::/0"
}
