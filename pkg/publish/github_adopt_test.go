package publish

import (
	"errors"
	"maps"
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

// program returns a file that another program adds to releases, such as a binary.
func program() []*githubserver.Asset {
	return []*githubserver.Asset{{Name: "program", Data: []byte("x")}}
}

// TestGitHubPrepared checks that the files are added to an existing release or draft of the version,
// and that its title, text and other files stay.
func TestGitHubPrepared(t *testing.T) {
	for name, test := range map[string]struct {
		prepared []githubserver.Release
		options  func(*Options)
		// other assets, title and text of the release afterwards
		assets, title, body string
		draft               bool
		detail              string
	}{
		"a text": {
			prepared: []githubserver.Release{{Tag: "v0.1.0", Name: "The first", Body: "Words of ours", Draft: true}},
			title:    "The first", body: "Words of ours", detail: "it takes the title and text of the draft",
		},
		"a draft with a binary": {
			prepared: []githubserver.Release{{Tag: "v0.1.0", Name: "The first", Body: "Words of ours", Draft: true, Assets: program()}},
			assets:   "program", title: "The first", body: "Words of ours", detail: "the files are added to https://github.com/acme/capl/releases/1, which has 1",
		},
		"a draft by its name": {
			prepared: []githubserver.Release{{Tag: "untagged-1", Name: "v0.1.0", Draft: true, Assets: program()}},
			assets:   "program", title: "v0.1.0",
		},
		"a text and a draft with a binary": {
			prepared: []githubserver.Release{{Tag: "v0.1.0", Name: "The first", Body: "Words of ours", Draft: true}, {Tag: "v0.1.0", Draft: true, Assets: program()}},
			assets:   "program", title: "The first", body: "Words of ours",
		},
		"a draft with a binary, and notes": {
			prepared: []githubserver.Release{{Tag: "v0.1.0", Name: "The first", Body: "Words of ours", Draft: true, Assets: program()}},
			options:  func(o *Options) { o.Notes = "Other words" },
			assets:   "program", title: "The first", body: "Other words",
		},
		"published too early": {
			prepared: []githubserver.Release{{Tag: "v0.1.0", Name: "The first", Body: "Words of ours", Assets: program()}},
			assets:   "program", title: "The first", body: "Words of ours", detail: "the files are added to",
		},
		"published too early and empty": {
			prepared: []githubserver.Release{{Tag: "v0.1.0", Name: "The first"}},
			title:    "The first",
		},
		"left as a draft": {
			options: func(o *Options) { o.Draft, o.Notes = true, "Words of ours" },
			title:   "v0.1.0", body: "Words of ours", draft: true, detail: "it stays a draft",
		},
		"a draft with a binary that stays a draft": {
			prepared: []githubserver.Release{{Tag: "v0.1.0", Name: "The first", Body: "Words of ours", Draft: true, Assets: program()}},
			options:  func(o *Options) { o.Draft = true },
			assets:   "program", title: "The first", body: "Words of ours", draft: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newGitHubWorld(t)
			for _, r := range test.prepared {
				if !r.Draft {
					w.server.Tag(r.Tag, someCommit)
				}
				w.server.Add(r)
			}
			r := someRelease(libvirt, "v0.1.0", "")
			n, opts := w.process(nil)
			if test.options != nil {
				test.options(&opts)
			}
			plan, err := open(t, githubURL, opts).Plan(t.Context(), []*release.Release{r})
			if err != nil || !strings.Contains(plan.String(), test.detail) {
				t.Fatalf("the plan is %v, %v; want one with %q", plan, err, test.detail)
			}
			if result, err := w.do(t.Context(), n, opts, r); err != nil || len(result.Warnings) > 0 || result.Releases[0].Action != store.Create {
				t.Fatalf("publishing: %v, %v", err, result)
			}
			releases := w.server.Releases()
			if len(releases) != 1 || releases[0].Draft != test.draft || releases[0].Name != test.title || releases[0].Body != test.body || releases[0].Tag != "v0.1.0" {
				t.Errorf("the server has %d releases, the first is %+v", len(releases), releases[0])
			}
			var names []string
			for _, a := range releases[0].Assets {
				names = append(names, a.Name)
			}
			slices.Sort(names)
			want := append([]string{"SHA256SUMS", "cluster-template-prod.yaml", "infrastructure-components.yaml", "metadata.yaml", "provenance.intoto.jsonl"}, strings.Fields(test.assets)...)
			slices.Sort(want)
			if diff := cmp.Diff(want, names); diff != "" {
				t.Errorf("the files (-want +got):\n%s", diff)
			}
			// Publishing again only makes a draft public.
			n, opts = w.process(nil)
			if test.options != nil {
				test.options(&opts)
			}
			if result, err := w.do(t.Context(), n, opts, r); err != nil || result.Releases[0].Action != store.Unchanged || len(changesOf(n)) > 0 {
				t.Errorf("publishing again: %v, %v, %v", err, result, changesOf(n))
			}
			if !test.draft {
				return
			}
			opts.Draft = false
			if _, err := w.do(t.Context(), n, opts, r); err != nil || w.server.Releases()[0].Draft || len(w.server.Releases()) != 1 {
				t.Errorf("making the draft public: %v", err)
			}
		})
	}
}

// TestGitHubPreparedRefused checks that a release that can't get more files stays unchanged, and that the error
// has advice.
func TestGitHubPreparedRefused(t *testing.T) {
	for name, test := range map[string]struct {
		prepared  []githubserver.Release
		immutable bool
		want      string
	}{
		"two drafts with files":      {prepared: []githubserver.Release{{Tag: "v0.1.0", Draft: true, Assets: program()}, {Tag: "v0.1.0", Draft: true, Assets: program()}}, want: "more than one draft with files for v0.1.0"},
		"another build in the draft": {prepared: []githubserver.Release{{Tag: "v0.1.0", Draft: true, Assets: append(program(), &githubserver.Asset{Name: store.ChecksumsFile, Data: []byte("other")})}}, want: "another publisher is at work, or was ended"},
		"immutable":                  {prepared: []githubserver.Release{{Tag: "v0.1.0", Immutable: true, Assets: program()}}, want: "it is immutable and has no metadata.yaml: publish another version, as a draft (Options.Draft)"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newGitHubWorld(t)
			w.server.Tag("v0.1.0", someCommit)
			for _, r := range test.prepared {
				w.server.Add(r)
			}
			before := w.server.Releases()
			n, opts := w.process(nil)
			if _, err := w.do(t.Context(), n, opts, someRelease(libvirt, "v0.1.0", "")); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			if diff := cmp.Diff(before, w.server.Releases()); diff != "" || len(changesOf(n)) > 0 {
				t.Errorf("something was changed (-before +after):\n%s", diff)
			}
		})
	}
}

// TestGitHubPreparedKilled kills the publisher at each request while it adds files to a draft or a public
// release with a binary. Users never see a part of the release, and a re-run completes it.
func TestGitHubPreparedKilled(t *testing.T) {
	r := someRelease(libvirt, "v0.1.0", "")
	for _, draft := range []bool{true, false} {
		prepare := func() *githubWorld {
			w := newGitHubWorld(t)
			w.server.Tag("v0.1.0", someCommit)
			w.server.Add(githubserver.Release{Tag: "v0.1.0", Draft: draft, Assets: program()})
			return w
		}
		clean := prepare()
		n, opts := clean.process(nil)
		if _, err := clean.do(t.Context(), n, opts, r); err != nil {
			t.Fatal(err)
		}
		for number := range n.Requests() {
			for _, kill := range []wire.Fault{wire.KilledBefore, wire.KilledAfter, wire.KilledAmid} {
				w := prepare()
				n, opts := w.process(func(at int, _ *http.Request) wire.Fault {
					if at == number {
						return kill
					}
					return wire.None
				})
				n.After = func() {
					files, _ := w.server.Public("v0.1.0")
					if _, ok := files[release.MetadataFile]; ok && len(files) != 6 {
						t.Errorf("metadata.yaml was public with %v", slices.Sorted(maps.Keys(files)))
					}
				}
				_, err := w.do(t.Context(), n, opts, r)
				if !n.Dead() || err == nil {
					t.Fatalf("the publisher was not killed: %v", err)
				}
				again, opts := w.process(nil)
				if _, err := w.do(t.Context(), again, opts, r); err != nil {
					t.Errorf("draft %v, %s at %d: the re-run: %v", draft, kill, number, err)
				}
				if files, public := w.server.Public("v0.1.0"); !public || len(files) != 6 || len(w.server.Releases()) != 1 {
					t.Errorf("draft %v, %s at %d: the files are %v", draft, kill, number, slices.Sorted(maps.Keys(files)))
				}
				if err := w.violations(); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

// replaceWorld returns a world with a published pre-release, a function that replaces it, and the number of
// requests after which neither the old nor the new one is public.
func replaceWorld(t *testing.T) (w *githubWorld, replace func(n *wire.Network, opts Options) error, gaps *int) {
	t.Helper()
	w = newGitHubWorld(t)
	const version = "v0.2.0-rc.0"
	old, changed := someRelease(libvirt, version, "old"), someRelease(libvirt, version, "new")
	w.published(t, nil, old)
	gaps = new(int)
	complete := func(r *release.Release, files map[string][]byte) bool {
		return !slices.ContainsFunc(r.Files, func(f release.File) bool { return string(files[f.Name]) != string(f.Data) })
	}
	return w, func(n *wire.Network, opts Options) error {
		opts.Replace = true
		n.After = func() {
			switch files, public := w.server.Public(version); {
			case !public:
				*gaps++
			case !complete(old, files) && !complete(changed, files):
				t.Errorf("a part is public: %v", slices.Sorted(maps.Keys(files)))
			}
		}
		_, err := w.do(t.Context(), n, opts, changed)
		return err
	}, gaps
}

// TestGitHubReplaceRefused checks that the old release is public again and no draft is left if the server
// refuses the last request.
func TestGitHubReplaceRefused(t *testing.T) {
	w, replace, gaps := replaceWorld(t)
	before, _ := w.server.Public("v0.2.0-rc.0")
	n, opts := w.process(nil)
	inner, edits := n.Hosts[githubserver.APIHost], 0
	n.Hosts[githubserver.APIHost] = http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPatch {
			edits++
		}
		if r.Method == http.MethodPatch && edits == 2 {
			out.WriteHeader(http.StatusForbidden)
			_, _ = out.Write([]byte(`{"message":"Resource not accessible"}`)) // to a recorder
			return
		}
		inner.ServeHTTP(out, r)
	})
	err := replace(n, opts)
	if err == nil || !strings.Contains(err.Error(), "the previous release is public again") {
		t.Errorf("got %v, want an error that reports the restored release", err)
	}
	if after, public := w.server.Public("v0.2.0-rc.0"); !public || !maps.EqualFunc(before, after, func(a, b []byte) bool { return string(a) == string(b) }) || len(w.server.Releases()) != 1 {
		t.Errorf("the files are %v, in %d releases", slices.Sorted(maps.Keys(after)), len(w.server.Releases()))
	}
	if body := w.body(t, "v0.2.0-rc.0"); strings.Contains(body, "<!--") {
		t.Errorf("the text of the restored release is %q", body)
	}
	if *gaps > 2 {
		t.Errorf("none was public after %d requests, want at most 2", *gaps)
	}
}

// TestGitHubReplaceKilled kills or interrupts the publisher at each request while it replaces a release.
// The old or the new release is public, at the latest after a complete run.
func TestGitHubReplaceKilled(t *testing.T) {
	w, replace, gaps := replaceWorld(t)
	n, opts := w.process(nil)
	if err := replace(n, opts); err != nil {
		t.Fatal(err)
	}
	if *gaps != 1 {
		t.Errorf("none was public after %d requests, want 1: %v", *gaps, changesOf(n))
	}
	for number := range n.Requests() {
		for _, kill := range []wire.Fault{wire.KilledBefore, wire.KilledAfter, wire.KilledAmid} {
			w, replace, _ := replaceWorld(t)
			n, opts := w.process(func(at int, _ *http.Request) wire.Fault {
				if at == number {
					return kill
				}
				return wire.None
			})
			if err := replace(n, opts); err == nil || !n.Dead() {
				t.Fatalf("the publisher was not killed: %v", err)
			}
			n, opts = w.process(nil)
			if err := replace(n, opts); err != nil {
				t.Errorf("%s at %d: the re-run: %v", kill, number, err)
			}
			if _, public := w.server.Public("v0.2.0-rc.0"); !public {
				t.Errorf("%s at %d: none is public after the re-run", kill, number)
			}
			if body := w.body(t, "v0.2.0-rc.0"); strings.Contains(body, "<!--") {
				t.Errorf("%s at %d: the text is %q", kill, number, body)
			}
			for _, r := range w.server.Releases() {
				if r.Draft && strings.Contains(r.Body, "replaced") {
					t.Errorf("%s at %d: the old release still exists as a draft", kill, number)
				}
			}
			if err := w.violations(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestGitHubRefusedLeavesNoDraft checks that the draft is removed if the server refuses to publish it.
func TestGitHubRefusedLeavesNoDraft(t *testing.T) {
	w := newGitHubWorld(t)
	n, opts := w.process(nil)
	inner := n.Hosts[githubserver.APIHost]
	n.Hosts[githubserver.APIHost] = http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPatch {
			out.Header().Set("X-Accepted-GitHub-Permissions", "contents=write; workflows=write")
			out.WriteHeader(http.StatusForbidden)
			_, _ = out.Write([]byte(`{"message":"Resource not accessible"}`)) // to a recorder
			return
		}
		inner.ServeHTTP(out, r)
	})
	_, err := w.do(t.Context(), n, opts, someRelease(libvirt, "v0.1.0", ""))
	if err == nil || !strings.Contains(err.Error(), "it needs contents=write; workflows=write") {
		t.Errorf("got %v, want an error with the required permissions", err)
	}
	if left := w.server.Releases(); len(left) > 0 {
		t.Errorf("a draft is left: %+v", left[0])
	}
}

// TestGitHubDuplicateReleases checks that publishing again and verifying report a second public release of a
// version.
func TestGitHubDuplicateReleases(t *testing.T) {
	w := newGitHubWorld(t)
	r := someLabelled("v0.1.0")
	w.published(t, nil, r)
	w.server.Add(githubserver.Release{Tag: "v0.1.0", Assets: program()})
	result := w.published(t, nil, r)
	if len(result.Warnings) != 1 || !strings.Contains(result.Warnings[0], "v0.1.0 is public more than once") {
		t.Errorf("publishing again: %q", result.Warnings)
	}
	_, opts := w.process(nil)
	v, err := Verify(t.Context(), githubURL+"/releases/v0.1.0/infrastructure-components.yaml", "", opts)
	if err != nil || !strings.Contains(errors.Join(v.Problems...).Error(), "v0.1.0 is public more than once") {
		t.Errorf("verified: %v, %v", v.Problems, err)
	}
}

// TestGitHubReplaceKilledAndRefused kills a run while no release is public and refuses the next one. Then the
// old release is public again.
func TestGitHubReplaceKilledAndRefused(t *testing.T) {
	w, replace, _ := replaceWorld(t)
	before, _ := w.server.Public("v0.2.0-rc.0")
	edits := func(kill wire.Fault, number int) func(int, *http.Request) wire.Fault {
		seen := 0
		return func(_ int, r *http.Request) wire.Fault {
			if r.Method == http.MethodPatch {
				seen++
				if seen == number {
					return kill
				}
			}
			return wire.None
		}
	}
	n, opts := w.process(edits(wire.KilledAfter, 1))
	if err := replace(n, opts); err == nil || !n.Dead() {
		t.Fatalf("the publisher was not killed: %v", err)
	}
	if _, public := w.server.Public("v0.2.0-rc.0"); public {
		t.Fatal("a release is public, want none")
	}
	n, opts = w.process(nil)
	inner := n.Hosts[githubserver.APIHost]
	refused := false
	n.Hosts[githubserver.APIHost] = http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPatch && !refused {
			refused = true
			out.WriteHeader(http.StatusForbidden)
			return
		}
		inner.ServeHTTP(out, r)
	})
	if err := replace(n, opts); err == nil || !strings.Contains(err.Error(), "is public again") {
		t.Errorf("got %v, want an error that reports the restored release", err)
	}
	if after, public := w.server.Public("v0.2.0-rc.0"); !public || !maps.EqualFunc(before, after, func(a, b []byte) bool { return string(a) == string(b) }) {
		t.Errorf("the files are %v", slices.Sorted(maps.Keys(after)))
	}
}

// TestGitHubPreparedNotReplaced checks that Options.Replace removes no files from another publisher's draft.
func TestGitHubPreparedNotReplaced(t *testing.T) {
	w := newGitHubWorld(t)
	w.server.Add(githubserver.Release{Tag: "v0.1.0-rc.0", Draft: true, Assets: append(program(), &githubserver.Asset{Name: store.ChecksumsFile, Data: []byte("other")})})
	n, opts := w.process(nil)
	opts.Replace = true
	if _, err := w.do(t.Context(), n, opts, someRelease(libvirt, "v0.1.0-rc.0", "")); err == nil || !strings.Contains(err.Error(), "has files of another build of v0.1.0-rc.0") {
		t.Errorf("got %v, want an error about files of another build", err)
	}
	if len(changesOf(n)) > 0 {
		t.Errorf("something was changed: %v", changesOf(n))
	}
}
