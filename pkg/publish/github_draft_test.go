package publish

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/clusterctl-release/clusterctl-release/internal/githubserver"
	"github.com/clusterctl-release/clusterctl-release/internal/wire"
)

// TestGitHubDraftCreatedOnce checks that a publisher looks for a draft whose creation was not answered before it
// creates another one, even if the list of releases lags. The test counts requests, because surplus drafts are
// removed in the end.
func TestGitHubDraftCreatedOnce(t *testing.T) {
	const (
		creation   = http.MethodPost + " https://api.github.com/repos/acme/capl/releases"
		draftLooks = 5
	)
	for fault, created := range map[wire.Fault]int{
		// The server created it, but the answer was lost.
		wire.LostAnswer: 1, wire.CutAnswer: 1, wire.GatewayAfter: 1,
		// The server did not create it, and the answer was lost as well.
		wire.GatewayBefore: 2, wire.CutRequest: 2, wire.Internal: 2, wire.Unavailable: 2,
		// The server answered that it did not create it, so no search is needed.
		wire.Refused: 2, wire.Limited: 2, wire.SecondaryLimit: 2,
	} {
		for _, version := range []string{"v0.1.0", "v0.1.0-rc.0"} {
			for _, lag := range []time.Duration{0, 2 * time.Second, 20 * time.Second} {
				t.Run(fmt.Sprintf("%s, %s, lag %s", fault, version, lag), func(t *testing.T) {
					w := newGitHubWorld(t)
					w.server.Lag = lag
					r := someRelease(libvirt, version, "")
					w.expect(r)
					var times []time.Time
					n, opts := w.process(func(_ int, r *http.Request) wire.Fault {
						if r.Method+" "+r.URL.String() != creation {
							return wire.None
						}
						if times = append(times, w.clock.Now()); len(times) == 1 {
							return fault
						}
						return wire.None
					})
					if _, err := w.do(t.Context(), n, opts, r); err != nil {
						t.Fatal(err)
					}
					if len(times) != created {
						t.Errorf("the draft was created %d times, want %d: %v", len(times), created, changesOf(n))
					}
					for _, change := range changesOf(n) {
						if strings.HasPrefix(change, http.MethodDelete) {
							t.Errorf("a draft was created and removed: %v", changesOf(n))
						}
					}
					unclear := fault == wire.GatewayBefore || fault == wire.CutRequest || fault == wire.Internal || fault == wire.Unavailable
					if looks := looksBetween(n.Requests(), creation); unclear && looks < draftLooks {
						t.Errorf("the draft was looked for %d times, want at least %d: %v", looks, draftLooks, n.Requests())
					}
					if waited := times[len(times)-1].Sub(times[0]); unclear && waited < 20*time.Second {
						t.Errorf("another draft was created after %s, want at least 20s", waited)
					}
					if err := w.complete(); err != nil {
						t.Error(err)
					}
				})
			}
		}
	}
}

// looksBetween counts the lists that were requested between the first two requests to create a draft.
func looksBetween(requests []string, creation string) int {
	looks, met := 0, 0
	for _, r := range requests {
		switch {
		case r == creation:
			met++
		case met == 1 && strings.HasPrefix(r, strings.Replace(creation, http.MethodPost, http.MethodGet, 1)+"?"):
			looks++
		}
	}
	return looks
}

// TestGitHubSurplusDraftRemoved checks that the surplus draft is removed if the list lags so long that one run
// creates two drafts, also for versions that may be replaced.
func TestGitHubSurplusDraftRemoved(t *testing.T) {
	for _, version := range []string{"v0.1.0", "v0.1.0-rc.0"} {
		w := newGitHubWorld(t)
		r := someRelease(libvirt, version, "")
		w.expect(r)
		created := 0
		isCreation := func(r *http.Request) bool {
			return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/releases")
		}
		n, opts := w.process(func(_ int, r *http.Request) wire.Fault {
			if isCreation(r) && created == 0 {
				return wire.LostAnswer
			}
			return wire.None
		})
		inner := n.Hosts[githubserver.APIHost]
		n.Hosts[githubserver.APIHost] = http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
			if isCreation(r) {
				created++
			} else if strings.HasSuffix(r.URL.Path, "/releases") && created == 1 {
				_, _ = out.Write([]byte("[]")) // to a recorder
				return
			}
			inner.ServeHTTP(out, r)
		})
		if _, err := w.do(t.Context(), n, opts, r); err != nil {
			t.Fatal(err)
		}
		if created != 2 {
			t.Errorf("%s: %d drafts were created", version, created)
		}
		if err := w.complete(); err != nil {
			t.Errorf("%s: %v", version, err)
		}
	}
}
