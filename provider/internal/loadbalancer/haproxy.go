package loadbalancer

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// head is what doesn't depend on a cluster. A server is asked for /readyz, the API server's own word for
// whether requests should go there (Kubernetes: "Kubernetes API health endpoints"); one that wants to know who
// asks, and says 401, is up as well. Connections that wait for changes are silent for long, so that the
// timeouts are long and the kernel looks whether the other side is still there.
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

// serverName is a name of letters, digits and - that says which server it is in statistics and logs.
func serverName(server netip.AddrPort) string {
	return strings.NewReplacer(".", "-", ":", "-", "[", "", "]", "").Replace(server.String())
}

// hasIPv6 reports whether anything has an IPv6 address. Where nothing has, a guest may be without IPv6.
func (c Configuration) hasIPv6() bool {
	addresses := []netip.Addr{c.Address.Addr(), c.VirtualAddress}
	for _, server := range c.Servers {
		addresses = append(addresses, server.Addr())
	}
	return slices.ContainsFunc(addresses, func(a netip.Addr) bool { return a.Is6() })
}
