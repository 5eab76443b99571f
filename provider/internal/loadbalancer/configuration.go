// Package loadbalancer says what the virtual machine with HAProxy in front of a control plane is given:
// HAProxy's configuration, the disk that the guest takes it from, and what makes the guest do so.
package loadbalancer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
)

// Configuration is what a load balancer is to do. It is stored as JSON in an annotation of its LibvirtMachine.
type Configuration struct {
	// Port is where it listens, on all of its addresses.
	Port int32 `json:"port"`
	// Servers are the API servers behind it.
	Servers []netip.AddrPort `json:"servers"`
	// Address is its own one, with the length of its network, and Gateway what leads out of that. DHCP gives
	// it one when there is none.
	Address netip.Prefix `json:"address,omitzero"`
	Gateway netip.Addr   `json:"gateway,omitzero"`
	// VirtualAddress is one more address of it, in addition to that from DHCP.
	VirtualAddress netip.Addr `json:"virtualAddress,omitzero"`
}

// Parse reads what String has written. What doesn't describe a load balancer is an error that says why.
func Parse(text string) (Configuration, error) {
	var c Configuration
	decoder := json.NewDecoder(bytes.NewReader([]byte(text)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&c); err != nil {
		return Configuration{}, fmt.Errorf("reading the configuration of the load balancer: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return Configuration{}, errors.New("reading the configuration of the load balancer: something follows it")
	}
	if err := c.check(); err != nil {
		return Configuration{}, fmt.Errorf("reading the configuration of the load balancer: %w", err)
	}
	return c, nil
}

// String writes the configuration as JSON. The same one gives the same text, in whatever order its servers are.
func (c Configuration) String() string {
	c.Servers = c.sortedServers()
	text, err := json.Marshal(c)
	if err != nil { // there is nothing in it that can't be marshalled
		return ""
	}
	return string(text)
}

func (c Configuration) sortedServers() []netip.AddrPort {
	servers := append([]netip.AddrPort{}, c.Servers...)
	slices.SortFunc(servers, netip.AddrPort.Compare)
	return slices.Compact(servers)
}

// check says what is wrong, if anything. All of it goes into files that the guest's programs read.
func (c Configuration) check() error {
	if c.Port < 1 || c.Port > 65535 {
		return fmt.Errorf("port %d isn't one", c.Port)
	}
	for i, server := range c.Servers {
		if !server.IsValid() || server.Port() == 0 || !isOfOneMachine(server.Addr()) {
			return fmt.Errorf("servers[%d]: %s isn't the address and port of a server", i, server)
		}
	}
	switch {
	case c.Address.IsValid() && !isOfOneMachine(c.Address.Addr()):
		return fmt.Errorf("address %s isn't that of one machine", c.Address)
	case c.Gateway.IsValid() && (!c.Address.IsValid() || !isOfOneMachine(c.Gateway)):
		return fmt.Errorf("gateway %s isn't one, or there is no address", c.Gateway)
	case c.VirtualAddress.IsValid() && (c.Address.IsValid() || !isOfOneMachine(c.VirtualAddress)):
		return fmt.Errorf("virtualAddress %s isn't one, or there is an address too", c.VirtualAddress)
	}
	return nil
}

// isOfOneMachine reports whether others can reach one machine by an address. A zone is a machine's own matter.
func isOfOneMachine(address netip.Addr) bool {
	return address.IsValid() && address.Zone() == "" && !address.IsUnspecified() && !address.IsMulticast()
}
