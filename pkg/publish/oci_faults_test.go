package publish

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/clusterctl-release/clusterctl-release/internal/pinned"
	"github.com/clusterctl-release/clusterctl-release/internal/wire"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish/oci"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish/store"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish/transport"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

const (
	// ociHost is the registry by the name that publishers know; it is a real one behind a proxy of the test's.
	ociHost   = "registry.example.com"
	ociSecret = "TopSecretOfTheTests"
	// ociWait is the time that a publisher that has set a tag waits before it looks again.
	ociWait = 4 * time.Second
)

// ociWorld is a repository of a real registry with an observer, and the processes that publish to it.
type ociWorld struct {
	witness

	t       testing.TB
	clock   *wire.Clock
	handler http.Handler
	host    string
	name    string
	token   string
	version string            // the tag that is looked at
	want    map[string]string // the digests of what it stands for, by title
}

// login is what is sent to the registry for the secret.
// Source: RFC 7617, "Basic" authentication.
var login = base64.StdEncoding.EncodeToString([]byte("token:" + ociSecret))

// asksForLogin is a registry that names the required permissions only in its answer.
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
func newOCIWorld(t testing.TB, registry, name string, want *release.Release) *ociWorld {
	t.Helper()
	w := &ociWorld{t: t, clock: wire.NewClock(), host: registry, name: name, token: filepath.Join(t.TempDir(), "token")}
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
		if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/manifests/v") {
			w.observe()
		}
	}))
	if want != nil {
		w.expect(want)
	}
	return w
}

// expect makes the observer look for the files of a release.
func (w *ociWorld) expect(releases ...*release.Release) {
	all, err := store.Versions(releases)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := all[0].Generate(context.Background(), ""); err != nil {
		w.t.Fatal(err)
	}
	w.version, w.want = releases[0].Version, map[string]string{}
	opened, _, err := oci.Kind.Open("oci://"+w.host+"/expected", store.Options{})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range append(all[0].All, opened.(store.Aliaser).Aliases(all[0])...) {
		w.want[f.Name] = store.Digest(f.Data)
	}
}

// observe looks at what the tag stands for: all files, or no tag.
func (w *ociWorld) observe() {
	if w.want == nil {
		return
	}
	body, there := w.get(http.MethodGet, "manifests/"+w.version)
	if !there {
		return
	}
	var m ocispec.Manifest
	if err := json.Unmarshal(body, &m); err != nil {
		w.t.Error(err)
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
		if _, there := w.get(http.MethodHead, "blobs/"+blob); !there {
			problems = append(problems, "the tag stood for files that are not there")
		}
	}
	w.sees(problems...)
}

// get asks the registry itself, and says whether there is what was asked for. The registry answers 500
// for a moment while it writes what two publishers push, and is asked again then.
func (w *ociWorld) get(method, what string) ([]byte, bool) {
	for range 100 {
		body, status := w.ask(method, what)
		if status < http.StatusInternalServerError {
			return body, status == http.StatusOK
		}
		time.Sleep(10 * time.Millisecond)
	}
	w.t.Errorf("the registry does not give %s", what)
	return nil, false
}

// ask asks the registry once.
func (w *ociWorld) ask(method, what string) (body []byte, status int) {
	req, err := http.NewRequestWithContext(w.t.Context(), method, "http://"+w.host+"/v2/"+w.name+"/"+what, nil)
	if err != nil {
		w.t.Error(err)
		return nil, 0
	}
	req.Header.Set("Accept", ocispec.MediaTypeImageManifest)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Error(err)
		return nil, 0
	}
	defer func() { _ = resp.Body.Close() }() // it was read
	if body, err = io.ReadAll(resp.Body); err != nil {
		w.t.Error(err)
	}
	return body, resp.StatusCode
}

// process returns a process's network and options.
func (w *ociWorld) process(fault func(int, *http.Request) wire.Fault) (*wire.Network, Options) {
	n := &wire.Network{
		Hosts: map[string]http.Handler{ociHost: w.handler}, Clock: w.clock, Fault: fault,
		Secret: login, SecretHeader: "Authorization", SecretHosts: []string{ociHost},
	}
	return n, Options{TokenFile: w.token, Progress: w.tell, Report: w.tell, Network: transport.Network{Transport: n, Sleep: w.sleep, Now: w.clock.Now}}
}

// sleep lets the clock go on, and the registry too, which is another process.
func (w *ociWorld) sleep(ctx context.Context, d time.Duration) error {
	time.Sleep(time.Millisecond)
	return w.clock.Sleep(ctx, d)
}

// do publishes in a process of its own.
func (w *ociWorld) do(ctx context.Context, n *wire.Network, opts Options, releases ...*release.Release) (*Result, error) {
	return w.publish(ctx, "oci://"+ociHost+"/"+w.name, []string{ociSecret, login}, n, opts, releases...)
}

// complete says what is wrong with the end: the tag stands for all files.
func (w *ociWorld) complete() error {
	before := w.seen
	w.observe()
	if w.seen == before {
		return errors.New("there is no tag")
	}
	return w.whole()
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

// TestOCIImmutableTags: a registry that keeps the first of two publishers refuses the second, which then checks the
// tag.
func TestOCIImmutableTags(t *testing.T) {
	registry := pinned.StartRegistry(t)
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
			if _, err := w.do(t.Context(), n, opts, first); err != nil {
				t.Error(err)
			}
			out.WriteHeader(http.StatusConflict)
			_, _ = out.Write([]byte(`{"errors":[{"code":"TAG_IMMUTABLE","message":"the tag is there"}]}`)) // to a recorder
		})
		n, opts := w.process(nil)
		_, err := w.do(t.Context(), n, opts, second)
		var conflict *ConflictError
		if same && err != nil || !same && !errors.As(err, &conflict) {
			t.Errorf("the same bytes %v: %v", same, err)
		}
		if err := w.complete(); err != nil {
			t.Error(err)
		}
	}
}

// public returns what the operator's users get for a version.
func (w *ociWorld) public(version string) (map[string]string, bool) {
	body, there := w.get(http.MethodGet, "manifests/"+version)
	if !there {
		return nil, false
	}
	var m ocispec.Manifest
	if err := json.Unmarshal(body, &m); err != nil {
		w.t.Error(err)
	}
	files := map[string]string{}
	for _, l := range m.Layers {
		files[l.Annotations[ocispec.AnnotationTitle]] = l.Digest.Encoded()
	}
	return files, true
}
