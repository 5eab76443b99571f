package publish

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish/store"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish/transport"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

func (s *server) Fetch(ctx context.Context, provider release.Provider, version string) (*release.Release, error) {
	if err := provider.Validate(); err != nil {
		return nil, err
	}
	there, err := s.public(ctx, version, provider.ComponentsFile())
	if err != nil {
		return nil, err
	}
	f, err := s.fetch(ctx, there, provider.ComponentsFile(), &provider)
	return f.release, err
}

// read returns the releases of a version and a components file; without a file, those of all providers of the version.
func (s *server) read(ctx context.Context, version, componentsFile string) ([]readRelease, error) {
	if version != store.Latest {
		if _, err := release.ParseVersion(version); err != nil {
			return nil, fmt.Errorf("%s: %w", s.store.Place(version), err)
		}
	}
	wanted, all := []string{componentsFile}, componentsFile == ""
	if all {
		wanted, componentsFile = store.ComponentsFiles(), release.MetadataFile
	}
	there, err := s.public(ctx, version, componentsFile)
	if err != nil {
		return nil, err
	}
	var releases []readRelease
	for _, name := range wanted {
		if _, ok := there.Files[name]; !ok && all {
			continue
		}
		f, err := s.fetch(ctx, there, name, nil)
		if err != nil {
			return nil, err
		}
		releases = append(releases, f)
	}
	if len(releases) == 0 {
		return nil, fmt.Errorf("%w: %s has no components of any provider: clusterctl needs one of %s", release.ErrNoRelease, s.store.Place(there.Version), strings.Join(wanted, ", "))
	}
	return releases, nil
}

// public returns the snapshot of a version, or of the latest one.
func (s *server) public(ctx context.Context, version, componentsFile string) (*store.Snapshot, error) {
	if version == "" || version == store.Latest {
		var err error
		if version, err = s.latestVersion(ctx, componentsFile); err != nil {
			return nil, err
		}
	}
	there, err := s.store.Look(ctx, version)
	if err != nil || there.Public {
		return there, err
	}
	has := ""
	if versions, err := s.store.Versions(ctx); err == nil { // a user who may read may be unable to list
		slices.SortFunc(versions, func(a, b string) int { return store.Compare(b, a) })
		has = ": it has " + strings.Join(append(versions, "no other version")[:max(len(versions), 1)], ", ")
	}
	return nil, fmt.Errorf("%w %s in %s%s", release.ErrNoRelease, version, s.store.URL(), has)
}

// latestVersion returns clusterctl's default version.
func (s *server) latestVersion(ctx context.Context, componentsFile string) (version string, err error) {
	if l, ok := s.store.(store.Latester); ok {
		version, err = l.LatestVersion(ctx, componentsFile)
	} else {
		var versions []string
		versions, err = s.store.Versions(ctx)
		version = store.Highest(versions, store.Stable)
	}
	if err == nil && version == "" {
		err = fmt.Errorf("%w in %s: it has no version without a pre-release part", release.ErrNoRelease, s.store.URL())
	}
	return version, err
}

// fetch returns a provider's release: the files that clusterctl would read, and the other files that its checksums
// name. Further files of a version, such as binaries, don't belong to it. If the provider is nil, its components
// determine it.
func (s *server) fetch(ctx context.Context, there *store.Snapshot, componentsFile string, provider *release.Provider) (readRelease, error) {
	if _, ok := there.Files[componentsFile]; !ok {
		return readRelease{}, fmt.Errorf("%w: %s has no file %s", release.ErrNoRelease, s.store.Place(there.Version), componentsFile)
	}
	f, err := fetchFiles(ctx, there, componentsFile, provider, path.Base(s.store.URL()), s.store.Read)
	if err != nil {
		return readRelease{}, err
	}
	f.problems = doubles(there.Version, there)
	readAs, note, err := s.store.Reader(ctx, there.Version)
	f.note = note
	if one := f.release; readAs != nil {
		f.verify = func(ctx context.Context) error {
			v := &store.Version{Number: one.Version, Releases: []*release.Release{one}, Files: one.Files}
			return readBackFiles(ctx, v, v.Files, s.opts, clusterctlReadsAtOnce, readAs)
		}
	}
	return f, err
}

// fetchFiles reads a provider's release from the files of a version. The name of the repository determines the provider
// if its components do not.
func fetchFiles(ctx context.Context, there *store.Snapshot, componentsFile string, provider *release.Provider, repository string, read func(ctx context.Context, there *store.Snapshot, name string) ([]byte, error)) (readRelease, error) {
	components, err := read(ctx, there, componentsFile)
	if err != nil {
		return readRelease{}, err
	}
	if provider == nil {
		known, err := providerOf(componentsFile, components, repository)
		if err != nil {
			return readRelease{}, fmt.Errorf("%s %s: %w", repository, there.Version, err)
		}
		provider = &known
	}
	generated := map[string][]byte{}
	for _, name := range []string{store.ChecksumsFile, store.ProvenanceFile} {
		if _, ok := there.Files[name]; !ok {
			continue
		}
		if generated[name], err = read(ctx, there, name); err != nil {
			return readRelease{}, err
		}
	}
	listed, err := store.ParseChecksums(generated[store.ChecksumsFile])
	if err != nil {
		listed = nil // another program's file of that name may have any content
	}
	empty := &release.Release{Provider: *provider, Version: there.Version}
	wanted := slices.DeleteFunc(slices.Sorted(maps.Keys(there.Files)), func(name string) bool {
		_, published := listed[name]
		return name == componentsFile || store.Generated(name) || slices.Contains(store.ComponentsFiles(), name) ||
			empty.Role(name) == release.RoleOther && !published
	})
	files := make([]release.File, len(wanted)+1)
	files[len(wanted)] = release.File{Name: componentsFile, Data: components}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(transport.AtOnce)
	for i, name := range wanted {
		group.Go(func() error {
			data, err := read(groupCtx, there, name)
			files[i] = release.File{Name: name, Data: data}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return readRelease{}, err
	}
	r, err := release.New(*provider, there.Version, files)
	return readRelease{release: r, generated: generated}, err
}

// providerOf returns the provider of components: from their label or, without one, from their file's name and that of
// the repository.
//
// Source: clusterctl provider contract, "Labels".
func providerOf(file string, data []byte, repository string) (release.Provider, error) {
	documents, parseErr := manifest.Parse(file, data)
	for _, d := range documents {
		label := d.Object.GetLabels()[clusterv1.ProviderNameLabel]
		if p, err := release.ParseLabel(label); err == nil && p.ComponentsFile() == file {
			return p, nil
		}
	}
	for _, t := range release.ProviderTypes() {
		p := release.Provider{Type: t, Name: strings.TrimPrefix(strings.ToLower(repository), "cluster-api-provider-")}
		if t == clusterctlv1.CoreProviderType {
			p.Name = config.ClusterAPIProviderName
		}
		if p.ComponentsFile() == file && p.Validate() == nil {
			return p, nil
		}
	}
	return release.Provider{}, errors.Join(parseErr, fmt.Errorf("it is not clear which provider %s is of: its objects have no label %s, and the contract's names are %s",
		file, clusterv1.ProviderNameLabel, strings.Join(store.ComponentsFiles(), ", ")))
}
