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
	"sync/atomic"
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
	// ociHost is the host name that publishers use for the registry, a real one behind a proxy of the test.
	ociHost   = "registry.example.com"
	ociSecret = "TopSecretOfTheTests"
	// ociWait is the time between setting a tag and reading it again.
	ociWait = 4 * time.Second
)

// ociWorld is a repository of a real registry with an observer, and the processes that publish to it.
type ociWorld struct {
	observer

	t       testing.TB
	clock   *wire.Clock
	handler http.Handler
	host    string
	name    string
	token   string
	// inFlight is the number of requests that the registry has not answered.
	inFlight atomic.Int32
	version  string            // the tag that the observer reads
	want     map[string]string // the digests of the files of the tag, by title
}

// login is the encoded form of the secret in requests to the registry.
// Source: RFC 7617, "Basic" authentication.
var login = base64.StdEncoding.EncodeToString([]byte("token:" + ociSecret))

// requireLogin returns a registry that answers requests without a login with 401.
func requireLogin(registry http.Handler) http.Handler {
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

// newOCIWorld returns a new repository in a registry.
func newOCIWorld(t testing.TB, registry, name string, want *release.Release) *ociWorld {
	t.Helper()
	w := &ociWorld{t: t, clock: wire.NewClock(), host: registry, name: name, token: filepath.Join(t.TempDir(), "token")}
	write(t, w.token, ociSecret+"\n")
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: registry})
			r.Out.Host = ociHost // the host in the registry's URLs for uploads
			r.Out.Header.Set("X-Forwarded-Proto", "https")
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }, // the request was cut off
	}
	w.handler = requireLogin(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		w.inFlight.Add(1)
		defer w.inFlight.Add(-1)
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

// expect makes the observer check that the tag has the files of a release.
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
		w.want[f.Name] = release.Digest(f.Data)
	}
}

// observe checks that the tag has all files or is missing.
func (w *ociWorld) observe() {
	if w.want == nil {
		return
	}
	body, exists := w.get(http.MethodGet, "manifests/"+w.version)
	if !exists {
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
		problems = append(problems, "the tag had other files (-want +got):\n"+diff)
	}
	for blob := range blobs {
		if _, exists := w.get(http.MethodHead, "blobs/"+blob); !exists {
			problems = append(problems, "the tag had files that are missing")
		}
	}
	w.saw(problems...)
}

// get sends a request to the registry itself and reports whether the object exists. It repeats requests with
// the answer 500, which the registry gives while it writes data of two publishers.
func (w *ociWorld) get(method, what string) ([]byte, bool) {
	for range 100 {
		body, status := w.getOnce(method, what)
		if status < http.StatusInternalServerError {
			return body, status == http.StatusOK
		}
		time.Sleep(10 * time.Millisecond)
	}
	w.t.Errorf("the registry does not return %s", what)
	return nil, false
}

// getOnce sends one request to the registry.
func (w *ociWorld) getOnce(method, what string) (body []byte, status int) {
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
	return n, Options{TokenFile: w.token, Progress: w.report, Report: w.report, Network: transport.Network{Transport: n, Sleep: w.sleep, Now: w.clock.Now}}
}

// sleep advances the clock. The registry, another process, first gets time to complete its writes: until then it
// answers requests for the same blob with 500.
func (w *ociWorld) sleep(ctx context.Context, d time.Duration) error {
	for range 1000 {
		time.Sleep(time.Millisecond)
		if w.inFlight.Load() == 0 {
			break
		}
	}
	return w.clock.Sleep(ctx, d)
}

// do publishes in a separate process.
func (w *ociWorld) do(ctx context.Context, n *wire.Network, opts Options, releases ...*release.Release) (*Result, error) {
	return w.publish(ctx, "oci://"+ociHost+"/"+w.name, []string{ociSecret, login}, n, opts, releases...)
}

// complete returns an error unless the tag has all files.
func (w *ociWorld) complete() error {
	before := w.seen
	w.observe()
	if w.seen == before {
		return errors.New("the tag is missing")
	}
	return w.violations()
}

// turns synchronizes two publishers. A publisher that waits after it has set the tag continues when the other
// one has had time to read and set the tag.
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

// change runs do and wakes the waiting publishers.
func (t *turns) change(do func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	do()
	t.moved.Broadcast()
}

// await returns when the other publisher has made this number of further requests, waits too, or is done.
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

// TestOCIImmutableTags checks that a publisher whose tag a registry refuses as immutable compares the existing
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
			// Another publisher sets the tag between this publisher's check and its own request.
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

// public returns the digests of the files that the operator's users get for a version.
func (w *ociWorld) public(version string) (map[string]string, bool) {
	body, exists := w.get(http.MethodGet, "manifests/"+version)
	if !exists {
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
