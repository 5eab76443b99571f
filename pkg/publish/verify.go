package publish

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/repository"

	"github.com/clusterctl-release/clusterctl-release/pkg/provenance"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish/store"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// readRelease is a published release that was read.
type readRelease struct {
	release *release.Release
	// generated contains the generated files next to those of the release, by their names.
	generated map[string][]byte
	// problems are defects of the place, independent of the files.
	problems []error
	// verify reads the release again as clusterctl does; nil if clusterctl does not read from there.
	verify func(ctx context.Context) error
	// note names checks that are impossible at this place; it may be empty.
	note string
}

// Verification is the result of a verification.
type Verification struct {
	Releases []*release.Release
	// Problems are the defects of the releases.
	Problems []error
	// Notes are missing checks, and observations.
	Notes []string
}

// Verify reads published releases as Read does, reads every file again as clusterctl does, and compares the files with
// the published checksums and provenance. The key is a file with the public key of the provenance; without one, the
// signature is not checked. An error means that the releases could not be read; defects are in the result.
func Verify(ctx context.Context, location, key string, opts Options) (*Verification, error) {
	all, err := readAll(ctx, location, opts)
	if err != nil {
		return nil, err
	}
	v := &Verification{}
	for _, f := range all {
		v.Releases = append(v.Releases, f.release)
		if f.note != "" && !slices.Contains(v.Notes, f.note) {
			v.Notes = append(v.Notes, f.note)
		}
		v.Problems = append(v.Problems, f.problems...)
		if f.verify != nil {
			if err := f.verify(ctx); err != nil {
				v.Problems = append(v.Problems, err)
			}
		}
		v.checkGenerated(ctx, f, key)
	}
	return v, ctx.Err()
}

// checkGenerated compares a release with its checksums and its provenance.
func (v *Verification) checkGenerated(ctx context.Context, f readRelease, key string) {
	r := f.release
	problem := func(err error) {
		if err != nil {
			v.Problems = append(v.Problems, fmt.Errorf("%s: %w", r, err))
		}
	}
	sums, statement := f.generated[store.ChecksumsFile], f.generated[store.ProvenanceFile]
	if sums == nil {
		v.Notes = append(v.Notes, fmt.Sprintf("%s has no file %s", r, store.ChecksumsFile))
	} else {
		problem(checkChecksums(sums, r.Files))
	}
	switch {
	case statement != nil:
		claim, err := provenance.Check(ctx, statement, r.Version, r.Files, key)
		problem(err)
		if err == nil {
			v.Notes = append(v.Notes, fmt.Sprintf("%s says that it was built from %s", r, claim))
		}
	case key != "":
		problem(fmt.Errorf("there is no %s to verify with the key", store.ProvenanceFile))
	default:
		v.Notes = append(v.Notes, fmt.Sprintf("%s has no file %s", r, store.ProvenanceFile))
	}
}

// checkChecksums compares files with their checksums.
func checkChecksums(text []byte, files []release.File) error {
	sums, err := store.ParseChecksums(text)
	if err != nil {
		return err
	}
	var problems []error
	for _, f := range files {
		switch sum, ok := sums[f.Name]; {
		case !ok:
			problems = append(problems, fmt.Errorf("%s does not name %s", store.ChecksumsFile, f.Name))
		case sum != release.Digest(f.Data):
			problems = append(problems, fmt.Errorf("%s names other bytes for %s", store.ChecksumsFile, f.Name))
		}
	}
	return errors.Join(problems...)
}

// entryClient returns clusterctl's client for the repository that an entry of its configuration names.
// It reads what is in the repository, not the user's overrides.
func entryClient(ctx context.Context, entry store.Entry) (repository.Client, error) {
	configuration, err := release.ClusterctlConfig(ctx, nil, config.NewProvider(entry.Name, entry.URL, entry.Type))
	if err != nil {
		return nil, err
	}
	provider, err := configuration.Providers().Get(entry.Name, entry.Type)
	if err != nil {
		return nil, err
	}
	return repository.New(ctx, provider, configuration)
}

// client returns clusterctl's client for a release whose components are in a file. For overrides the repository is
// empty, so that every file that the client reads is an override.
func (f *folder) client(ctx context.Context, provider release.Provider, version, file string) (repository.Client, error) {
	if f.overrides == nil {
		return entryClient(ctx, store.Entry{Name: provider.Name, Type: provider.Type, URL: RepositoryURL(f.root, provider, version, file)})
	}
	empty := repository.NewMemoryRepository().WithPaths("", file).WithDefaultVersion(version)
	return repository.New(ctx, config.NewProvider(provider.Name, "", provider.Type), f.overrides, repository.InjectRepository(empty))
}

// readBack compares a release with what clusterctl's client reads. The client returns components unchanged, and other
// files only after it has processed them. So readBack requests each file as the components of the release.
func (f *folder) readBack(ctx context.Context, r *release.Release) error {
	for _, file := range r.Files {
		client, err := f.client(ctx, r.Provider, r.Version, file.Name)
		if err == nil {
			err = ctx.Err()
		}
		var data []byte
		if err == nil {
			data, err = client.Components().Raw(ctx, repository.ComponentsOptions{Version: r.Version})
		}
		if err := compared(r, file, data, err); err != nil {
			return err
		}
	}
	return nil
}

// readBackByConfig finds a release through the repository's clusterctl.yaml, as its users do.
func (f *folder) readBackByConfig(ctx context.Context, r *release.Release) error {
	path := filepath.Join(f.root, configFile)
	entry, err := configuredProvider(path, r.Provider)
	if err == nil && !isLocalURL(entry.URL) {
		err = fmt.Errorf("with %s clusterctl reads %s: set its url to %s", path, entry.URL, RepositoryURL(f.root, r.Provider, store.Latest, r.Provider.ComponentsFile()))
	}
	if err != nil {
		return &ReadBackError{Release: r, Err: err}
	}
	client, err := entryClient(ctx, entry)
	if err != nil {
		// The release is fine, as readBack says: it is the choice of the latest that fails.
		return &ReadBackError{Release: r, Err: fmt.Errorf("with %s: %w: check the versions of %s there: "+
			"the newest needs a %s, and a version of the newest series in it for clusterctl's contract has to be there",
			path, err, r.Provider.Label(), release.MetadataFile)}
	}
	if err := isListed(ctx, client, r); err != nil {
		return &ReadBackError{Release: r, Err: fmt.Errorf("with %s: %w", path, err)}
	}
	if components, ok := r.Components(); ok {
		data, err := client.Components().Raw(ctx, repository.ComponentsOptions{Version: r.Version})
		return compared(r, components, data, err)
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

// verify reads a release as its users do: each file through clusterctl's client and, in a repository, its
// version and what the clusterctl.yaml says, if there is one.
func (f *folder) verify(ctx context.Context, r *release.Release) error {
	err := clientReady()
	if err == nil {
		err = f.readBack(ctx, r)
	}
	if err != nil || f.overrides != nil {
		return err
	}
	client, err := f.client(ctx, r.Provider, r.Version, r.Provider.ComponentsFile())
	if err == nil {
		err = isListed(ctx, client, r)
	}
	if err != nil {
		return &ReadBackError{Release: r, Err: err}
	}
	if _, missing := os.Lstat(filepath.Join(f.root, configFile)); missing == nil {
		return f.readBackByConfig(ctx, r)
	}
	return nil
}
