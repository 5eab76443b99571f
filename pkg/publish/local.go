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

	"github.com/adrg/xdg"
	"github.com/drone/envsubst/v2"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"

	"github.com/clusterctl-release/clusterctl-release/pkg/publish/store"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// localTarget is a repository in a folder, with a clusterctl.yaml at its root.
// Source: clusterctl provider contract, "Creating a local provider repository".
var localTarget = target{
	Kind: store.Kind{
		Form:    "a folder, as a path or as file:///PATH",
		Matches: func(text string) bool { return text != "" && isLocalURL(text) },
	},
	folder: true,
	open:   openLocal,
	read:   readLocal,
}

func isFileURL(text string) bool {
	return strings.HasPrefix(strings.ToLower(text), "file:")
}

// isLocalURL reports whether the url of clusterctl's configuration names a local repository.
func isLocalURL(text string) bool { return isFileURL(text) || !strings.Contains(text, "://") }

// localPath returns the absolute path of a path or file URL.
func localPath(text string) (string, error) {
	path := text
	if isFileURL(text) {
		parsed, err := url.Parse(text)
		if err != nil {
			return "", fmt.Errorf("the URL of a local repository: %w: escape what is special in URLs, or give the path", err)
		}
		if parsed.Host != "" && parsed.Host != "localhost" || !strings.HasPrefix(parsed.Path, "/") {
			return "", fmt.Errorf("%q isn't a URL of a local folder: write file:///PATH with an absolute path", text)
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

// serverLike matches the forms of a repository on a server without https://: user@host:path, which git accepts, or a
// path that starts with the name of a host.
var serverLike = regexp.MustCompile(`^([A-Za-z0-9_.-]+@[A-Za-z0-9.-]+:.+|[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}(:[0-9]+)?/.+)$`)

// looksLikeServer reports whether a text that isn't a URL probably names a server, not a folder: it has the form of
// one, and its first part isn't an existing folder.
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
	return folderPublisher(func(context.Context) (*folder, error) { return &folder{root: root, opts: opts}, nil }), nil
}

// webPath returns user@host:path and host/path in the form after https://.
func webPath(text string) string {
	if _, rest, ok := strings.Cut(text, "@"); ok {
		text = strings.Replace(rest, ":", "/", 1)
	}
	return strings.TrimSuffix(text, ".git")
}

// folderPublisher publishes to the folder that it opens: a local repository or clusterctl's overrides.
type folderPublisher func(ctx context.Context) (*folder, error)

func (open folderPublisher) prepare(ctx context.Context, releases []*release.Release) ([]*release.Release, *folder, error) {
	checked, err := candidates(releases)
	if err != nil {
		return nil, nil, err
	}
	f, err := open(ctx)
	return checked, f, err
}

func (open folderPublisher) Plan(ctx context.Context, releases []*release.Release) (*Plan, error) {
	checked, f, err := open.prepare(ctx, releases)
	if err != nil {
		return nil, err
	}
	return f.plan(ctx, checked)
}

func (open folderPublisher) Publish(ctx context.Context, releases []*release.Release) (*Result, error) {
	checked, f, err := open.prepare(ctx, releases)
	if err == nil {
		err = clientReady()
	}
	if err != nil {
		return nil, err
	}
	done, err := f.publish(ctx,
		func() (*Plan, error) { return f.plan(ctx, checked) },
		func() error {
			for _, r := range checked {
				f.opts.tell(fmt.Sprintf("reading %s back", r))
				if err := f.verify(ctx, r); err != nil {
					return fmt.Errorf("published, but: %w", err)
				}
			}
			return nil
		})
	if err != nil {
		return nil, err
	}
	clusterctlConfig := f.opts.ClusterctlConfig
	if done.Config != nil {
		clusterctlConfig = done.Config.Path
	}
	return &Result{Plan: *done, Commands: clusterctlCommands(clusterctlConfig, checked)}, nil
}

// Previous implements Publisher. Users do not upgrade from an override, so for overrides it reads only a release that
// the user named.
func (open folderPublisher) Previous(ctx context.Context, releases []*release.Release) ([]*release.Release, error) {
	f, err := open(ctx)
	if err != nil {
		return nil, err
	}
	from := history{versions: func(_ context.Context, p release.Provider) ([]string, error) { return f.versions(p), nil }, place: f.root, fetch: open.Fetch}
	if f.overrides != nil {
		from = history{versions: func(context.Context, release.Provider) ([]string, error) { return nil, nil }}
	}
	return f.opts.checkedAgainst(ctx, releases, from)
}

// Fetch implements Publisher. clusterctl looks overrides up by version only, so they have no latest one.
func (open folderPublisher) Fetch(ctx context.Context, provider release.Provider, version string) (*release.Release, error) {
	f, err := open(ctx)
	if err != nil {
		return nil, err
	}
	if f.overrides != nil {
		if _, err := release.ParseVersion(version); err != nil {
			return nil, fmt.Errorf("an override is of one version: %w", err)
		}
	}
	return f.fetch(ctx, provider, version, provider.ComponentsFile())
}

// readLocal returns the releases that a path or file URL names.
func readLocal(ctx context.Context, text string, _ Options) ([]readRelease, error) {
	path, err := localPath(text)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	isFolder := err == nil && info.IsDir()
	// A path that isn't a folder may be clusterctl's URL: .../<label>/<version or latest>/<file>.
	version, file := filepath.Base(filepath.Dir(path)), filepath.Base(path)
	label := filepath.Dir(filepath.Dir(path))
	provider, err := release.ParseLabel(filepath.Base(label))
	if err == nil && version != store.Latest {
		_, err = release.ParseVersion(version)
	}
	if isFolder || err != nil {
		root, releases, err := release.ReadRoot(path) // its errors say what a release is
		return (&folder{root: root}).asRead(releases), err
	}
	f := &folder{root: filepath.Dir(label)}
	r, err := f.fetch(ctx, provider, version, file)
	if err != nil {
		return nil, err
	}
	return f.asRead([]*release.Release{r}), nil
}

// asRead returns releases from the folder, which have no generated files.
func (f *folder) asRead(releases []*release.Release) []readRelease {
	all := make([]readRelease, 0, len(releases))
	for _, r := range releases {
		all = append(all, readRelease{release: r, verify: func(ctx context.Context) error { return f.verify(ctx, r) }})
	}
	return all
}

// fetch reads a release through clusterctl's client, which can't list the files of a version, so it takes their names
// from the folder.
func (f *folder) fetch(ctx context.Context, provider release.Provider, version, componentsFile string) (*release.Release, error) {
	if err := provider.Validate(); err != nil {
		return nil, err
	}
	if version == "" || version == store.Latest {
		client, err := f.client(ctx, provider, store.Latest, componentsFile)
		if err != nil {
			return nil, f.notFound(provider, store.Latest, err)
		}
		version = client.DefaultVersion()
	}
	place := filepath.Join(f.root, provider.Label(), version)
	r, err := release.ReadVersion(place)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, f.notFound(provider, version, err)
	}
	if err != nil {
		return nil, withAdvice(err)
	}
	if _, ok := r.File(componentsFile); !ok {
		return nil, fmt.Errorf("%s has no file %s, which clusterctl is to read: %w", r, componentsFile, fs.ErrNotExist)
	}
	return r, f.readBack(ctx, r)
}

// notFound is the error for a version that is not published.
func (f *folder) notFound(provider release.Provider, version string, err error) error {
	there := "it has no version of it"
	if versions := f.versions(provider); len(versions) > 0 {
		there = "it has " + strings.Join(versions, ", ")
	}
	return fmt.Errorf("%w of %s, version %s, in %s: %s: %w", release.ErrNoRelease, provider.Label(), version, f.root, there, err)
}

// overridesTarget is clusterctl's overrides folder, which takes precedence over the provider's repository. It has no
// clusterctl.yaml.
//
// Source: clusterctl configuration, "Overrides Layer".
var overridesTarget = target{
	Kind: store.Kind{
		Form:    "overrides, for clusterctl's overrides folder (a folder of that name is ./overrides)",
		Matches: func(text string) bool { return text == "overrides" },
	},
	folder: true,
	open: func(_ string, opts Options) (Publisher, error) {
		return folderPublisher(opts.openOverrides), nil
	},
	read: func(ctx context.Context, _ string, opts Options) ([]readRelease, error) {
		f, err := opts.openOverrides(ctx)
		if err != nil {
			return nil, err
		}
		releases, err := release.Read(f.root)
		return f.asRead(releases), err
	},
}

// overridesFolderKey is the key in clusterctl's configuration, and the variable, for the folder.
const overridesFolderKey = "overridesFolder"

// openOverrides returns the overrides folder, with the configuration that names it.
func (o Options) openOverrides(ctx context.Context) (*folder, error) {
	if err := clientReady(); err != nil {
		return nil, err
	}
	configuration, err := config.New(ctx, o.ClusterctlConfig)
	if err != nil {
		return nil, fmt.Errorf("reading clusterctl's configuration: %w: correct it, or choose another", err)
	}
	root, err := overridesFolder(configuration)
	return &folder{root: root, opts: o, overrides: configuration}, err
}

// overridesFolder returns the absolute path of the folder from which clusterctl reads overrides: that of its
// configuration or the variable OVERRIDESFOLDER, or cluster-api/overrides in the user's XDG folder for configurations,
// or, if only that is missing, .cluster-api/overrides in the user's home.
func overridesFolder(configuration config.Client) (string, error) {
	if value, err := configuration.Variables().Get(overridesFolderKey); err == nil && strings.TrimSpace(value) != "" {
		path, err := envsubst.Eval(value, os.Getenv)
		if err != nil {
			return "", fmt.Errorf("clusterctl's %s is %q: replacing its variables: %w", overridesFolderKey, value, err)
		}
		if !filepath.IsAbs(path) {
			// clusterctl would look for it in the current folder.
			return "", fmt.Errorf("clusterctl's %s is %q, a relative path: make it absolute", overridesFolderKey, path)
		}
		return filepath.Clean(path), nil
	}
	folder, err := xdg.ConfigFile(config.ConfigFolderXDG)
	if err != nil {
		return "", fmt.Errorf("finding clusterctl's configuration folder: %w", err)
	}
	path := filepath.Join(folder, "overrides")
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		inHome := filepath.Join(xdg.Home, config.ConfigFolder, "overrides")
		if _, err := os.Stat(inHome); err == nil {
			path = inHome
		}
	}
	return path, nil
}
