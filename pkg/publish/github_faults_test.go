package publish

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/clusterctl-release/clusterctl-release/internal/githubserver"
	"github.com/clusterctl-release/clusterctl-release/internal/wire"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// TestGitHubKilledAtEachRequest kills the publisher before and after each request that it makes and
// in the middle of each body, runs it again, and has an observer look after each request.
func TestGitHubKilledAtEachRequest(t *testing.T) {
	r := someRelease(libvirt, "v0.1.0", "")
	clean := newGitHubWorld(t)
	n, opts := clean.process(nil)
	if _, err := clean.do(t.Context(), n, opts, r); err != nil {
		t.Fatal(err)
	}
	requests := len(n.Requests())
	if requests < 15 {
		t.Fatalf("only %d requests: %v", requests, n.Requests())
	}
	for number := range requests {
		for _, kill := range []wire.Fault{wire.KilledBefore, wire.KilledAfter, wire.KilledAmid} {
			for _, lag := range []time.Duration{0, 2 * time.Second} {
				t.Run(fmt.Sprintf("%d %s lag %s", number, kill, lag), func(t *testing.T) {
					t.Parallel()
					w := newGitHubWorld(t)
					w.server.Lag = lag
					w.expect(r)
					n, opts := w.process(func(at int, _ *http.Request) wire.Fault {
						if at == number {
							return kill
						}
						return wire.None
					})
					_, err := w.do(t.Context(), n, opts, r)
					if !n.Dead() {
						t.Fatalf("it was not killed: %v", err)
					}
					again, opts := w.process(nil)
					if _, err := w.do(t.Context(), again, opts, r); err != nil {
						t.Fatalf("the re-run: %v", err)
					}
					if err := w.complete(); err != nil {
						t.Error(err)
					}
				})
			}
		}
	}
}

// githubFaults are all faults that a request may have.
var githubFaults = []wire.Fault{
	wire.Refused, wire.LostAnswer, wire.CutRequest, wire.CutAnswer, wire.GatewayBefore, wire.GatewayAfter, wire.Internal, wire.Unavailable,
	wire.Limited, wire.SecondaryLimit, wire.SilentLimit, wire.PrimaryLimit, wire.Stuck, wire.Short, wire.Corrupt,
	wire.KilledBefore, wire.KilledAfter, wire.KilledAmid,
}

// atRandom chooses faults by a seed, the same for the same requests whatever their order. Share is
// how many of a thousand requests fail.
func atRandom(seed uint64, share int, faults []wire.Fault) func(int, *http.Request) wire.Fault {
	var mu sync.Mutex
	times := map[string]int{}
	return func(_ int, r *http.Request) wire.Fault {
		mu.Lock()
		defer mu.Unlock()
		key := r.Method + r.URL.Path + r.URL.Query().Get("name")
		times[key]++
		h := fnv.New64a()
		fmt.Fprint(h, seed, key, times[key])
		random := rand.New(rand.NewPCG(seed, h.Sum64()))
		if random.IntN(1000) >= share {
			return wire.None
		}
		return faults[random.IntN(len(faults))]
	}
}

// TestGitHubRandomFaults injects all faults at random. Whatever happens, nobody sees a part of a
// release, and in the end a run without faults makes it whole.
func TestGitHubRandomFaults(t *testing.T) {
	const seeds = 1200
	r := someRelease(libvirt, "v0.1.0", "")
	failed, killed := 0, 0
	var mu sync.Mutex
	t.Run("seeds", func(t *testing.T) {
		for seed := range uint64(seeds) {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				w := newGitHubWorld(t)
				w.expect(r)
				w.server.Lag = time.Duration(seed%5) * time.Second
				w.server.NoDigests = seed%7 == 0
				w.server.PageSize = int(seed % 3)
				if seed%4 == 1 { // notes are made against it
					before := someRelease(libvirt, "v0.0.9", "before")
					var assets []*githubserver.Asset
					for _, f := range before.Files {
						assets = append(assets, &githubserver.Asset{Name: f.Name, Data: f.Data})
					}
					w.server.Add(githubserver.Release{Tag: before.Version, Assets: assets})
				}
				for round := range uint64(3) {
					faults := githubFaults
					if seed%2 == 0 {
						faults = faults[:len(faults)-3] // nobody is killed
					}
					n, opts := w.process(atRandom(seed*10+round, int(20+seed%300), faults))
					_, err := w.do(t.Context(), n, opts, r)
					mu.Lock()
					if n.Dead() {
						killed++
					} else if err != nil {
						failed++
					}
					mu.Unlock()
					if err := w.whole(); err != nil {
						t.Fatal(err)
					}
				}
				n, opts := w.process(nil)
				if _, err := w.do(t.Context(), n, opts, r); err != nil {
					t.Fatalf("the run without faults: %v", err)
				}
				if err := w.complete(); err != nil {
					t.Error(err)
				}
			})
		}
	})
	t.Logf("%d seeds, 3 runs each: %d killed, %d failed", seeds, killed, failed)
	if killed < seeds/10 {
		t.Errorf("only %d runs were killed", killed)
	}
}

// TestGitHubTwoPublishers: with the same bytes both succeed; with other bytes one does, and the
// other says so.
func TestGitHubTwoPublishers(t *testing.T) {
	for seed := range uint64(200) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := newGitHubWorld(t)
			w.server.Lag = time.Duration(seed%3) * time.Second
			same := seed%2 == 0
			releases := []*release.Release{someRelease(libvirt, "v0.1.0", "one"), someRelease(libvirt, "v0.1.0", "one")}
			if !same {
				releases[1] = someRelease(libvirt, "v0.1.0", "two")
			}
			if same {
				w.expect(releases[0])
			}
			errs := make([]error, 2)
			var running sync.WaitGroup
			for i, r := range releases {
				random := rand.New(rand.NewPCG(seed, uint64(i)))
				var mu sync.Mutex
				faults := atRandom(seed*2+uint64(i), int(seed%4)*20, []wire.Fault{wire.LostAnswer, wire.GatewayAfter, wire.CutRequest, wire.Stuck})
				n, opts := w.process(faults)
				n.Pace = func() {
					mu.Lock()
					yields := random.IntN(40)
					mu.Unlock()
					for range yields {
						runtime.Gosched()
					}
				}
				running.Go(func() { _, errs[i] = w.do(t.Context(), n, opts, r) })
			}
			running.Wait()
			if same {
				if err := errors.Join(errs...); err != nil {
					t.Fatal(err)
				}
				if err := w.complete(); err != nil {
					t.Error(err)
				}
				return
			}
			var conflict *ConflictError
			loser := 0
			if errs[0] == nil {
				loser = 1
			}
			if errs[1-loser] != nil || !errors.As(errs[loser], &conflict) || !strings.Contains(errs[loser].Error(), "published already") {
				t.Fatalf("want one winner and one conflict, got: %v; %v", errs[0], errs[1])
			}
			w.expect(releases[1-loser])
			if err := w.complete(); err != nil {
				t.Error(err)
			}
		})
	}
}
