package publish

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/clusterctl-release/clusterctl-release/internal/githubserver"
	"github.com/clusterctl-release/clusterctl-release/internal/wire"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish/store"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// TestLongWaits checks that a publisher returns an error when the server asks it to wait for hours.
func TestLongWaits(t *testing.T) {
	w := newGitHubWorld(t)
	n, opts := w.process(nil)
	inner := n.Hosts[githubserver.APIHost]
	n.Hosts[githubserver.APIHost] = http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/releases") {
			out.Header().Set("Retry-After", "7200")
			out.WriteHeader(http.StatusTooManyRequests)
			return
		}
		inner.ServeHTTP(out, r)
	})
	start := w.clock.Now()
	_, err := w.do(t.Context(), n, opts, someRelease(libvirt, "v0.1.0", ""))
	if err == nil || !strings.Contains(err.Error(), "asks to wait 2h0m0s") || w.clock.Now().Sub(start) > time.Minute {
		t.Errorf("after %s: %v", w.clock.Now().Sub(start), err)
	}
}

// TestGitHubInterrupted checks that an interrupted publisher removes its draft.
func TestGitHubInterrupted(t *testing.T) {
	r := someRelease(libvirt, "v0.1.0", "")
	for at := range 12 {
		w := newGitHubWorld(t)
		w.expect(r)
		ctx, cancel := context.WithCancel(t.Context())
		n, opts := w.process(func(number int, _ *http.Request) wire.Fault {
			if number == at {
				cancel()
			}
			return wire.None
		})
		_, err := w.do(ctx, n, opts, r)
		cancel()
		if !errors.Is(err, context.Canceled) {
			t.Errorf("at %d: %v", at, err)
		}
		for _, left := range w.server.Releases() {
			if left.Draft {
				t.Errorf("interrupted at %d: a draft is left", at)
			}
		}
		if err := w.violations(); err != nil {
			t.Error(err)
		}
	}
}

// TestGitHubEnterprise publishes to and reads from a server with one host for everything and without digests.
func TestGitHubEnterprise(t *testing.T) {
	ghe := githubserver.New("acme", "capl", time.Now)
	ghe.Token, ghe.NoDigests = githubSecret, true
	server := httptest.NewServer(ghe)
	defer server.Close()
	ghe.Base = server.URL
	t.Setenv("GITHUB_SERVER_URL", server.URL)
	t.Setenv("GITHUB_API_URL", server.URL+"/api/v3")
	t.Setenv("GITHUB_TOKEN", githubSecret)
	r := someLabelled("v0.1.0")
	result := publish(t, server.URL+"/acme/capl", Options{Commit: someCommit}, r)
	if result.Releases[0].Action != store.Create || result.Entry != "" || len(result.Warnings) != 1 || !strings.Contains(result.Warnings[0], "clusterctl reads releases from github.com only") {
		t.Errorf("the result is %s", result)
	}
	if again := publish(t, server.URL+"/acme/capl", Options{}, r); again.Releases[0].Action != store.Unchanged {
		t.Errorf("publishing again: %s", again)
	}
	v, err := Verify(t.Context(), server.URL+"/acme/capl/releases/latest", "", Options{})
	if err != nil || len(v.Problems) > 0 || len(v.Releases) != 1 || len(r.Differences(v.Releases[0])) > 0 {
		t.Errorf("verified %+v, %v", v, err)
	}
	files, public := ghe.Public("v0.1.0")
	if want, _ := r.File("NOTES.md"); !public || !bytes.Equal(files["NOTES.md"], want.Data) {
		t.Errorf("public: %v", files)
	}
	var none *release.Release
	if got, err := open(t, server.URL+"/acme/capl", Options{}).Fetch(t.Context(), micro, "v0.1.0"); !errors.Is(err, release.ErrNoRelease) || got != none {
		t.Errorf("fetched %v, %v", got, err)
	}
}

// TestWaitsAreReported checks that waits are reported with their reasons, and that a run gives up on a server
// that always fails in the same time at every step.
func TestWaitsAreReported(t *testing.T) {
	r := someRelease(libvirt, "v0.1.0", "")
	for name, test := range map[string]struct {
		fails  func(r *http.Request) bool
		status int
		header string
		report string
		most   time.Duration
	}{
		"a list": {func(r *http.Request) bool {
			return strings.HasSuffix(r.URL.Path, "/assets") && r.Method == http.MethodGet
		}, 500, "", "api.github.com answers 500 Internal Server Error; trying again in ", 3 * time.Minute},
		"an upload": {func(r *http.Request) bool {
			return strings.HasSuffix(r.URL.Path, "/assets") && r.Method == http.MethodPost
		}, 500, "", "uploading ", 3 * time.Minute},
		"publication": {func(r *http.Request) bool { return r.Method == http.MethodPatch }, 502, "", "api.github.com answers 502 Bad Gateway; trying again in ", 3 * time.Minute},
		"a limit":     {func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/tags") }, 429, "26", "api.github.com limits requests; trying again in 2", 10 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			w := newGitHubWorld(t)
			n, opts := w.process(nil)
			var waits []string
			var mu sync.Mutex
			failing := func(inner http.Handler) http.Handler {
				return http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
					if !test.fails(r) {
						inner.ServeHTTP(out, r)
						return
					}
					if test.header != "" {
						out.Header().Set("Retry-After", test.header)
					}
					out.WriteHeader(test.status)
				})
			}
			for host, inner := range n.Hosts {
				n.Hosts[host] = failing(inner)
			}
			opts.Report = func(line string) {
				mu.Lock()
				defer mu.Unlock()
				waits = append(waits, line)
			}
			start := w.clock.Now()
			_, err := w.do(t.Context(), n, opts, r)
			if took := w.clock.Now().Sub(start); err == nil || took > test.most {
				t.Errorf("the publisher gave up after %s, want at most %s: %v", took, test.most, err)
			}
			if !slices.ContainsFunc(waits, func(line string) bool { return strings.Contains(line, test.report) }) {
				t.Errorf("reported %q, want %q", waits, test.report)
			}
		})
	}
}

// TestGitHubReadOnlyUser checks that a plan without write permission is an error.
func TestGitHubReadOnlyUser(t *testing.T) {
	w := newGitHubWorld(t)
	w.server.Token, w.server.ReadToken = "other", githubSecret
	_, opts := w.process(nil)
	if _, err := open(t, githubURL, opts).Plan(t.Context(), []*release.Release{someRelease(libvirt, "v0.1.0", "")}); err == nil || !strings.Contains(err.Error(), "the token may read https://github.com/acme/capl, but not write to it") {
		t.Errorf("the plan of a user who may only read: %v", err)
	}
	opts.TokenFile = ""
	if _, err := open(t, githubURL, opts).Plan(t.Context(), []*release.Release{someRelease(libvirt, "v0.1.0", "")}); err == nil || !strings.Contains(err.Error(), "there is no token") {
		t.Errorf("the plan without a token: %v", err)
	}
}
