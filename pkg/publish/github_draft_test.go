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

// TestGitHubDraftMadeOnce: a draft whose making was not answered is looked for before another one is
// made, however far the list is behind. What a publisher asked for is looked at here, and not what is
// there in the end, where drafts too many have been removed.
func TestGitHubDraftMadeOnce(t *testing.T) {
	const (
		making     = http.MethodPost + " https://api.github.com/repos/acme/capl/releases"
		draftLooks = 5
	)
	for fault, made := range map[wire.Fault]int{
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
						if r.Method+" "+r.URL.String() != making {
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
					if len(times) != made {
						t.Errorf("the draft was made %d times, want %d: %v", len(times), made, changesOf(n))
					}
					for _, change := range changesOf(n) {
						if strings.HasPrefix(change, http.MethodDelete) {
							t.Errorf("something was made and removed: %v", changesOf(n))
						}
					}
					unclear := fault == wire.GatewayBefore || fault == wire.CutRequest || fault == wire.Internal || fault == wire.Unavailable
					if looks := looksBetween(n.Requests(), making); unclear && looks < draftLooks {
						t.Errorf("it was looked for %d times, want %d: %v", looks, draftLooks, n.Requests())
					}
					if waited := times[len(times)-1].Sub(times[0]); unclear && waited < 20*time.Second {
						t.Errorf("another one was made after %s", waited)
					}
					if err := w.complete(); err != nil {
						t.Error(err)
					}
				})
			}
		}
	}
}

// looksBetween counts the lists that were asked for between the first two requests of a kind.
func looksBetween(requests []string, what string) int {
	looks, met := 0, 0
	for _, r := range requests {
		switch {
		case r == what:
			met++
		case met == 1 && strings.HasPrefix(r, strings.Replace(what, http.MethodPost, http.MethodGet, 1)+"?"):
			looks++
		}
	}
	return looks
}

// TestGitHubDraftTooMany: where the list is behind for longer than anybody waits there are two drafts
// of one run, and the other one is removed, for versions too that may be replaced.
func TestGitHubDraftTooMany(t *testing.T) {
	for _, version := range []string{"v0.1.0", "v0.1.0-rc.0"} {
		w := newGitHubWorld(t)
		r := someRelease(libvirt, version, "")
		w.expect(r)
		made := 0
		isMaking := func(r *http.Request) bool {
			return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/releases")
		}
		n, opts := w.process(func(_ int, r *http.Request) wire.Fault {
			if isMaking(r) && made == 0 {
				return wire.LostAnswer
			}
			return wire.None
		})
		inner := n.Hosts[githubserver.APIHost]
		n.Hosts[githubserver.APIHost] = http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
			if isMaking(r) {
				made++
			} else if strings.HasSuffix(r.URL.Path, "/releases") && made == 1 {
				_, _ = out.Write([]byte("[]")) // to a recorder
				return
			}
			inner.ServeHTTP(out, r)
		})
		if _, err := w.do(t.Context(), n, opts, r); err != nil {
			t.Fatal(err)
		}
		if made != 2 {
			t.Errorf("%s: %d drafts were made", version, made)
		}
		if err := w.complete(); err != nil {
			t.Errorf("%s: %v", version, err)
		}
	}
}
