package publish

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clusterctl-release/clusterctl-release/internal/githubserver"
	"github.com/clusterctl-release/clusterctl-release/internal/wire"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish/store"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// published publishes releases and fails the test on an error.
func (w *githubWorld) published(t *testing.T, change func(*Options), releases ...*release.Release) *Result {
	t.Helper()
	n, opts := w.process(nil)
	if change != nil {
		change(&opts)
	}
	result, err := w.do(t.Context(), n, opts, releases...)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// changesOf returns the requests that change something.
func changesOf(n *wire.Network) []string {
	return slices.DeleteFunc(n.Requests(), func(r string) bool { return strings.HasPrefix(r, http.MethodGet) })
}

func TestGitHubPublish(t *testing.T) {
	w := newGitHubWorld(t)
	r := someRelease(libvirt, "v0.1.0", "")
	w.expect(r)
	n, opts := w.process(nil)
	plan, err := open(t, githubURL, opts).Plan(t.Context(), []*release.Release{r})
	if err != nil {
		t.Fatal(err)
	}
	if changes := changesOf(n); len(changes) > 0 {
		t.Errorf("the plan made the changes %v", changes)
	}
	want := "to https://github.com/acme/capl\n  create     infrastructure-libvirt v0.1.0, 3 files\n" +
		"             the commit " + someCommit + " is tagged v0.1.0\n             it becomes the latest release\n"
	if diff := cmp.Diff(want, plan.String()); diff != "" {
		t.Errorf("the plan (-want +got):\n%s", diff)
	}
	result := w.published(t, func(o *Options) { o.Notes = "What is new\n" }, r)
	want = `published infrastructure-libvirt v0.1.0 in https://github.com/acme/capl/releases/tag/v0.1.0
for clusterctl.yaml:
  providers:
  - name: libvirt
    type: InfrastructureProvider
    url: https://github.com/acme/capl/releases/latest/infrastructure-components.yaml
to use it:
  clusterctl generate provider --infrastructure libvirt:v0.1.0
  clusterctl init --infrastructure libvirt:v0.1.0
  clusterctl generate cluster my-cluster --infrastructure libvirt:v0.1.0 --flavor prod
`
	if diff := cmp.Diff(want, result.String()); diff != "" {
		t.Errorf("the result (-want +got):\n%s", diff)
	}
	if err := w.complete(); err != nil {
		t.Error(err)
	}
	created := w.server.Releases()[0]
	if created.Body != "What is new\n" || created.Name != "v0.1.0" || created.Prerelease || w.server.Latest() != "v0.1.0" || w.server.Commit("v0.1.0") != someCommit {
		t.Errorf("published %+v, latest %s, commit %s", created, w.server.Latest(), w.server.Commit("v0.1.0"))
	}
	// Publishing again changes nothing.
	n, opts = w.process(nil)
	result, err = w.do(t.Context(), n, opts, r)
	if err != nil || result.Releases[0].Action != store.Unchanged || len(changesOf(n)) > 0 {
		t.Errorf("publishing again: %v, %v, %v", result, err, changesOf(n))
	}
}

// TestGitHubLatest checks that the highest stable version is the latest in any order of publication.
func TestGitHubLatest(t *testing.T) {
	w := newGitHubWorld(t)
	for _, step := range []struct {
		version, latest string
		prerelease      bool
	}{
		{"v0.1.0-rc.0", "", true},
		{"v0.1.0", "v0.1.0", false},
		{"v0.2.0", "v0.2.0", false},
		{"v0.1.1", "v0.2.0", false},
		{"v0.3.0-alpha.1", "v0.2.0", true},
		{"v0.2.1", "v0.2.1", false},
		{"v0.10.0", "v0.10.0", false},
		{"v0.9.9", "v0.10.0", false},
	} {
		r := someRelease(libvirt, step.version, "")
		w.expect(r)
		w.published(t, nil, r)
		releases := w.server.Releases()
		if got := releases[len(releases)-1]; got.Prerelease != step.prerelease || w.server.Latest() != step.latest {
			t.Errorf("%s: pre-release %v, latest %q", step.version, got.Prerelease, w.server.Latest())
		}
	}
	if err := w.complete(); err != nil {
		t.Error(err)
	}
}

// TestGitHubSeveralProviders checks that providers of the same version share one release.
func TestGitHubSeveralProviders(t *testing.T) {
	w := newGitHubWorld(t)
	n, opts := w.process(nil)
	_, err := w.do(t.Context(), n, opts, someRelease(libvirt, "v0.1.0", "one"), someRelease(micro, "v0.1.0", "two"))
	if err == nil || !strings.Contains(err.Error(), "infrastructure-libvirt v0.1.0 and bootstrap-micro v0.1.0 both have a file cluster-template-prod.yaml") || len(n.Requests()) > 0 {
		t.Fatalf("got %v after the requests %v, want a collision without requests", err, n.Requests())
	}
	both := []*release.Release{someRelease(libvirt, "v0.1.0", ""), someRelease(micro, "v0.1.0", "")}
	w.expect(both...)
	w.published(t, nil, both...)
	if err := w.complete(); err != nil {
		t.Error(err)
	}
	if got := len(w.server.Releases()[0].Assets); got != 6 { // two components, metadata, a template, checksums, provenance
		t.Errorf("got %d assets, want 6", got)
	}
	// Publishing one of them again changes nothing.
	if result := w.published(t, nil, both[1]); result.Releases[0].Action != store.Unchanged {
		t.Errorf("one of two: %v", result)
	}
	_, opts = w.process(nil)
	releases, err := Read(t.Context(), githubURL+"/releases/tag/v0.1.0", opts)
	if err != nil || len(releases) != 2 {
		t.Errorf("read %v: %v", releases, err)
	}
}

func TestGitHubConflictAndReplace(t *testing.T) {
	w := newGitHubWorld(t)
	for _, version := range []string{"v0.1.0", "v0.2.0-rc.0"} {
		w.published(t, nil, someRelease(libvirt, version, "old"))
	}
	for _, test := range []struct {
		version string
		replace bool
		refused bool
	}{{"v0.1.0", false, true}, {"v0.1.0", true, true}, {"v0.2.0-rc.0", false, true}, {"v0.2.0-rc.0", true, false}} {
		r := someRelease(libvirt, test.version, "new")
		n, opts := w.process(nil)
		opts.Replace = test.replace
		result, err := w.do(t.Context(), n, opts, r)
		var conflict *ConflictError
		if test.refused {
			if !errors.As(err, &conflict) || len(conflict.Differences) != 2 || len(changesOf(n)) > 0 {
				t.Errorf("%s, replace %v: %v, %v", test.version, test.replace, err, changesOf(n))
			}
			continue
		}
		w.expect(r)
		if err != nil || result.Releases[0].Action != store.Replace {
			t.Errorf("replacing %s: %v, %v", test.version, result, err)
		}
	}
	if err := w.complete(); err != nil {
		t.Error(err)
	}
}

// TestGitHubImmutable checks that an immutable release is not replaced.
func TestGitHubImmutable(t *testing.T) {
	w := newGitHubWorld(t)
	w.server.Immutable = true
	old := someRelease(libvirt, "v0.2.0-rc.0", "old")
	w.expect(old)
	w.published(t, nil, old)
	for _, plan := range []bool{true, false} {
		n, opts := w.process(nil)
		opts.Replace = true
		target, err := Open(githubURL, opts)
		if err != nil {
			t.Fatal(err)
		}
		releases := []*release.Release{someRelease(libvirt, "v0.2.0-rc.0", "new")}
		if plan {
			var p *Plan
			if p, err = target.Plan(t.Context(), releases); err == nil {
				err = p.Err()
			}
		} else {
			_, err = target.Publish(t.Context(), releases)
		}
		var conflict *ConflictError
		if !errors.As(err, &conflict) || !conflict.Immutable || !strings.Contains(err.Error(), "is immutable") || len(changesOf(n)) > 0 {
			t.Errorf("plan %v: %v, %v", plan, err, changesOf(n))
		}
	}
	if err := w.complete(); err != nil {
		t.Error(err)
	}
}

// TestGitHubTagWarnings checks the warnings about tags without a complete release. clusterctl takes the newest tag
// of a series.
func TestGitHubTagWarnings(t *testing.T) {
	w := newGitHubWorld(t)
	for _, tag := range []string{"v0.1.0", "v0.1.1", "v0.2.0", "v0.3.0", "nightly", "v0.4.0"} {
		w.server.Tag(tag, someCommit)
	}
	asset := func(name string) *githubserver.Asset { return &githubserver.Asset{Name: name, Data: []byte("x")} }
	w.server.Add(githubserver.Release{Tag: "v0.1.1", Assets: []*githubserver.Asset{asset("metadata.yaml"), asset("infrastructure-components.yaml")}})
	w.server.Add(githubserver.Release{Tag: "v0.2.0", Assets: []*githubserver.Asset{asset("metadata.yaml")}})
	w.server.Add(githubserver.Release{Tag: "v0.3.0", Draft: true, Assets: []*githubserver.Asset{asset("metadata.yaml"), asset("infrastructure-components.yaml")}})
	result := w.published(t, func(o *Options) { o.NotesFrom = NoNotes }, someRelease(libvirt, "v0.4.0", ""))
	var tags []string
	for _, warning := range result.Warnings {
		tags = append(tags, strings.Fields(warning)[2])
	}
	if diff := cmp.Diff([]string{"v0.3.0", "v0.2.0"}, tags); diff != "" {
		t.Errorf("tags that are warned of (-want +got):\n%s\n%v", diff, result.Warnings)
	}
}

// TestGitHubErrors checks that each error has advice and that nothing is changed.
func TestGitHubErrors(t *testing.T) {
	r := someRelease(libvirt, "v0.1.0", "")
	odd, err := release.New(libvirt, "v0.1.0", append(slices.Clone(r.Files), release.File{Name: "a b.txt", Data: []byte("x")}, release.File{Name: "empty.txt"}))
	if err != nil {
		t.Fatal(err)
	}
	foreign := someRelease(libvirt, "v0.1.0", "")
	foreign.Source = nil
	for name, test := range map[string]struct {
		prepare func(*githubWorld, *Options)
		release *release.Release
		want    string
	}{
		"no token":          {func(_ *githubWorld, o *Options) { o.TokenFile = "" }, r, "set GITHUB_TOKEN"},
		"wrong token":       {func(w *githubWorld, _ *Options) { w.server.Token = "other" }, r, "the token is not accepted"},
		"read-only token":   {func(w *githubWorld, _ *Options) { w.server.Token, w.server.ReadToken = "other", githubSecret }, r, "contents: write"},
		"private, no right": {func(w *githubWorld, o *Options) { w.server.Private = true; w.server.Name = "other" }, r, "there is no such repository"},
		"archived":          {func(w *githubWorld, _ *Options) { w.server.Archived = true }, r, "is archived"},
		"moved":             {func(w *githubWorld, _ *Options) { w.server.MovedTo = "acme/renamed" }, r, "publish to https://github.com/acme/renamed"},
		"no tag, no commit": {func(_ *githubWorld, o *Options) { o.Commit = "" }, foreign, "push the tag first"},
		"tag elsewhere":     {func(w *githubWorld, _ *Options) { w.server.Tag("v0.1.0", strings.Repeat("b", 40)) }, r, "is of the commit bbb"},
		"names and sizes":   {nil, odd, `GitHub changes the name "a b.txt"`},
		"an empty file":     {nil, odd, "empty.txt is empty"},
		"an incomplete release": {func(w *githubWorld, _ *Options) {
			w.server.Add(githubserver.Release{Tag: "v0.1.0", Assets: []*githubserver.Asset{{Name: "metadata.yaml", Data: []byte(metadata)}}})
		}, r, "infrastructure-components.yaml is only in the new one"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newGitHubWorld(t)
			n, opts := w.process(nil)
			if test.prepare != nil {
				test.prepare(w, &opts)
			}
			before := w.server.Releases()
			_, err := w.do(t.Context(), n, opts, test.release)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			if diff := cmp.Diff(before, w.server.Releases()); diff != "" {
				t.Errorf("something was changed (-before +after):\n%s", diff)
			}
			if err := w.violations(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestGitHubURLs checks that URLs are refused that don't name a repository of the server.
func TestGitHubURLs(t *testing.T) {
	token := newGitHubWorld(t).token
	for text, want := range map[string]string{
		"https://github.com/acme":               "isn't a GitHub repository",
		"https://github.com/acme/capl/releases": "is more than a repository",
		"https://me:pw@github.com/acme/capl":    "has a user or password in it",
		"https://github.com/acme/capl?x=y":      "isn't a GitHub repository",
		"https://github.com/acme/ca%20pl":       "isn't a GitHub repository",
		"https://github.example.com/acme/capl":  "isn't a place to publish to",
		"http://github.com/acme/capl":           "isn't a place to publish to",
	} {
		_, err := Open(text, Options{TokenFile: token})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "pw@") {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}

// TestGitHubRead reads releases without a token from the forms of URLs that clusterctl accepts.
func TestGitHubRead(t *testing.T) {
	w := newGitHubWorld(t)
	for _, version := range []string{"v0.1.0", "v0.2.0", "v0.3.0-rc.0"} {
		w.published(t, nil, someLabelled(version))
	}
	n, opts := w.process(nil)
	opts.TokenFile = ""
	for location, version := range map[string]string{
		githubURL + "/releases/v0.1.0/infrastructure-components.yaml":      "v0.1.0",
		githubURL + "/releases/latest/infrastructure-components.yaml":      "v0.2.0",
		githubURL + "/releases/v0.3.0-rc.0/infrastructure-components.yaml": "v0.3.0-rc.0",
		githubURL + "/releases/tag/v0.1.0":                                 "v0.1.0",
		githubURL + "/releases/latest":                                     "v0.2.0",
	} {
		releases, err := Read(t.Context(), location, opts)
		if err != nil || len(releases) != 1 {
			t.Errorf("Read(%q) = %v, %v", location, releases, err)
			continue
		}
		if want := someLabelled(version); releases[0].String() != want.String() || len(want.Differences(releases[0])) > 0 {
			t.Errorf("%s: read %s, %v", location, releases[0], want.Differences(releases[0]))
		}
	}
	for location, want := range map[string]string{
		githubURL: "names no release",
		githubURL + "/releases/v0.9.0/infrastructure-components.yaml": "it has v0.3.0-rc.0, v0.2.0, v0.1.0",
		githubURL + "/releases/v0.1.0/bootstrap-components.yaml":      "has no file bootstrap-components.yaml",
		githubURL + "/releases/0.1.0/infrastructure-components.yaml":  "lacks the leading v",
	} {
		_, err := Read(t.Context(), location, opts)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", location, err, want)
		}
	}
	if len(n.Leaks()) > 0 {
		t.Error(n.Leaks())
	}
}

// someLabelled returns a release with a provider label in its components and a file that clusterctl doesn't read.
func someLabelled(version string) *release.Release {
	r, err := release.New(libvirt, version, []release.File{
		{Name: "infrastructure-components.yaml", Data: []byte("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: x\n  labels:\n    cluster.x-k8s.io/provider: infrastructure-libvirt\n")},
		{Name: release.MetadataFile, Data: []byte(metadata)},
		{Name: "NOTES.md", Data: []byte("notes")},
	})
	if err != nil {
		panic(err)
	}
	r.Record(someSource)
	return r
}

func TestParseChecksums(t *testing.T) {
	r := someRelease(libvirt, "v0.1.0", "")
	sums, err := store.ParseChecksums((&store.Version{Files: r.Files}).Checksums().Data)
	if err != nil || len(sums) != 3 || sums[release.MetadataFile] != release.Digest([]byte(metadata)) {
		t.Errorf("ParseChecksums = %v, %v", sums, err)
	}
	sum := strings.Repeat("a", 64)
	for text, want := range map[string]string{"x": ":1:", sum + "  a\n" + sum + "  a\n": "a is listed twice", sum + "  ../a\n": ":1:", sum[1:] + "  a\n": ":1:"} {
		if _, err := store.ParseChecksums([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}
