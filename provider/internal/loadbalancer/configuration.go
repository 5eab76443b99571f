// Package loadbalancer generates the input of a virtual machine with HAProxy for a control plane: HAProxy's
// configuration, the disk that the guest reads it from, and the service in the guest that applies it.
package loadbalancer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
)

// Configuration is the task of a load balancer. It is stored as JSON in an annotation of its LibvirtMachine.
type Configuration struct {
	// Port to listen on, on all addresses.
	Port int32 `json:"port"`
	// Servers are the API servers behind it.
	Servers []netip.AddrPort `json:"servers"`
	// Address is the load balancer's address with the length of its network, and Gateway that of its default route.
	// Without an address it uses DHCP.
	Address netip.Prefix `json:"address,omitzero"`
	Gateway netip.Addr   `json:"gateway,omitzero"`
	// VirtualAddress is an additional address to that from DHCP.
	VirtualAddress netip.Addr `json:"virtualAddress,omitzero"`
}

// Parse parses and validates the result of String.
func Parse(text string) (Configuration, error) {
	var c Configuration
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&c); err != nil {
		return Configuration{}, fmt.Errorf("reading the configuration of the load balancer: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return Configuration{}, errors.New("reading the configuration of the load balancer: extra data after it")
	}
	if err := c.check(); err != nil {
		return Configuration{}, fmt.Errorf("reading the configuration of the load balancer: %w", err)
	}
	return c, nil
}

// String writes the configuration as JSON, independent of the order of servers.
func (c Configuration) String() string {
	c.Servers = c.sortedServers()
	text, err := json.Marshal(c)
	if err != nil { // can't fail: all fields can be marshalled
		return ""
	}
	return string(text)
}

func (c Configuration) sortedServers() []netip.AddrPort {
	servers := append([]netip.AddrPort{}, c.Servers...)
	slices.SortFunc(servers, netip.AddrPort.Compare)
	return slices.Compact(servers)
}

// check validates the configuration, which is written to files for the guest's programs.
func (c Configuration) check() error {
	if c.Port < 1 || c.Port > 65535 {
		return fmt.Errorf("port %d is invalid", c.Port)
	}
	for i, server := range c.Servers {
		if !server.IsValid() || server.Port() == 0 || !isOfOneMachine(server.Addr()) {
			return fmt.Errorf("servers[%d]: %s isn't the address and port of a server", i, server)
		}
	}
	switch {
	case c.Address.IsValid() && !isOfOneMachine(c.Address.Addr()):
		return fmt.Errorf("address %s isn't the address of one machine", c.Address)
	case c.Gateway.IsValid() && (!c.Address.IsValid() || !isOfOneMachine(c.Gateway)):
		return fmt.Errorf("gateway %s is invalid, or has no address", c.Gateway)
	case c.VirtualAddress.IsValid() && (c.Address.IsValid() || !isOfOneMachine(c.VirtualAddress)):
		return fmt.Errorf("virtualAddress %s is invalid, or is set together with address", c.VirtualAddress)
	}
	return nil
}

// isOfOneMachine reports whether an address belongs to one machine and is valid on others too: it has no zone.
func isOfOneMachine(address netip.Addr) bool {
	return address.IsValid() && address.Zone() == "" && !address.IsUnspecified() && !address.IsMulticast()
}

// head is the part without values of a cluster. Servers are checked with /readyz, the API server's own test of
// readiness; 401 means ready too. Watches are silent for long, so timeouts are long and the kernel checks idle
// connections.
const head = `# Written by the libvirt provider of Cluster API, and replaced when the control plane changes.
global
    log stdout format raw daemon notice
    maxconn 8000

defaults
    log global
    mode tcp
    timeout connect 5s
    timeout client 1h
    timeout server 1h
    timeout check 5s
    option clitcpka
    option srvtcpka
    option redispatch
    retries 2

`

const backend = `
backend api-servers
    balance roundrobin
    option httpchk GET /readyz
    http-check expect status 200,401
    default-server check check-ssl verify none inter 3s fastinter 1s downinter 3s fall 2 rise 1 on-marked-down shutdown-sessions
`

// File returns HAProxy's configuration (2.2 or newer), the same for the same servers.
func (c Configuration) File() string {
	var out strings.Builder
	out.WriteString(head)
	bind := fmt.Sprintf("*:%d", c.Port)
	if c.hasIPv6() {
		bind = fmt.Sprintf(":::%d v4v6", c.Port)
	}
	fmt.Fprintf(&out, "frontend control-plane\n    bind %s\n    default_backend api-servers\n", bind)
	out.WriteString(backend)
	for _, server := range c.sortedServers() {
		fmt.Fprintf(&out, "    server %s %s\n", serverName(server), server)
	}
	return out.String()
}

// serverName returns a name for statistics and logs, of letters, digits and -.
func serverName(server netip.AddrPort) string {
	return strings.NewReplacer(".", "-", ":", "-", "[", "", "]", "").Replace(server.String())
}

// hasIPv6 reports whether any address is IPv6. Otherwise the guest may lack IPv6.
func (c Configuration) hasIPv6() bool {
	addresses := []netip.Addr{c.Address.Addr(), c.VirtualAddress}
	for _, server := range c.Servers {
		addresses = append(addresses, server.Addr())
	}
	return slices.ContainsFunc(addresses, func(a netip.Addr) bool { return a.Is6() })
}
