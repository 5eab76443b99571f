package publish

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// localTarget is a repository in a folder, with a clusterctl.yaml at its root.
// Source: clusterctl provider contract, "Creating a local provider repository".
var localTarget = target{
	form:    "a folder, as a path or as file:///PATH",
	folder:  true,
	matches: func(text string) bool { return text != "" && isLocalURL(text) },
	open:    openLocal,
	read:    readLocal,
}

func isFileURL(text string) bool {
	return strings.HasPrefix(strings.ToLower(text), "file:")
}

// isLocalURL says whether the url of clusterctl's configuration names a local repository.
func isLocalURL(text string) bool { return isFileURL(text) || !strings.Contains(text, "://") }

// localPath returns the absolute path that a path or file URL stands for.
func localPath(text string) (string, error) {
	path := text
	if isFileURL(text) {
		parsed, err := url.Parse(text)
		if err != nil {
			return "", fmt.Errorf("the URL of a local repository: %w: escape what is special in URLs, or give the path", err)
		}
		if parsed.Host != "" && parsed.Host != "localhost" || !strings.HasPrefix(parsed.Path, "/") {
			return "", fmt.Errorf("%q is no URL of a local folder: write file:///PATH with an absolute path", text)
		}
		if parsed.RawQuery != "" || parsed.Fragment != "" {
			return "", fmt.Errorf("%q has a query or fragment: write ? as %%3F and # as %%23, or give the path", text)
		}
		path = filepath.FromSlash(parsed.Path)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("finding %s: %w", text, err)
	}
	return abs, nil
}

// localRepository publishes to a repository in a folder.
type localRepository struct {
	folder *folder
	opts   Options
}

// serverLike matches how users write a repository on a server without https://: as user@host:path, which git
// takes, or as a path that begins with the name of a host.
var serverLike = regexp.MustCompile(`^([A-Za-z0-9_.-]+@[A-Za-z0-9.-]+:.+|[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}(:[0-9]+)?/.+)$`)

// looksLikeServer says whether a text that is no URL most likely means a server, and no folder: it has
// the form of one, and its first part is no folder that exists.
func looksLikeServer(text string) bool {
	if !serverLike.MatchString(text) {
		return false
	}
	first, _, _ := strings.Cut(text, "/")
	_, err := os.Stat(first) //nolint:gosec // the user names the place
	return err != nil
}

func openLocal(text string, opts Options) (Publisher, error) {
	if looksLikeServer(text) {
		return nil, fmt.Errorf("%q looks like a server: write https://%s for a server, or ./%s for a folder", text, webPath(text), text)
	}
	root, err := localPath(text)
	if err != nil {
		return nil, err
	}
	return &localRepository{
		folder: &folder{root: root, disk: opts.disk, lockTimeout: opts.LockTimeout, tell: opts.tell},
		opts:   opts,
	}, nil
}

// webPath returns user@host:path and host/path as they stand behind https://.
func webPath(text string) string {
	if _, rest, ok := strings.Cut(text, "@"); ok {
		text = strings.Replace(rest, ":", "/", 1)
	}
	return strings.TrimSuffix(text, ".git")
}

// Plan implements Publisher.
func (l *localRepository) Plan(ctx context.Context, releases []*release.Release) (*Plan, error) {
	checked, err := candidates(releases)
	if err != nil {
		return nil, err
	}
	return l.plan(ctx, checked)
}

func (l *localRepository) plan(ctx context.Context, checked []*release.Release) (*Plan, error) {
	plans, err := l.folder.planReleases(ctx, checked, l.opts.Replace)
	if err != nil {
		return nil, err
	}
	config, err := planConfig(l.folder.root, checked)
	if err != nil {
		return nil, err
	}
	return &Plan{Target: l.folder.root, Releases: plans, Config: config}, nil
}

// Publish implements Publisher.
func (l *localRepository) Publish(ctx context.Context, releases []*release.Release) (*Result, error) {
	checked, err := candidates(releases)
	if err == nil {
		err = clientReady()
	}
	if err != nil {
		return nil, err
	}
	done, err := l.folder.publish(ctx,
		func() (*Plan, error) { return l.plan(ctx, checked) },
		func() error { return l.readBack(ctx, checked) })
	if err != nil {
		return nil, err
	}
	return &Result{Plan: *done, Commands: clusterctlCommands(done.Config.Path, checked)}, nil
}

// Previous implements Publisher.
func (l *localRepository) Previous(ctx context.Context, releases []*release.Release) ([]*release.Release, error) {
	return l.opts.checkedAgainst(ctx, releases, history{
		place:    l.folder.root,
		versions: func(_ context.Context, p release.Provider) ([]string, error) { return l.folder.versions(p), nil },
		fetch:    l.Fetch,
	})
}

// readBack finds the releases as clusterctl does, by their versions and by the clusterctl.yaml.
func (l *localRepository) readBack(ctx context.Context, releases []*release.Release) error {
	for _, r := range releases {
		l.folder.tell(fmt.Sprintf("reading %s back", r))
		if err := readBackLocal(ctx, l.folder.root, r); err != nil {
			return err
		}
	}
	return readBackConfig(ctx, l.folder.root, releases)
}

// Fetch implements Publisher.
func (l *localRepository) Fetch(ctx context.Context, provider release.Provider, version string) (*release.Release, error) {
	return fetchLocal(ctx, l.folder, provider, version, provider.ComponentsFile())
}

// readLocal returns the releases that a path or file URL names.
func readLocal(ctx context.Context, text string, _ Options) ([]found, error) {
	root, releases, err := readLocalReleases(ctx, text)
	all, err := asFound(releases, err)
	for i := range all {
		all[i].verify = func(ctx context.Context) error { return verifyLocal(ctx, root, all[i].release) }
	}
	return all, err
}

// readLocalReleases returns the root of the repository and the releases.
func readLocalReleases(ctx context.Context, text string) (string, []*release.Release, error) {
	path, err := localPath(text)
	if err != nil {
		return "", nil, err
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return release.ReadRoot(path)
	}
	// What is no folder may be clusterctl's URL: .../<label>/<version or latest>/<file>.
	version, file := filepath.Base(filepath.Dir(path)), filepath.Base(path)
	label := filepath.Dir(filepath.Dir(path))
	provider, err := release.ParseLabel(filepath.Base(label))
	if err == nil && version != latest {
		_, err = release.ParseVersion(version)
	}
	if err != nil {
		return release.ReadRoot(path) // its errors say what a release is
	}
	r, err := fetchLocal(ctx, &folder{root: filepath.Dir(label)}, provider, version, file)
	if err != nil {
		return "", nil, err
	}
	return filepath.Dir(label), []*release.Release{r}, nil
}

// fetchLocal reads a release through clusterctl's client. That can't list the files of a version,
// so their names are taken from the folder.
func fetchLocal(ctx context.Context, f *folder, provider release.Provider, version, componentsFile string) (*release.Release, error) {
	if err := provider.Validate(); err != nil {
		return nil, err
	}
	if version == "" || version == latest {
		client, err := localClient(ctx, f.root, provider, latest, componentsFile)
		if err != nil {
			return nil, f.notFound(provider, latest, err)
		}
		version = client.DefaultVersion()
	}
	place := filepath.Join(f.root, provider.Label(), version)
	r, err := release.ReadVersion(place)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, f.notFound(provider, version, err)
	}
	if err != nil {
		return nil, advise(err)
	}
	if _, ok := r.File(componentsFile); !ok {
		return nil, fmt.Errorf("%s has no file %s, which clusterctl is to read: %w", r, componentsFile, fs.ErrNotExist)
	}
	return r, readBackLocal(ctx, f.root, r)
}

// notFound is the error for a version that is not published.
func (f *folder) notFound(provider release.Provider, version string, err error) error {
	there := "it has no version of it"
	if versions := f.versions(provider); len(versions) > 0 {
		there = "it has " + strings.Join(versions, ", ")
	}
	return fmt.Errorf("%w of %s, version %s, in %s: %s: %w", release.ErrNoRelease, provider.Label(), version, f.root, there, err)
}
