package publish

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/clusterctl-release/clusterctl-release/internal/giteaserver"
	"github.com/clusterctl-release/clusterctl-release/internal/wire"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish/store"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish/transport"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

const (
	giteaURL    = "https://gitea.example.com/api/packages/acme/generic/capl"
	giteaSecret = "gitea-TopSecretOfTheTests"
)

// giteaWorld is a Gitea with an observer, and the processes that publish to it.
type giteaWorld struct {
	observer

	clock  *wire.Clock
	server *giteaserver.Server
	token  string
	want   *release.Release
}

func newGiteaWorld(t testing.TB) *giteaWorld {
	t.Helper()
	w := &giteaWorld{clock: wire.NewClock(), server: giteaserver.New("acme")}
	w.server.Token = giteaSecret
	w.token = filepath.Join(t.TempDir(), "token")
	write(t, w.token, giteaSecret+"\n")
	return w
}

// public implements world: a version is public if it has metadata.yaml.
func (w *giteaWorld) public(version string) (map[string]string, bool) {
	files := map[string]string{}
	for name, data := range w.server.Files("capl", version) {
		files[name] = release.Digest(data)
	}
	_, ok := files[release.MetadataFile]
	return files, ok
}

// expect implements world.
func (w *giteaWorld) expect(releases ...*release.Release) { w.want = releases[0] }

// observe checks the files that are public now.
func (w *giteaWorld) observe() {
	if w.want == nil {
		return
	}
	if files, ok := w.public(w.want.Version); ok && hasAll(w.want, files) {
		w.saw()
	} else if ok {
		w.saw(fmt.Sprintf("%s was public with %v", w.want.Version, files))
	}
}

// process implements world.
func (w *giteaWorld) process(fault func(int, *http.Request) wire.Fault) (*wire.Network, Options) {
	n := &wire.Network{
		Hosts: w.server.Hosts(), Clock: w.clock, Fault: fault, After: w.observe,
		Secret: giteaSecret, SecretHeader: "Authorization", SecretHosts: []string{giteaserver.Host},
	}
	return n, Options{
		TokenFile: w.token, Progress: w.report, Report: w.report,
		Network: transport.Network{Transport: n, Sleep: w.clock.Sleep, Now: w.clock.Now},
	}
}

// do implements world.
func (w *giteaWorld) do(ctx context.Context, n *wire.Network, opts Options, releases ...*release.Release) (*Result, error) {
	return w.publish(ctx, giteaURL, []string{giteaSecret}, n, opts, releases...)
}

// complete implements world: the version has exactly the expected files.
func (w *giteaWorld) complete() error {
	w.observe()
	if w.seen == 0 {
		return errors.New("the observer saw no public version")
	}
	files, _ := w.public(w.want.Version)
	if len(files) != len(w.want.Files)+2 { // checksums and provenance
		return errors.Join(w.violations(), fmt.Errorf("the files are %v", slices.Sorted(maps.Keys(files))))
	}
	return w.violations()
}

// TestGitea publishes, publishes again, publishes other bytes, replaces and reads.
func TestGitea(t *testing.T) {
	w := newGiteaWorld(t)
	w.server.PageSize = 1
	w.want = someLabelled("v0.1.0")
	n, opts := w.process(nil)
	result, err := w.do(t.Context(), n, opts, w.want)
	if err != nil || !strings.Contains(result.String(), "clusterctl reads nothing from Gitea") || strings.Contains(result.String(), "clusterctl init") {
		t.Fatalf("publishing: %v, %v", err, result)
	}
	if err := w.complete(); err != nil {
		t.Error(err)
	}
	n, opts = w.process(nil)
	if result, err := w.do(t.Context(), n, opts, w.want); err != nil || result.Releases[0].Action != store.Unchanged || len(changesOf(n)) > 0 {
		t.Errorf("publishing again: %v, %v, %v", result, err, changesOf(n))
	}
	var conflict *ConflictError
	if _, err := w.do(t.Context(), n, opts, someRelease(libvirt, "v0.1.0", "other")); !errors.As(err, &conflict) {
		t.Errorf("other bytes: %v", err)
	}
	if _, err := w.do(t.Context(), n, opts, someRelease(libvirt, "v0.2.0-rc.0", "")); err != nil {
		t.Error(err)
	}
	opts.TokenFile = ""
	for location, version := range map[string]string{
		giteaURL + "/v0.1.0/infrastructure-components.yaml": "v0.1.0", giteaURL + "/v0.1.0": "v0.1.0", giteaURL + "/latest": "v0.1.0",
	} {
		v, err := Verify(t.Context(), location, "", opts)
		if err != nil || len(v.Releases) != 1 || v.Releases[0].Version != version || len(v.Problems) > 0 || len(w.want.Differences(v.Releases[0])) > 0 {
			t.Errorf("%s: %+v, %v", location, v, err)
		}
	}
	for text, want := range map[string]string{
		"https://a:pw@gitea.example.com/api/packages/acme/generic/capl": "has a user or password in it",
		giteaURL + "/v0.1.0": "is more than a repository",
	} {
		if _, err := Open(text, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
	if _, err := open(t, giteaURL, opts).Publish(t.Context(), []*release.Release{w.want}); err == nil || !strings.Contains(err.Error(), "set GITEA_TOKEN") {
		t.Errorf("without a token: %v", err)
	}
	opts.TokenFile = w.token
	w.server.Token = "other"
	if _, err := open(t, giteaURL, opts).Publish(t.Context(), []*release.Release{w.want}); err == nil || !strings.Contains(err.Error(), "the token is missing or not accepted") {
		t.Errorf("with another token: %v", err)
	}
}
