package publish

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clusterctl-release/clusterctl-release/internal/gitlabserver"
	"github.com/clusterctl-release/clusterctl-release/internal/wire"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish/store"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// pageFaults are the faults of all requests when a release of the project is published, too.
var pageFaults = []wire.Fault{
	wire.Refused, wire.LostAnswer, wire.CutRequest, wire.CutAnswer, wire.GatewayBefore, wire.GatewayAfter, wire.Internal, wire.Unavailable, wire.Limited,
}

// publishWithRelease publishes with a release of the project.
func (w *gitlabWorld) publishWithRelease(t *testing.T, fault func(int, *http.Request) wire.Fault, change func(*Options), releases ...*release.Release) (*Result, *wire.Network, error) {
	t.Helper()
	n, opts := w.process(fault)
	opts.GitLabRelease = true
	if change != nil {
		change(&opts)
	}
	result, err := w.do(t.Context(), n, opts, releases...)
	return result, n, err
}

// checkLinks returns an error unless the project has one release with one link to each file.
func (w *gitlabWorld) checkLinks() error {
	all := w.server.Releases()
	if len(all) != 1 {
		return fmt.Errorf("got %d releases, want 1", len(all))
	}
	files := w.server.Public("capl", w.want.Version)
	got := map[string]int{}
	for _, l := range all[0].Links {
		name := strings.TrimPrefix(l.URL, gitlabURL+"/"+w.want.Version+"/")
		if _, ok := files[name]; !ok || name != l.Name || l.Type != "package" {
			return fmt.Errorf("the link %+v has the wrong URL, name or type", l)
		}
		got[name]++
	}
	want := map[string]int{}
	for name := range files {
		want[name] = 1
	}
	if diff := cmp.Diff(want, got); diff != "" {
		return fmt.Errorf("the links (-want +got):\n%s", diff)
	}
	return nil
}

func TestGitLabRelease(t *testing.T) {
	w := newGitLabWorld(t)
	w.want = someRelease(libvirt, "v0.1.0", "")
	n, opts := w.process(nil)
	opts.GitLabRelease = true
	const place = "https://gitlab.example.com/api/v4/projects/acme%2Fcapl/releases/v0.1.0"
	plan, err := open(t, gitlabURL, opts).Plan(t.Context(), []*release.Release{w.want})
	if err != nil || !strings.Contains(plan.String(), "  create     "+place+", 5 links\n") || len(changesOf(n)) > 0 {
		t.Fatalf("%v: %s", err, plan)
	}
	result, n, err := w.publishWithRelease(t, nil, func(o *Options) { o.Notes = "What is new" }, w.want)
	if err != nil || !strings.Contains(result.String(), "published "+place) {
		t.Fatalf("%v: %s", err, result)
	}
	if changes := changesOf(n); !strings.HasPrefix(changes[len(changes)-1], http.MethodPost) {
		t.Errorf("the release is not the last change: %v", changes)
	}
	if err := errors.Join(w.complete(), w.checkLinks()); err != nil {
		t.Error(err)
	}
	if got := w.server.Releases()[0]; got.Description != "What is new" || got.Name != "v0.1.0" || w.server.Commit("v0.1.0") != someCommit {
		t.Errorf("the release is %+v of %s", got, w.server.Commit("v0.1.0"))
	}
	// Publishing again changes nothing, even with other notes.
	result, n, err = w.publishWithRelease(t, nil, func(o *Options) { o.Notes = "Other words" }, w.want)
	if err != nil || len(changesOf(n)) > 0 || result.Pages[0].Action != store.Unchanged {
		t.Errorf("publishing again: %v, %v, %v", err, changesOf(n), result)
	}
	// Without the option there are no requests about releases.
	n, opts = w.process(nil)
	if _, err := w.do(t.Context(), n, opts, w.want); err != nil || slices.ContainsFunc(n.Requests(), func(r string) bool { return strings.Contains(r, "/releases") }) {
		t.Errorf("without the option: %v, %v", err, n.Requests())
	}
}

// TestGitLabExistingRelease checks that an existing release keeps its links and gets the missing ones.
func TestGitLabExistingRelease(t *testing.T) {
	link := func(name string) gitlabserver.Link {
		return gitlabserver.Link{Name: name, URL: gitlabURL + "/v0.1.0/" + name, Type: "package"}
	}
	other := gitlabserver.Link{Name: "image", URL: "https://registry.example.com/acme/capl:v0.1.0", Type: "image"}
	for name, test := range map[string]struct {
		links  []gitlabserver.Link
		commit string
		want   string // part of the error; empty for none
		added  int
	}{
		"of a pipeline":   {links: []gitlabserver.Link{other}, added: 5},
		"incomplete":      {links: []gitlabserver.Link{other, link("metadata.yaml"), link("SHA256SUMS")}, added: 3},
		"another URL":     {links: []gitlabserver.Link{{Name: "metadata.yaml", URL: "https://example.com/metadata.yaml"}}, want: "has a link metadata.yaml to https://example.com/metadata.yaml"},
		"another commit":  {commit: strings.Repeat("b", 40), want: "is of the commit bbb"},
		"another's names": {links: []gitlabserver.Link{{Name: "the metadata", URL: gitlabURL + "/v0.1.0/metadata.yaml"}}, added: 4},
	} {
		t.Run(name, func(t *testing.T) {
			w := newGitLabWorld(t)
			w.want = someRelease(libvirt, "v0.1.0", "")
			commit := test.commit
			if commit == "" {
				commit = someCommit
			}
			w.server.AddRelease(gitlabserver.Release{Tag: "v0.1.0", Name: "The first", Description: "Words of ours", Links: test.links}, commit)
			result, n, err := w.publishWithRelease(t, nil, nil, w.want)
			existing := w.server.Releases()[0]
			if test.want != "" {
				if err == nil || !strings.Contains(err.Error(), test.want) || len(changesOf(n)) > 0 {
					t.Errorf("got %v and the changes %v, want %q without changes", err, changesOf(n), test.want)
				}
				return
			}
			if err != nil || result.Pages[0].Action != store.Update || len(existing.Links) != len(test.links)+test.added || existing.Description != "Words of ours" {
				t.Errorf("publishing: %v, %v; the release is %+v", err, result, existing)
			}
			if diff := cmp.Diff(len(test.links), countLinks(existing.Links, test.links)); diff != "" {
				t.Errorf("existing links were removed, left are %+v", existing.Links)
			}
		})
	}
}

// countLinks returns how many URLs of some links are also in all.
func countLinks(all, some []gitlabserver.Link) int {
	urls := map[string]bool{}
	for _, l := range all {
		urls[l.URL] = true
	}
	found := 0
	for _, l := range some {
		if urls[l.URL] {
			found++
		}
	}
	return found
}

// TestGitLabReleaseRefused checks that a refused release is an error with advice, and that the package is public.
func TestGitLabReleaseRefused(t *testing.T) {
	w := newGitLabWorld(t)
	w.want = someRelease(libvirt, "v0.1.0", "")
	w.want.Source = nil
	_, _, err := w.publishWithRelease(t, nil, func(o *Options) { o.Commit = "" }, w.want)
	if err == nil || !strings.Contains(err.Error(), "Ref is not specified") || !strings.Contains(err.Error(), "push it first") {
		t.Errorf("without a tag and a commit: %v", err)
	}
	if files := w.server.Public("capl", "v0.1.0"); files[release.MetadataFile] == nil {
		t.Error("the package is not public")
	}
	w.server.Tag("v0.1.0", someCommit)
	if _, _, err := w.publishWithRelease(t, nil, func(o *Options) { o.Commit = "" }, w.want); err != nil {
		t.Errorf("with the tag: %v", err)
	}
	if err := w.checkLinks(); err != nil {
		t.Error(err)
	}
}

// TestGitLabReleaseFaults runs two concurrent publishers with random faults. One release has each link once.
func TestGitLabReleaseFaults(t *testing.T) {
	for seed := range uint64(300) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := newGitLabWorld(t)
			w.want = someRelease(libvirt, "v0.1.0", "")
			faults := append(slices.Clone(pageFaults), wire.KilledBefore, wire.KilledAfter, wire.KilledAmid)
			if seed%2 == 0 {
				faults = pageFaults
			}
			var running sync.WaitGroup
			for i := range uint64(2) {
				running.Go(func() {
					_, _, _ = w.publishWithRelease(t, atRandom(seed*2+i, int(20+seed), faults), nil, w.want) // it may fail
				})
			}
			running.Wait()
			if _, _, err := w.publishWithRelease(t, nil, nil, w.want); err != nil {
				t.Fatalf("the run without faults: %v", err)
			}
			if err := errors.Join(w.complete(), w.checkLinks()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestGitLabReleaseKilledAtEachRequest kills the publisher at each request from the upload of the last file on.
func TestGitLabReleaseKilledAtEachRequest(t *testing.T) {
	r := someRelease(libvirt, "v0.1.0", "")
	clean := newGitLabWorld(t)
	clean.want = r
	_, n, err := clean.publishWithRelease(t, nil, nil, r)
	if err != nil {
		t.Fatal(err)
	}
	first := slices.IndexFunc(n.Requests(), func(r string) bool {
		return strings.HasPrefix(r, http.MethodPut) && strings.HasSuffix(r, "/metadata%2Eyaml")
	})
	for number := first; number < len(n.Requests()); number++ {
		for _, kill := range []wire.Fault{wire.KilledBefore, wire.KilledAfter, wire.KilledAmid} {
			w := newGitLabWorld(t)
			w.want = r
			_, n, err := w.publishWithRelease(t, func(at int, _ *http.Request) wire.Fault { return map[bool]wire.Fault{true: kill}[at == number] }, nil, r)
			if !n.Dead() {
				t.Fatalf("%d: the publisher was not killed: %v", number, err)
			}
			if _, _, err := w.publishWithRelease(t, nil, nil, r); err != nil {
				t.Errorf("%d, %s: the re-run: %v", number, kill, err)
			}
			if err := errors.Join(w.complete(), w.checkLinks()); err != nil {
				t.Errorf("%d, %s: %v", number, kill, err)
			}
		}
	}
}

// TestGitLabDeployToken checks that a deploy token uploads and downloads files with its own header, and lists nothing.
func TestGitLabDeployToken(t *testing.T) {
	const secret = "gldt-" + "TopSecretOfTheTests"
	w := newGitLabWorld(t)
	w.want = someLabelled("v0.1.0")
	n, opts := w.process(nil)
	if _, err := w.do(t.Context(), n, opts, w.want); err != nil {
		t.Fatal(err)
	}
	w.server.DeployToken, w.server.Private = secret, true
	write(t, w.token, secret)
	n, opts = w.process(nil)
	n.Secret, n.SecretHeader = secret, "Deploy-Token"
	opts.Network.ReadFile = nil
	for _, location := range []string{gitlabURL + "/v0.1.0/infrastructure-components.yaml", gitlabURL + "/v0.1.0"} {
		releases, err := Read(t.Context(), location, opts)
		if err != nil || len(releases) != 1 || len(w.want.Differences(releases[0])) > 0 {
			t.Errorf("Read(%q) = %v, %v", location, releases, err)
		}
	}
	files := w.server.Public("capl", "v0.1.0")
	if _, ok := files[store.ProvenanceFile]; !ok {
		t.Fatalf("no provenance among %v", slices.Sorted(maps.Keys(files)))
	}
	if slices.ContainsFunc(n.Requests(), func(r string) bool { return !strings.Contains(r, "/packages/generic/") }) || len(n.Leaks()) > 0 {
		t.Errorf("the requests are %v, with the leaks %v", n.Requests(), n.Leaks())
	}
	for _, fails := range []func() error{
		func() error { _, err := Read(t.Context(), gitlabURL+"/latest", opts); return err },
		func() error { _, err := w.do(t.Context(), n, opts, w.want); return err },
	} {
		if err := fails(); err == nil || !strings.Contains(err.Error(), "a deploy token sends and reads files") {
			t.Errorf("got %v, want an error about the deploy token", err)
		}
	}
	if _, err := Read(t.Context(), gitlabURL+"/v0.9.0/infrastructure-components.yaml", opts); !errors.Is(err, release.ErrNoRelease) {
		t.Errorf("a missing version: %v", err)
	}
}

// TestGitLabReleaseAnswers checks that a request with the answer 400 is not repeated without end, and that a
// release is created on servers that answer 403 for a missing release.
func TestGitLabReleaseAnswers(t *testing.T) {
	for name, test := range map[string]struct {
		method string
		status int
		want   string
		most   int
	}{
		"a bad request": {http.MethodPost, http.StatusBadRequest, "making the release v0.1.0 of the project", 2},
		"old servers":   {http.MethodGet, http.StatusForbidden, "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newGitLabWorld(t)
			w.want = someRelease(libvirt, "v0.1.0", "")
			created := false
			answered := 0
			result, _, err := w.publishWithRelease(t, nil, func(o *Options) {
				network := o.Network.Transport.(*wire.Network)
				inner := network.Hosts[gitlabserver.Host]
				network.Hosts[gitlabserver.Host] = http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
					isPage := strings.Contains(r.URL.Path, "/releases")
					if isPage && r.Method == test.method && !created {
						answered++
						out.WriteHeader(test.status)
						return
					}
					created = created || isPage && r.Method == http.MethodPost
					inner.ServeHTTP(out, r)
				})
			}, w.want)
			if test.want == "" && (err != nil || len(w.server.Releases()) != 1) || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got %v, %v; want the error %q", result, err, test.want)
			}
			if test.want != "" && answered > test.most {
				t.Errorf("the server answered %d requests", answered)
			}
		})
	}
}
