package publish

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-github/v60/github"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/repository"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// maxTagWarnings is how many tags without a release are named.
const maxTagWarnings = 5

// readGitHub returns the releases that a URL names: clusterctl's own URL of a provider,
// .../releases/<version or latest>/<components file>, or all providers of a version,
// .../releases/tag/<version> or .../releases/<version or latest>.
func readGitHub(ctx context.Context, text string, opts Options) ([]found, error) {
	g, rest, err := newGitHub(text, opts)
	if err != nil {
		return nil, err
	}
	if len(rest) == 3 && rest[1] == "tag" {
		rest = []string{rest[0], rest[2]}
	}
	if len(rest) < 2 || len(rest) > 3 || rest[0] != "releases" {
		return nil, fmt.Errorf("%q names no release: write %s/releases/VERSION/COMPONENTS-FILE as in clusterctl's configuration (VERSION may be %s), or %s/releases/tag/VERSION", text, g.url(), latest, g.url())
	}
	if rest[1] != latest {
		if _, err := release.ParseVersion(rest[1]); err != nil {
			return nil, fmt.Errorf("%q: %w", text, err)
		}
	}
	if len(rest) == 3 {
		f, err := g.fetch(ctx, rest[1], rest[2], nil)
		if err != nil {
			return nil, err
		}
		return []found{f}, nil
	}
	return g.fetchAll(ctx, rest[1])
}

// latestVersion returns the version that clusterctl takes when it is asked for none.
func (g *githubRepository) latestVersion(ctx context.Context, componentsFile string) (string, error) {
	if g.clusterctlReads() && g.opts.remote.transport == nil {
		client, err := g.clusterctlClient(ctx, latest, componentsFile)
		if err != nil {
			return "", fmt.Errorf("%w: finding the latest of %s: %w", release.ErrNoRelease, g.url(), err)
		}
		return client.DefaultVersion(), nil
	}
	listed, err := g.list(ctx)
	if err != nil {
		return "", err
	}
	if highest := highestStable(listed, ""); highest != "" {
		return highest, nil
	}
	return "", fmt.Errorf("%w in %s: it has %s", release.ErrNoRelease, g.url(), versionsText(listed))
}

// versionsText lists the versions that are public.
func versionsText(listed []*github.RepositoryRelease) string {
	var versions []string
	for _, r := range listed {
		if _, err := release.ParseVersion(r.GetTagName()); err == nil && !r.GetDraft() {
			versions = append(versions, r.GetTagName())
		}
	}
	if len(versions) == 0 {
		return "no version"
	}
	slices.SortFunc(versions, func(a, b string) int { return compareVersions(b, a) })
	return strings.Join(versions, ", ")
}

// assetsOf returns the assets of a public version, and the version where the latest is asked for.
func (g *githubRepository) assetsOf(ctx context.Context, version, componentsFile string) (string, map[string]githubAsset, error) {
	if version == "" || version == latest {
		var err error
		if version, err = g.latestVersion(ctx, componentsFile); err != nil {
			return "", nil, err
		}
	}
	there, err := g.published(ctx, version)
	if err != nil {
		return "", nil, err
	}
	if there == nil {
		listed, err := g.list(ctx)
		if err != nil {
			return "", nil, err
		}
		return "", nil, fmt.Errorf("%w %s in %s: it has %s", release.ErrNoRelease, version, g.url(), versionsText(listed))
	}
	assets, err := g.listAssets(ctx, there.GetID())
	return version, assets, err
}

// fetchAll returns the releases of all providers whose components are in a version.
func (g *githubRepository) fetchAll(ctx context.Context, version string) ([]found, error) {
	version, assets, err := g.assetsOf(ctx, version, release.MetadataFile)
	if err != nil {
		return nil, err
	}
	var releases []found
	for _, name := range componentsFiles() {
		if _, ok := assets[name]; !ok {
			continue
		}
		f, err := g.fetchAssets(ctx, version, assets, name, nil)
		if err != nil {
			return nil, err
		}
		releases = append(releases, f)
	}
	if len(releases) == 0 {
		return nil, fmt.Errorf("%w: %s has no components of any provider: clusterctl needs one of %s", release.ErrNoRelease, g.place(version), strings.Join(componentsFiles(), ", "))
	}
	return releases, nil
}

// fetch returns the release of the provider whose components are in a file. The provider is nil
// where its components have to tell.
func (g *githubRepository) fetch(ctx context.Context, version, componentsFile string, provider *release.Provider) (found, error) {
	version, assets, err := g.assetsOf(ctx, version, componentsFile)
	if err != nil {
		return found{}, err
	}
	return g.fetchAssets(ctx, version, assets, componentsFile, provider)
}

func (g *githubRepository) fetchAssets(ctx context.Context, version string, assets map[string]githubAsset, componentsFile string, provider *release.Provider) (found, error) {
	if _, ok := assets[componentsFile]; !ok {
		return found{}, fmt.Errorf("%w: %s has no file %s", release.ErrNoRelease, g.place(version), componentsFile)
	}
	names := make([]string, 0, len(assets))
	for name, a := range assets {
		if a.State == uploadedState {
			names = append(names, name)
		}
	}
	f, err := fetchFiles(ctx, fetched{
		version: version, names: names, componentsFile: componentsFile, provider: provider, repository: g.name,
		read: func(ctx context.Context, name string) ([]byte, error) { return g.download(ctx, assets[name]) },
	})
	if err != nil {
		return found{}, err
	}
	if f.read, err = g.reader(ctx, version); f.read == nil && err == nil {
		f.note = fmt.Sprintf("clusterctl reads releases from %s only, and not from %s", clusterctlsGitHub, g.server.web)
	}
	return f, err
}

// draftWarnings names drafts of a version that people have made and that are left alone.
func (g *githubRepository) draftWarnings(listed []*github.RepositoryRelease, version string) []string {
	_, adopted := g.text(listed, version)
	var warnings []string
	for _, r := range listed {
		if isDraftOf(r, version) && !isOwnDraft(r) && !slices.Contains(adopted, r.GetID()) {
			warnings = append(warnings, fmt.Sprintf("there is another draft for %s, which is left as it is: %s", version, r.GetHTMLURL()))
		}
	}
	return warnings
}

// incompleteTags warns of tags that clusterctl takes for the newest version of a series, and that
// have no release with metadata and components: `clusterctl upgrade plan` fails for everybody then.
// Source: cluster-api issue 8966 and cluster-api-provider-openstack issue 3237.
func (g *githubRepository) incompleteTags(ctx context.Context, listed []*github.RepositoryRelease, own []*bundle) ([]string, error) {
	newest := map[string]string{}
	note := func(tag string) {
		v, err := release.ParseVersion(tag)
		if err != nil {
			return
		}
		series := fmt.Sprintf("%d.%d", v.Major(), v.Minor())
		if v.PreRelease() != "" {
			series += " pre-release"
		}
		if old, ok := newest[series]; !ok || compareVersions(tag, old) > 0 {
			newest[series] = tag
		}
	}
	for page := 1; page != 0; {
		tags, resp, err := g.client.Repositories.ListTags(ctx, g.owner, g.name, &github.ListOptions{Page: page, PerPage: githubPage})
		if err != nil {
			return nil, g.failure("listing the tags of "+g.url(), resp, err)
		}
		for _, t := range tags {
			note(t.GetName())
		}
		page = resp.NextPage
	}
	complete := map[string]bool{}
	for _, b := range own {
		note(b.version)
		complete[b.version] = true
	}
	for _, r := range listed {
		if !r.GetDraft() && isComplete(r) {
			complete[r.GetTagName()] = true
		}
	}
	var bad []string
	for _, tag := range newest {
		if !complete[tag] {
			bad = append(bad, tag)
		}
	}
	slices.SortFunc(bad, func(a, b string) int { return compareVersions(b, a) })
	var warnings []string
	for i, tag := range bad {
		if i == maxTagWarnings {
			warnings = append(warnings, fmt.Sprintf("and %s more", count(len(bad)-i, "tag")))
			break
		}
		warnings = append(warnings, fmt.Sprintf("the tag %s has no public release with %s and components: clusterctl takes it for a version, and fails: publish it, or remove the tag", tag, release.MetadataFile))
	}
	return warnings, nil
}

// isComplete says whether a release has what clusterctl needs of each.
func isComplete(r *github.RepositoryRelease) bool {
	has := func(wanted func(name string) bool) bool {
		return slices.ContainsFunc(r.Assets, func(a *github.ReleaseAsset) bool {
			return a.GetState() == uploadedState && wanted(a.GetName())
		})
	}
	return has(func(name string) bool { return name == release.MetadataFile }) &&
		has(func(name string) bool {
			return strings.Contains(name, "components") && strings.HasSuffix(name, ".yaml")
		})
}

// entries returns the entries of clusterctl's configuration for what is published.
func (g *githubRepository) entries(all []*bundle) []providerEntry {
	var entries []providerEntry
	for _, r := range allReleases(all) {
		entry := providerEntry{Name: r.Provider.Name, Type: r.Provider.Type, URL: g.entryURL(latest, r.Provider.ComponentsFile())}
		if !slices.Contains(entries, entry) {
			entries = append(entries, entry)
		}
	}
	return entries
}

// entryURL returns clusterctl's URL of a file in a version.
func (g *githubRepository) entryURL(version, file string) string {
	return g.url() + "/releases/" + version + "/" + file
}

// clusterctlClient returns clusterctl's own client for the repository.
func (g *githubRepository) clusterctlClient(ctx context.Context, version, file string) (repository.Repository, error) {
	return serverClient(ctx, func(ctx context.Context, p config.Provider, v config.VariablesClient) (repository.Repository, error) {
		return repository.NewGitHubRepository(ctx, p, v)
	}, g.entryURL(version, file), config.GitHubTokenVariable, credential{
		header: "Authorization", prefix: "Bearer ", secret: g.token, hosts: []string{g.server.api.Host},
	})
}

// reader returns what reads the files of a version as clusterctl does: through its own client. It
// is nil where clusterctl does not read from this server.
func (g *githubRepository) reader(ctx context.Context, version string) (func(context.Context, string) ([]byte, error), error) {
	if read := g.opts.remote.readFile; read != nil {
		return func(ctx context.Context, name string) ([]byte, error) {
			return read(ctx, g.entryURL(version, name), name)
		}, nil
	}
	if !g.clusterctlReads() {
		return nil, nil
	}
	client, err := g.clusterctlClient(ctx, version, release.MetadataFile)
	if err != nil {
		return nil, fmt.Errorf("making clusterctl's client for %s: %w", g.url(), err)
	}
	return func(ctx context.Context, name string) ([]byte, error) { return client.GetFile(ctx, version, name) }, nil
}

// readBack compares what is public with what was published: through clusterctl's own client where
// that reads from here, or as the API gives it.
func (g *githubRepository) readBack(ctx context.Context, b *bundle, files []release.File) error {
	read, err := g.reader(ctx, b.version)
	if err != nil {
		return &ReadBackError{Release: b.releases[0], Err: err}
	}
	atOnce := clusterctlReadsAtOnce
	if read == nil {
		atOnce = downloadsAtOnce
		_, assets, err := g.assetsOf(ctx, b.version, release.MetadataFile)
		if err != nil {
			return &ReadBackError{Release: b.releases[0], Err: err}
		}
		read = func(ctx context.Context, name string) ([]byte, error) {
			a, ok := assets[name]
			if !ok {
				return nil, errors.New("it is not listed")
			}
			return g.download(ctx, a)
		}
	}
	return readBackFiles(ctx, b, files, g.opts, atOnce, read)
}
