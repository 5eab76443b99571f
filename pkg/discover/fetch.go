package discover

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// dialTimeout is the time for a host to accept a connection. kustomize and git try several ways one after the other,
// each for much longer.
const dialTimeout = 5 * time.Second

// fetch announces the remote bases of a kustomization, and reports whether their hosts are reachable.
func (l *look) fetch(ctx context.Context, dir string, watch Watch) bool {
	for _, base := range l.tree.Remote(dir) {
		host := hostOf(base)
		err, tried := l.hosts[host]
		if !tried {
			watch.Fetching(fmt.Sprintf("fetching %s, a base of %s", base, l.tree.Display(dir)))
			err = dial(ctx, base, host)
			l.hosts[host] = err
		}
		if err != nil {
			l.broken++
			l.doubt("%s is not built, as its base %s can't be fetched: %v: put a copy of it into the tree, or run this again with a network", dir, base, err)
			return false
		}
	}
	return true
}

// hostOf returns the host and port of a remote base, or "" for a base on this machine.
func hostOf(base string) string {
	base = strings.TrimPrefix(base, "git::")
	if rest, ok := strings.CutPrefix(base, "git@"); ok {
		host, _, _ := strings.Cut(strings.Replace(rest, ":", "/", 1), "/")
		return net.JoinHostPort(host, "22")
	}
	if !strings.Contains(base, "://") {
		base = "https://" + base
	}
	parsed, err := url.Parse(base)
	if err != nil || parsed.Hostname() == "" {
		return ""
	}
	ports := map[string]string{"http": "80", "ssh": "22", "git": "9418"}
	return net.JoinHostPort(parsed.Hostname(), cmp.Or(parsed.Port(), ports[parsed.Scheme], "443"))
}

// dial connects to a base's host, or to its proxy.
func dial(ctx context.Context, base, host string) error {
	if host == "" {
		return nil
	}
	if !strings.HasPrefix(base, "ssh://") && !strings.HasPrefix(base, "git@") {
		request := &http.Request{URL: &url.URL{Scheme: "https", Host: host}}
		if proxy, err := http.ProxyFromEnvironment(request); err == nil && proxy != nil {
			return nil // the proxy has its own limits
		}
	}
	dialer := net.Dialer{Timeout: dialTimeout}
	connection, err := dialer.DialContext(ctx, "tcp", host)
	if err != nil {
		return err
	}
	return connection.Close()
}
