package publish

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/clusterctl-release/clusterctl-release/pkg/provenance"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish/store"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

const otherCommit = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

// builtFrom returns a release with the record of a source; nil for none.
func builtFrom(source *release.Source) *release.Release {
	r := someLabelled("v0.1.0")
	r.Source = nil
	if source != nil {
		r.Record(*source)
	}
	return r
}

// TestGitHubSource checks that the recorded commit is tagged and in the provenance, in any environment.
func TestGitHubSource(t *testing.T) {
	recorded := &release.Source{Repository: "https://github.com/else/where", Commit: someCommit, Tool: "v0.0.1"}
	inActions := map[string]string{"GITHUB_REPOSITORY": "acme/capl", "GITHUB_SHA": otherCommit, "GITHUB_REF": "refs/heads/main"}
	inRequest := map[string]string{"GITHUB_REPOSITORY": "acme/capl", "GITHUB_SHA": someCommit, "GITHUB_REF": "refs/pull/12/merge"}
	with := func(change func(*release.Source)) *release.Source {
		s := *recorded
		change(&s)
		return &s
	}
	dirty := with(func(s *release.Source) { s.Modified = true })
	for name, test := range map[string]struct {
		source  *release.Source
		env     map[string]string
		tagged  string
		commit  string // Options.Commit
		noClaim bool   // Options.NoProvenance
		change  func(*release.Release)
		err     string
		tag     string // the tagged commit
		claim   string
		warning string
	}{
		"recorded, no environment":             {source: recorded, tag: someCommit, claim: someCommit},
		"recorded, in Actions":                 {source: recorded, env: inActions, tag: someCommit, claim: someCommit},
		"recorded and tagged":                  {source: recorded, tagged: someCommit, tag: someCommit, claim: someCommit},
		"recorded, tagged elsewhere":           {source: recorded, tagged: otherCommit, err: "is of the commit bbb"},
		"recorded, Options.Commit of another":  {source: recorded, commit: otherCommit, err: "was built from the commit 0123"},
		"recorded in a request's merge":        {source: recorded, env: inRequest, err: "refs/pull/12/merge"},
		"a merge, published by a branch":       {source: with(func(s *release.Source) { s.MergeRef = "refs/pull/7/merge" }), err: "refs/pull/7/merge"},
		"a merge that is tagged":               {source: with(func(s *release.Source) { s.MergeRef = "refs/pull/7/merge" }), tagged: someCommit, tag: someCommit, claim: someCommit},
		"no record, in Actions":                {env: inActions, tag: otherCommit, warning: "published without provenance: there is no record of the source of infrastructure-libvirt v0.1.0"},
		"no record, Options.Commit":            {commit: someCommit, tag: someCommit, warning: "without provenance"},
		"no record, tagged":                    {tagged: otherCommit, tag: otherCommit, warning: "without provenance"},
		"no record, Options.Commit elsewhere":  {tagged: otherCommit, commit: someCommit, err: "is of the commit bbb"},
		"no record, in a request":              {env: inRequest, err: "refs/pull/12/merge"},
		"no record, Options.Commit of a merge": {commit: someCommit, env: inRequest, err: "refs/pull/12/merge"},
		"not all committed":                    {source: dirty, err: "changes that are not in the commit"},
		"not all committed, no claim":          {source: dirty, noClaim: true, tagged: otherCommit, tag: otherCommit},
		"a file that was changed":              {source: recorded, change: func(r *release.Release) { r.Files[0].Data = []byte("other") }, err: "NOTES.md was changed"},
		"a file that was added":                {source: recorded, change: func(r *release.Release) { delete(r.Source.Files, "NOTES.md") }, err: "NOTES.md was added"},
		"a file that was removed":              {source: recorded, change: func(r *release.Release) { r.Source.Files["x"] = "" }, err: "x was removed"},
		"changed, no claim":                    {source: recorded, noClaim: true, commit: someCommit, change: func(r *release.Release) { r.Files[0].Data = []byte("other") }, tag: someCommit},
	} {
		t.Run(name, func(t *testing.T) {
			w := newGitHubWorld(t)
			for name, value := range test.env {
				t.Setenv(name, value)
			}
			if test.tagged != "" {
				w.server.Tag("v0.1.0", test.tagged)
			}
			r := builtFrom(test.source)
			if test.change != nil {
				r.Files = slices.Clone(r.Files)
				test.change(r)
			}
			n, opts := w.process(nil)
			opts.Commit, opts.NoProvenance, opts.NotesFrom = test.commit, test.noClaim, NoNotes
			plan, planErr := open(t, githubURL, opts).Plan(t.Context(), []*release.Release{r})
			result, err := w.do(t.Context(), n, opts, r)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) || planErr == nil || planErr.Error() != err.Error() || len(w.server.Releases()) > 0 {
					t.Errorf("got %v and %v from the plan, want %q", err, planErr, test.err)
				}
				return
			}
			if err != nil || planErr != nil {
				t.Fatal(err, planErr)
			}
			if warnings := strings.Join(result.Warnings, "\n"); (test.warning == "") != (warnings == "") || !strings.Contains(warnings, test.warning) || !slices.Equal(plan.Warnings, result.Warnings) || len(result.Warnings) > 1 {
				t.Errorf("the warnings are %q and %q", plan.Warnings, warnings)
			}
			if got := w.server.Commit("v0.1.0"); got != test.tag {
				t.Errorf("the tagged commit is %s", got)
			}
			files, _ := w.server.Public("v0.1.0")
			statement, ok := files[store.ProvenanceFile]
			if ok != (test.claim != "") {
				t.Fatalf("the files are %v", files)
			}
			if ok {
				claim, err := provenance.Check(t.Context(), statement, "v0.1.0", r.Files, "")
				if err != nil || claim != (provenance.Claim{Repository: test.source.Repository, Commit: test.claim}) {
					t.Errorf("the provenance claims %v, %v", claim, err)
				}
			}
		})
	}
}

// TestGitLabSource checks the commit of releases on GitLab with tags and in jobs.
func TestGitLabSource(t *testing.T) {
	job := map[string]string{"CI_SERVER_HOST": "gitlab.example.com", "CI_PROJECT_PATH": "acme/capl", "CI_COMMIT_TAG": "v0.1.0", "CI_COMMIT_SHA": otherCommit}
	merge := map[string]string{"CI_MERGE_REQUEST_REF_PATH": "refs/merge-requests/3/merge", "CI_COMMIT_SHA": someCommit}
	for name, test := range map[string]struct {
		noRecord bool
		env      map[string]string
		tagged   string
		page     bool
		err      string
		claim    bool
	}{
		"recorded":                      {claim: true},
		"recorded, tagged":              {tagged: someCommit, claim: true},
		"recorded, tagged elsewhere":    {tagged: otherCommit, err: "is of the commit bbb"},
		"recorded, the job's tag":       {env: job, err: "is of the commit bbb"},
		"a merge's page":                {page: true, env: merge, err: "refs/merge-requests/3/merge"},
		"a merge's page, tagged":        {page: true, env: merge, tagged: someCommit, claim: true},
		"no record, in a job":           {noRecord: true, env: job},
		"no record, in a job, the page": {noRecord: true, page: true, env: job, tagged: otherCommit},
	} {
		t.Run(name, func(t *testing.T) {
			w := newGitLabWorld(t)
			for name, value := range test.env {
				t.Setenv(name, value)
			}
			if test.tagged != "" {
				w.server.Tag("v0.1.0", test.tagged)
			}
			source := &someSource
			if test.noRecord {
				source = nil
			}
			r := builtFrom(source)
			n, opts := w.process(nil)
			opts.Commit, opts.GitLabRelease = "", test.page
			_, err := w.do(t.Context(), n, opts, r)
			files := w.server.Public("capl", "v0.1.0")
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) || len(files) > 0 {
					t.Errorf("got %v, want %q without changes", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := files[store.ProvenanceFile]; ok != test.claim {
				t.Errorf("the files are %v", files)
			}
		})
	}
}

// TestSourcesOfOneVersion checks that providers of one version, which share one provenance, have the same source.
func TestSourcesOfOneVersion(t *testing.T) {
	first, second := someRelease(libvirt, "v0.1.0", ""), someRelease(micro, "v0.1.0", "")
	later := someRelease(micro, "v0.2.0", "")
	other := someSource
	other.Commit = otherCommit
	later.Record(other)
	if _, warnings, err := (Options{}).checkSources([]*release.Release{first, second, later}); err != nil || len(warnings) > 0 {
		t.Errorf("one commit for each version: %v, %v", warnings, err)
	}
	if _, err := Open(gitlabURL, Options{Commit: "main"}); err == nil || !strings.Contains(err.Error(), "isn't a commit") {
		t.Errorf("a branch for Options.Commit: %v", err)
	}
	second.Record(other)
	if _, _, err := (Options{}).checkSources([]*release.Release{first, second}); err == nil || !strings.Contains(err.Error(), "build them together") {
		t.Errorf("two commits: %v", err)
	}
	second.Source = nil
	all, warnings, err := (Options{}).checkSources([]*release.Release{first, second})
	if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0], "bootstrap-micro v0.1.0 (") || len(all) != 2 {
		t.Errorf("one record: %v, %v", warnings, err)
	}
	key := filepath.Join(t.TempDir(), "key")
	if _, _, err := (Options{SignKey: key}).checkSources([]*release.Release{first}); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("no key: %v", err)
	}
	write(t, key, "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIMKj0ZpTGDFRQkYdUAIIpZnlrJJEtJqHtWgLUoAoM5jW\n-----END PRIVATE KEY-----\n")
	if _, _, err := (Options{SignKey: key}).checkSources([]*release.Release{second}); err == nil || !strings.Contains(err.Error(), "nothing to sign") {
		t.Errorf("nothing to sign: %v", err)
	}
	if _, _, err := (Options{SignKey: key, NoProvenance: true}).checkSources([]*release.Release{first}); err == nil || !strings.Contains(err.Error(), "Options.NoProvenance") {
		t.Errorf("a key and no provenance: %v", err)
	}
}

// TestWriteFolderRecord checks that the record is written next to the files of a build, follows the
// commit, and is not a file of the release or of publications.
func TestWriteFolderRecord(t *testing.T) {
	out, r := t.TempDir(), someRelease(libvirt, "v0.1.0", "")
	for _, commit := range []string{someCommit, otherCommit} {
		source := someSource
		source.Commit = commit
		r.Record(source)
		if err := WriteFolder(out, r); err != nil {
			t.Fatal(err)
		}
		got := mustRead(t, out, r)
		if got.Source == nil || got.Source.Commit != commit || len(r.Differences(got)) > 0 || len(got.ChangedSinceBuild()) > 0 {
			t.Errorf("read %+v, %v", got.Source, r.Differences(got))
		}
	}
	repository := t.TempDir()
	publish(t, repository, Options{}, mustRead(t, out, r))
	if entries, err := os.ReadDir(filepath.Join(repository, "infrastructure-libvirt", "v0.1.0")); err != nil || len(entries) != len(r.Files) {
		t.Errorf("published %v, %v", entries, err)
	}
	r.Source = nil
	r.Files = append(slices.Clone(r.Files), release.File{Name: release.SourceFile, Data: []byte("{}")})
	if err := WriteFolder(out, r); err == nil || !strings.Contains(err.Error(), "another name") {
		t.Errorf("a file with the record's name: %v", err)
	}
}
