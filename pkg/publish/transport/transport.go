// Package transport speaks HTTP with the servers that releases are published to and read from. A
// Client sends a credential to its own hosts only, bounds each answer, sends again what may be sent
// again, and reports each wait: all waits of a run go through it, so that a server that fails for long
// is given up on once.
package transport

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-retryablehttp"
)

// The limits of what is asked of a server. No release comes near them.
const (
	// AttemptTime is how long one request may take, its bodies included.
	AttemptTime = 5 * time.Minute
	// MaxBody is how many bytes of an answer are read.
	MaxBody = 64 << 20
	// AtOnce is how many files are sent, or read, at the same time.
	AtOnce = 8
	// maxRedirects is how many redirections of one request are followed.
	maxRedirects = 5
)

// Network is what tests put between a client and a server; the zero value is the real world.
type Network struct {
	// Transport does a request; nil is HTTP by the environment's proxies and certificates.
	Transport http.RoundTripper
	// Sleep waits; nil really does.
	Sleep func(context.Context, time.Duration) error
	// Now is the time; nil is the real one.
	Now func() time.Time
	// ReadFile reads a published file; nil reads it through clusterctl's own repository client.
	ReadFile func(ctx context.Context, url, name string) ([]byte, error)
}

// Time returns the time.
func (n Network) Time() time.Time {
	if n.Now != nil {
		return n.Now()
	}
	return time.Now()
}

// Wait returns after the time, or with an error when the context is done.
func (n Network) Wait(ctx context.Context, d time.Duration) error {
	if n.Sleep != nil {
		return n.Sleep(ctx, d)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// Credential is a secret with the header that it is sent in and the hosts that it is sent to. It
// prints as nothing.
type Credential struct {
	Header, Prefix string
	Secret         string
	Hosts          []string
}

// String hides the secret from whoever prints the value.
func (Credential) String() string { return "(secret)" }

// GoString hides the secret from whoever prints the value.
func (Credential) GoString() string { return "(secret)" }

// Options are what a client is made of.
type Options struct {
	// Credential is sent to its hosts, whatever redirects to others.
	Credential Credential
	// KeepHeaders leaves the headers as they are, for a library that sends credentials by itself.
	KeepHeaders bool
	// Network is for tests.
	Network Network
	// Report is told, in a line of text, what is waited for; nil is told nothing.
	Report func(string)
}

// Client speaks with one server.
type Client struct {
	// HTTP sends requests, again where that is known to be safe.
	HTTP *http.Client

	network Network
	report  func(string)
	// gaveUp is set when a request was sent as often as it may be, until the server answers again: no
	// step begins anew meanwhile.
	gaveUp atomic.Bool
}

// New returns a client.
func New(o Options) *Client {
	c := &Client{network: o.Network, report: o.Report}
	base := o.Network.Transport
	if base == nil {
		base = systemTransport()
	}
	inner := &http.Client{
		Transport: &guard{base: base, credential: o.Credential, keep: o.KeepHeaders},
		Timeout:   AttemptTime,
		// The outer client follows redirections, each hop with attempts of its own.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	c.HTTP = &http.Client{
		Transport:     &retryablehttp.RoundTripper{Client: c.retrying(inner)},
		CheckRedirect: checkRedirect,
	}
	return c
}

// Guarded returns HTTP that sends a credential to its hosts only, for a library that tries requests
// again by itself.
func Guarded(c Credential) http.RoundTripper {
	return &guard{base: systemTransport(), credential: c}
}

// Network returns what the client was made with.
func (c *Client) Network() Network { return c.network }

// systemTransport is HTTP with the proxies of the environment.
func systemTransport() http.RoundTripper {
	t, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return http.DefaultTransport
	}
	t = t.Clone()
	t.ResponseHeaderTimeout = AttemptTime
	t.MaxIdleConnsPerHost = AtOnce
	return t
}

// checkRedirect follows downloads to where they are stored. What changes something is not sent
// anywhere else: its place is named in the error instead.
func checkRedirect(req *http.Request, via []*http.Request) error {
	first := via[0]
	if first.Method != http.MethodGet && first.Method != http.MethodHead {
		return http.ErrUseLastResponse
	}
	if len(via) > maxRedirects {
		return fmt.Errorf("%s redirects more than %d times", first.URL.Host, maxRedirects)
	}
	if via[len(via)-1].URL.Scheme == "https" && req.URL.Scheme != "https" {
		return fmt.Errorf("%s redirects from https to %s: that is not followed", first.URL.Host, req.URL.Scheme)
	}
	return nil
}

// guard sends the credential to its hosts only, and reads each answer as a whole within limits, so
// that one that breaks off is an error of the request.
type guard struct {
	base       http.RoundTripper
	credential Credential
	keep       bool
}

// RoundTrip implements http.RoundTripper.
func (g *guard) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	if !g.keep {
		g.authorize(req)
	}
	resp, err := g.base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, MaxBody+1))
	if closeErr := resp.Body.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return nil, fmt.Errorf("the answer of %s broke off: %w", req.URL.Host, err)
	}
	if len(body) > MaxBody {
		return nil, &tooLargeError{host: req.URL.Host}
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	resp.Header.Del(limitedHeader)
	if isLimited(resp.StatusCode, resp.Header, body) {
		resp.Header.Set(limitedHeader, "true")
	}
	return resp, nil
}

// authorize sends the credential to its hosts, and no other.
func (g *guard) authorize(req *http.Request) {
	for _, name := range []string{"Authorization", "Cookie", "Private-Token", "Job-Token", "Deploy-Token"} {
		req.Header.Del(name) // net/http brings headers along to subdomains
	}
	if g.credential.Secret != "" && g.mayKnow(req.URL.Scheme, req.URL.Host, req.URL.Hostname()) {
		req.Header.Set(g.credential.Header, g.credential.Prefix+g.credential.Secret)
	}
}

// mayKnow says whether a host may see the credential: over TLS, or on this machine.
func (g *guard) mayKnow(scheme, host, name string) bool {
	if scheme != "https" && !IsLoopback(name) {
		return false
	}
	for _, own := range g.credential.Hosts {
		if strings.EqualFold(host, own) {
			return true
		}
	}
	return false
}

// IsLoopback says whether a host's name or address is of this machine.
func IsLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// tooLargeError says that an answer is larger than anything that is expected.
type tooLargeError struct{ host string }

func (e *tooLargeError) Error() string {
	return fmt.Sprintf("the answer of %s has more than %d MiB: nothing of a provider's release is that large", e.host, MaxBody>>20)
}
