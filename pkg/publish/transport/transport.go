// Package transport is the HTTP client for the servers with published releases. A Client sends a credential only to its
// own hosts, limits the size of answers, retries requests that are safe to repeat, and reports each wait. All waits of
// a run go through it, so that it gives up once on a server that fails for long.
package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-retryablehttp"
)

// The limits of a request. No release comes near them.
const (
	// AttemptTime is the time limit of one request, including its bodies.
	AttemptTime = 5 * time.Minute
	// MaxBody is the number of bytes of an answer that are read.
	MaxBody = 64 << 20
	// AtOnce is the number of concurrent uploads, or downloads.
	AtOnce = 8
	// maxRedirects is the number of redirections of one request that are followed.
	maxRedirects = 5
)

// Network contains the functions that tests replace; the zero value is the real network.
type Network struct {
	// Transport sends a request; nil is HTTP with the environment's proxies and certificates.
	Transport http.RoundTripper
	// Sleep waits; nil is a real wait.
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

// Credential is a secret with its header and the hosts that may receive it. It prints as a placeholder.
type Credential struct {
	Header, Prefix string
	Secret         string
	Hosts          []string
}

// String hides the secret when the value is printed.
func (Credential) String() string { return "(secret)" }

// GoString hides the secret when the value is printed.
func (Credential) GoString() string { return "(secret)" }

// Options are the options of a client.
type Options struct {
	// Credential is sent only to its hosts, also after redirections.
	Credential Credential
	// KeepHeaders leaves the headers unchanged, for a library that sends credentials itself.
	KeepHeaders bool
	// Network is for tests.
	Network Network
	// Report receives a line of text for each wait; it may be nil.
	Report func(string)
}

// Client sends requests to one server.
type Client struct {
	// HTTP sends requests, and retries those that are safe to repeat.
	HTTP *http.Client
	// Network is the network of the options.
	Network Network

	report func(string)
	// gaveUp is set after the last attempt for a request, until the server answers again: no step is retried then.
	gaveUp atomic.Bool
}

// New returns a client.
func New(o Options) *Client {
	c := &Client{Network: o.Network, report: o.Report}
	base := o.Network.Transport
	if base == nil {
		base = systemTransport()
	}
	inner := &http.Client{
		Transport: &guard{base: base, credential: o.Credential, keep: o.KeepHeaders},
		Timeout:   AttemptTime,
		// The outer client follows redirections; each hop has its own attempts.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	c.HTTP = &http.Client{
		Transport:     &retryablehttp.RoundTripper{Client: c.retrying(inner)},
		CheckRedirect: checkRedirect,
	}
	return c
}

// Guarded returns an HTTP transport that sends a credential only to its hosts, for a library that retries requests
// itself.
func Guarded(c Credential) http.RoundTripper {
	return &guard{base: systemTransport(), credential: c}
}

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

// checkRedirect follows redirections of downloads. A request that changes data is not sent to another place: the error
// names that place instead.
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

// guard sends the credential only to its hosts, and reads each answer as a whole within limits, so that a truncated
// answer is an error of the request.
type guard struct {
	base       http.RoundTripper
	credential Credential
	keep       bool
}

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
		return nil, fmt.Errorf("the answer of %s has more than %d MiB: %w", req.URL.Host, MaxBody>>20, errTooLarge)
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	noteLimit(resp, body)
	return resp, nil
}

// authorize adds the credential to requests for its hosts only, over TLS or on this machine.
func (g *guard) authorize(req *http.Request) {
	for _, name := range []string{"Authorization", "Cookie", "Private-Token", "Job-Token", "Deploy-Token"} {
		req.Header.Del(name) // net/http forwards headers to subdomains
	}
	isOwn := slices.ContainsFunc(g.credential.Hosts, func(own string) bool { return strings.EqualFold(req.URL.Host, own) })
	if g.credential.Secret != "" && isOwn && (req.URL.Scheme == "https" || IsLoopback(req.URL.Hostname())) {
		req.Header.Set(g.credential.Header, g.credential.Prefix+g.credential.Secret)
	}
}

// IsLoopback reports whether a host's name or address belongs to this machine.
func IsLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// errTooLarge means that an answer is larger than expected.
var errTooLarge = errors.New("nothing of a provider's release is that large")

// ServiceError means that a server did not fulfil a request.
type ServiceError struct {
	// Doing is the current step, e.g. "looking for the release".
	Doing string
	// Status is the HTTP status; 0 without an answer.
	Status int
	// Advice tells the user what to do; it may be empty.
	Advice string
	Err    error
}

func (e *ServiceError) Error() string {
	text := fmt.Sprintf("%s: %v", e.Doing, e.Err)
	if e.Advice != "" {
		text += ": " + e.Advice
	}
	return text
}

func (e *ServiceError) Unwrap() error { return e.Err }

// Answered adds advice for the user to an error of a server's API, by the status of the answer; nil stays nil. The
// answer is nil without one.
func Answered(doing string, resp *http.Response, err error, advice map[int]string) error {
	if err == nil {
		return nil
	}
	e := &ServiceError{Doing: doing, Err: err}
	if resp == nil {
		return e
	}
	e.Status = resp.StatusCode
	if wait, ok := retryAfter(resp, 0); ok {
		e.Advice = fmt.Sprintf("the server limits requests, and asks to wait %s: run this again then", wait)
		return e
	}
	e.Advice = advice[e.Status]
	return e
}

// Do sends a request, and returns the bytes of its answer. The error explains the answer's status to the user.
func (c *Client) Do(ctx context.Context, doing, method, at string, body []byte, advice map[int]string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, at, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return nil, Answered(doing, nil, err, nil)
	}
	defer func() { _ = resp.Body.Close() }() // the body is in memory
	if resp.StatusCode >= 300 {
		return nil, Answered(doing, resp, fmt.Errorf("%s: %s", at, resp.Status), advice)
	}
	return io.ReadAll(resp.Body)
}

// HasStatus reports whether an error is an answer with one of these statuses.
func HasStatus(err error, statuses ...int) bool {
	var service *ServiceError
	return errors.As(err, &service) && slices.Contains(statuses, service.Status)
}

// Unless returns an error, or nil if it is an answer with one of these statuses.
func Unless(err error, statuses ...int) error {
	if HasStatus(err, statuses...) {
		return nil
	}
	return err
}

// IsRefusal reports whether a server understood a request and refuses it: the request had no effect, and another
// attempt won't either.
func IsRefusal(err error) bool {
	var service *ServiceError
	return errors.As(err, &service) && service.Status >= 400 && service.Status < 500 && service.Status != http.StatusRequestTimeout
}

const (
	// requestTries is the maximum number of attempts for a request.
	requestTries = 7
	// stepTries is the number of attempts for a step of several requests, such as an upload.
	stepTries = 8
	// firstPause is the maximum pause before the second attempt; the pauses double up to longestPause.
	firstPause, longestPause = time.Second, 30 * time.Second
	// longestWait is the maximum time that a server may ask to wait; a longer time is an error.
	longestWait = 15 * time.Minute
	// limitPause is the time to wait if a server limits requests without giving a time.
	// Source: GitHub docs, "Best practices for using the REST API", "Handle rate limit errors appropriately".
	limitPause = time.Minute
)

// The headers with which servers limit requests.
const (
	remainingHeader = "X-Ratelimit-Remaining"
	resetHeader     = "X-Ratelimit-Reset"
	// limitedHeader is this package's own mark for an answer that reports a limit.
	limitedHeader = "X-Clusterctl-Release-Limited"
)

var rateHeaders = []string{"X-Ratelimit-Limit", remainingHeader, resetHeader, "X-Ratelimit-Used", "X-Ratelimit-Resource", limitedHeader}

// retrying returns a client that retries requests that had no effect, or that are idempotent. The caller handles other
// requests, see Client.Again.
func (c *Client) retrying(inner *http.Client) *retryablehttp.Client {
	r := retryablehttp.NewClient()
	r.HTTPClient = inner
	r.Logger = nil
	r.RetryMax = requestTries - 1
	r.ErrorHandler = func(resp *http.Response, err error, tries int) (*http.Response, error) {
		if tries >= requestTries {
			c.gaveUp.Store(true)
		}
		if err != nil && resp != nil {
			_ = resp.Body.Close() // the body is in memory
			return nil, err
		}
		return resp, err
	}
	r.CheckRetry = func(ctx context.Context, resp *http.Response, err error) (bool, error) {
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		if err == nil && resp.StatusCode < http.StatusInternalServerError {
			c.gaveUp.Store(false)
		}
		return ctx.Value(onceKey{}) == nil && mayRetry(resp, err), nil
	}
	r.Backoff = func(_, _ time.Duration, attempt int, resp *http.Response) time.Duration {
		d, why := Pause(attempt), "no answer from the server"
		if resp != nil {
			why = fmt.Sprintf("%s answers %s", resp.Request.URL.Host, resp.Status)
			if asked, ok := retryAfter(resp, attempt); ok {
				d = asked + d // spread clients that got the same time
				why = resp.Request.URL.Host + " limits requests"
			}
		}
		c.tell(why, d)
		if c.Network.Sleep != nil {
			_ = c.Network.Sleep(context.Background(), d) // the request checks its own context next
			return 0
		}
		return d
	}
	return r
}

func (c *Client) tell(why string, d time.Duration) {
	if c.report != nil {
		c.report(fmt.Sprintf("%s; trying again in %s", why, max(d.Round(time.Second), time.Second)))
	}
}

// Again waits before the next attempt of a step of several requests, such as an upload, and reports the error of the
// last one. It returns that error if the step had its maximum of attempts, or if this run gave up on a request: then
// callers do not retry either. try counts from 1.
func (c *Client) Again(ctx context.Context, try int, last error) error {
	if ctx.Err() != nil {
		return errors.Join(ctx.Err(), last)
	}
	if c.gaveUp.Load() {
		return last
	}
	if try >= stepTries {
		return fmt.Errorf("%w; given up after %d tries: run this again", last, try)
	}
	d := Pause(try - 1)
	c.tell(fmt.Sprint(last), d)
	return c.Network.Wait(ctx, d)
}

// Await looks repeatedly for a result that a server may show with a delay, until it appears or the maximum of looks is
// reached.
func (c *Client) Await(ctx context.Context, what string, look func() (bool, error)) (isThere bool, err error) {
	for try := 1; ; try++ {
		isThere, err := look()
		if isThere || err != nil || try >= stepTries {
			return isThere, err
		}
		d := Pause(try)
		c.tell("the server does not show "+what+" yet", d)
		if err := c.Network.Wait(ctx, d); err != nil {
			return false, err
		}
	}
}

// onceKey is the key of a context whose requests are sent once.
type onceKey struct{}

// Once returns a context for requests that are sent once and have a time limit, for callers that check the state before
// they retry.
func Once(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithValue(ctx, onceKey{}, true), most)
}

// Pause returns the time to wait before the next attempt, with jitter.
func Pause(attempt int) time.Duration {
	most := min(firstPause<<min(attempt, 10), longestPause)
	return most/2 + rand.N(most/2) //nolint:gosec // it spreads requests and is no secret
}

// mayRetry reports whether a request may be sent again.
func mayRetry(resp *http.Response, err error) bool {
	if err != nil {
		if errors.Is(err, errTooLarge) {
			return false
		}
		var request *url.Error
		if errors.As(err, &request) && !strings.EqualFold(request.Op, http.MethodPost) {
			return true
		}
		var dial *net.OpError
		return errors.As(err, &dial) && dial.Op == "dial" // it was never sent
	}
	if wait, ok := retryAfter(resp, 0); ok {
		return wait <= longestWait
	}
	// An upstream failure may have had its effect; a request that only sets a state may be repeated.
	if resp.Request == nil || resp.Request.Method == http.MethodPost {
		return false
	}
	return slices.Contains([]int{
		http.StatusRequestTimeout, http.StatusInternalServerError, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout,
	}, resp.StatusCode)
}

// isLimited reports whether an answer means that there were too many requests. GitHub uses 403 as well as 429.
//
// Source: GitHub docs, "Rate limits for the REST API", "Exceeding the rate limit"; GitLab docs, "Rate limits",
// "Response headers".
func isLimited(status int, header http.Header, body []byte) bool {
	switch status {
	case http.StatusTooManyRequests:
		return true
	case http.StatusForbidden:
		return header.Get("Retry-After") != "" || header.Get(remainingHeader) == "0" ||
			bytes.Contains(bytes.ToLower(body), []byte("rate limit"))
	case http.StatusServiceUnavailable:
		return header.Get("Retry-After") != ""
	}
	return false
}

// noteLimit puts the time that a server asks to wait into a header of this package, and removes the server's own
// headers. Otherwise the client of the API would refuse to send requests, by its own clock.
func noteLimit(resp *http.Response, body []byte) {
	header := resp.Header.Clone()
	for _, name := range rateHeaders {
		resp.Header.Del(name)
	}
	if !isLimited(resp.StatusCode, header, body) {
		return
	}
	resp.Header.Del("Retry-After")
	resp.Header.Set(limitedHeader, "")
	now, err := http.ParseTime(header.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	ask := func(d time.Duration) { resp.Header.Set(limitedHeader, d.String()) }
	after := header.Get("Retry-After")
	if seconds, err := strconv.Atoi(after); err == nil && seconds >= 0 {
		ask(time.Duration(min(seconds, 1<<20)) * time.Second)
	} else if at, err := http.ParseTime(after); err == nil {
		ask(max(at.Sub(now), 0))
	} else if at, err := strconv.ParseInt(header.Get(resetHeader), 10, 64); err == nil && header.Get(remainingHeader) == "0" {
		ask(max(time.Unix(at, 0).Sub(now), 0) + time.Second) // the header is in whole seconds
	}
}

// retryAfter returns the time to wait that a server which limits requests asks for.
func retryAfter(resp *http.Response, attempt int) (time.Duration, bool) {
	text, limited := resp.Header[limitedHeader]
	if !limited {
		return 0, false
	}
	if d, err := time.ParseDuration(text[0]); err == nil {
		return d, true
	}
	return limitPause << min(attempt, 4), true
}
