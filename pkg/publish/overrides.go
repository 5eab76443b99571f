package publish

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/adrg/xdg"
	"github.com/drone/envsubst/v2"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/repository"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// overridesTarget is clusterctl's overrides folder: what is there goes before what the provider's
// repository has. It has no clusterctl.yaml.
// Source: clusterctl configuration, "Overrides Layer".
var overridesTarget = target{
	form:    "overrides, for clusterctl's overrides folder (a folder of that name is ./overrides)",
	folder:  true,
	matches: func(text string) bool { return text == "overrides" },
	open: func(_ string, opts Options) (Publisher, error) {
		return &overrides{opts: opts}, nil
	},
	read: readOverrides,
}

// readOverrides returns the releases in clusterctl's overrides folder.
func readOverrides(ctx context.Context, _ string, opts Options) ([]found, error) {
	f, configuration, err := (&overrides{opts: opts}).open(ctx)
	if err != nil {
		return nil, err
	}
	all, err := asFound(release.Read(f.root))
	for i := range all {
		all[i].verify = func(ctx context.Context) error { return unread(readBackOverrides(ctx, configuration, all[i].release)) }
	}
	return all, err
}

// overridesFolderKey is the key of clusterctl's configuration, and the variable, for the folder.
const overridesFolderKey = "overridesFolder"

// overrides publishes to clusterctl's overrides folder.
type overrides struct {
	opts Options
}

// open returns the overrides folder and the configuration that names it.
func (o *overrides) open(ctx context.Context) (*folder, config.Client, error) {
	if err := clientReady(); err != nil {
		return nil, nil, err
	}
	configuration, err := config.New(ctx, o.opts.ClusterctlConfig)
	if err != nil {
		return nil, nil, fmt.Errorf("reading clusterctl's configuration: %w: correct it, or choose another", err)
	}
	root, err := overridesFolder(configuration)
	if err != nil {
		return nil, nil, err
	}
	return &folder{root: root, disk: o.opts.disk, lockTimeout: o.opts.LockTimeout, tell: o.opts.tell}, configuration, nil
}

// overridesFolder returns the absolute path of the folder that clusterctl reads overrides from:
// what its configuration or the variable OVERRIDESFOLDER says, or cluster-api/overrides in the
// user's XDG folder for configurations, or, where that is missing and this is not,
// .cluster-api/overrides in the user's home.
func overridesFolder(configuration config.Client) (string, error) {
	if value, err := configuration.Variables().Get(overridesFolderKey); err == nil && strings.TrimSpace(value) != "" {
		path, err := envsubst.Eval(value, os.Getenv)
		if err != nil {
			return "", fmt.Errorf("clusterctl's %s is %q: replacing its variables: %w", overridesFolderKey, value, err)
		}
		if !filepath.IsAbs(path) {
			// clusterctl would look for it in whatever folder it is run.
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

// Plan implements Publisher.
func (o *overrides) Plan(ctx context.Context, releases []*release.Release) (*Plan, error) {
	checked, err := candidates(releases)
	if err != nil {
		return nil, err
	}
	f, _, err := o.open(ctx)
	if err != nil {
		return nil, err
	}
	return o.plan(ctx, f, checked)
}

func (o *overrides) plan(ctx context.Context, f *folder, checked []*release.Release) (*Plan, error) {
	plans, err := f.planReleases(ctx, checked, o.opts.Replace)
	if err != nil {
		return nil, err
	}
	return &Plan{Target: f.root, Releases: plans}, nil
}

// Publish implements Publisher.
func (o *overrides) Publish(ctx context.Context, releases []*release.Release) (*Result, error) {
	checked, err := candidates(releases)
	if err != nil {
		return nil, err
	}
	f, configuration, err := o.open(ctx)
	if err != nil {
		return nil, err
	}
	done, err := f.publish(ctx,
		func() (*Plan, error) { return o.plan(ctx, f, checked) },
		func() error {
			for _, r := range checked {
				f.tell(fmt.Sprintf("reading %s back", r))
				if err := readBackOverrides(ctx, configuration, r); err != nil {
					return err
				}
			}
			return nil
		})
	if err != nil {
		return nil, err
	}
	return &Result{Plan: *done, Commands: clusterctlCommands(o.opts.ClusterctlConfig, checked)}, nil
}

// Previous implements Publisher. What overrides a version is no release that users upgrade from: only
// one that is named is looked at.
func (o *overrides) Previous(ctx context.Context, releases []*release.Release) ([]*release.Release, error) {
	return o.opts.checkedAgainst(ctx, releases, history{
		versions: func(context.Context, release.Provider) ([]string, error) { return nil, nil },
	})
}

// Fetch implements Publisher. clusterctl looks overrides up by version only, so that there is no
// latest one.
func (o *overrides) Fetch(ctx context.Context, provider release.Provider, version string) (*release.Release, error) {
	if err := provider.Validate(); err != nil {
		return nil, err
	}
	if _, err := release.ParseVersion(version); err != nil {
		return nil, fmt.Errorf("an override is of one version: %w", err)
	}
	f, configuration, err := o.open(ctx)
	if err != nil {
		return nil, err
	}
	r, err := release.ReadVersion(filepath.Join(f.root, provider.Label(), version))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, f.notFound(provider, version, err)
	}
	if err != nil {
		return nil, advise(err)
	}
	return r, readBackOverrides(ctx, configuration, r)
}

// readBackOverrides compares a release in the overrides folder with what clusterctl's client reads
// by the user's own configuration. The provider's repository behind the overrides is an empty one:
// a file that is read is an override.
func readBackOverrides(ctx context.Context, configuration config.Client, r *release.Release) error {
	provider := config.NewProvider(r.Provider.Name, "", r.Provider.Type)
	for _, file := range r.Files {
		empty := repository.NewMemoryRepository().WithPaths("", file.Name).WithDefaultVersion(r.Version)
		client, err := repository.New(ctx, provider, configuration, repository.InjectRepository(empty))
		if err != nil {
			return &ReadBackError{Release: r, File: file.Name, Err: err}
		}
		if err := readBackAs(ctx, client, r, file); err != nil {
			return err
		}
	}
	return nil
}
