package publish

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/drone/envsubst/v2"

	"github.com/clusterctl-release/clusterctl-release/pkg/publish/store"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// configFile is the clusterctl configuration at a local repository's root, for its flag --config.
const configFile = "clusterctl.yaml"

// latest stands for a version in clusterctl's URL of a local repository: the newest that is there.
const latest = store.Latest

// providerEntry is an entry of the list "providers" in clusterctl's configuration.
type providerEntry = store.Entry

// RepositoryURL returns clusterctl's URL of a file in a local repository. A '$' is escaped as well, as clusterctl
// replaces variables in the URLs of its configuration.
func RepositoryURL(root string, provider release.Provider, version, file string) string {
	path := url.URL{Path: filepath.ToSlash(filepath.Join(root, provider.Label(), version, file))}
	return "file://" + strings.ReplaceAll(path.EscapedPath(), "$", "%24")
}

// sameRepository says whether clusterctl reads the same from two URLs, the first as it is written
// in a configuration, where it may have variables and be a plain path.
func sameRepository(written, wanted string) bool {
	value, err := envsubst.Eval(written, os.Getenv)
	if err != nil {
		return false
	}
	a, errA := url.Parse(value)
	b, errB := url.Parse(wanted)
	if errA != nil || errB != nil || a.Scheme != "" && a.Scheme != b.Scheme {
		return false
	}
	return a.Path == b.Path
}

// planConfig returns what becomes of the clusterctl.yaml of a local repository so that clusterctl finds the
// releases. Entries of other providers, all other keys and the comments stay as they are.
//
// The version in a URL is the one that clusterctl takes when it is asked for none: "latest", as with a number
// it would be whatever was published last, a fix of an old series too.
func planConfig(root string, releases []*release.Release) (*ConfigPlan, error) {
	plan := &ConfigPlan{Path: filepath.Join(root, configFile), Action: Create, mode: fileMode}
	var text []byte
	info, err := os.Lstat(plan.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, withAdvice(fmt.Errorf("looking for the repository's %s: %w", configFile, err))
	default:
		if text, err = os.ReadFile(plan.Path); err != nil {
			return nil, withAdvice(fmt.Errorf("reading the repository's %s: %w", configFile, err))
		}
		plan.Action = Update
		plan.mode = info.Mode().Perm() // it may hold variables that are not for everybody
	}
	plan.text, plan.Entries, err = editProviders(text, store.Entries(releases, func(r *release.Release) string {
		return RepositoryURL(root, r.Provider, latest, r.Provider.ComponentsFile())
	}))
	if err != nil {
		return nil, inFile(plan.Path, err)
	}
	if plan.Action == Update && len(plan.Entries) == 0 {
		plan.Action = Unchanged
	}
	if plan.Action == Update && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is a link or no plain file, and would be replaced by one: make it a plain file, or remove it", plan.Path)
	}
	return plan, nil
}

// configuredProvider returns the entry of a clusterctl.yaml for a provider. Of several clusterctl
// takes the last.
func configuredProvider(path string, provider release.Provider) (providerEntry, error) {
	text, err := os.ReadFile(path) //nolint:gosec // the repository's own file
	if err != nil {
		return providerEntry{}, fmt.Errorf("reading the repository's %s: %w", configFile, err)
	}
	doc, err := parseConfig(text)
	if err != nil {
		return providerEntry{}, inFile(path, err)
	}
	for _, item := range slices.Backward(doc.items) {
		if item.name == provider.Name && item.kind == string(provider.Type) {
			return providerEntry{Name: item.name, Type: provider.Type, URL: item.url}, nil
		}
	}
	return providerEntry{}, fmt.Errorf("%s has no entry for %s of type %s", path, provider.Name, provider.Type)
}
