package publish

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/clusterctl-release/clusterctl-release/internal/githubserver"
	"github.com/clusterctl-release/clusterctl-release/internal/pinned"
	"github.com/clusterctl-release/clusterctl-release/internal/wire"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

var seeds = flag.Uint64("publish.seeds", 300, "how many seeds of random faults each store gets")

// world is a test server with an observer, and the processes that publish to it.
type world interface {
	// process returns a process's network, with faults, and its options.
	process(fault func(int, *http.Request) wire.Fault) (*wire.Network, Options)
	// do publishes in a separate process.
	do(ctx context.Context, n *wire.Network, opts Options, releases ...*release.Release) (*Result, error)
	// expect makes the observer check that a public version of these releases is complete.
	expect(releases ...*release.Release)
	// public returns the digests of the files that users get for a version, and whether it is public.
	public(version string) (map[string]string, bool)
	// violations returns what the observer saw and must not see; complete also checks the final state.
	violations() error
	complete() error
}

// worldKind is a store with its server for the tests with faults.
type worldKind struct {
	name string
	// start starts the server that all worlds of the kind share; it may be nil.
	start func(t *testing.T) string
	// open returns a new world; the seed varies how the server behaves.
	open func(t testing.TB, shared string, seed uint64) world
	// faults are the server's faults in addition to the common ones.
	faults []wire.Fault
	// without are common faults that the server's code doesn't handle.
	without []wire.Fault
	// gap is the highest number of requests during which a replacement leaves nothing public. 0 is no limit,
	// for servers without drafts.
	gap int
	// pair prepares one of two concurrent publishers; it may be nil.
	pair func(i int, w world, n *wire.Network, opts *Options, taking *turns)
}

// worlds lists all stores. A new store needs an entry here.
var worlds = []worldKind{
	{
		name: "GitHub", gap: 1,
		faults: []wire.Fault{wire.SecondaryLimit, wire.SilentLimit, wire.PrimaryLimit, wire.Stuck, wire.Short, wire.Corrupt},
		open: func(t testing.TB, _ string, seed uint64) world {
			w := newGitHubWorld(t)
			w.server.Lag = time.Duration(seed%5) * time.Second
			w.server.NoDigests = seed%7 == 6
			w.server.PageSize = int(seed % 3)
			if seed%4 == 1 { // notes compare with it
				before := someRelease(libvirt, "v0.0.9", "before")
				var assets []*githubserver.Asset
				for _, f := range before.Files {
					assets = append(assets, &githubserver.Asset{Name: f.Name, Data: f.Data})
				}
				w.server.Add(githubserver.Release{Tag: before.Version, Assets: assets})
			}
			return w
		},
	},
	{
		name: "GitLab",
		open: func(t testing.TB, _ string, seed uint64) world {
			w := newGitLabWorld(t)
			w.server.RefuseDuplicates, w.server.PageSize, w.server.Redirect = seed%2 == 1, int(seed%3), seed%5 == 4
			return w
		},
	},
	{
		name: "Gitea",
		open: func(t testing.TB, _ string, seed uint64) world {
			w := newGiteaWorld(t)
			w.server.PageSize = int(seed % 3)
			return w
		},
	},
	{
		name: "OCI", gap: 1, start: pinned.StartRegistry, open: openOCI,
		pair: takeTurns,
	},
	{
		name: "OCI, go-containerregistry", gap: 1, open: openOCI, pair: takeTurns,
		// It tags a manifest whose request was cut off: pkg/registry/manifest.go of v0.22.1.
		without: []wire.Fault{wire.CutRequest, wire.KilledAmid},
		start: func(t *testing.T) string {
			server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
			t.Cleanup(server.Close)
			return strings.TrimPrefix(server.URL, "http://")
		},
	},
}

// openOCI returns a new repository in a registry.
func openOCI(t testing.TB, shared string, _ uint64) world {
	name := strings.NewReplacer("/", "-", "_", "-", " ", "-", ",", "", "#", "-").Replace(t.Name())
	return newOCIWorld(t, shared, "faults/"+strings.ToLower(name), nil)
}

// takeTurns lets one of two publishers read and set the tag while the other one waits.
func takeTurns(i int, _ world, n *wire.Network, opts *Options, taking *turns) {
	inner := n.Pace
	n.Pace = func() {
		taking.change(func() { taking.count[i]++ })
		inner()
	}
	sleep := opts.Network.Sleep
	opts.Network.Sleep = func(ctx context.Context, d time.Duration) error {
		if d == ociWait {
			taking.await(i, 5) // reading is two requests and setting one; each may need a login first
		}
		return sleep(ctx, d)
	}
}

// commonFaults are the faults of every server; the last three kill the publisher.
var commonFaults = []wire.Fault{
	wire.Refused, wire.LostAnswer, wire.CutRequest, wire.CutAnswer, wire.GatewayBefore, wire.GatewayAfter, wire.Internal, wire.Unavailable,
	wire.Limited, wire.KilledBefore, wire.KilledAfter, wire.KilledAmid,
}

var allKills = commonFaults[len(commonFaults)-3:]

// kills returns the faults that kill the publisher and that the store's server handles.
func (k worldKind) kills() []wire.Fault { return k.handled(allKills) }

// otherFaults returns the other faults that the store's server handles.
func (k worldKind) otherFaults() []wire.Fault {
	return k.handled(slices.Concat(k.faults, commonFaults[:len(commonFaults)-len(allKills)]))
}

func (k worldKind) handled(faults []wire.Fault) []wire.Fault {
	return slices.DeleteFunc(slices.Clone(faults), func(f wire.Fault) bool { return slices.Contains(k.without, f) })
}

// inWorlds runs a test for each store.
func inWorlds(t *testing.T, worlds []worldKind, test func(t *testing.T, kind worldKind, shared string)) {
	t.Helper()
	for _, kind := range worlds {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			shared := ""
			if kind.start != nil {
				shared = kind.start(t)
			}
			test(t, kind, shared)
		})
	}
}

// at returns a fault of one request.
func at(number int, fault wire.Fault) func(int, *http.Request) wire.Fault {
	return func(now int, _ *http.Request) wire.Fault {
		if now == number {
			return fault
		}
		return wire.None
	}
}

// atRandom chooses faults by a seed. The same requests get the same faults in any order. Share is
// the number of failures in a thousand requests.
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

// TestKilledAtEachRequest kills the publisher before and after each request and in the middle of each
// body, and runs it again.
func TestKilledAtEachRequest(t *testing.T) { killedAtEachRequest(t, worlds) }

func killedAtEachRequest(t *testing.T, in []worldKind) {
	t.Helper()
	r := someRelease(libvirt, "v0.1.0", "")
	inWorlds(t, in, func(t *testing.T, kind worldKind, shared string) {
		clean := kind.open(t, shared, 0)
		n, opts := clean.process(nil)
		if _, err := clean.do(t.Context(), n, opts, r); err != nil || len(n.Requests()) < 15 {
			t.Fatalf("%v, %d requests", err, len(n.Requests()))
		}
		for number := range n.Requests() {
			for i, kill := range kind.kills() {
				t.Run(fmt.Sprintf("%d %s", number, kill), func(t *testing.T) {
					t.Parallel()
					w := kind.open(t, shared, uint64(number+i))
					w.expect(r)
					n, opts := w.process(at(number, kill))
					// A run against a server with another seed may need fewer requests.
					if _, err := w.do(t.Context(), n, opts, r); (err == nil) == n.Dead() {
						t.Fatalf("killed %v, but the error is %v", n.Dead(), err)
					}
					n, opts = w.process(nil)
					if _, err := w.do(t.Context(), n, opts, r); err != nil {
						t.Fatalf("the re-run: %v", err)
					}
					if err := w.complete(); err != nil {
						t.Error(err)
					}
				})
			}
		}
	})
}

// TestNoWaitsWithoutFaults checks that no wait is reported if the server has no faults.
func TestNoWaitsWithoutFaults(t *testing.T) {
	inWorlds(t, worlds, func(t *testing.T, kind worldKind, shared string) {
		w := kind.open(t, shared, 0)
		n, opts := w.process(nil)
		opts.Report = func(line string) { t.Errorf("reported %q, want nothing", line) }
		if _, err := w.do(t.Context(), n, opts, someRelease(libvirt, "v0.1.0", "")); err != nil {
			t.Error(err)
		}
	})
}

// TestRandomFaults injects all faults at random. Nobody ever sees a part of a release, and a final
// run without faults completes it.
func TestRandomFaults(t *testing.T) { randomFaults(t, worlds) }

func randomFaults(t *testing.T, in []worldKind) {
	t.Helper()
	r := someRelease(libvirt, "v0.1.0", "")
	inWorlds(t, in, func(t *testing.T, kind worldKind, shared string) {
		var mu sync.Mutex
		failed, killed := 0, 0
		t.Run("seeds", func(t *testing.T) {
			for seed := range *seeds {
				t.Run(fmt.Sprint(seed), func(t *testing.T) {
					t.Parallel()
					w := kind.open(t, shared, seed)
					w.expect(r)
					for round := range uint64(3) {
						faults := kind.otherFaults()
						if seed%4 >= 2 {
							faults = append(faults, kind.kills()...)
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
						if err := w.violations(); err != nil {
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
		t.Logf("%d seeds, 3 runs each: %d killed, %d failed", *seeds, killed, failed)
		if killed < int(*seeds/10) {
			t.Errorf("only %d runs were killed; the faults are too rare", killed)
		}
	})
}

// TestTwoPublishers checks that two publishers of the same bytes both succeed, and that with different bytes one
// succeeds and the other returns a conflict.
func TestTwoPublishers(t *testing.T) { twoPublishers(t, worlds) }

func twoPublishers(t *testing.T, in []worldKind) {
	t.Helper()
	inWorlds(t, in, func(t *testing.T, kind worldKind, shared string) {
		for seed := range uint64(200) {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				w := kind.open(t, shared, seed)
				releases := []*release.Release{someRelease(libvirt, "v0.1.0", "one"), someRelease(libvirt, "v0.1.0", "one")}
				if seed%2 == 1 {
					releases[1] = someRelease(libvirt, "v0.1.0", "two")
				} else {
					w.expect(releases[0])
				}
				errs := publishConcurrently(t, kind, w, seed, releases)
				if seed%2 == 0 {
					if err := errors.Join(errs...); err != nil {
						t.Fatal(err)
					}
				} else {
					var conflict *ConflictError
					loser := 0
					if errs[0] == nil {
						loser = 1
					}
					if errs[1-loser] != nil || !errors.As(errs[loser], &conflict) || !strings.Contains(errs[loser].Error(), "published already") {
						t.Fatalf("got %v and %v, want one success and one conflict", errs[0], errs[1])
					}
					w.expect(releases[1-loser])
				}
				if err := w.complete(); err != nil {
					t.Error(err)
				}
			})
		}
	})
}

// publishConcurrently publishes each release in its own process. The seed determines the order of the requests.
func publishConcurrently(t *testing.T, kind worldKind, w world, seed uint64, releases []*release.Release) []error {
	errs := make([]error, len(releases))
	taking := newTurns()
	var running sync.WaitGroup
	for i, r := range releases {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		var mu sync.Mutex
		n, opts := w.process(atRandom(seed*2+uint64(i), int(seed%4)*20, kind.handled([]wire.Fault{wire.LostAnswer, wire.GatewayAfter, wire.CutRequest})))
		n.Pace = func() {
			mu.Lock()
			yields := random.IntN(40)
			mu.Unlock()
			for range yields {
				runtime.Gosched()
			}
		}
		if kind.pair != nil {
			kind.pair(i, w, n, &opts, taking)
		}
		running.Go(func() {
			_, errs[i] = w.do(t.Context(), n, opts, r)
			taking.change(func() { taking.done[i] = true })
		})
	}
	running.Wait()
	return errs
}

// TestReplaceKilled kills the publisher at each request while it replaces a version. Nobody sees a
// part of either version, and after a re-run the new one is public.
func TestReplaceKilled(t *testing.T) { replaceKilled(t, worlds) }

func replaceKilled(t *testing.T, in []worldKind) {
	t.Helper()
	const version = "v0.1.0-rc.0"
	old, changed := someRelease(libvirt, version, "old"), someRelease(libvirt, version, "new")
	inWorlds(t, in, func(t *testing.T, kind worldKind, shared string) {
		replace := func(t *testing.T, seed uint64, fault func(int, *http.Request) wire.Fault) (w world, n *wire.Network, gap int) {
			w = kind.open(t, shared, seed)
			n, opts := w.process(nil)
			if _, err := w.do(t.Context(), n, opts, old); err != nil {
				t.Fatal(err)
			}
			n, opts = w.process(fault)
			opts.Replace = true
			n.After = func() {
				files, public := w.public(version)
				if !public {
					gap++
				} else if !hasAll(old, files) && !hasAll(changed, files) {
					t.Errorf("a part of a version was public: %v", files)
				}
			}
			// The number of requests that need a login first differs between runs.
			if _, err := w.do(t.Context(), n, opts, changed); (err == nil) == n.Dead() {
				t.Fatalf("killed %v, but the error is %v", n.Dead(), err)
			}
			return w, n, gap
		}
		_, n, gap := replace(t, 0, nil)
		if kind.gap > 0 && gap > kind.gap {
			t.Errorf("nothing was public after %d requests, want at most %d", gap, kind.gap)
		}
		for number := range n.Requests() {
			for _, kill := range kind.kills() {
				t.Run(fmt.Sprintf("%d %s", number, kill), func(t *testing.T) {
					t.Parallel()
					w, _, _ := replace(t, 0, at(number, kill))
					n, opts := w.process(nil)
					opts.Replace = true
					if _, err := w.do(t.Context(), n, opts, changed); err != nil {
						t.Fatalf("the re-run: %v", err)
					}
					if files, public := w.public(version); !public || !hasAll(changed, files) {
						t.Errorf("the files are %v, public %v; want the new version", files, public)
					}
					if err := w.violations(); err != nil {
						t.Error(err)
					}
				})
			}
		}
	})
}

// TestReplaceRefused refuses one change after the other while a version is replaced. Afterwards the old
// version or the new one is public.
func TestReplaceRefused(t *testing.T) { replaceRefused(t, worlds) }

func replaceRefused(t *testing.T, in []worldKind) {
	t.Helper()
	const version = "v0.1.0-rc.0"
	old, changed := someRelease(libvirt, version, "old"), someRelease(libvirt, version, "new")
	inWorlds(t, in, func(t *testing.T, kind worldKind, shared string) {
		refused := 0
		for number := range 20 {
			t.Run(fmt.Sprint(number), func(t *testing.T) {
				w := kind.open(t, shared, 0)
				n, opts := w.process(nil)
				if _, err := w.do(t.Context(), n, opts, old); err != nil {
					t.Fatal(err)
				}
				n, opts = w.process(nil)
				opts.Replace = true
				var changes atomic.Int64 // an OCI registry gets several at a time
				for host, inner := range n.Hosts {
					n.Hosts[host] = http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
						isChange := r.Method != http.MethodGet && r.Method != http.MethodHead
						if isChange && changes.Add(1)-1 == int64(number) {
							out.WriteHeader(http.StatusForbidden)
							return
						}
						inner.ServeHTTP(out, r)
					})
				}
				_, err := w.do(t.Context(), n, opts, changed)
				if err != nil {
					refused++
				}
				files, public := w.public(version)
				if !public || err != nil && !hasAll(old, files) && !hasAll(changed, files) || err == nil && !hasAll(changed, files) {
					t.Errorf("after the error %v the files are %v, public %v", err, files, public)
				}
			})
		}
		if refused < 3 {
			t.Errorf("only %d runs were refused, want at least 3", refused)
		}
	})
}

// hasAll reports whether the digests of files match those of a release.
func hasAll(r *release.Release, files map[string]string) bool {
	return !slices.ContainsFunc(r.Files, func(f release.File) bool { return files[f.Name] != release.Digest(f.Data) })
}
