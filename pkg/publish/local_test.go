package publish

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clusterctl-release/clusterctl-release/pkg/publish/store"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

func TestPublishAndReadBack(t *testing.T) {
	for _, name := range []string{"repo", "with space", "100%", "a#b?c", "$HOME", "${x", "ünï", "'quote\"", `back\slash`, "new\nline", "a:b", "~"} {
		t.Run(name, func(t *testing.T) {
			root := filepath.Join(t.TempDir(), name, "deep")
			r := someRelease(libvirt, "v0.1.0", "one")
			r.Source = nil // records are not published
			result := publish(t, root, Options{}, r)
			if got := result.Releases[0].Action; got != store.Create {
				t.Errorf("action %s, want create", got)
			}
			if d := r.Differences(mustRead(t, root, r)); len(d) > 0 {
				t.Errorf("published with other bytes: %v", d)
			}
			if left := leftovers(tree(t, root)); len(left) > 0 {
				t.Errorf("leftover files: %v", left)
			}
			got, err := open(t, root, Options{}).Fetch(t.Context(), libvirt, "latest")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(r, got); diff != "" {
				t.Errorf("fetched another release (-published +fetched):\n%s", diff)
			}
		})
	}
}

func TestPublishOddFileNames(t *testing.T) {
	r := someRelease(libvirt, "v0.1.0", "")
	files := r.Files
	for _, name := range []string{"with space", "100%41", "a#b?c", "$HOME ${x", ".hidden", "ünï", "new\nline", "empty", "latest", configFile} {
		files = append(files, release.File{Name: name, Data: []byte(strings.TrimPrefix(name, "empty"))})
	}
	odd, err := release.New(libvirt, "v0.1.0", files)
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	publish(t, root, Options{}, odd)
	if d := odd.Differences(mustRead(t, root, odd)); len(d) > 0 {
		t.Errorf("other bytes: %v", d)
	}
	// A name that is too long for the disk is refused before anything is visible.
	long := *someRelease(libvirt, "v0.1.1", "")
	long.Files = append(long.Files, release.File{Name: strings.Repeat("x", 300)})
	before := tree(t, root)
	if _, err := open(t, root, Options{}).Publish(t.Context(), []*release.Release{&long}); err == nil || !strings.Contains(err.Error(), "nothing was published") {
		t.Errorf("a name that is too long: %v", err)
	}
	sameTree(t, before, tree(t, root))
}

func TestPublishAgainWritesNothing(t *testing.T) {
	root := filepath.Join(t.TempDir(), "repo")
	r := someRelease(libvirt, "v0.1.0", "one")
	r.Source = nil // WriteFolder writes the record of a source
	publish(t, root, Options{}, r)
	before := tree(t, root)
	counted := 0
	opts := Options{disk: disk{around: func(_ operation, do func() error) error {
		counted++
		return do()
	}}}
	result := publish(t, root, opts, r, r)
	if counted != 0 {
		t.Errorf("the disk was changed %d times", counted)
	}
	if len(result.Releases) != 1 || result.Releases[0].Action != store.Unchanged || result.Config.Action != store.Unchanged {
		t.Errorf("not unchanged:\n%s", result)
	}
	if err := WriteFolder(root, r); err != nil {
		t.Fatal(err)
	}
	sameTree(t, before, tree(t, root))
}

// TestPublishAgainToReadOnlyFolder publishes to a folder in which every change fails.
func TestPublishAgainToReadOnlyFolder(t *testing.T) {
	root := filepath.Join(t.TempDir(), "repo")
	r := someRelease(libvirt, "v0.1.0", "one")
	publish(t, root, Options{}, r)
	readOnly := Options{disk: failing(0, true, readOnlyError)}
	publish(t, root, readOnly, r)
	// Files of a killed run don't matter.
	write(t, filepath.Join(root, stagingFolder, "file"), "")
	publish(t, root, readOnly, r)
	_, err := open(t, root, readOnly).Publish(t.Context(), []*release.Release{someRelease(libvirt, "v0.1.1", "")})
	if err == nil || !strings.Contains(err.Error(), "read-only") || !strings.Contains(err.Error(), "choose a folder") {
		t.Errorf("got %v, want an error with advice", err)
	}
}

func TestPublishOtherBytes(t *testing.T) {
	for _, test := range []struct {
		version  string
		replace  bool
		want     store.Action
		wantHint string
	}{
		{"v0.1.0", false, store.Refused, "publish a new version"},
		{"v0.1.0", true, store.Refused, "a published version is never changed"},
		{"v0.1.0-rc.0", false, store.Refused, "Options.Replace"},
		{"v0.1.0-rc.0", true, store.Replace, ""},
		{"v0.0.0", true, store.Replace, ""},
		{"v0.0.1", true, store.Refused, "publish a new version"},
	} {
		name := test.version
		if test.replace {
			name += " Options.Replace"
		}
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			opts := Options{Replace: test.replace}
			old := someRelease(libvirt, test.version, "old")
			publish(t, root, opts, old)
			before := tree(t, root)
			fresh := someRelease(libvirt, test.version, "new")
			fresh.Files = append(fresh.Files, release.File{Name: "new.yaml"})
			plan, err := open(t, root, opts).Plan(t.Context(), []*release.Release{fresh})
			if err != nil {
				t.Fatal(err)
			}
			if plan.Releases[0].Action != test.want {
				t.Errorf("the planned action is %s, want %s", plan.Releases[0].Action, test.want)
			}
			sameTree(t, before, tree(t, root))
			_, err = open(t, root, opts).Publish(t.Context(), []*release.Release{someRelease(micro, "v1.0.0", ""), fresh})
			if test.want == store.Replace {
				if err != nil || len(mustRead(t, root, fresh).Files) != 4 {
					t.Errorf("not replaced: %v", err)
				}
				return
			}
			var conflict *ConflictError
			if !errors.As(err, &conflict) || conflict.Version != test.version || conflict.Provider != libvirt {
				t.Fatalf("got %v, want a ConflictError", err)
			}
			for _, want := range []string{test.wantHint, "infrastructure-components.yaml differs", "new.yaml is only in the new one", root} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error is %v, want %q in it", err, want)
				}
			}
			sameTree(t, before, tree(t, root)) // no release of the batch was published
		})
	}
}

func TestPublishRefusesWhatClusterctlCannotUse(t *testing.T) {
	good := someRelease(libvirt, "v0.1.0", "")
	without := func(name string) *release.Release {
		r := *good
		r.Files = nil
		for _, f := range good.Files {
			if f.Name != name {
				r.Files = append(r.Files, f)
			}
		}
		return &r
	}
	for _, test := range []struct {
		name     string
		releases []*release.Release
		want     string
	}{
		{"none", nil, "no release"},
		{"no components", []*release.Release{without("infrastructure-components.yaml")}, "has no file infrastructure-components.yaml"},
		{"no metadata", []*release.Release{without("metadata.yaml")}, "has no file metadata.yaml"},
		{"bad version", []*release.Release{{Provider: libvirt, Version: "0.1.0", Files: good.Files}}, "leading v"},
		{"path as name", []*release.Release{{Provider: libvirt, Version: "v0.1.0", Files: []release.File{{Name: "../x"}}}}, "isn't a file name"},
		{"twice", []*release.Release{good, someRelease(libvirt, "v0.1.0", "other")}, "given twice, with other bytes"},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := filepath.Join(t.TempDir(), "repo")
			_, err := open(t, root, Options{}).Publish(t.Context(), test.releases)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			if found := tree(t, root); len(found) > 0 {
				t.Errorf("something was written: %v", found)
			}
		})
	}
}

func TestPublishRefusesPlaces(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "file"), "")
	write(t, filepath.Join(dir, "infrastructure-x", "v1.0.0", "metadata.yaml"), "")
	write(t, filepath.Join(dir, "taken", "infrastructure-libvirt", "v0.1.0"), "a file")
	write(t, filepath.Join(dir, "nested", "infrastructure-libvirt", "v0.1.0", "folder", "file"), "")
	write(t, filepath.Join(dir, "elsewhere", "file"), "")
	for name, to := range map[string]string{"loop": "loop", "nowhere": "missing", "linked/infrastructure-libvirt": "../elsewhere"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	before := tree(t, dir)
	for root, want := range map[string]string{
		"file":             "isn't a folder",
		"file/below":       "not a directory",
		"loop":             "too many levels of symbolic links",
		"nowhere":          "link to something that does not exist",
		"nowhere/below":    "link to something that does not exist",
		"v0.1.0":           "name of a version",
		"infrastructure-x": "is a provider's folder",
		"taken":            "isn't a folder",
		"nested":           "folder isn't a plain file",
		"linked":           "isn't a folder",
	} {
		t.Run(root, func(t *testing.T) {
			_, err := open(t, filepath.Join(dir, root), Options{}).Publish(t.Context(), []*release.Release{someRelease(libvirt, "v0.1.0", "")})
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
			sameTree(t, before, tree(t, dir))
		})
	}
}

func TestPublishIntoEmptyFoldersAndThroughLink(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "real", "infrastructure-libvirt", "v0.1.0"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	r := someRelease(libvirt, "v0.1.0", "")
	publish(t, filepath.Join(dir, "link"), Options{}, r)
	mustRead(t, filepath.Join(dir, "real"), r)
}

func TestPublishBatch(t *testing.T) {
	root := filepath.Join(t.TempDir(), "repo")
	batch := []*release.Release{
		someRelease(libvirt, "v0.1.0", ""), someRelease(micro, "v0.1.0", ""),
		someRelease(libvirt, "v0.1.1", ""), someRelease(libvirt, "v0.2.0-rc.0", ""),
	}
	result := publish(t, root, Options{}, batch...)
	all, err := Read(t.Context(), root, Options{})
	if err != nil || len(all) != 4 {
		t.Fatalf("%d releases: %v", len(all), err)
	}
	if len(result.Config.Entries) != 2 {
		t.Errorf("entries: %v", result.Config.Entries)
	}
	// clusterctl takes the newest stable version.
	got, err := open(t, root, Options{}).Fetch(t.Context(), libvirt, "")
	if err != nil || got.Version != "v0.1.1" {
		t.Errorf("fetched %v: %v", got, err)
	}
}

func TestPublishPreReleaseOnly(t *testing.T) {
	root := t.TempDir()
	publish(t, root, Options{}, someRelease(libvirt, "v0.1.0-rc.0", ""), someRelease(libvirt, "v0.1.0-rc.1", ""))
	got, err := open(t, root, Options{}).Fetch(t.Context(), libvirt, "latest")
	if err != nil || got.Version != "v0.1.0-rc.1" {
		t.Errorf("fetched %v: %v", got, err)
	}
}

func TestPublishStopsWhenCanceled(t *testing.T) {
	root := filepath.Join(t.TempDir(), "repo")
	r := someRelease(libvirt, "v0.1.0", "")
	for stopAt := 1; ; stopAt++ {
		ctx, cancel := context.WithCancel(t.Context())
		counted := 0
		opts := Options{disk: disk{around: func(op operation, do func() error) error {
			if counted++; counted == stopAt {
				cancel()
			}
			return unlessSync(op, do)
		}}}
		_, err := open(t, root, opts).Publish(ctx, []*release.Release{r})
		cancel()
		if counted < stopAt {
			break
		}
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Fatalf("stopped at %d: %v", stopAt, err)
		}
		found := tree(t, root)
		if left := leftovers(found); len(left) > 0 {
			t.Fatalf("stopped at %d: leftover files %v", stopAt, left)
		}
		if _, ok := found["infrastructure-libvirt"]; ok {
			mustRead(t, root, r)
			if err := os.RemoveAll(root); err != nil {
				t.Fatal(err)
			}
		} else if len(found) > 0 {
			t.Fatalf("stopped at %d: leftover files %v", stopAt, found)
		}
	}
}

func TestUnknownTargets(t *testing.T) {
	for _, to := range []string{"", "s3://example.com/x", "https://example.com/x", "http://example.com"} {
		var unknown *TargetError
		if _, err := Open(to, Options{}); !errors.As(err, &unknown) || !strings.Contains(err.Error(), "overrides") {
			t.Errorf("Open(%q): %v", to, err)
		}
		if strings.HasPrefix(to, "https:") {
			continue // Read takes it as the URL of a web server, see TestHTTPSErrors
		}
		if _, err := Read(t.Context(), to, Options{}); !errors.As(err, &unknown) || !strings.Contains(err.Error(), "folder") {
			t.Errorf("Read(%q): %v", to, err)
		}
	}
}

// TestTargetsRefuseNotesAndReleases checks that targets refuse notes and GitLab releases if they have none.
func TestTargetsRefuseNotesAndReleases(t *testing.T) {
	for _, place := range []string{t.TempDir(), "overrides", "oci://registry.example.com/acme/capl"} {
		for _, opts := range []Options{{Notes: "x"}, {NotesFrom: NoNotes}} {
			if _, err := Open(place, opts); err == nil || !strings.Contains(err.Error(), "leave the notes out") {
				t.Errorf("notes in %s: %v", place, err)
			}
		}
	}
	if _, err := Open(t.TempDir(), Options{GitLabRelease: true}); err == nil || !strings.Contains(err.Error(), "Options.GitLabRelease") {
		t.Errorf("a GitLab release for a folder: %v", err)
	}
}

func TestWriteFolder(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out", "release")
	for _, note := range []string{"one", "two", "two"} {
		r := someRelease(libvirt, "v1.0.0", note)
		if err := WriteFolder(out, r); err != nil {
			t.Fatal(err)
		}
		if d := r.Differences(mustRead(t, out, r)); len(d) > 0 {
			t.Errorf("%s: %v", note, d)
		}
	}
	found := tree(t, out)
	if _, ok := found[configFile]; ok || len(leftovers(found)) > 0 {
		t.Errorf("got more files than those of the release: %v", found)
	}
}

// TestOpenLooksLikeServer opens servers that are not written as URLs, and folders with similar names.
func TestOpenLooksLikeServer(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.MkdirAll("releases.example.com", 0o750); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"github.com/acme/capl":             "https://github.com/acme/capl",
		"git@github.com:acme/capl.git":     "https://github.com/acme/capl",
		"registry.example.com:5000/a/capl": "https://registry.example.com:5000/a/capl",
		"releases.example.com/infra":       "",
		"./github.com/acme/capl":           "",
		"out/repository":                   "",
		"v1.2/repository":                  "",
		"../repository":                    "",
	} {
		_, err := Open(text, Options{})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}

// TestOpenRefusesServerOptions checks that folders refuse options that only servers use.
func TestOpenRefusesServerOptions(t *testing.T) {
	for _, to := range []string{t.TempDir(), "overrides"} {
		for part, opts := range map[string]Options{"Options.TokenFile": {TokenFile: "none"}, "Options.Commit": {Commit: someCommit}, "Options.SignKey": {SignKey: "none"}, "Options.NoProvenance": {NoProvenance: true}} {
			if _, err := Open(to, opts); err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%s with %s: %v", to, part, err)
			}
		}
	}
}
