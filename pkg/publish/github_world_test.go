package publish

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/clusterctl-release/clusterctl-release/internal/githubserver"
	"github.com/clusterctl-release/clusterctl-release/internal/wire"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish/store"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish/transport"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

const (
	githubURL    = "https://github.com/acme/capl"
	githubSecret = "ghs_TopSecretOfTheTests"
	someCommit   = "0123456789abcdef0123456789abcdef01234567"
)

// githubWorld is a GitHub with an observer, and the processes that publish to it.
type githubWorld struct {
	observer

	clock  *wire.Clock
	server *githubserver.Server
	token  string
	want   map[string]map[string]string // the digests of a public version's files, by version and name
}

func newGitHubWorld(t testing.TB) *githubWorld {
	t.Helper()
	w := &githubWorld{clock: wire.NewClock(), want: map[string]map[string]string{}}
	w.server = githubserver.New("acme", "capl", w.clock.Now)
	w.server.Token = githubSecret
	w.token = filepath.Join(t.TempDir(), "token")
	write(t, w.token, githubSecret+"\n")
	return w
}

// expect makes the observer check that a public version of these releases is complete.
func (w *githubWorld) expect(releases ...*release.Release) {
	all, err := store.Versions(releases)
	if err != nil {
		panic(err)
	}
	for _, b := range all {
		w.want[b.Number] = map[string]string{}
		if err := b.Generate(context.Background(), ""); err != nil {
			panic(err)
		}
		for _, f := range b.All {
			w.want[b.Number][f.Name] = release.Digest(f.Data)
		}
	}
}

// observe checks that each version is complete or not public.
func (w *githubWorld) observe() {
	for version, want := range w.want {
		files, public := w.server.Public(version)
		if !public {
			continue
		}
		got := map[string]string{}
		for name, data := range files {
			got[name] = release.Digest(data)
		}
		if maps.Equal(want, got) {
			w.saw()
		} else {
			w.saw(fmt.Sprintf("%s was public with %v", version, slices.Sorted(maps.Keys(got))))
		}
	}
}

// process returns a process's network and options.
func (w *githubWorld) process(fault func(int, *http.Request) wire.Fault) (*wire.Network, Options) {
	n := &wire.Network{
		Hosts: w.server.Hosts(), Clock: w.clock, Fault: fault, After: w.observe,
		Secret: githubSecret, SecretHeader: "Authorization", SecretHosts: []string{githubserver.APIHost, githubserver.UploadsHost},
	}
	return n, Options{
		TokenFile: w.token, Commit: someCommit, Progress: w.report, Report: w.report,
		Network: transport.Network{Transport: n, Sleep: w.clock.Sleep, Now: w.clock.Now, ReadFile: downloads(n, func(url, name string) string {
			version := strings.Split(strings.TrimPrefix(url, githubURL+"/releases/"), "/")[0]
			return githubURL + "/releases/download/" + version + "/" + name
		})},
	}
}

// do publishes in a separate process.
func (w *githubWorld) do(ctx context.Context, n *wire.Network, opts Options, releases ...*release.Release) (*Result, error) {
	return w.publish(ctx, githubURL, []string{githubSecret}, n, opts, releases...)
}

// public returns the digests of the files that clusterctl's users get for a version.
func (w *githubWorld) public(version string) (map[string]string, bool) {
	published, ok := w.server.Public(version)
	files := map[string]string{}
	for name, data := range published {
		files[name] = release.Digest(data)
	}
	return files, ok
}

// complete returns an error unless each version has one complete public release and no draft.
func (w *githubWorld) complete() error {
	var problems []error
	counts := map[string]int{}
	for _, r := range w.server.Releases() {
		counts[r.Tag]++
		if r.Draft {
			problems = append(problems, fmt.Errorf("the draft %d of %s still exists", r.ID, r.Tag))
		}
		if strings.Contains(r.Body, "<!--") {
			problems = append(problems, fmt.Errorf("the text of %s is %q", r.Tag, r.Body))
		}
		names := map[string]bool{}
		for _, a := range r.Assets {
			if names[a.Name] || a.State != "uploaded" {
				problems = append(problems, fmt.Errorf("%s has %s twice, or in the state %s", r.Tag, a.Name, a.State))
			}
			names[a.Name] = true
		}
	}
	for version := range w.want {
		if counts[version] != 1 {
			problems = append(problems, fmt.Errorf("got %d releases of %s", counts[version], version))
		}
	}
	w.observe()
	if w.seen == 0 {
		problems = append(problems, errors.New("the observer saw no public version"))
	}
	return errors.Join(append(problems, w.violations())...)
}

// withoutPipelines unsets the variables of the pipeline that runs the tests.
func withoutPipelines() {
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "GITHUB_") || strings.HasPrefix(name, "GH_") || strings.HasPrefix(name, "GITLAB_") || strings.HasPrefix(name, "CI_") {
			_ = os.Unsetenv(name) // names from the environment are valid
		}
	}
}
