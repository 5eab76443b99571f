package publish

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clusterctl-release/clusterctl-release/internal/githubserver"
	"github.com/clusterctl-release/clusterctl-release/internal/wire"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// releaseWithVariable returns a release with a variable named after the version, so that two versions differ.
func releaseWithVariable(version string) *release.Release {
	r := someRelease(libvirt, version, "")
	name := strings.ToUpper(strings.Map(func(c rune) rune {
		if c == '.' || c == '-' {
			return '_'
		}
		return c
	}, version))
	for i := range r.Files {
		if r.Files[i].Name == "cluster-template-prod.yaml" {
			r.Files[i].Data = []byte("apiVersion: cluster.x-k8s.io/v1beta2\nkind: Cluster\nmetadata:\n  name: ${CLUSTER_NAME}\n  labels: {x: \"${IN_" + name + "}\"}\n")
		}
	}
	r.Record(someSource)
	return r
}

// body returns the text of the public release of a version.
func (w *githubWorld) body(t *testing.T, version string) string {
	t.Helper()
	for _, r := range w.server.Releases() {
		if r.Tag == version && !r.Draft {
			return r.Body
		}
	}
	t.Fatalf("%s is not public", version)
	return ""
}

// TestGitHubNotes checks that the notes list the changes since the previous version: for a stable version, since the
// previous stable one.
func TestGitHubNotes(t *testing.T) {
	w := newGitHubWorld(t)
	w.server.Add(githubserver.Release{Tag: "v0.0.9", Assets: []*githubserver.Asset{{Name: "program", Data: []byte("x")}}}) // without files for clusterctl
	for _, step := range []struct{ version, before string }{
		{"v0.1.0", ""},
		{"v0.2.0-rc.0", "v0.1.0"},
		{"v0.2.0-rc.1", "v0.2.0-rc.0"},
		{"v0.2.0", "v0.1.0"},
		{"v0.1.1", "v0.1.0"},
		{"v0.2.1", "v0.2.0"},
	} {
		result := w.published(t, nil, releaseWithVariable(step.version))
		got := w.body(t, step.version)
		if len(result.Warnings) != 1 || !strings.Contains(result.Warnings[0], "the tag v0.0.9") {
			t.Errorf("%s: got the warnings %v, want one about the tag v0.0.9", step.version, result.Warnings)
		}
		if step.before == "" {
			if got != "" || !strings.Contains(strings.Join(w.reports, "\n"), "v0.1.0 has no notes: these providers have no earlier release") {
				t.Errorf("the first release has the notes %q, reported was %v", got, w.reports)
			}
			continue
		}
		title := "## infrastructure-libvirt: changes from " + step.before + " to " + step.version + "\n"
		if !strings.HasPrefix(got, title) || !strings.Contains(got, "`IN_V0") {
			t.Errorf("the notes of %s are %q, want them to begin with %q and to name the variable", step.version, got, title)
		}
	}
}

// TestGitHubNotesChosen checks notes from the user, from a comparison with a given release, from a draft, and no notes.
func TestGitHubNotesChosen(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "infrastructure-libvirt", "v0.0.1")
	if err := WriteFolder(filepath.Dir(filepath.Dir(folder)), releaseWithVariable("v0.0.1")); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		change  func(*Options)
		draft   bool
		want    string
		warning string
	}{
		"notes":         {change: func(o *Options) { o.Notes = "Words of ours" }, want: "Words of ours"},
		"notes and one": {change: func(o *Options) { o.Notes, o.NotesFrom = "Words of ours", folder }, want: "Words of ours"},
		"another one":   {change: func(o *Options) { o.NotesFrom = folder }, want: "## infrastructure-libvirt: changes from v0.0.1 to v0.2.0\n"},
		"none":          {change: func(o *Options) { o.NotesFrom = NoNotes }},
		"no such one":   {change: func(o *Options) { o.NotesFrom = folder + "0" }, warning: "v0.2.0 has no notes, because it could not be compared with the previous release: "},
		"a draft":       {draft: true, want: "Prepared words"},
		"a draft's title": {draft: true, change: func(o *Options) {
			o.NotesFrom = ""
		}, want: "Prepared words"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newGitHubWorld(t)
			w.published(t, nil, releaseWithVariable("v0.1.0"))
			if test.draft {
				w.server.Add(githubserver.Release{Tag: "v0.2.0", Name: "Two", Body: "Prepared words", Draft: true})
			}
			result := w.published(t, test.change, releaseWithVariable("v0.2.0"))
			got := w.body(t, "v0.2.0")
			if !strings.HasPrefix(got, test.want) || test.want == "" && got != "" {
				t.Errorf("the notes are %q, want %q", got, test.want)
			}
			if warnings := strings.Join(result.Warnings, "\n"); !strings.HasPrefix(warnings, test.warning) || test.warning == "" && warnings != "" {
				t.Errorf("the warnings are %q, want %q", warnings, test.warning)
			}
		})
	}
}

// TestGitHubNotesFail checks that a release is published even if the previous one can't be read.
func TestGitHubNotesFail(t *testing.T) {
	for name, test := range map[string]struct {
		before func(*githubWorld)
		fault  func(int, *http.Request) wire.Fault
		want   string
	}{
		"components that are no YAML": {before: func(w *githubWorld) {
			w.server.Add(githubserver.Release{Tag: "v0.1.0", Assets: []*githubserver.Asset{
				{Name: "metadata.yaml", Data: []byte(metadata)}, {Name: "infrastructure-components.yaml", Data: []byte("a: [\n")},
			}})
		}, want: "infrastructure-components.yaml"},
		"a server that fails": {before: func(w *githubWorld) {
			w.published(t, nil, releaseWithVariable("v0.1.0"))
		}, fault: func(_ int, r *http.Request) wire.Fault {
			if strings.Contains(r.URL.Path, "/releases/assets/") && r.Method == http.MethodGet {
				return wire.Internal
			}
			return wire.None
		}, want: "downloading"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newGitHubWorld(t)
			test.before(w)
			r := releaseWithVariable("v0.2.0")
			w.expect(r)
			n, opts := w.process(test.fault)
			result, err := w.do(t.Context(), n, opts, r)
			if err != nil || len(result.Warnings) != 1 || !strings.Contains(result.Warnings[0], "v0.2.0 has no notes") || !strings.Contains(result.Warnings[0], test.want) {
				t.Fatalf("%v: %v", err, result)
			}
			if err := w.violations(); err != nil {
				t.Error(err)
			}
			if got := w.body(t, "v0.2.0"); got != "" {
				t.Errorf("the notes are %q, want none", got)
			}
		})
	}
}

// TestGitHubNotesSize checks that generated notes are cut if they are too long, and that the user's are refused.
func TestGitHubNotesSize(t *testing.T) {
	w := newGitHubWorld(t)
	before, after := releaseWithVariable("v0.1.0"), releaseWithVariable("v0.2.0")
	for i := range after.Files {
		if after.Files[i].Name == "cluster-template-prod.yaml" {
			for n := range 20000 {
				after.Files[i].Data = append(after.Files[i].Data, []byte("  # ${VARIABLE_"+strings.Repeat("X", n%9)+string(rune('A'+n%26))+string(rune('A'+n/26%26))+string(rune('A'+n/676%26))+"}\n")...)
			}
		}
	}
	after.Record(someSource)
	w.published(t, nil, before)
	w.published(t, nil, after)
	if got := w.body(t, "v0.2.0"); len(got) < maxNotes/2 || len([]rune(got)) > maxNotes || !strings.HasSuffix(got, "`clusterctl release diff` shows the rest.\n") {
		t.Errorf("the notes have %d characters, and end with %q", len(got), got[max(0, len(got)-100):])
	}
	n, opts := w.process(nil)
	opts.Notes = strings.Repeat("é", maxNotes)
	if _, err := w.do(t.Context(), n, opts, releaseWithVariable("v0.3.0")); err == nil || !strings.Contains(err.Error(), "the notes have 125000 characters") || len(n.Requests()) > 0 {
		t.Errorf("got %v after the requests %v, want an error without requests", err, n.Requests())
	}
}

func TestVersionBefore(t *testing.T) {
	all := []string{"v0.2.0", "v0.10.0", "nightly", "v0.3.0-rc.0", "v0.1.0", "v0.3.0"}
	for version, want := range map[string]string{
		"v0.3.0": "v0.2.0", "v0.3.1": "v0.3.0", "v0.3.0-rc.1": "v0.3.0-rc.0", "v0.3.0-alpha.0": "v0.2.0", "v0.1.0": "", "v1.0.0": "v0.10.0", "v0.10.0": "v0.3.0",
	} {
		if got := versionBefore(all, version); got != want {
			t.Errorf("before %s: %q, want %q", version, got, want)
		}
	}
}

func TestBounded(t *testing.T) {
	for _, most := range []int{100, 150, 200} {
		text := strings.Repeat("Zeile mit Umläuten äöü\n", 20)
		got := bounded(text, most)
		if len([]rune(got)) > most || !strings.HasSuffix(got, "the rest.\n") || !strings.HasPrefix(got, "Zeile") {
			t.Errorf("%d: %q", most, got)
		}
	}
	if got := bounded("short", 5); got != "short" {
		t.Errorf("%q", got)
	}
}

// TestGitLabNotes checks that the project's release has the changes as its description.
func TestGitLabNotes(t *testing.T) {
	w := newGitLabWorld(t)
	for _, version := range []string{"v0.1.0", "v0.2.0"} {
		result, _, err := w.publishWithRelease(t, nil, nil, releaseWithVariable(version))
		if err != nil || len(result.Warnings) > 0 {
			t.Fatalf("%v: %v", err, result)
		}
	}
	all := w.server.Releases()
	if all[0].Description != "" || !strings.HasPrefix(all[1].Description, "## infrastructure-libvirt: changes from v0.1.0 to v0.2.0\n") {
		t.Errorf("the releases are %+v", all)
	}
}
