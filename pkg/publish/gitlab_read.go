package publish

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/repository"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// clusterctlReader returns what reads files through clusterctl's own client.
func (g *gitlabPackage) clusterctlReader(ctx context.Context, version string) (func(context.Context, string) ([]byte, error), error) {
	if read := g.opts.remote.readFile; read != nil {
		return func(ctx context.Context, name string) ([]byte, error) {
			return read(ctx, g.entryURL(version, name), name)
		}, nil
	}
	client, err := serverClient(ctx, repository.NewGitLabRepository, g.entryURL(version, release.MetadataFile), config.GitLabAccessTokenVariable, g.credential)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, name string) ([]byte, error) { return client.GetFile(ctx, version, name) }, nil
}

// Fetch implements Publisher. Clusterctl knows no latest version of a package, so that this is the
// highest stable one.
func (g *gitlabPackage) Fetch(ctx context.Context, provider release.Provider, version string) (*release.Release, error) {
	if err := provider.Validate(); err != nil {
		return nil, err
	}
	f, err := g.fetch(ctx, version, provider.ComponentsFile(), &provider)
	return f.release, err
}

// readGitLab returns the release that clusterctl's URL of a provider names, or, without a file, the
// releases of all providers of a version.
func readGitLab(ctx context.Context, text string, opts Options) ([]found, error) {
	g, rest, err := newGitLab(text, opts)
	if err != nil {
		return nil, err
	}
	if len(rest) < 1 || len(rest) > 2 {
		return nil, fmt.Errorf("%q names no release: write %s/VERSION/COMPONENTS-FILE as in clusterctl's configuration", text, g.url())
	}
	if rest[0] != latest {
		if _, err := release.ParseVersion(rest[0]); err != nil {
			return nil, fmt.Errorf("%q: %w", text, err)
		}
	}
	if len(rest) == 2 {
		f, err := g.fetch(ctx, rest[0], rest[1], nil)
		if err != nil {
			return nil, err
		}
		return []found{f}, nil
	}
	return g.fetchAll(ctx, rest[0])
}

// fetchAll returns the releases of all providers whose components are in a version.
func (g *gitlabPackage) fetchAll(ctx context.Context, version string) ([]found, error) {
	return fetchEach(g.place(version), func(componentsFile string) (found, error) { return g.fetch(ctx, version, componentsFile, nil) })
}

func (g *gitlabPackage) fetch(ctx context.Context, version, componentsFile string, provider *release.Provider) (found, error) {
	names, version, err := g.names(ctx, version, componentsFile)
	if err != nil {
		return found{}, err
	}
	f, err := fetchFiles(ctx, fetched{
		version: version, names: names, componentsFile: componentsFile, provider: provider, repository: g.name,
		read: func(ctx context.Context, name string) ([]byte, error) { return g.download(ctx, version, name) },
	})
	if err != nil {
		return found{}, err
	}
	if !strings.HasPrefix(g.host, clusterctlsGitLab) {
		f.note = g.hostWarning()
	}
	f.read, err = g.clusterctlReader(ctx, version)
	return f, err
}

// versions returns the versions of the package, the highest first.
func (g *gitlabPackage) versions(ctx context.Context) ([]string, error) {
	packages, err := g.packages(ctx, "", "default")
	if err != nil {
		return nil, err
	}
	var versions []string
	for _, p := range packages {
		if _, err := release.ParseVersion(p.Version); err == nil {
			versions = append(versions, p.Version)
		}
	}
	slices.SortFunc(versions, func(a, b string) int { return compareVersions(b, a) })
	return versions, nil
}

// history returns the public releases of the package.
func (g *gitlabPackage) history() history {
	return history{
		place:    g.url(),
		versions: func(ctx context.Context, _ release.Provider) ([]string, error) { return g.versions(ctx) },
		fetch:    g.Fetch,
	}
}

// Previous implements Publisher.
func (g *gitlabPackage) Previous(ctx context.Context, releases []*release.Release) ([]*release.Release, error) {
	return g.opts.checkedAgainst(ctx, releases, g.history())
}

// names returns the files of a version, among which the components have to be, and the version where
// the latest is asked for.
func (g *gitlabPackage) names(ctx context.Context, version, componentsFile string) ([]string, string, error) {
	isLatest := version == "" || version == latest
	if g.credential.header == deployHeader && !isLatest {
		names, err := namesBySums(ctx, componentsFile, func(ctx context.Context, name string) ([]byte, error) { return g.download(ctx, version, name) })
		return names, version, err
	}
	versions, err := g.versions(ctx)
	if err != nil {
		return nil, "", err
	}
	if isLatest {
		i := slices.IndexFunc(versions, stable)
		if i < 0 {
			return nil, "", fmt.Errorf("%w in %s: it has no version", release.ErrNoRelease, g.url())
		}
		version = versions[i]
	}
	there, err := g.look(ctx, version)
	if err != nil {
		return nil, "", err
	}
	if !there.complete() {
		return nil, "", fmt.Errorf("%w: %s has no %s: the package has the versions %s", release.ErrNoRelease, g.place(version), release.MetadataFile, strings.Join(versions, ", "))
	}
	if _, ok := there.newest(componentsFile); !ok {
		return nil, "", fmt.Errorf("%w: %s has no %s", errNoComponents, g.place(version), componentsFile)
	}
	var names []string
	for _, f := range there.files {
		if !slices.Contains(names, f.name) {
			names = append(names, f.name)
		}
	}
	return names, version, nil
}
