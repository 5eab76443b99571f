package publish

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/clusterctl-release/clusterctl-release/internal/wire"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

const (
	// ociHost is the registry by the name that publishers know; it is a real one behind a proxy of the test's.
	ociHost   = "registry.example.com"
	ociSecret = "TopSecretOfTheTests"
)

// ociWorld is a repository of a real registry with an observer, and the processes that publish to it.
type ociWorld struct {
	witness

	clock   *wire.Clock
	handler http.Handler
	host    string
	name    string
	token   string
	want    map[string]string // the digests of what the tag v0.1.0 stands for, by title
}

// login is what is sent to the registry for the secret.
// Source: RFC 7617, "Basic" authentication.
var login = base64.StdEncoding.EncodeToString([]byte("token:" + ociSecret))

// asksForLogin is a registry that says who may write and read only after it was asked.
func asksForLogin(registry http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Basic "+login {
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			http.Error(w, `{"errors":[{"code":"UNAUTHORIZED"}]}`, http.StatusUnauthorized)
			return
		}
		r.Header.Del("Authorization")
		registry.ServeHTTP(w, r)
	})
}

// newOCIWorld returns a repository of its own in a registry.
func newOCIWorld(t *testing.T, registry, name string, want *release.Release) *ociWorld {
	t.Helper()
	w := &ociWorld{clock: wire.NewClock(), host: registry, name: name, token: filepath.Join(t.TempDir(), "token")}
	write(t, w.token, ociSecret+"\n")
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: registry})
			r.Out.Host = ociHost // where the registry sends uploads to
			r.Out.Header.Set("X-Forwarded-Proto", "https")
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }, // the request broke off
	}
	w.handler = asksForLogin(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		proxy.ServeHTTP(out, r)
		if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/manifests/v0.1.0") {
			w.observe(t)
		}
	}))
	if want != nil {
		w.expect(t, want)
	}
	return w
}

// expect makes the observer look for the files of a release.
func (w *ociWorld) expect(t *testing.T, r *release.Release) {
	t.Helper()
	all, err := bundles([]*release.Release{r})
	if err != nil {
		t.Fatal(err)
	}
	beside, err := madeFiles(all[0], source{}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	files := append(slices.Clone(all[0].files), beside...)
	w.want = map[string]string{}
	for _, l := range layers(all[0], files) {
		w.want[l.Annotations[ocispec.AnnotationTitle]] = l.Digest.Encoded()
	}
}

// observe looks at what the tag stands for: all files, or no tag.
func (w *ociWorld) observe(t *testing.T) {
	if w.want == nil {
		return
	}
	body, there := w.get(t, http.MethodGet, "manifests/v0.1.0")
	if !there {
		return
	}
	var m ocispec.Manifest
	if err := json.Unmarshal(body, &m); err != nil {
		t.Error(err)
		return
	}
	got, blobs := map[string]string{}, map[string]bool{}
	for _, l := range m.Layers {
		got[l.Annotations[ocispec.AnnotationTitle]] = l.Digest.Encoded()
		blobs[l.Digest.String()] = true
	}
	var problems []string
	if diff := cmp.Diff(w.want, got); diff != "" {
		problems = append(problems, "the tag stood for other files (-want +got):\n"+diff)
	}
	for blob := range blobs {
		if _, there := w.get(t, http.MethodHead, "blobs/"+blob); !there {
			problems = append(problems, "the tag stood for files that are not there")
		}
	}
	w.sees(problems...)
}

// get asks the registry itself, and says whether there is what was asked for.
func (w *ociWorld) get(t *testing.T, method, what string) ([]byte, bool) {
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+w.host+"/v2/"+w.name+"/"+what, nil)
	if err != nil {
		t.Error(err)
		return nil, false
	}
	req.Header.Set("Accept", ocispec.MediaTypeImageManifest)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return nil, false
	}
	defer func() { _ = resp.Body.Close() }() // it was read
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return body, resp.StatusCode == http.StatusOK
}

// process returns a process's network and options.
func (w *ociWorld) process(fault func(int, *http.Request) wire.Fault) (*wire.Network, Options) {
	n := &wire.Network{
		Hosts: map[string]http.Handler{ociHost: w.handler}, Clock: w.clock, Fault: fault,
		Secret: login, SecretHeader: "Authorization", SecretHosts: []string{ociHost},
	}
	return n, Options{TokenFile: w.token, Progress: w.tell, remote: remote{transport: n, sleep: w.sleep, now: w.clock.Now}}
}

// sleep lets the clock go on, and the registry too, which is another process.
func (w *ociWorld) sleep(ctx context.Context, d time.Duration) error {
	time.Sleep(time.Millisecond)
	return w.clock.Sleep(ctx, d)
}

// do publishes in a process of its own.
func (w *ociWorld) do(t *testing.T, n *wire.Network, opts Options, r *release.Release) error {
	_, err := w.publish(t.Context(), ociScheme+ociHost+"/"+w.name, []string{ociSecret, login}, n, opts, r)
	return err
}

// complete says what is wrong with the end: the tag stands for all files.
func (w *ociWorld) complete(t *testing.T) error {
	before := w.seen
	w.observe(t)
	if w.seen == before {
		return errors.New("there is no tag")
	}
	return w.whole()
}

// TestOCIKilledAtEachRequest kills the publisher before and after each request that it makes and in the
// middle of each body, and runs it again.
func TestOCIKilledAtEachRequest(t *testing.T) {
	registry := startRegistry(t)
	r := someRelease(libvirt, "v0.1.0", "")
	clean := newOCIWorld(t, registry, "kill/clean", r)
	n, opts := clean.process(nil)
	if err := clean.do(t, n, opts, r); err != nil {
		t.Fatal(err)
	}
	requests := len(n.Requests())
	if requests < 20 {
		t.Fatalf("only %d requests: %v", requests, n.Requests())
	}
	for number := range requests {
		for i, kill := range []wire.Fault{wire.KilledBefore, wire.KilledAfter, wire.KilledAmid} {
			t.Run(fmt.Sprintf("%d %s", number, kill), func(t *testing.T) {
				t.Parallel()
				w := newOCIWorld(t, registry, fmt.Sprintf("kill/at%d-%d", number, i), r)
				n, opts := w.process(func(at int, _ *http.Request) wire.Fault {
					if at == number {
						return kill
					}
					return wire.None
				})
				if err := w.do(t, n, opts, r); !n.Dead() || err == nil {
					t.Fatalf("it was not killed: %v", err)
				}
				w.observe(t)
				n, opts = w.process(nil)
				if err := w.do(t, n, opts, r); err != nil {
					t.Fatalf("the re-run: %v", err)
				}
				if err := w.complete(t); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestOCIRandomFaults injects all faults at random, in front of a real registry.
func TestOCIRandomFaults(t *testing.T) {
	const (
		seeds  = 500
		rounds = 2
	)
	faults := []wire.Fault{
		wire.Refused, wire.LostAnswer, wire.CutRequest, wire.CutAnswer, wire.GatewayBefore, wire.GatewayAfter, wire.Internal, wire.Unavailable,
		wire.Limited, wire.KilledBefore, wire.KilledAfter, wire.KilledAmid,
	}
	registry := startRegistry(t)
	r := someRelease(libvirt, "v0.1.0", "")
	var mu sync.Mutex
	runs, failed, killed := 0, 0, 0
	t.Run("seeds", func(t *testing.T) {
		for seed := range uint64(seeds) {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				w := newOCIWorld(t, registry, fmt.Sprintf("random/s%d", seed), r)
				for round := range uint64(rounds) {
					some := faults
					if seed%2 == 0 {
						some = faults[:len(faults)-3] // nobody is killed
					}
					n, opts := w.process(atRandom(seed*10+round, int(20+seed%300), some))
					err := w.do(t, n, opts, r)
					mu.Lock()
					runs++
					if n.Dead() {
						killed++
					} else if err != nil {
						failed++
					}
					mu.Unlock()
					w.observe(t)
					if err := w.whole(); err != nil {
						t.Fatal(err)
					}
				}
				n, opts := w.process(nil)
				if err := w.do(t, n, opts, r); err != nil {
					t.Fatalf("the run without faults: %v", err)
				}
				if err := w.complete(t); err != nil {
					t.Error(err)
				}
			})
		}
	})
	t.Logf("%d runs with faults: %d killed, %d failed", runs, killed, failed)
	if runs == seeds*rounds && killed < runs/10 {
		t.Errorf("only %d runs were killed", killed)
	}
}

// turns are taken: a publisher that waits after it has set the tag gives the other one the time for a
// look and for the setting of the tag, which is what the wait is as long as.
type turns struct {
	mu     sync.Mutex
	moved  *sync.Cond
	count  [2]int
	asleep [2]bool
	done   [2]bool
}

func newTurns() *turns {
	t := &turns{}
	t.moved = sync.NewCond(&t.mu)
	return t
}

// change changes something that others may wait for.
func (t *turns) change(do func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	do()
	t.moved.Broadcast()
}

// await returns when the other one has made so many requests more, waits too, or is done.
func (t *turns) await(own, requests int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	other := 1 - own
	until := t.count[other] + requests
	t.asleep[own] = true
	t.moved.Broadcast()
	for t.count[other] < until && !t.asleep[other] && !t.done[other] {
		t.moved.Wait()
	}
	t.asleep[own] = false
}

// TestOCITwoPublishers: with the same bytes both succeed; with other bytes one does, and the other says so.
func TestOCITwoPublishers(t *testing.T) {
	registry := startRegistry(t)
	for seed := range uint64(200) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := newOCIWorld(t, registry, fmt.Sprintf("two/s%d", seed), nil)
			releases := []*release.Release{someRelease(libvirt, "v0.1.0", "one"), someRelease(libvirt, "v0.1.0", "one")}
			same := seed%2 == 0
			if !same {
				releases[1] = someRelease(libvirt, "v0.1.0", "two")
			}
			errs := make([]error, 2)
			taking := newTurns()
			var running sync.WaitGroup
			for i, r := range releases {
				random := rand.New(rand.NewPCG(seed, uint64(i)))
				var mu sync.Mutex
				n, opts := w.process(atRandom(seed*2+uint64(i), int(seed%4)*20, []wire.Fault{wire.LostAnswer, wire.GatewayAfter, wire.CutRequest}))
				n.Pace = func() {
					taking.change(func() { taking.count[i]++ })
					mu.Lock()
					yields := random.IntN(40)
					mu.Unlock()
					for range yields {
						runtime.Gosched()
					}
				}
				opts.remote.sleep = func(ctx context.Context, d time.Duration) error {
					if d == 2*tagTime {
						taking.await(i, 5) // a look is two requests and the setting one; each may ask for the login first
					}
					return w.sleep(ctx, d)
				}
				running.Go(func() {
					errs[i] = w.do(t, n, opts, r)
					taking.change(func() { taking.done[i] = true })
				})
			}
			running.Wait()
			if same {
				if err := errors.Join(errs...); err != nil {
					t.Fatal(err)
				}
				w.expect(t, releases[0])
			} else {
				var conflict *ConflictError
				loser := 0
				if errs[0] == nil {
					loser = 1
				}
				if errs[1-loser] != nil || !errors.As(errs[loser], &conflict) || !strings.Contains(errs[loser].Error(), "published already") {
					t.Fatalf("want one winner and one conflict, got: %v; %v", errs[0], errs[1])
				}
				w.expect(t, releases[1-loser])
			}
			if err := w.complete(t); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestOCIImmutableTags: a registry that keeps the first of two refuses the second, who looks which it is.
func TestOCIImmutableTags(t *testing.T) {
	registry := startRegistry(t)
	for note, same := range map[string]bool{"one": true, "two": false} {
		first, second := someRelease(libvirt, "v0.1.0", "one"), someRelease(libvirt, "v0.1.0", note)
		w := newOCIWorld(t, registry, "immutable/"+note, first)
		inner := w.handler
		w.handler = http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPut || !strings.HasSuffix(r.URL.Path, "/manifests/v0.1.0") {
				inner.ServeHTTP(out, r)
				return
			}
			// Another publisher was here between the look and this.
			n, opts := w.process(nil)
			n.Hosts[ociHost] = inner
			if err := w.do(t, n, opts, first); err != nil {
				t.Error(err)
			}
			out.WriteHeader(http.StatusConflict)
			_, _ = out.Write([]byte(`{"errors":[{"code":"TAG_IMMUTABLE","message":"the tag is there"}]}`)) // to a recorder
		})
		n, opts := w.process(nil)
		err := w.do(t, n, opts, second)
		var conflict *ConflictError
		if same && err != nil || !same && !errors.As(err, &conflict) {
			t.Errorf("the same bytes %v: %v", same, err)
		}
		if err := w.complete(t); err != nil {
			t.Error(err)
		}
	}
}
