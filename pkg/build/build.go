// Package build builds releases from a source tree: for each provider of the release file its components, metadata,
// templates and classes, as one set of files.
package build

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/components"
	"github.com/clusterctl-release/clusterctl-release/pkg/metadata"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/templates"
	"github.com/clusterctl-release/clusterctl-release/pkg/tree"
)

// Options are the parameters of a build.
type Options struct {
	// Config is the release file.
	Config *release.Config
	// Version is the releases' version, e.g. "v0.1.0".
	Version string
	// Providers are the labels of the providers to build; none means all.
	Providers []string
	// Images are references by image name that override those of the release file.
	Images map[string]string
	// Progress receives the current step; it may be nil.
	Progress func(doing string)
}

// Result is the result of a build.
type Result struct {
	// Releases are in the order of the release file.
	Releases []*release.Release
	// Notes are hints for maintainers about the tree, each with the label of its provider.
	Notes []string
}

// UsageError means that the options do not fit the release file.
type UsageError struct {
	Message string
}

func (e *UsageError) Error() string { return e.Message }

// Build builds the releases. It writes nothing, and changes nothing in the tree; the same tree and options result in
// the same bytes. The error is a *UsageError if an option names an unknown provider or image.
func Build(ctx context.Context, t *tree.Tree, options Options) (*Result, error) {
	if _, err := release.ParseVersion(options.Version); err != nil {
		return nil, &UsageError{err.Error()}
	}
	providers, err := chosen(options)
	if err != nil {
		return nil, err
	}
	result := &Result{}
	used := map[string]bool{}
	for _, provider := range providers {
		// Providers are built one after the other, because kustomize's library keeps one schema for the whole process.
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		label := provider.Provider().Label()
		if options.Progress != nil {
			options.Progress("building " + label + " " + options.Version)
		}
		r, c, err := buildProvider(t, options, provider)
		if err != nil {
			return nil, err
		}
		result.Releases = append(result.Releases, r)
		for _, note := range c.Notes {
			result.Notes = append(result.Notes, label+": "+note)
		}
		for _, image := range c.UsedImages {
			used[image] = true
		}
	}
	for _, image := range slices.Sorted(maps.Keys(options.Images)) {
		if !used[image] {
			return nil, &UsageError{fmt.Sprintf("--image %s=%s: no container of %s has an image called %q", image, options.Images[image], labels(providers), image)}
		}
	}
	return result, nil
}

// chosen returns the entries of the release file that are to be built.
func chosen(options Options) ([]release.ProviderConfig, error) {
	if len(options.Providers) == 0 {
		return options.Config.Providers, nil
	}
	for _, label := range options.Providers {
		if !slices.ContainsFunc(options.Config.Providers, func(p release.ProviderConfig) bool { return p.Provider().Label() == label }) {
			return nil, &UsageError{fmt.Sprintf("no provider %s in %s: it has %s", label, options.Config.Path, labels(options.Config.Providers))}
		}
	}
	var providers []release.ProviderConfig
	for _, p := range options.Config.Providers {
		if slices.Contains(options.Providers, p.Provider().Label()) {
			providers = append(providers, p)
		}
	}
	return providers, nil
}

// labels lists the labels of providers.
func labels(providers []release.ProviderConfig) string {
	all := make([]string, 0, len(providers))
	for _, p := range providers {
		all = append(all, p.Provider().Label())
	}
	return strings.Join(all, ", ")
}

// buildProvider builds the release of one provider, and returns it with its components.
func buildProvider(t *tree.Tree, options Options, provider release.ProviderConfig) (*release.Release, *components.Components, error) {
	// Fast steps come first: a missing series is reported before the build.
	metadataFile, err := readMetadata(t, options.Config.MetadataPath(provider), options.Version)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", provider.Provider().Label(), withCommand(err, t, options, provider))
	}
	assets, err := templates.Collect(t, provider)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", provider.Provider().Label(), err)
	}
	c, err := components.Build(t, components.Options{Provider: provider, Version: options.Version, Images: options.Images})
	if err != nil {
		return nil, nil, err
	}
	data, err := c.YAML()
	if err != nil {
		return nil, nil, err
	}
	files := append(assets, metadataFile, release.File{Name: provider.Provider().ComponentsFile(), Data: data})
	r, err := release.New(provider.Provider(), options.Version, files)
	return r, c, err
}

// readMetadata returns the tree's metadata.yaml unchanged. It fails if the version's series is missing.
func readMetadata(t *tree.Tree, path, version string) (release.File, error) {
	data, err := t.ReadFile(path)
	if err != nil {
		return release.File{}, err
	}
	file, err := metadata.Parse(t.Display(path), data)
	if err != nil {
		return release.File{}, err
	}
	if _, err := file.Contract(version); err != nil {
		return release.File{}, err
	}
	return release.File{Name: release.MetadataFile, Data: data}, nil
}

// withCommand adds the command that adds a missing metadata.yaml or series to an error, with the contract in the labels
// of the provider's CRDs.
func withCommand(err error, t *tree.Tree, options Options, provider release.ProviderConfig) error {
	var noSeries *metadata.NoSeriesError
	if !errors.As(err, &noSeries) && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	contract := ""
	if noSeries != nil {
		contract = noSeries.Likely
	}
	if c, buildErr := components.Build(t, components.Options{Provider: provider, Version: options.Version, Images: options.Images}); buildErr == nil {
		contract = cmp.Or(metadata.ContractOf(c.Objects), contract) // without it, the next build reports the problem
	}
	path := options.Config.MetadataPath(provider)
	severalFiles := slices.ContainsFunc(options.Config.Providers, func(p release.ProviderConfig) bool { return options.Config.MetadataPath(p) != path })
	command := metadata.AddCommand(t.Display(path), options.Version, contract, severalFiles)
	if noSeries == nil {
		return fmt.Errorf("%w: every release needs one: `%s` creates it", err, command)
	}
	noSeries.Command = command
	return err
}
