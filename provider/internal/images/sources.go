package images

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"syscall"
)

// Sources say where images may come from. Whoever may write LibvirtMachines chooses URLs, and the manager, which asks
// for them, reaches what they may not: its own ports, the services of its cluster, the metadata of its cloud.
//
// An entry is a name, a name with *. in front, which stands for all names below it, an IP address, or a network such
// as 192.0.2.0/24. Addresses are looked at when a connection is made, after names have been resolved, redirects
// included. Through a proxy it is the proxy that resolves names: only what the URL itself says is looked at then.
type Sources struct {
	// Allowed are all that images may come from. Everything when it is empty or has *, but for what Denied has and for
	// loopback, link-local, unspecified and multicast addresses and the manager's own. Those are allowed by a network
	// that has nothing else, or by the address itself.
	Allowed []string
	// Denied goes before Allowed.
	Denied []string
}

// Validate says which entry can't be read.
func (s Sources) Validate() error {
	var errs []error
	for _, list := range []struct {
		name    string
		entries []string
	}{{"allowed", s.Allowed}, {"denied", s.Denied}} {
		for _, entry := range list.entries {
			_, isNetwork := network(entry)
			name := strings.TrimPrefix(entry, "*.")
			everything := entry == "*" && list.name == "allowed"
			if !isNetwork && !everything && (name == "" || strings.ContainsAny(name, "*/: ")) {
				errs = append(errs, fmt.Errorf("%q of the %s sources of images isn't a name, IP address or network", entry, list.name))
			}
		}
	}
	return errors.Join(errs...)
}

// network reads an entry that is an address or a network.
func network(entry string) (netip.Prefix, bool) {
	if address, err := netip.ParseAddr(entry); err == nil {
		return netip.PrefixFrom(address.Unmap(), address.Unmap().BitLen()), true
	}
	prefix, err := netip.ParsePrefix(entry)
	return prefix.Masked(), err == nil
}

// hasName reports whether entries have a name.
func hasName(entries []string, name string) bool {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	return slices.ContainsFunc(entries, func(entry string) bool {
		entry = strings.ToLower(entry)
		below, wild := strings.CutPrefix(entry, "*")
		return entry == name || wild && strings.HasSuffix(name, below)
	})
}

// hasAddress reports whether entries have a network with an address, of those that may count.
func hasAddress(entries []string, address netip.Addr, may func(netip.Prefix) bool) bool {
	return slices.ContainsFunc(entries, func(entry string) bool {
		prefix, is := network(entry)
		return is && prefix.Contains(address) && may(prefix)
	})
}

// anyNetwork is for addresses that any network may allow or deny.
func anyNetwork(netip.Prefix) bool { return true }

// class says of a special address what it is, or nothing.
func class(address netip.Addr) string {
	switch {
	case address.IsLoopback():
		return "loopback"
	case address.IsUnspecified():
		return "unspecified"
	case address.IsLinkLocalUnicast():
		return "link-local"
	case address.IsMulticast():
		return "multicast"
	}
	return ""
}

// errNotAllowed is all that is told of a source that is refused: no more than that it was.
var errNotAllowed = refused("downloads from this source aren't allowed: ask the administrators of the provider")

// checkAddress refuses an address. named says that the name which it was resolved from is allowed.
func (s Sources) checkAddress(address netip.Addr, named bool) error {
	address = address.Unmap().WithZone("")
	special := class(address)
	may := anyNetwork
	switch {
	case special != "":
		may = func(prefix netip.Prefix) bool { return class(prefix.Addr()) == special }
	case isOwn(address):
		may = netip.Prefix.IsSingleIP
	}
	allowed := hasAddress(s.Allowed, address, may)
	switch {
	case hasAddress(s.Denied, address, anyNetwork):
		return errNotAllowed
	case special != "" || isOwn(address):
		named = false
	case len(s.Allowed) == 0 || slices.Contains(s.Allowed, "*"):
		return nil
	}
	if !allowed && !named {
		return errNotAllowed
	}
	return nil
}

// isOwn reports whether an address is one of the manager's own network interfaces, or not known to be of others.
func isOwn(address netip.Addr) bool {
	own, err := net.InterfaceAddrs()
	return err != nil || slices.ContainsFunc(own, func(a net.Addr) bool {
		prefix, err := netip.ParsePrefix(a.String())
		return err == nil && prefix.Addr().Unmap().WithZone("") == address
	})
}

// checkRequest refuses what can be told to be refused from a URL alone.
func (s Sources) checkRequest(request *http.Request, proxied bool) error {
	host := request.URL.Hostname()
	address, err := netip.ParseAddr(host)
	switch {
	case err == nil:
		return s.checkAddress(address, false)
	case hasName(s.Denied, host):
		return errNotAllowed
	case proxied && len(s.Allowed) > 0 && !hasName(s.Allowed, host):
		return errNotAllowed
	}
	return nil
}

// proxiedKey marks the context of requests that go through a proxy.
type proxiedKey struct{}

// dial connects to an address that may be connected to, and to a proxy's in any case: those who run the manager have
// named it.
func (s Sources) dial(ctx context.Context, network, hostPort string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: connectTimeout}
	if ctx.Value(proxiedKey{}) == nil {
		host, _, err := net.SplitHostPort(hostPort)
		if err != nil {
			return nil, err
		}
		named := hasName(s.Allowed, host)
		dialer.ControlContext = func(_ context.Context, _, resolved string, _ syscall.RawConn) error {
			address, err := netip.ParseAddrPort(resolved)
			if err != nil {
				return errNotAllowed
			}
			return s.checkAddress(address.Addr(), named)
		}
	}
	return dialer.DialContext(ctx, network, hostPort)
}
