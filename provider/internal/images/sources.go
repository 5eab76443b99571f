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

// Sources restricts where images come from: users choose URLs, and the manager can reach its own ports, services of its
// cluster and metadata of its cloud, which users can't.
//
// An entry is a name, *. and a name for all names below it, an IP address, or a network such as 192.0.2.0/24. Addresses
// are checked for each connection after names are resolved, also for redirects. With a proxy, which resolves names
// itself, only the URL is checked.
type Sources struct {
	// Allowed has the allowed sources. If it is empty or has *, everything is allowed except Denied and loopback,
	// link-local, unspecified, multicast and the manager's own addresses. Those need an entry with only such addresses.
	Allowed []string
	// Denied takes precedence over Allowed.
	Denied []string
}

// Validate returns an error for each invalid entry.
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

// network parses an entry with an address or a network.
func network(entry string) (netip.Prefix, bool) {
	if address, err := netip.ParseAddr(entry); err == nil {
		return netip.PrefixFrom(address.Unmap(), address.Unmap().BitLen()), true
	}
	prefix, err := netip.ParsePrefix(entry)
	return prefix.Masked(), err == nil
}

// hasName reports whether entries include a name.
func hasName(entries []string, name string) bool {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	return slices.ContainsFunc(entries, func(entry string) bool {
		entry = strings.ToLower(entry)
		below, wild := strings.CutPrefix(entry, "*")
		return entry == name || wild && strings.HasSuffix(name, below)
	})
}

// hasAddress reports whether entries have a network with an address, among those for which may is true.
func hasAddress(entries []string, address netip.Addr, may func(netip.Prefix) bool) bool {
	return slices.ContainsFunc(entries, func(entry string) bool {
		prefix, ok := network(entry)
		return ok && prefix.Contains(address) && may(prefix)
	})
}

// anyNetwork is for addresses that any network may allow or deny.
func anyNetwork(netip.Prefix) bool { return true }

// class returns the class of a special address, or nothing.
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

// errNotAllowed reveals nothing about the refused source.
var errNotAllowed = refused("downloads from this source aren't allowed: ask the administrators of the provider")

// checkAddress refuses an address. named says that it belongs to an allowed name.
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

// isOwn reports whether an address may be one of the manager's own network interfaces.
func isOwn(address netip.Addr) bool {
	own, err := net.InterfaceAddrs()
	return err != nil || slices.ContainsFunc(own, func(a net.Addr) bool {
		prefix, err := netip.ParsePrefix(a.String())
		return err == nil && prefix.Addr().Unmap().WithZone("") == address
	})
}

// checkRequest refuses a URL by itself.
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

// dial connects to an allowed address. The administrators' proxies are always allowed.
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
