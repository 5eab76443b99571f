// Package wire is the simulated network of one process, for tests. It passes HTTP requests to handlers in the same
// process. A test chooses requests that are lost, cut or refused, and kills the process by a network that passes
// nothing any more. Waiting takes no time: the clock is simulated, too.
package wire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Fault is what goes wrong with one request.
type Fault string

// The faults that the wire makes. Servers make those that the comment says of themselves.
const (
	None Fault = ""
	// Refused is a connection that is never made.
	Refused Fault = "connection refused"
	// LostAnswer is a connection that breaks after the server has done what it was asked for.
	LostAnswer Fault = "answer lost"
	// CutRequest is a connection that breaks in the middle of the request's body.
	CutRequest Fault = "request cut"
	// CutAnswer is a connection that breaks in the middle of the answer's body.
	CutAnswer Fault = "answer cut"
	// GatewayBefore and GatewayAfter are a 502 of a proxy before or after the server did it.
	GatewayBefore Fault = "502 before"
	GatewayAfter  Fault = "502 after"
	// Internal and Unavailable are a 500 and a 503 without an effect.
	Internal    Fault = "500"
	Unavailable Fault = "503"
	// Limited is a 429 with Retry-After.
	Limited Fault = "429"
	// SecondaryLimit is GitHub's 403 with Retry-After, SilentLimit the one that does not say how long.
	SecondaryLimit Fault = "403 secondary rate limit"
	SilentLimit    Fault = "403 secondary rate limit, no header"
	// PrimaryLimit is GitHub's 403 with the time of the reset.
	PrimaryLimit Fault = "403 rate limit"
	// Stuck, Short and Corrupt are an upload that a server half stores: see the servers.
	Stuck   Fault = "upload stuck"
	Short   Fault = "upload short"
	Corrupt Fault = "upload corrupt"
	// KilledBefore, KilledAfter and KilledAmid end the process before it sends the request, after
	// the server has answered, and in the middle of the request's body.
	KilledBefore Fault = "killed before"
	KilledAfter  Fault = "killed after"
	KilledAmid   Fault = "killed amid"
)

// ErrKilled is the error of every request of a killed process.
var ErrKilled = errors.New("the process is dead")

// faultKey is the key of a request's context under which a server finds its fault.
type faultKey struct{}

// FaultOf returns what a server is to do wrong with a request.
func FaultOf(r *http.Request) Fault {
	f, _ := r.Context().Value(faultKey{}).(Fault)
	return f
}

// Clock is a clock that advances when a caller waits for it.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock returns a clock at a fixed time.
func NewClock() *Clock {
	return &Clock{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
}

// Now returns the time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance lets time pass.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// Sleep is a wait that takes no time of the test's.
func (c *Clock) Sleep(ctx context.Context, d time.Duration) error {
	c.Advance(d)
	return ctx.Err()
}

// Network is the network of one process. It implements http.RoundTripper.
type Network struct {
	// Hosts are the servers by their hosts.
	Hosts map[string]http.Handler
	// Clock advances with each request.
	Clock *Clock
	// Fault chooses a failure for a request by its number; nil means none.
	Fault func(number int, r *http.Request) Fault
	// Secret is looked for in all traffic; it may be in the header SecretHeader to SecretHosts.
	Secret, SecretHeader string
	SecretHosts          []string
	// After is called after each request that came to a server.
	After func()
	// Kill is called when the process is killed.
	Kill func()
	// Pace is called before each request, to mix those of several processes.
	Pace func()
	// Most is how many requests a process may make; 0 is 5000. More of them is a loop.
	Most int

	mu       sync.Mutex
	dead     bool
	requests []string
	leaks    []string
}

// Requests returns what was asked for, e.g. "GET https://api.github.com/repos/o/r".
func (n *Network) Requests() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.requests)
}

// Leaks returns where the secret was seen and must not be.
func (n *Network) Leaks() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.leaks)
}

// Dead reports whether the process was killed.
func (n *Network) Dead() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dead
}

func (n *Network) kill() error {
	n.mu.Lock()
	n.dead = true
	n.mu.Unlock()
	if n.Kill != nil {
		n.Kill()
	}
	return ErrKilled
}

// register notes a request and returns its number.
func (n *Network) register(r *http.Request, body []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.dead {
		return 0, ErrKilled
	}
	most := n.Most
	if most == 0 {
		most = 5000
	}
	if len(n.requests) >= most {
		return 0, fmt.Errorf("%w: it made %d requests: it loops", ErrKilled, most)
	}
	n.requests = append(n.requests, r.Method+" "+r.URL.String())
	if n.Secret == "" {
		return len(n.requests) - 1, nil
	}
	for name, values := range r.Header {
		for _, value := range values {
			allowed := name == n.SecretHeader && slices.Contains(n.SecretHosts, r.URL.Host)
			if strings.Contains(value, n.Secret) && !allowed {
				n.leaks = append(n.leaks, fmt.Sprintf("%s %s: header %s", r.Method, r.URL.Host, name))
			}
		}
	}
	if strings.Contains(r.URL.String(), n.Secret) || bytes.Contains(body, []byte(n.Secret)) {
		n.leaks = append(n.leaks, fmt.Sprintf("%s %s: URL or body", r.Method, r.URL.Host))
	}
	return len(n.requests) - 1, nil
}

// RoundTrip implements http.RoundTripper.
func (n *Network) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		body, err = io.ReadAll(r.Body)
		_ = r.Body.Close() // it was read as a whole
		if err != nil {
			return nil, err
		}
	}
	if n.Pace != nil {
		n.Pace()
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	number, err := n.register(r, body)
	if err != nil {
		return nil, err
	}
	n.Clock.Advance(50 * time.Millisecond)
	handler := n.Hosts[r.URL.Host]
	if handler == nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: fmt.Errorf("there is no host %s", r.URL.Host)}
	}
	fault := None
	if n.Fault != nil {
		fault = n.Fault(number, r)
	}
	return n.carry(handler, r, body, fault)
}

// carry brings a request to its server and the answer back, as far as the fault lets it.
func (n *Network) carry(handler http.Handler, r *http.Request, body []byte, fault Fault) (*http.Response, error) {
	reset := &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
	switch fault {
	case Refused:
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	case KilledBefore:
		return nil, n.kill()
	case GatewayBefore, Internal, Unavailable, Limited, SecondaryLimit, SilentLimit, PrimaryLimit:
		return n.refusal(r, fault), nil
	}
	request := r.Clone(context.WithValue(context.Background(), faultKey{}, fault))
	request.RequestURI = r.URL.RequestURI()
	request.Host = r.URL.Host
	request.Body = io.NopCloser(bytes.NewReader(body))
	if fault == CutRequest || fault == KilledAmid {
		request.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body[:len(body)/2]), broken{}))
	}
	request.ContentLength = int64(len(body))
	recorder := httptest.NewRecorder()
	recorder.Header().Set("Date", n.Clock.Now().Format(http.TimeFormat))
	handler.ServeHTTP(recorder, request)
	if n.After != nil {
		n.After()
	}
	switch fault {
	case KilledAfter, KilledAmid:
		return nil, n.kill()
	case LostAnswer, CutRequest:
		return nil, reset
	case GatewayAfter:
		return n.refusal(r, GatewayBefore), nil
	}
	resp := recorder.Result()
	resp.Request = r
	if fault == CutAnswer {
		resp.Body = io.NopCloser(io.MultiReader(bytes.NewReader(recorder.Body.Bytes()[:recorder.Body.Len()/2]), broken{}))
	}
	return resp, nil
}

// broken is the rest of a connection that breaks.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// refusal is an answer that is not the server's own.
// Source of the limits: GitHub docs, "Rate limits for the REST API", "Exceeding the rate limit":
// 403 or 429, with Retry-After or x-ratelimit-reset or neither.
func (n *Network) refusal(r *http.Request, fault Fault) *http.Response {
	status, text := http.StatusBadGateway, "<html>502 Bad Gateway</html>"
	header := http.Header{"Date": {n.Clock.Now().Format(http.TimeFormat)}}
	switch fault {
	case Internal:
		status, text = http.StatusInternalServerError, `{"message":"Server Error"}`
	case Unavailable:
		status, text = http.StatusServiceUnavailable, "<html>Unicorn</html>"
	case Limited:
		status, text = http.StatusTooManyRequests, `{"message":"Too many requests"}`
		header.Set("Retry-After", "7")
	case SecondaryLimit:
		status, text = http.StatusForbidden, `{"message":"You have exceeded a secondary rate limit. Please wait a few minutes before you try again."}`
		header.Set("Retry-After", "30")
	case SilentLimit:
		status, text = http.StatusForbidden, `{"message":"You have exceeded a secondary rate limit. Please wait a few minutes before you try again."}`
	case PrimaryLimit:
		status, text = http.StatusForbidden, `{"message":"API rate limit exceeded for installation ID 1."}`
		header.Set("X-RateLimit-Remaining", "0")
		header.Set("X-RateLimit-Reset", strconv.FormatInt(n.Clock.Now().Add(time.Minute).Unix(), 10))
	}
	return &http.Response{
		StatusCode: status, Status: fmt.Sprintf("%d %s", status, http.StatusText(status)), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Body: io.NopCloser(strings.NewReader(text)), ContentLength: int64(len(text)), Request: r,
	}
}
