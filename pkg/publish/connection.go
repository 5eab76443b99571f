package publish

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/hashicorp/go-retryablehttp"
)

// The limits of what is asked of a server. No release comes near them.
const (
	// attemptTime is how long one request may take, its bodies included.
	attemptTime = 5 * time.Minute
	// publishTime is how long publishing may take as a whole, waiting for rate limits included.
	publishTime = 45 * time.Minute
	// maxBody is how many bytes of an answer are read.
	maxBody = 64 << 20
	// maxRedirects is how many redirections of one request are followed.
	maxRedirects = 5
)

// remote is what tests put between this package and a server; the zero value is the real world.
type remote struct {
	// transport does a request; nil is HTTP by the environment's proxies and certificates.
	transport http.RoundTripper
	// sleep waits; nil really does.
	sleep func(context.Context, time.Duration) error
	// now is the time; nil is the real one.
	now func() time.Time
	// readFile reads a published file; nil reads it through clusterctl's own repository client.
	readFile func(ctx context.Context, url, name string) ([]byte, error)
}

// time returns the time.
func (r remote) time() time.Time {
	if r.now != nil {
		return r.now()
	}
	return time.Now()
}

// wait returns after the time, or with an error when the context is done.
func (r remote) wait(ctx context.Context, d time.Duration) error {
	if r.sleep != nil {
		return r.sleep(ctx, d)
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

// credential is a secret with the header that it is sent in and the hosts that it is sent to. It
// prints as nothing.
type credential struct {
	header, prefix string
	secret         string
	hosts          []string
}

// String hides the secret from whoever prints the value.
func (credential) String() string { return "(secret)" }

// GoString hides the secret from whoever prints the value.
func (credential) GoString() string { return "(secret)" }

// newClient returns the HTTP client by which a server is spoken to. It tries again what may be
// tried again (retry.go), sends the credential to the hosts it is for and to no other, whatever
// redirects to them, and bounds the time and the bytes of each answer.
func newClient(c credential, r remote) *http.Client {
	return guarded(&guard{credential: c}, r)
}

// guarded returns a client whose requests go through a guard.
func guarded(g *guard, r remote) *http.Client {
	if g.base = r.transport; g.base == nil {
		g.base = systemTransport()
	}
	inner := &http.Client{
		Transport: g,
		Timeout:   attemptTime,
		// The outer client follows redirections, each hop with attempts of its own.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return &http.Client{
		Transport:     &retryablehttp.RoundTripper{Client: retrying(inner, r)},
		CheckRedirect: checkRedirect,
	}
}

// systemTransport is HTTP with the proxies of the environment.
func systemTransport() http.RoundTripper {
	t, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return http.DefaultTransport
	}
	t = t.Clone()
	t.ResponseHeaderTimeout = attemptTime
	t.MaxIdleConnsPerHost = uploadsAtOnce
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
	credential credential
	// keep leaves the headers as they are, for a client that sends credentials by itself.
	keep bool
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
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	if closeErr := resp.Body.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return nil, fmt.Errorf("the answer of %s broke off: %w", req.URL.Host, err)
	}
	if len(body) > maxBody {
		return nil, &tooLargeError{host: req.URL.Host}
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	// The client of the API would refuse to ask again by its own clock; retry.go has seen to limits.
	limits := resp.Header.Clone()
	for _, name := range rateHeaders {
		resp.Header.Del(name)
	}
	if isLimited(resp.StatusCode, limits, body) {
		resp.Header.Set(limitedHeader, limits.Get("Date"))
		for _, name := range []string{"Retry-After", remainingHeader, resetHeader} {
			if v := limits.Get(name); v != "" {
				resp.Header.Set(limitedHeader+"-"+name, v)
			}
		}
		resp.Header.Del("Retry-After")
	}
	return resp, nil
}

// authorize sends the credential to its hosts, and no other.
func (g *guard) authorize(req *http.Request) {
	for _, name := range []string{"Authorization", "Cookie", "Private-Token", "Job-Token", "Deploy-Token"} {
		req.Header.Del(name) // net/http brings headers along to subdomains
	}
	if g.credential.secret != "" && g.mayKnow(req.URL) {
		req.Header.Set(g.credential.header, g.credential.prefix+g.credential.secret)
	}
}

// mayKnow says whether a host may see the credential: over TLS, or on this machine.
func (g *guard) mayKnow(u *url.URL) bool {
	if u.Scheme != "https" && !isLoopback(u.Hostname()) {
		return false
	}
	for _, host := range g.credential.hosts {
		if strings.EqualFold(u.Host, host) {
			return true
		}
	}
	return false
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// tooLargeError says that an answer is larger than anything that is expected.
type tooLargeError struct{ host string }

func (e *tooLargeError) Error() string {
	return fmt.Sprintf("the answer of %s has more than %d MiB: nothing of a provider's release is that large", e.host, maxBody>>20)
}

// readToken returns the secret of a file, or of the first variable that is set, or "" where there
// is neither. What is no token, such as one with a line break in it, is an error that does not show it.
func readToken(file string, variables ...string) (string, error) {
	token, from := "", ""
	if file != "" {
		data, err := os.ReadFile(file) //nolint:gosec // the user names the file
		if err != nil {
			return "", fmt.Errorf("reading the token: %w", err)
		}
		if len(data) > 1<<16 {
			return "", fmt.Errorf("the token file %s has %d bytes: it has to hold a token and nothing else", file, len(data))
		}
		token, from = strings.TrimSpace(string(data)), "the file "+file
		if token == "" {
			return "", fmt.Errorf("the token file %s is empty", file)
		}
	}
	for _, name := range variables {
		if token == "" {
			token, from = strings.TrimSpace(os.Getenv(name)), name
		}
	}
	if token == "" {
		return "", nil
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("the token in %s has characters that no token has, such as spaces or line breaks in it: put the token there and nothing else", from)
	}
	return token, nil
}

// serviceError says that a server did not do what it was asked for.
type serviceError struct {
	// doing is what was being done, e.g. "looking for the release".
	doing string
	// status is the HTTP status; 0 where there was no answer.
	status int
	// advice is what the user can do about it; it may be empty.
	advice string
	err    error
}

func (e *serviceError) Error() string {
	text := fmt.Sprintf("%s: %v", e.doing, e.err)
	if e.advice != "" {
		text += ": " + e.advice
	}
	return text
}

func (e *serviceError) Unwrap() error { return e.err }

// answered says what an error of a server's API means to the user, by the answer's status; nil stays
// nil. The answer is nil where there was none.
func answered(doing string, resp *http.Response, err error, advice map[int]string) error {
	if err == nil {
		return nil
	}
	e := &serviceError{doing: doing, err: err}
	if resp == nil {
		return e
	}
	e.status = resp.StatusCode
	if wait, ok := askedWait(resp, 0); ok {
		e.advice = fmt.Sprintf("the server limits requests, and asks to wait %s: run this again then", wait)
		return e
	}
	e.advice = advice[e.status]
	return e
}

// hasStatus says whether an error is an answer with one of these statuses.
func hasStatus(err error, statuses ...int) bool {
	var service *serviceError
	if !errors.As(err, &service) {
		return false
	}
	for _, s := range statuses {
		if service.status == s {
			return true
		}
	}
	return false
}
