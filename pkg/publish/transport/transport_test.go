package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/clusterctl-release/clusterctl-release/internal/wire"
)

func TestAskedWait(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	in := func(d time.Duration) string { return strconv.FormatInt(now.Add(d).Unix(), 10) }
	for name, test := range map[string]struct {
		status  int
		headers map[string]string
		body    string
		attempt int
		want    time.Duration
		limited bool
	}{
		"fine":                         {status: 200, headers: map[string]string{"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": in(time.Hour)}},
		"forbidden":                    {status: 403, headers: map[string]string{"X-RateLimit-Remaining": "12"}, body: "Resource not accessible"},
		"429 with seconds":             {status: 429, headers: map[string]string{"Retry-After": "17"}, limited: true, want: 17 * time.Second},
		"429 with a date":              {status: 429, headers: map[string]string{"Retry-After": now.Add(90 * time.Second).Format(http.TimeFormat)}, limited: true, want: 90 * time.Second},
		"429 with a date that is past": {status: 429, headers: map[string]string{"Retry-After": now.Add(-time.Hour).Format(http.TimeFormat)}, limited: true},
		"429 without headers":          {status: 429, limited: true, want: time.Minute},
		"429 without headers, again":   {status: 429, attempt: 2, limited: true, want: 4 * time.Minute},
		"403 secondary limit":          {status: 403, headers: map[string]string{"Retry-After": "60"}, limited: true, want: time.Minute},
		"403 primary limit":            {status: 403, headers: map[string]string{"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": in(90 * time.Second)}, limited: true, want: 91 * time.Second},
		"403 with a message":           {status: 403, body: `{"message":"You have exceeded a secondary rate limit"}`, limited: true, want: time.Minute},
		"503 with seconds":             {status: 503, headers: map[string]string{"Retry-After": "3"}, limited: true, want: 3 * time.Second},
		"503":                          {status: 503},
		"nonsense":                     {status: 429, headers: map[string]string{"Retry-After": "soon"}, limited: true, want: time.Minute},
		"the package's own header":     {status: 200, headers: map[string]string{limitedHeader: now.Format(http.TimeFormat)}},
	} {
		t.Run(name, func(t *testing.T) {
			g := &guard{base: answer(func(*http.Request) (int, map[string]string, string) {
				headers := map[string]string{"Date": now.Format(http.TimeFormat)}
				for k, v := range test.headers {
					headers[k] = v
				}
				return test.status, headers, test.body
			})}
			resp, err := g.RoundTrip(httptest.NewRequest(http.MethodGet, "https://api.github.com/", nil))
			if err != nil {
				t.Fatal(err)
			}
			got, limited := retryAfter(resp, test.attempt)
			if got != test.want || limited != test.limited {
				t.Errorf("got %s, %v; want %s, %v", got, limited, test.want, test.limited)
			}
		})
	}
}

// answer is a server that answers requests with a function.
type answer func(*http.Request) (status int, headers map[string]string, body string)

// RoundTrip implements http.RoundTripper.
func (a answer) RoundTrip(r *http.Request) (*http.Response, error) {
	status, headers, body := a(r)
	resp := &http.Response{StatusCode: status, Status: strconv.Itoa(status), Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: r, ProtoMajor: 1, ProtoMinor: 1}
	for k, v := range headers {
		resp.Header.Set(k, v)
	}
	return resp, nil
}

func TestMayRetry(t *testing.T) {
	request := func(method string) *http.Request { return httptest.NewRequest(method, "https://x/", nil) }
	for _, test := range []struct {
		method string
		status int
		err    error
		want   bool
	}{
		{"Get", 0, io.ErrUnexpectedEOF, true},
		{"Patch", 0, io.ErrUnexpectedEOF, true},
		{"Post", 0, io.ErrUnexpectedEOF, false},
		{"Post", 0, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, true},
		{"Post", 0, &net.OpError{Op: "read", Err: syscall.ECONNRESET}, false},
		{"Get", 0, errTooLarge, false},
		{http.MethodGet, 502, nil, true},
		{http.MethodPost, 502, nil, false},
		{http.MethodPut, 503, nil, true},
		{http.MethodGet, 404, nil, false},
		{http.MethodGet, 501, nil, false},
		{http.MethodGet, 200, nil, false},
	} {
		var resp *http.Response
		err := test.err
		if err != nil {
			err = &url.Error{Op: test.method, URL: "https://x/", Err: err}
		} else {
			resp = &http.Response{StatusCode: test.status, Header: http.Header{}, Request: request(test.method)}
		}
		if got := mayRetry(resp, err); got != test.want {
			t.Errorf("%s, %d, %v: %v", test.method, test.status, test.err, got)
		}
	}
}

// TestGuard checks that the credential is sent only to its hosts and only over TLS, also after redirects.
func TestGuard(t *testing.T) {
	seen := map[string]string{}
	redirects := map[string]string{
		"https://api.github.com/same":      "https://api.github.com/end",
		"https://api.github.com/storage":   "https://storage.example.com/end",
		"https://api.github.com/sub":       "https://evil.api.github.com/end",
		"https://api.github.com/port":      "https://api.github.com:444/end",
		"https://api.github.com/back":      "https://storage.example.com/back",
		"https://storage.example.com/back": "https://api.github.com/end",
		"https://api.github.com/plain":     "http://api.github.com/end",
		"https://api.github.com/loop":      "https://api.github.com/loop",
	}
	server := answer(func(r *http.Request) (int, map[string]string, string) {
		seen[r.URL.Scheme+"://"+r.URL.Host] = r.Header.Get("Authorization")
		if to := redirects[r.URL.String()]; to != "" {
			return http.StatusFound, map[string]string{"Location": to}, ""
		}
		return http.StatusOK, nil, "fine"
	})
	client := New(Options{Credential: Credential{Header: "Authorization", Prefix: "Bearer ", Secret: "s", Hosts: []string{"api.github.com"}}, Network: Network{Transport: server, Sleep: wire.NewClock().Sleep}}).HTTP
	for path, fails := range map[string]bool{"same": false, "storage": false, "sub": false, "port": false, "back": false, "plain": true, "loop": true} {
		resp, err := client.Get("https://api.github.com/" + path)
		if (err != nil) != fails {
			t.Errorf("%s: %v, want an error: %v", path, err, fails)
		}
		if err == nil {
			_ = resp.Body.Close() // it is in memory
		}
	}
	for place, header := range seen {
		if (header != "") != (place == "https://api.github.com") {
			t.Errorf("%s got the header %q", place, header)
		}
	}
	if len(seen) < 4 {
		t.Errorf("only %v got requests", seen)
	}
	// Requests that change something are not redirected.
	resp, err := client.Post("https://api.github.com/storage", "text/plain", strings.NewReader("x"))
	if err != nil || resp.StatusCode != http.StatusFound {
		t.Errorf("a POST was redirected: %v, %v", resp, err)
	}
	if text := fmt.Sprintf("%v %+v %#v", client, Credential{Secret: "hidden"}, Credential{Secret: "hidden"}); strings.Contains(text, "hidden") {
		t.Errorf("a credential prints as %s", text)
	}
}

// endless is a body without an end.
type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }

type bodyOf struct{ io.Reader }

// RoundTrip implements http.RoundTripper.
func (b bodyOf) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(b.Reader), Request: r}, nil
}

func TestEndlessAnswer(t *testing.T) {
	client := New(Options{Network: Network{Transport: bodyOf{endless{}}, Sleep: wire.NewClock().Sleep}}).HTTP
	_, err := client.Get("https://api.github.com/") //nolint:bodyclose // the response is nil
	if !errors.Is(err, errTooLarge) {
		t.Errorf("got %v, want errTooLarge", err)
	}
}

// TestOnce checks that requests whose result must be checked before a retry are sent once.
func TestOnce(t *testing.T) {
	sent := 0
	server := answer(func(*http.Request) (int, map[string]string, string) {
		sent++
		return http.StatusServiceUnavailable, nil, ""
	})
	client := New(Options{Network: Network{Transport: server, Sleep: wire.NewClock().Sleep}}).HTTP
	for want, ctx := range map[int]context.Context{requestTries: t.Context(), 1: context.WithValue(t.Context(), onceKey{}, true)} {
		sent = 0
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://registry.example.com/", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err == nil {
			_ = resp.Body.Close() // it is in memory
		}
		if sent != want {
			t.Errorf("the request was sent %d times, want %d: %v", sent, want, err)
		}
	}
	ctx, cancel := Once(t.Context(), time.Minute)
	defer cancel()
	if _, bounded := ctx.Deadline(); !bounded || ctx.Value(onceKey{}) == nil {
		t.Error("the context of requests that are sent once has no deadline")
	}
}

// TestAgain checks that a step is not repeated while the server does not answer, and not too often.
func TestAgain(t *testing.T) {
	status := http.StatusInternalServerError
	server := answer(func(*http.Request) (int, map[string]string, string) { return status, nil, "" })
	var reports []string
	client := New(Options{Network: Network{Transport: server, Sleep: wire.NewClock().Sleep}, Report: func(line string) { reports = append(reports, line) }})
	get := func() {
		resp, err := client.HTTP.Get("https://registry.example.com/")
		if err == nil {
			_ = resp.Body.Close() // it is in memory
		}
	}
	failed := errors.New("uploading x: cut off")
	if err := client.Again(t.Context(), 1, failed); err != nil || reports[0] != "uploading x: cut off; trying again in 1s" {
		t.Errorf("after the first failure: %v, %q", err, reports)
	}
	get()
	if len(reports) != requestTries || !strings.HasPrefix(reports[1], "registry.example.com answers 500; trying again in ") {
		t.Errorf("reported %q", reports)
	}
	if err := client.Again(t.Context(), 1, failed); !errors.Is(err, failed) {
		t.Errorf("after a request that failed for good: %v", err)
	}
	status = http.StatusOK
	get()
	if err := client.Again(t.Context(), 1, failed); err != nil {
		t.Errorf("once the server answers: %v", err)
	}
	if err := client.Again(t.Context(), stepTries, failed); !errors.Is(err, failed) || !strings.Contains(err.Error(), "given up after 8 tries") {
		t.Errorf("after all tries: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := client.Again(ctx, 1, failed); !errors.Is(err, context.Canceled) {
		t.Errorf("after an interrupt: %v", err)
	}
}
