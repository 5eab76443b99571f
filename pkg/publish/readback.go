package publish

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/repository"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// noOverrides is a folder for clusterctl's overrides that nobody has: what is read is what is in
// the repository, not what the user has put before it.
const noOverrides = "/nonexistent/clusterctl-release-reads-no-overrides"

// clusterctlConfig returns a clusterctl configuration with these providers and without overrides.
func clusterctlConfig(ctx context.Context, entries ...providerEntry) (config.Client, error) {
	reader := config.NewMemoryReader()
	if err := reader.Init(ctx, ""); err != nil {
		return nil, fmt.Errorf("making a configuration for clusterctl's client: %w", err)
	}
	reader.Set("overridesFolder", noOverrides)
	for _, e := range entries {
		if _, err := reader.AddProvider(e.Name, e.Type, e.URL); err != nil {
			return nil, fmt.Errorf("making a configuration for clusterctl's client: %w", err)
		}
	}
	client, err := config.New(ctx, "", config.InjectReader(reader))
	if err != nil {
		return nil, fmt.Errorf("making a configuration for clusterctl's client: %w", err)
	}
	return client, nil
}

// entryClient returns clusterctl's client for the repository that an entry of its configuration names.
func entryClient(ctx context.Context, entry providerEntry) (repository.Client, error) {
	configuration, err := clusterctlConfig(ctx, entry)
	if err != nil {
		return nil, err
	}
	provider, err := configuration.Providers().Get(entry.Name, entry.Type)
	if err != nil {
		return nil, err
	}
	return repository.New(ctx, provider, configuration)
}

// localClient returns clusterctl's client for a local repository whose components are in a file.
func localClient(ctx context.Context, root string, provider release.Provider, version, file string) (repository.Client, error) {
	return entryClient(ctx, providerEntry{
		Name: provider.Name, Type: provider.Type, URL: RepositoryURL(root, provider, version, file),
	})
}

// readBackFolder compares a release in a folder with what clusterctl's client reads, of overrides by the
// user's own configuration. Clusterctl gives the bytes of components only as they are; of other files it
// gives what it makes of them. So each file is asked for as the components of the release.
func readBackFolder(ctx context.Context, root string, r *release.Release, overrides config.Client) error {
	for _, file := range r.Files {
		client, err := fileClient(ctx, root, r, file.Name, overrides)
		if err != nil {
			return &ReadBackError{Release: r, File: file.Name, Err: err}
		}
		if err := readBackAs(ctx, client, r, file); err != nil {
			return err
		}
	}
	return nil
}

// fileClient returns clusterctl's client for a release whose components are in a file. The repository
// behind overrides is an empty one: a file that is read is an override.
func fileClient(ctx context.Context, root string, r *release.Release, file string, overrides config.Client) (repository.Client, error) {
	if overrides == nil {
		return localClient(ctx, root, r.Provider, r.Version, file)
	}
	empty := repository.NewMemoryRepository().WithPaths("", file).WithDefaultVersion(r.Version)
	return repository.New(ctx, config.NewProvider(r.Provider.Name, "", r.Provider.Type), overrides, repository.InjectRepository(empty))
}

// readBackAs reads a file as a client's components and compares it.
func readBackAs(ctx context.Context, client repository.Client, r *release.Release, file release.File) error {
	if err := ctx.Err(); err != nil {
		return &ReadBackError{Release: r, File: file.Name, Err: err}
	}
	data, err := client.Components().Raw(ctx, repository.ComponentsOptions{Version: r.Version})
	if err != nil {
		return &ReadBackError{Release: r, File: file.Name, Err: err}
	}
	if !bytes.Equal(data, file.Data) {
		return &ReadBackError{Release: r, File: file.Name}
	}
	return nil
}

// readBackConfig finds a release through the repository's clusterctl.yaml, as its users do.
func readBackConfig(ctx context.Context, root string, r *release.Release) error {
	path := filepath.Join(root, configFile)
	entry, err := configuredProvider(path, r.Provider)
	if err == nil && !isLocalURL(entry.URL) {
		err = fmt.Errorf("with %s clusterctl reads %s: set its url to %s", path, entry.URL, RepositoryURL(root, r.Provider, latest, r.Provider.ComponentsFile()))
	}
	if err != nil {
		return &ReadBackError{Release: r, Err: err}
	}
	client, err := entryClient(ctx, entry)
	if err != nil {
		// The release is fine, as readBackFolder says: it is the choice of the latest that fails.
		return &ReadBackError{Release: r, Err: fmt.Errorf("with %s: %w: check the versions of %s there: "+
			"the newest needs a %s, and a version of the newest series in it for clusterctl's contract has to be there",
			path, err, r.Provider.Label(), release.MetadataFile)}
	}
	if err := isListed(ctx, client, r); err != nil {
		return &ReadBackError{Release: r, Err: fmt.Errorf("with %s: %w", path, err)}
	}
	if components, ok := r.Components(); ok {
		return readBackAs(ctx, client, r, components)
	}
	return nil
}

// isListed returns an error if a client does not list the version of a release.
func isListed(ctx context.Context, client repository.Client, r *release.Release) error {
	versions, err := client.GetVersions(ctx)
	if err == nil && !slices.Contains(versions, r.Version) {
		err = fmt.Errorf("clusterctl lists the versions %v: is the version's folder a link?", versions)
	}
	return err
}

// verifyLocal reads a release in a local repository as its users do: each file and the versions through
// clusterctl's client and, where the repository has a clusterctl.yaml, by what that says.
func verifyLocal(ctx context.Context, root string, r *release.Release) error {
	err := clientReady()
	if err == nil {
		err = readBackFolder(ctx, root, r, nil)
	}
	if err != nil {
		return err
	}
	client, err := localClient(ctx, root, r.Provider, r.Version, r.Provider.ComponentsFile())
	if err == nil {
		err = isListed(ctx, client, r)
	}
	if err != nil {
		return &ReadBackError{Release: r, Err: err}
	}
	if _, missing := os.Lstat(filepath.Join(root, configFile)); missing == nil {
		return readBackConfig(ctx, root, r)
	}
	return nil
}
