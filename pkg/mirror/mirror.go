// Package mirror copies providers to sites without internet access.
//
// Fetch creates a folder with releases, the images that they name, and cert-manager. Push copies the images to the
// site's registry and writes clusterctl's configuration for them. Verify compares the folder with its manifest, and the
// registry with the images that clusterctl installs with that configuration.
//
// The folder is a local repository of clusterctl, with the images as an OCI layout (images.go) and a manifest that is
// written last.
package mirror

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/repository"

	"github.com/clusterctl-release/clusterctl-release/pkg/publish"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// ManifestFile lists the content of a mirror. It is written last: a folder without it is incomplete.
const ManifestFile = "mirror.json"

// certManager is the name of cert-manager's folder, and of its entries in clusterctl's configuration.
const certManager = config.CertManagerImageComponent

// Manifest lists the content of a mirror.
type Manifest struct {
	// CertManager is the path of cert-manager's file in the folder, cert-manager/VERSION/FILE.
	CertManager string `json:"certManager"`
	// Files are the digests of the files of releases and of cert-manager, by path in the folder.
	Files map[string]string `json:"files"`
	// Images are all images of the components, in the order of their components and references.
	Images []Image `json:"images"`
}

// Image is an image that a component names.
type Image struct {
	// Component is the label of the provider, or "cert-manager".
	Component string `json:"component"`
	// Reference is the image as the component names it.
	Reference string `json:"reference"`
	// Digest is the digest of the image with all its platforms.
	Digest v1.Hash `json:"digest"`
}

// NameError means that a text is not the name of a provider or a registry.
type NameError struct{ Err error }

func (e *NameError) Error() string { return e.Err.Error() }

func (e *NameError) Unwrap() error { return e.Err }

// Fetch adds providers to the mirror in a folder, which may be new. A provider is a label with a version, such as
// infrastructure-libvirt:v0.1.0, or a label for the version in its URL. The URLs, and the version of cert-manager, come
// from clusterctl's configuration; clusterctlConfig is its file, "" for clusterctl's own. After an error, the same call
// completes the folder. tell receives a line for each step.
func Fetch(ctx context.Context, dir string, providers []string, clusterctlConfig string, tell func(string)) (*Manifest, error) {
	root, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("finding %s: %w", dir, err)
	}
	configuration, err := config.New(ctx, clusterctlConfig)
	if err != nil {
		return nil, fmt.Errorf("reading clusterctl's configuration: %w", err)
	}
	var releases []*release.Release
	for _, provider := range providers {
		location, err := locationOf(configuration, provider)
		if err != nil {
			return nil, err
		}
		tell(fmt.Sprintf("reading %s from %s", provider, location))
		some, err := publish.Read(ctx, location, publish.Options{Report: tell})
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", provider, err)
		}
		releases = append(releases, some...)
	}
	if err := publishTo(ctx, root, releases); err != nil {
		return nil, err
	}
	m := &Manifest{}
	if m.CertManager, err = fetchCertManager(ctx, root, configuration, tell); err != nil {
		return nil, err
	}
	var components []component
	if components, m.Files, err = m.read(root); err != nil {
		return nil, err
	}
	if m.Images, err = imagesOf(ctx, components, tell); err != nil {
		return nil, err
	}
	if err := fetchImages(ctx, filepath.Join(root, imagesFolder), m.Images, tell); err != nil {
		return nil, err
	}
	if err := configure(root, m, nil); err != nil {
		return nil, err
	}
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return nil, err
	}
	return m, writeFile(filepath.Join(root, ManifestFile), append(data, '\n'))
}

// locationOf returns clusterctl's URL of a provider, with the version that the text names.
func locationOf(configuration config.Client, text string) (string, error) {
	label, version, hasVersion := strings.Cut(text, ":")
	provider, err := release.ParseLabel(label)
	if err == nil && hasVersion {
		_, err = release.ParseVersion(version)
	}
	if err != nil {
		return "", &NameError{fmt.Errorf("provider %q: %w: name it as infrastructure-libvirt:v0.1.0", text, err)}
	}
	entry, err := configuration.Providers().Get(provider.Name, provider.Type)
	if err != nil {
		return "", fmt.Errorf("provider %q: %w", text, err)
	}
	// All URLs of clusterctl end in VERSION/FILE.
	parts := strings.Split(entry.URL(), "/")
	if hasVersion && len(parts) > 2 {
		parts[len(parts)-2] = version
	}
	return strings.Join(parts, "/"), nil
}

// publishTo adds releases to the local repository at a root, and sets the URLs in its clusterctl.yaml.
func publishTo(ctx context.Context, root string, releases []*release.Release) error {
	publisher, err := publish.Open(root, publish.Options{})
	if err == nil {
		_, err = publisher.Publish(ctx, releases)
	}
	return err
}

// fetchCertManager writes the file of cert-manager that clusterctl's configuration names, and returns its path in
// the mirror.
func fetchCertManager(ctx context.Context, root string, configuration config.Client, tell func(string)) (string, error) {
	entry, err := configuration.CertManager().Get()
	if err != nil {
		return "", fmt.Errorf("reading clusterctl's configuration of cert-manager: %w", err)
	}
	tell(fmt.Sprintf("reading cert-manager %s from %s", entry.Version(), entry.URL()))
	raw, err := read(ctx, configuration, config.NewProvider(certManager, entry.URL(), ""), entry.Version())
	if err != nil {
		return "", fmt.Errorf("reading cert-manager %s from %s: %w", entry.Version(), entry.URL(), err)
	}
	file := path.Join(certManager, entry.Version(), path.Base(entry.URL()))
	return file, writeFile(filepath.Join(root, filepath.FromSlash(file)), raw)
}

// read returns the file of a component as clusterctl reads it.
func read(ctx context.Context, configuration config.Client, provider config.Provider, version string) ([]byte, error) {
	client, err := repository.New(ctx, provider, configuration)
	if err != nil {
		return nil, err
	}
	return client.Components().Raw(ctx, repository.ComponentsOptions{Version: version})
}

// read returns the components in the folder, and the digests of all files of releases and of cert-manager.
func (m *Manifest) read(root string) ([]component, map[string]string, error) {
	releases, err := release.Read(root)
	if err != nil {
		return nil, nil, err
	}
	var components []component
	files := map[string]string{}
	for _, r := range releases {
		for _, file := range r.Files {
			files[path.Join(r.Provider.Label(), r.Version, file.Name)] = release.Digest(file.Data)
		}
		if file, ok := r.Components(); ok {
			components = append(components, component{name: r.Provider.Name, kind: r.Provider.Type, version: r.Version, raw: file.Data})
		}
	}
	raw, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(m.CertManager))) //nolint:gosec // a file of the mirror
	if err != nil {
		return nil, nil, fmt.Errorf("reading cert-manager: %w", err)
	}
	files[m.CertManager] = release.Digest(raw)
	return append(components, component{name: certManager, version: m.certManagerVersion(), raw: raw}), files, nil
}

func (m *Manifest) certManagerVersion() string { return path.Base(path.Dir(m.CertManager)) }

// Problems are all defects of a mirror.
type Problems []error

func (p Problems) Error() string { return errors.Join(p...).Error() }

// orNil returns the problems as an error, nil if there are none.
func (p Problems) orNil() error {
	if len(p) == 0 {
		return nil
	}
	return p
}

// load reads the manifest of a mirror, and its components. The error is Problems if the folder differs from it.
func load(root string) (*Manifest, []component, error) {
	data, err := os.ReadFile(filepath.Join(root, ManifestFile)) //nolint:gosec // the user names the folder
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, Problems{fmt.Errorf("%s is an incomplete mirror, because it has no %s: run `clusterctl release mirror` for it again until that succeeds", root, ManifestFile)}
	}
	m := &Manifest{}
	if err == nil {
		err = json.Unmarshal(data, m)
	}
	if err == nil && !filepath.IsLocal(filepath.FromSlash(m.CertManager)) {
		err = fmt.Errorf("certManager is %q, which is not a path in the folder: copy the mirror again", m.CertManager)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading the manifest of the mirror %s: %w", root, err)
	}
	components, files, err := m.read(root)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the mirror %s: %w", root, err)
	}
	var problems Problems
	for _, file := range slices.Sorted(maps.Keys(m.Files)) {
		if files[file] != m.Files[file] {
			problems = append(problems, fmt.Errorf("%s: %s is missing, or is not the file of the manifest: copy the mirror again", root, file))
		}
		delete(files, file)
	}
	for _, file := range slices.Sorted(maps.Keys(files)) {
		problems = append(problems, fmt.Errorf("%s: %s is not in %s: run `clusterctl release mirror` for it again until that succeeds", root, file, ManifestFile))
	}
	return m, components, append(problems, m.checkImages(filepath.Join(root, imagesFolder))...).orNil()
}

// writeFile replaces a file atomically, and creates the folders above it.
func writeFile(file string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil { //nolint:gosec // for all to read
		return err
	}
	return publish.WriteFile(file, data)
}
