package images

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// TestSources checks which addresses are allowed after a name is resolved.
func TestSources(t *testing.T) {
	for name, tc := range map[string]struct {
		sources Sources
		// named says that the address belongs to an allowed name.
		named           bool
		allowed, denied []string
	}{
		"no sources configured": {allowed: []string{"198.51.100.1", "10.0.0.1", "2001:db8::1"},
			denied: []string{"127.0.0.1", "127.1.2.3", "::1", "0.0.0.0", "::", "169.254.169.254", "fe80::1", "fe80::1%eth0", "224.0.0.1", "ff02::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254"}},
		"a network":                    {sources: Sources{Allowed: []string{"10.0.0.0/8"}}, allowed: []string{"10.1.2.3"}, denied: []string{"198.51.100.1", "127.0.0.1", "2001:db8::1"}},
		"all addresses":                {sources: Sources{Allowed: []string{"0.0.0.0/0", "::/0"}}, allowed: []string{"10.1.2.3", "2001:db8::1"}, denied: []string{"127.0.0.1", "::1", "169.254.169.254"}},
		"everything":                   {sources: Sources{Allowed: []string{"*", "127.0.0.1"}}, allowed: []string{"10.1.2.3", "127.0.0.1"}, denied: []string{"127.0.0.2", "::1", "169.254.169.254"}},
		"loopback":                     {sources: Sources{Allowed: []string{"127.0.0.0/8"}}, allowed: []string{"127.0.0.1", "::ffff:127.0.0.1"}, denied: []string{"::1", "198.51.100.1"}},
		"an address":                   {sources: Sources{Allowed: []string{"169.254.1.1"}}, allowed: []string{"169.254.1.1"}, denied: []string{"169.254.169.254"}},
		"denied":                       {sources: Sources{Denied: []string{"10.0.0.0/8", "198.51.100.1"}}, allowed: []string{"198.51.100.2"}, denied: []string{"10.0.0.1", "::ffff:10.0.0.1", "198.51.100.1"}},
		"denied in an allowed one":     {sources: Sources{Allowed: []string{"10.0.0.0/8"}, Denied: []string{"10.96.0.0/12"}}, allowed: []string{"10.0.0.1"}, denied: []string{"10.96.0.1"}},
		"an allowed name":              {sources: Sources{Allowed: []string{"images.example.com"}}, named: true, allowed: []string{"198.51.100.1"}, denied: []string{"127.0.0.1", "169.254.169.254"}},
		"an allowed name, denied here": {sources: Sources{Allowed: []string{"images.example.com"}, Denied: []string{"198.51.100.0/24"}}, named: true, denied: []string{"198.51.100.1"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			for _, address := range tc.allowed {
				g.Expect(tc.sources.checkAddress(netip.MustParseAddr(address), tc.named)).To(Succeed(), address)
			}
			for _, address := range tc.denied {
				g.Expect(tc.sources.checkAddress(netip.MustParseAddr(address), tc.named)).To(MatchError(errNotAllowed), address)
			}
		})
	}
}

// TestOwnAddresses checks that the manager's addresses are refused unless each is allowed by itself.
func TestOwnAddresses(t *testing.T) {
	g := NewWithT(t)
	interfaces, err := net.InterfaceAddrs()
	g.Expect(err).ToNot(HaveOccurred())
	for _, i := range interfaces {
		own := netip.MustParsePrefix(i.String()).Addr()
		g.Expect(Sources{}.checkAddress(own, false)).To(MatchError(errNotAllowed))
		g.Expect(Sources{Allowed: []string{own.String()}}.checkAddress(own, false)).To(Succeed())
		if class(own) == "" {
			g.Expect(Sources{Allowed: []string{"0.0.0.0/0", "::/0"}}.checkAddress(own, true)).To(MatchError(errNotAllowed))
		}
	}
}

func TestSourcesByName(t *testing.T) {
	for name, tc := range map[string]struct {
		sources Sources
		url     string
		proxied bool
		refused bool
	}{
		"no sources configured":       {url: "https://images.example.com/x"},
		"an own address":              {url: "http://127.0.0.1:9440/healthz", refused: true},
		"an address, through a proxy": {url: "http://169.254.169.254/latest/meta-data", proxied: true, refused: true},
		"denied":                      {sources: Sources{Denied: []string{"images.example.com"}}, url: "https://IMAGES.example.com./x", refused: true},
		"denied, with all below":      {sources: Sources{Denied: []string{"*.svc"}}, url: "https://kubernetes.default.svc/x", refused: true},
		"below, and not itself":       {sources: Sources{Denied: []string{"*.example.com"}}, url: "https://example.com/x"},
		"another than the allowed":    {sources: Sources{Allowed: []string{"images.example.com"}}, url: "https://other.example.com/x", proxied: true, refused: true},
		"allowed, through a proxy":    {sources: Sources{Allowed: []string{"*.example.com"}}, url: "https://images.example.com/x", proxied: true},
		"checked when connecting":     {sources: Sources{Allowed: []string{"10.0.0.0/8"}}, url: "https://images.example.com/x"},
		"allowed and denied by name":  {sources: Sources{Allowed: []string{"*.example.com"}, Denied: []string{"bad.example.com"}}, url: "https://bad.example.com/x", refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			parsed, err := url.Parse(tc.url)
			NewWithT(t).Expect(err).ToNot(HaveOccurred())
			NewWithT(t).Expect(tc.sources.checkRequest(&http.Request{URL: parsed}, tc.proxied) != nil).To(Equal(tc.refused))
		})
	}
}

func TestSourcesAreValidated(t *testing.T) {
	g := NewWithT(t)
	g.Expect(Sources{Allowed: []string{"images.example.com", "*.example.com", "198.51.100.1", "::1", "10.0.0.0/8", "*"}}.Validate()).To(Succeed())
	for _, bad := range []string{"", "*", "*.", "a*b", "10.0.0.0/99", "https://images.example.com", "images.example.com:443"} {
		g.Expect(Sources{Denied: []string{bad}}.Validate()).To(MatchError(ContainSubstring("of the denied sources of images isn't a name, IP address or network")), bad)
	}
}

// TestManagerNetworkIsRefused checks that neither an address, a name nor a redirect reaches the manager's network, and
// that the error is the same whether or not a server exists.
func TestManagerNetworkIsRefused(t *testing.T) {
	content := qcow2Image(nil)
	own := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("the server got a request") })
	port := own.URL[strings.LastIndex(own.URL, ":"):]
	for name, image := range map[string]string{
		"an address": own.URL + "/healthz", "a name": "http://localhost" + port + "/healthz", "no server": "http://127.0.0.1:1/", "a cloud's metadata": "http://169.254.169.254/latest/meta-data",
		"IPv6": "http://[::1]" + port, "IPv4 in IPv6": "http://[::ffff:127.0.0.1]" + port,
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, newHosts("one"), Options{Sources: Sources{Allowed: []string{}}})
			f.Expect(f.failure(wishFor(image, content), machine(1))).To(MatchError(errNotAllowed))
			f.Expect(f.volumes("one")).To(BeEmpty())
		})
	}
	t.Run("a redirect", func(t *testing.T) {
		// 127.0.0.2 is another, allowed server here.
		listener, err := net.Listen("tcp", "127.0.0.2:0")
		NewWithT(t).Expect(err).ToNot(HaveOccurred())
		server := &http.Server{Handler: http.RedirectHandler(own.URL+"/healthz", http.StatusFound)}
		go func() { _ = server.Serve(listener) }()
		t.Cleanup(func() { _ = server.Close() })
		f := newFixture(t, newHosts("one"), Options{Sources: Sources{Allowed: []string{"127.0.0.2"}}})
		f.Expect(f.failure(wishFor("http://"+listener.Addr().String(), content), machine(1))).To(MatchError(errNotAllowed))
	})
}
