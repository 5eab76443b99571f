package publish

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// readBack reads a version as the operator does, by its tag and the titles of its layers.
func (o *ociRepository) readBack(ctx context.Context, b *bundle) error {
	m, there, err := o.manifest(ctx, b.version)
	if err == nil && !there {
		err = errors.New("the tag is not there")
	}
	if err != nil {
		return &ReadBackError{Release: b.releases[0], Err: err}
	}
	return readBackFiles(ctx, b, b.files, o.opts, downloadsAtOnce, func(ctx context.Context, name string) ([]byte, error) { return o.layer(ctx, m, name) })
}

// layer returns the bytes of the layer with a title.
func (o *ociRepository) layer(ctx context.Context, m ocispec.Manifest, title string) ([]byte, error) {
	for _, l := range m.Layers {
		if l.Annotations[ocispec.AnnotationTitle] != title {
			continue
		}
		if l.Size > maxBody {
			return nil, fmt.Errorf("%s has %d MiB, and at most %d are read", title, l.Size>>20, maxBody>>20)
		}
		data, err := content.FetchAll(ctx, o.repository, ocispec.Descriptor{MediaType: l.MediaType, Digest: l.Digest, Size: l.Size})
		return data, o.failure("downloading "+title, err)
	}
	return nil, fmt.Errorf("there is no layer %s", title)
}

// Fetch implements Publisher. The operator knows no latest version, so that this is the highest stable one.
func (o *ociRepository) Fetch(ctx context.Context, provider release.Provider, version string) (*release.Release, error) {
	if err := provider.Validate(); err != nil {
		return nil, err
	}
	f, err := o.fetch(ctx, version, provider.ComponentsFile(), &provider)
	return f.release, err
}

// Previous implements Publisher.
func (o *ociRepository) Previous(ctx context.Context, releases []*release.Release) ([]*release.Release, error) {
	return o.opts.checkedAgainst(ctx, releases, history{
		place:    o.url(),
		versions: func(ctx context.Context, _ release.Provider) ([]string, error) { return o.tags(ctx) },
		fetch:    o.Fetch,
	})
}

// tags returns all tags of the repository; where there is no repository yet there are none.
func (o *ociRepository) tags(ctx context.Context) ([]string, error) {
	var tags []string
	err := o.repository.Tags(ctx, "", func(some []string) error { tags = append(tags, some...); return nil })
	if errors.Is(err, errdef.ErrNotFound) {
		return nil, nil
	}
	return tags, o.failure("listing the tags of "+o.url(), err)
}

// readOCI returns the releases of all providers of a version, oci://HOST/REPOSITORY:VERSION.
func readOCI(ctx context.Context, text string, opts Options) ([]found, error) {
	o, version, err := newOCI(text, opts)
	if err != nil {
		return nil, err
	}
	if version != latest {
		if _, err := release.ParseVersion(version); err != nil {
			return nil, fmt.Errorf("%q: %w: write %s:VERSION", text, err, o.url())
		}
	}
	return o.fetchAll(ctx, version)
}

// fetchAll returns the releases of all providers whose components are in a version.
func (o *ociRepository) fetchAll(ctx context.Context, version string) ([]found, error) {
	return fetchEach(o.place(version), func(componentsFile string) (found, error) { return o.fetch(ctx, version, componentsFile, nil) })
}

func (o *ociRepository) fetch(ctx context.Context, version, componentsFile string, provider *release.Provider) (found, error) {
	if version == "" || version == latest {
		tags, err := o.tags(ctx)
		if err != nil {
			return found{}, err
		}
		slices.SortFunc(tags, func(a, b string) int { return compareVersions(b, a) })
		i := slices.IndexFunc(tags, stable)
		if i < 0 {
			return found{}, fmt.Errorf("%w in %s: it has the tags %s", release.ErrNoRelease, o.url(), strings.Join(tags, ", "))
		}
		version = tags[i]
	}
	m, there, err := o.manifest(ctx, version)
	if err != nil {
		return found{}, err
	}
	if !there {
		return found{}, fmt.Errorf("%w: there is no %s", release.ErrNoRelease, o.place(version))
	}
	var names []string
	for _, l := range m.Layers {
		if title := l.Annotations[ocispec.AnnotationTitle]; title != "" && !slices.Contains(names, title) {
			names = append(names, title)
		}
	}
	if !slices.Contains(names, componentsFile) {
		return found{}, fmt.Errorf("%w: %s has no %s", errNoComponents, o.place(version), componentsFile)
	}
	f, err := fetchFiles(ctx, fetched{
		version: version, names: names, componentsFile: componentsFile, provider: provider, repository: path.Base(o.repository.Reference.Repository),
		read: func(ctx context.Context, name string) ([]byte, error) { return o.layer(ctx, m, name) },
	})
	f.note = "clusterctl reads nothing from registries; the Cluster API operator does"
	return f, err
}
