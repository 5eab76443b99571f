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

	"github.com/clusterctl-release/clusterctl-release/pkg/publish/store"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// overridesTarget is clusterctl's overrides folder: what is there goes before what the provider's
// repository has. It has no clusterctl.yaml.
// Source: clusterctl configuration, "Overrides Layer".
var overridesTarget = target{
	Kind: store.Kind{
		Form:    "overrides, for clusterctl's overrides folder (a folder of that name is ./overrides)",
		Matches: func(text string) bool { return text == "overrides" },
	},
	folder: true,
	open: func(_ string, opts Options) (Publisher, error) {
		return &folderPublisher{opts: opts, open: opts.openOverrides}, nil
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

// overridesFolderKey is the key of clusterctl's configuration, and the variable, for the folder.
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
	f := o.folder(root)
	f.overrides = configuration
	return f, err
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
