package publish

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// downloadsAtOnce is how many files are read at the same time.
const downloadsAtOnce = 8

// fetched is one provider's release among the files of a version on a server.
type fetched struct {
	version string
	// names are all files of the version.
	names []string
	// componentsFile is the file with the provider's components.
	componentsFile string
	// provider is nil where the components have to tell.
	provider *release.Provider
	// repository is the name of what holds the version; the provider's name is made of it where
	// the components do not tell.
	repository string
	// read returns the bytes of a file.
	read func(ctx context.Context, name string) ([]byte, error)
}

// fetchFiles returns a provider's release: what clusterctl would read for it, and the other files
// that were published with it, as its checksums say. Other files of a version, such as binaries,
// are not of it.
func fetchFiles(ctx context.Context, f fetched) (found, error) {
	components, err := f.read(ctx, f.componentsFile)
	if err != nil {
		return found{}, err
	}
	provider := f.provider
	if provider == nil {
		known, err := providerOf(f.componentsFile, components, f.repository)
		if err != nil {
			return found{}, fmt.Errorf("%s %s: %w", f.repository, f.version, err)
		}
		provider = &known
	}
	beside, err := f.beside(ctx)
	if err != nil {
		return found{}, err
	}
	listed, err := parseChecksums(madeFile(beside, ChecksumsFile))
	if err != nil {
		listed = nil // a file of that name that others made may say anything
	}
	empty := &release.Release{Provider: *provider, Version: f.version}
	wanted := slices.DeleteFunc(slices.Clone(f.names), func(name string) bool {
		_, published := listed[name]
		return name == f.componentsFile || made(name) || slices.Contains(componentsFiles(), name) ||
			empty.Role(name) == release.RoleOther && !published
	})
	files := make([]release.File, len(wanted)+1)
	files[len(wanted)] = release.File{Name: f.componentsFile, Data: components}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(downloadsAtOnce)
	for i, name := range wanted {
		group.Go(func() error {
			data, err := f.read(groupCtx, name)
			files[i] = release.File{Name: name, Data: data}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return found{}, err
	}
	r, err := release.New(*provider, f.version, files)
	return found{release: r, made: beside}, err
}

// errNoComponents says that a version has no components of a type of providers.
var errNoComponents = fmt.Errorf("%w: no components of that provider", release.ErrNoRelease)

// fetchEach returns the releases of all types of providers that fetch has for their components' names.
func fetchEach(place string, fetch func(componentsFile string) (found, error)) ([]found, error) {
	var all []found
	for _, name := range componentsFiles() {
		f, err := fetch(name)
		if errors.Is(err, errNoComponents) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%w: %s has no components of any provider: clusterctl needs one of %s", release.ErrNoRelease, place, strings.Join(componentsFiles(), ", "))
	}
	return all, nil
}

// namesBySums returns the files of a version where the server lists none: those in its checksums or,
// where it has no checksums, the ones that clusterctl asks for in any case. The error is
// errNoComponents where the components are not there.
func namesBySums(ctx context.Context, componentsFile string, read func(ctx context.Context, name string) ([]byte, error)) ([]string, error) {
	isThere := func(name string) (bool, error) {
		_, err := read(ctx, name)
		if hasStatus(err, http.StatusNotFound) {
			return false, nil
		}
		return err == nil, err
	}
	names := []string{componentsFile, release.MetadataFile}
	sums, err := read(ctx, ChecksumsFile)
	switch {
	case hasStatus(err, http.StatusNotFound):
	case err != nil:
		return nil, err
	default:
		listed, err := parseChecksums(sums)
		if err != nil {
			return nil, err
		}
		names = append(slices.Sorted(maps.Keys(listed)), ChecksumsFile)
		if there, err := isThere(ProvenanceFile); err != nil {
			return nil, err
		} else if there {
			names = append(names, ProvenanceFile)
		}
	}
	there, err := isThere(componentsFile)
	if err == nil && (!there || !slices.Contains(names, componentsFile)) {
		err = fmt.Errorf("%w: there is no file %s", errNoComponents, componentsFile)
	}
	return names, err
}

// beside returns the files that publishing made beside the version's.
func (f fetched) beside(ctx context.Context) ([]release.File, error) {
	var files []release.File
	for _, name := range f.names {
		if !made(name) {
			continue
		}
		data, err := f.read(ctx, name)
		if err != nil {
			return nil, err
		}
		files = append(files, release.File{Name: name, Data: data})
	}
	return files, nil
}

// componentsFiles returns the names that the contract gives components.
func componentsFiles() []string {
	var names []string
	for _, t := range release.ProviderTypes() {
		names = append(names, release.Provider{Type: t}.ComponentsFile())
	}
	return names
}

// providerOf returns the provider that components are of: by the label that they carry, or, where
// they have none, by their file's name and that of the repository.
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
		file, clusterv1.ProviderNameLabel, strings.Join(componentsFiles(), ", ")))
}

// parseChecksums reads the format of the program sha256sum: digests by names.
func parseChecksums(data []byte) (map[string]string, error) {
	sums := map[string]string{}
	line := 0
	for text := range strings.Lines(string(data)) {
		line++
		text = strings.TrimRight(text, "\r\n")
		sum, name, ok := strings.Cut(text, " ")
		name = strings.TrimPrefix(strings.TrimPrefix(name, " "), "*")
		if !ok || len(sum) != 64 || strings.Trim(sum, "0123456789abcdefABCDEF") != "" || name == "" || strings.ContainsAny(name, `/\`) {
			return nil, fmt.Errorf("%s:%d: it is no line of a SHA-256 and a file's name", ChecksumsFile, line)
		}
		if _, twice := sums[name]; twice {
			return nil, fmt.Errorf("%s:%d: %s is there twice", ChecksumsFile, line, name)
		}
		sums[name] = strings.ToLower(sum)
	}
	return sums, nil
}
