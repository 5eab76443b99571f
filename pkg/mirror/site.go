package mirror

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"go.yaml.in/yaml/v3"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"
	kyaml "sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/clusterctl-release/clusterctl-release/pkg/publish"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// ConfigFile is the configuration of clusterctl in a mirror.
const ConfigFile = "clusterctl.yaml"

// Push copies the images of a mirror to a registry, and then writes the mirror's clusterctl.yaml: the URLs of the
// folder in its current place, and each component's images at REGISTRY/COMPONENT. registry is a host with an optional
// path. An image that the registry has is not pushed again, and a tag with another digest is not replaced.
func Push(ctx context.Context, dir, registry string, tell func(string)) (*Manifest, error) {
	registry = strings.TrimSuffix(registry, "/")
	_, err := name.NewRepository(registry+"/"+certManager, name.StrictValidation)
	if strings.Contains(registry, "://") {
		err = errors.New("it is a URL")
	}
	if err != nil {
		return nil, &NameError{fmt.Errorf("the registry %q: %w: name its host and optionally a path, such as registry.example.com/capi", registry, err)}
	}
	root, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("finding %s: %w", dir, err)
	}
	tell("checking " + root)
	m, _, err := load(root)
	if err != nil {
		return nil, err
	}
	overrides := map[string]any{}
	for _, image := range m.Images {
		overrides[image.Component] = map[string]any{"repository": registry + "/" + image.Component}
	}
	configuration, err := withImages(ctx, overrides)
	if err != nil {
		return nil, err
	}
	if err := m.pushImages(ctx, filepath.Join(root, imagesFolder), configuration.ImageMeta(), tell); err != nil {
		return nil, err
	}
	releases, err := release.Read(root)
	if err != nil {
		return nil, err
	}
	if err := publishTo(ctx, root, releases); err != nil {
		return nil, err
	}
	return m, configure(root, m, overrides)
}

// pushImages copies all images to the references that clusterctl gives them.
func (m *Manifest) pushImages(ctx context.Context, dir string, names config.ImageMetaClient, tell func(string)) error {
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return fmt.Errorf("reading the images in %s: %w", dir, err)
	}
	puller, err := remote.NewPuller(credentials)
	if err != nil {
		return err
	}
	pusher, err := remote.NewPusher(credentials)
	if err != nil {
		return err
	}
	for i, image := range m.Images {
		target, err := names.AlterImage(image.Component, image.Reference)
		if err != nil {
			return err
		}
		tell(fmt.Sprintf("pushing image %d of %d: %s", i+1, len(m.Images), target))
		if err := pushImage(ctx, puller, pusher, index, image.Digest, target); err != nil {
			return failed("pushing the image "+target, target, err)
		}
	}
	return nil
}

// pushImage copies an image of a layout to a registry unless it exists there.
func pushImage(ctx context.Context, puller *remote.Puller, pusher *remote.Pusher, index v1.ImageIndex, digest v1.Hash, target string) error {
	ref, err := pushReference(target)
	if err != nil {
		return err
	}
	there, err := puller.Head(ctx, ref)
	var refused *transport.Error
	switch {
	case err == nil && there.Digest == digest:
		return nil
	case err == nil:
		return fmt.Errorf("the registry has another image under this name, with the digest %s, which is not replaced: remove it, or choose another path for --registry", there.Digest)
	case !errors.As(err, &refused) || refused.StatusCode != http.StatusNotFound:
		return err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return err
	}
	i := slices.IndexFunc(manifest.Manifests, func(d v1.Descriptor) bool { return d.Digest == digest })
	if i < 0 {
		return fmt.Errorf("the folder's images/index.json lacks %s: copy the mirror again", digest)
	}
	var image remote.Taggable
	if manifest.Manifests[i].MediaType.IsIndex() {
		image, err = index.ImageIndex(digest)
	} else {
		image, err = index.Image(digest)
	}
	if err != nil {
		return err
	}
	return pusher.Push(ctx, ref, image)
}

// pushReference returns the reference to push an image to: its tag or, without one, its digest.
func pushReference(target string) (name.Reference, error) {
	if tagged, _, ok := strings.Cut(target, "@"); ok {
		if ref, err := name.NewTag(tagged, name.StrictValidation); err == nil {
			return ref, nil
		}
	}
	return name.ParseReference(target, name.StrictValidation)
}

// configure sets the keys of a mirror's clusterctl.yaml for cert-manager and, where there are overrides, for images.
// All other keys, and the images of other components, stay.
func configure(root string, m *Manifest, overrides map[string]any) error {
	file := filepath.Join(root, ConfigFile)
	text, err := os.ReadFile(file) //nolint:gosec // a file of the mirror
	if err != nil {
		return fmt.Errorf("reading the mirror's configuration: %w", err)
	}
	document, err := kyaml.Parse(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	var existing struct {
		Images map[string]any `yaml:"images"`
	}
	if err := document.YNode().Decode(&existing); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	version := m.certManagerVersion()
	values := map[string]map[string]any{certManager: {
		"url":     publish.RepositoryURL(root, release.Provider{Name: certManager}, version, path.Base(m.CertManager)),
		"version": version,
	}}
	if overrides != nil {
		values["images"] = map[string]any{}
		maps.Copy(values["images"], existing.Images)
		maps.Copy(values["images"], overrides)
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		value, err := kyaml.FromMap(values[key])
		if err == nil {
			err = document.PipeE(kyaml.SetField(key, value))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	data, err := yaml.Marshal(document.Document())
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return writeFile(file, data)
}

// Verify compares a mirror with its manifest, and looks up every image that clusterctl installs with the mirror's
// clusterctl.yaml in the registry. Each of them must have the digest of the manifest. The error is Problems if there
// are defects.
func Verify(ctx context.Context, dir string, tell func(string)) (*Manifest, error) {
	root, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("finding %s: %w", dir, err)
	}
	tell("checking " + root)
	m, components, err := load(root)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(root, ConfigFile)
	configuration, err := config.New(ctx, file)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	unchanged, err := withImages(ctx, nil)
	if err != nil {
		return nil, err
	}
	puller, err := remote.NewPuller(credentials)
	if err != nil {
		return nil, err
	}
	var problems Problems
	for _, c := range components {
		tell(fmt.Sprintf("looking up the images of %s in the registry", c))
		if c.raw, err = rawOf(ctx, configuration, c); err != nil {
			problems = append(problems, fmt.Errorf("reading %s by %s: %w", c, file, err))
			continue
		}
		named, err := c.installed(unchanged)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		installed, err := c.installed(configuration)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		for i, reference := range named.Images() {
			if err := m.verifyImage(ctx, puller, Image{Component: c.label(), Reference: reference}, installed.Images()[i]); err != nil {
				problems = append(problems, err)
			}
		}
	}
	return m, problems.orNil()
}

// rawOf returns the file of a component as clusterctl reads it with a configuration.
func rawOf(ctx context.Context, configuration config.Client, c component) ([]byte, error) {
	if c.name == certManager {
		entry, err := configuration.CertManager().Get()
		if err != nil {
			return nil, err
		}
		return read(ctx, configuration, config.NewProvider(certManager, entry.URL(), ""), entry.Version())
	}
	provider, err := configuration.Providers().Get(c.name, c.kind)
	if err != nil {
		return nil, err
	}
	return read(ctx, configuration, provider, c.version)
}

// verifyImage looks up an image of a component in the registry, under the name that clusterctl installs.
func (m *Manifest) verifyImage(ctx context.Context, puller *remote.Puller, image Image, installed string) error {
	i := slices.IndexFunc(m.Images, func(other Image) bool {
		return other.Component == image.Component && other.Reference == image.Reference
	})
	switch {
	case i < 0:
		return fmt.Errorf("%s names the image %s, which the mirror does not have: do variables or overrides of clusterctl change it?", image.Component, image.Reference)
	case installed == image.Reference:
		return fmt.Errorf("clusterctl installs %s from its own registry: run `clusterctl release mirror push` to copy it to yours", installed)
	}
	ref, err := pushReference(installed)
	if err != nil {
		return err
	}
	there, err := puller.Head(ctx, ref)
	if err != nil {
		return failed(fmt.Sprintf("looking up the image %s of %s", installed, image.Component), installed, err)
	}
	if there.Digest != m.Images[i].Digest {
		return fmt.Errorf("the image %s has the digest %s, but the mirror has %s: remove it from the registry, and push again", installed, there.Digest, m.Images[i].Digest)
	}
	return nil
}
