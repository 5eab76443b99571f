package publish

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clusterctl-release/clusterctl-release/internal/gitlabserver"
	"github.com/clusterctl-release/clusterctl-release/internal/wire"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish/store"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish/transport"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

const (
	gitlabURL    = "https://gitlab.example.com/api/v4/projects/acme%2Fcapl/packages/generic/capl"
	gitlabSecret = "glpat-TopSecretOfTheTests"
)

// gitlabWorld is a GitLab with an observer, and the processes that publish to it.
type gitlabWorld struct {
	observer

	clock  *wire.Clock
	server *gitlabserver.Server
	token  string
	want   *release.Release
}

func newGitLabWorld(t testing.TB) *gitlabWorld {
	t.Helper()
	w := &gitlabWorld{clock: wire.NewClock(), server: gitlabserver.New("acme/capl")}
	w.server.Token = gitlabSecret
	w.token = filepath.Join(t.TempDir(), "token")
	write(t, w.token, gitlabSecret+"\n")
	return w
}

// observe checks that a version with metadata.yaml has every file.
func (w *gitlabWorld) observe() {
	if w.want == nil {
		return
	}
	files := w.server.Public("capl", w.want.Version)
	if _, ok := files[release.MetadataFile]; !ok {
		return
	}
	var problems []string
	for _, f := range w.want.Files {
		if string(files[f.Name]) != string(f.Data) {
			problems = append(problems, fmt.Sprintf("%s was public without the right %s", w.want.Version, f.Name))
		}
	}
	w.saw(problems...)
}

func (w *gitlabWorld) process(fault func(int, *http.Request) wire.Fault) (*wire.Network, Options) {
	n := &wire.Network{
		Hosts: w.server.Hosts(), Clock: w.clock, Fault: fault, After: w.observe,
		Secret: gitlabSecret, SecretHeader: "Private-Token", SecretHosts: []string{gitlabserver.Host},
	}
	return n, Options{
		TokenFile: w.token, Commit: someCommit, Progress: w.report, Report: w.report,
		Network: transport.Network{Transport: n, Sleep: w.clock.Sleep, Now: w.clock.Now, ReadFile: downloads(n, func(url, _ string) string { return url })},
	}
}

// do publishes in a separate process.
func (w *gitlabWorld) do(ctx context.Context, n *wire.Network, opts Options, releases ...*release.Release) (*Result, error) {
	return w.publish(ctx, gitlabURL, []string{gitlabSecret}, n, opts, releases...)
}

// expect makes the observer check that a public version of a release is complete.
func (w *gitlabWorld) expect(releases ...*release.Release) { w.want = releases[0] }

// public returns the digests of the files that clusterctl's users get for a version.
func (w *gitlabWorld) public(version string) (map[string]string, bool) {
	files := map[string]string{}
	for name, data := range w.server.Public("capl", version) {
		files[name] = release.Digest(data)
	}
	_, ok := files[release.MetadataFile]
	return files, ok
}

// complete returns an error unless the package has exactly the expected files, each once.
func (w *gitlabWorld) complete() error {
	var want []string
	all, err := store.Versions([]*release.Release{w.want})
	if err != nil {
		return err
	}
	if err := all[0].Generate(context.Background(), ""); err != nil {
		return err
	}
	for _, f := range all[0].All {
		want = append(want, f.Name+" "+release.Digest(f.Data))
	}
	got := w.server.Files("capl", w.want.Version)
	slices.Sort(want)
	slices.Sort(got)
	w.observe()
	if w.seen == 0 {
		return errors.New("the observer saw no public version")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		return errors.Join(w.violations(), fmt.Errorf("the files (-want +got):\n%s", diff))
	}
	return w.violations()
}

func TestGitLabPublish(t *testing.T) {
	for _, refuse := range []bool{false, true} {
		w := newGitLabWorld(t)
		w.server.RefuseDuplicates, w.server.Redirect, w.server.PageSize = refuse, true, 2
		w.want = someRelease(libvirt, "v0.1.0", "")
		n, opts := w.process(nil)
		plan, err := open(t, gitlabURL, opts).Plan(t.Context(), []*release.Release{w.want})
		if err != nil || len(changesOf(n)) > 0 || !strings.Contains(plan.String(), "create     infrastructure-libvirt v0.1.0, 3 files") {
			t.Fatalf("%v, %v: %v", plan, err, changesOf(n))
		}
		result, err := w.do(t.Context(), n, opts, w.want)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(result.Entry, "url: "+gitlabURL+"/v0.1.0/infrastructure-components.yaml") || len(result.Warnings) > 0 {
			t.Errorf("the result is %s", result)
		}
		if err := w.complete(); err != nil {
			t.Error(err)
		}
		changes := changesOf(n)
		if first, last := changes[0], changes[len(changes)-1]; !strings.HasSuffix(first, "/SHA256SUMS") || !strings.HasSuffix(last, "/metadata%2Eyaml") {
			t.Errorf("the order is %v", changes)
		}
		n, opts = w.process(nil)
		if result, err = w.do(t.Context(), n, opts, w.want); err != nil || result.Releases[0].Action != store.Unchanged || len(changesOf(n)) > 0 {
			t.Errorf("publishing again: %v, %v, %v", result, err, changesOf(n))
		}
		var conflict *ConflictError
		if _, err := w.do(t.Context(), n, opts, someRelease(libvirt, "v0.1.0", "other")); !errors.As(err, &conflict) || len(conflict.Differences) != 2 {
			t.Errorf("other bytes: %v", err)
		}
		candidate := someRelease(libvirt, "v0.2.0-rc.0", "")
		if _, err := w.do(t.Context(), n, opts, candidate); err != nil {
			t.Fatal(err)
		}
		w.want = someRelease(libvirt, "v0.2.0-rc.0", "new")
		w.seen = 0
		n.After = nil // the old version is public first
		opts.Replace = true
		if result, err = w.do(t.Context(), n, opts, w.want); err != nil || result.Releases[0].Action != store.Replace {
			t.Errorf("replacing: %v, %v", result, err)
		}
		if err := w.complete(); err != nil {
			t.Error(err)
		}
		// Published versions are read from clusterctl's URL without a token.
		opts.TokenFile = ""
		for _, location := range []string{gitlabURL + "/v0.1.0/infrastructure-components.yaml", gitlabURL + "/v0.1.0", gitlabURL + "/latest"} {
			if releases, err := Read(t.Context(), location, opts); err != nil || len(releases) != 1 || releases[0].Version != "v0.1.0" || len(releases[0].Files) != 3 {
				t.Errorf("Read(%q) = %v, %v", location, releases, err)
			}
		}
	}
}

func TestGitLabErrors(t *testing.T) {
	r := someRelease(libvirt, "v0.1.0", "")
	for name, test := range map[string]struct {
		prepare func(*gitlabWorld, *Options)
		want    string
	}{
		"no token":        {func(_ *gitlabWorld, o *Options) { o.TokenFile = "" }, "set GITLAB_TOKEN"},
		"wrong token":     {func(w *gitlabWorld, _ *Options) { w.server.Token = "other" }, "not accepted"},
		"read-only token": {func(w *gitlabWorld, _ *Options) { w.server.Token, w.server.ReadToken = "other", gitlabSecret }, "role of a developer"},
		"no such project": {func(w *gitlabWorld, _ *Options) { w.server.Project = "acme/other" }, "there is no such project"},
		"another upload": {func(w *gitlabWorld, _ *Options) {
			w.server.Put("capl", "v0.1.0", "default", store.ChecksumsFile, []byte("other"))
		}, "another publisher is at work, or was ended"},
		"an incomplete package": {func(w *gitlabWorld, _ *Options) {
			w.server.Put("capl", "v0.1.0", "default", release.MetadataFile, []byte(metadata))
		}, "infrastructure-components.yaml is only in the new one"},
		"a hidden package": {func(w *gitlabWorld, _ *Options) {
			w.server.Put("capl", "v0.1.0", "hidden", release.MetadataFile, []byte("other"))
		}, "metadata.yaml differs"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newGitLabWorld(t)
			n, opts := w.process(nil)
			test.prepare(w, &opts)
			before := w.server.Files("capl", "v0.1.0")
			_, err := w.do(t.Context(), n, opts, r)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			if diff := cmp.Diff(before, w.server.Files("capl", "v0.1.0")); diff != "" {
				t.Errorf("something was changed:\n%s", diff)
			}
			if err := w.violations(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestGitLabPartlyStoredUpload checks that a partly stored upload is replaced, or that the error reports that it can't
// be removed.
func TestGitLabPartlyStoredUpload(t *testing.T) {
	once := func() func(int, *http.Request) wire.Fault {
		done := false
		return func(_ int, r *http.Request) wire.Fault {
			if !done && r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/infrastructure-components.yaml") {
				done = true
				return wire.Short
			}
			return wire.None
		}
	}
	w := newGitLabWorld(t)
	w.want = someRelease(libvirt, "v0.1.0", "")
	n, opts := w.process(once())
	if _, err := w.do(t.Context(), n, opts, w.want); err != nil {
		t.Error(err)
	}
	if err := w.complete(); err != nil {
		t.Error(err)
	}
	w = newGitLabWorld(t)
	w.want, w.server.Keep = someRelease(libvirt, "v0.1.0", ""), true
	n, opts = w.process(once())
	if _, err := w.do(t.Context(), n, opts, w.want); err == nil || !strings.Contains(err.Error(), "can't be removed") {
		t.Errorf("got %v, want an error about the file that can't be removed", err)
	}
	if err := w.violations(); err != nil {
		t.Error(err)
	}
}

// TestGitLabJobToken checks that a job's token is sent only to the job's server, in its own header.
func TestGitLabJobToken(t *testing.T) {
	w := newGitLabWorld(t)
	w.server.JobToken, w.want = gitlabSecret, someRelease(libvirt, "v0.1.0", "")
	w.server.Token = "other"
	t.Setenv("CI_JOB_TOKEN", gitlabSecret)
	t.Setenv("CI_SERVER_HOST", "gitlab.example.com")
	n, opts := w.process(nil)
	opts.TokenFile, n.SecretHeader = "", "Job-Token"
	if _, err := w.do(t.Context(), n, opts, w.want); err != nil {
		t.Fatal(err)
	}
	if err := w.complete(); err != nil {
		t.Error(err)
	}
	// A job token from a file is recognized by its prefix.
	const prefixed = "glcbt-" + "TopSecretOfTheTests"
	w.server.JobToken = prefixed
	write(t, w.token, prefixed)
	n, opts = w.process(nil)
	n.Secret, n.SecretHeader = prefixed, "Job-Token"
	if _, err := w.do(t.Context(), n, opts, w.want); err != nil {
		t.Errorf("from a file: %v", err)
	}
	if err := w.violations(); err != nil {
		t.Error(err)
	}
	n, opts = w.process(nil)
	opts.TokenFile = ""
	t.Setenv("CI_SERVER_HOST", "gitlab.com")
	if _, err := w.do(t.Context(), n, opts, w.want); err == nil || !strings.Contains(err.Error(), "no token to publish") {
		t.Errorf("on another server: %v", err)
	}
}

func TestGitLabURLs(t *testing.T) {
	for text, want := range map[string]string{
		"https://gitlab.example.com/api/v4/projects/42/packages/generic":          "isn't a package on GitLab",
		"https://gitlab.example.com/api/v4/projects/acme/capl/packages/generic/x": "isn't a package on GitLab",
		"https://gitlab.example.com/api/v4/projects/42/packages/generic/x/v1/f":   "is more than a repository",
		"https://a:pw@gitlab.example.com/api/v4/projects/42/packages/generic/x":   "has a user or password in it",
		"http://gitlab.example.com/api/v4/projects/42/packages/generic/x":         "isn't a place to publish to",
		"https://gitlab.example.com/api/v4/projects/42/packages/generic/a%20b":    "isn't a package on GitLab",
	} {
		_, err := Open(text, Options{})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "pw@") {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}

// TestGitLabReplaceRefused checks that the old version is public again if the last file of the new one is
// refused, and that the error reports it.
func TestGitLabReplaceRefused(t *testing.T) {
	w := newGitLabWorld(t)
	old := someRelease(libvirt, "v0.1.0-rc.0", "old")
	n, opts := w.process(nil)
	if _, err := w.do(t.Context(), n, opts, old); err != nil {
		t.Fatal(err)
	}
	n, opts = w.process(nil)
	opts.Replace = true
	inner, refused := n.Hosts[gitlabserver.Host], false
	n.Hosts[gitlabserver.Host] = http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/metadata.yaml") && !refused {
			refused = true
			out.WriteHeader(http.StatusForbidden)
			return
		}
		inner.ServeHTTP(out, r)
	})
	_, err := w.do(t.Context(), n, opts, someRelease(libvirt, "v0.1.0-rc.0", "new"))
	if err == nil || !strings.Contains(err.Error(), "the previous version is public again") {
		t.Errorf("got %v, want an error that reports the restored version", err)
	}
	w.want = old
	if err := w.complete(); err != nil {
		t.Error(err)
	}
}
