package mirror

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/repository"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/yamlprocessor"
	"sigs.k8s.io/cluster-api/util/container"
	"sigs.k8s.io/yaml"

	"github.com/clusterctl-release/clusterctl-release/pkg/components"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/templates"
)

// imagesFolder is the OCI image layout with all images of a mirror.
const imagesFolder = "images"

// credentials are those of docker login and podman login.
var credentials = remote.WithAuthFromKeychain(authn.DefaultKeychain)

// component is a file that clusterctl installs.
type component struct {
	name string
	// kind is "" for cert-manager.
	kind    clusterctlv1.ProviderType
	version string
	raw     []byte
}

// label returns the name of the component in clusterctl's configuration of images.
func (c component) label() string { return clusterctlv1.ManifestLabel(c.name, c.kind) }

func (c component) String() string { return c.label() + " " + c.version }

// installed returns the components that clusterctl installs with a configuration. Its Images are those of Deployments
// and DaemonSets, in their order.
func (c component) installed(configuration config.Client) (repository.Components, error) {
	installed, err := repository.NewComponents(repository.ComponentsInput{
		Provider:     config.NewProvider(c.name, "", c.kind),
		ConfigClient: configuration,
		Processor:    processor{Processor: templates.NewProcessor(), verbatim: c.name == certManager},
		RawYaml:      c.raw,
		Options:      repository.ComponentsOptions{Version: c.version, SkipTemplateProcess: c.name == certManager},
	})
	if err != nil {
		return nil, fmt.Errorf("clusterctl refuses the components of %s: %w: `clusterctl release check` shows details; use another version", c, err)
	}
	return installed, nil
}

// notRewritten returns a line for each image of objects that clusterctl does not rewrite.
func (c component) notRewritten(objects []unstructured.Unstructured) []string {
	var lines []string
	for _, o := range objects {
		if kind := o.GetKind(); kind == "Deployment" || kind == "DaemonSet" {
			continue
		}
		for _, image := range components.Images(o) {
			lines = append(lines, fmt.Sprintf("note: %s: the image %s of %s %s is not mirrored, as clusterctl rewrites images of Deployments and DaemonSets only",
				c, image, o.GetKind(), o.GetName()))
		}
	}
	return lines
}

// processor is clusterctl's processor with empty values for variables without a value and a default: images rarely
// depend on them.
type processor struct {
	yamlprocessor.Processor
	// verbatim means that the file has no variables. clusterctl processes no variables of cert-manager.
	verbatim bool
}

// GetVariables implements yamlprocessor.Processor.
func (p processor) GetVariables(raw []byte) ([]string, error) {
	if p.verbatim {
		return nil, nil
	}
	return p.Processor.GetVariables(raw)
}

// Process implements yamlprocessor.Processor.
func (p processor) Process(raw []byte, value func(string) (string, error)) ([]byte, error) {
	defaults, err := p.GetVariableMap(raw)
	if err != nil {
		return nil, err
	}
	return p.Processor.Process(raw, func(name string) (string, error) {
		text, err := value(name)
		if err != nil && defaults[name] == nil {
			return "", nil
		}
		return text, err
	})
}

// withImages returns a configuration of clusterctl that contains only this value of its key images.
func withImages(ctx context.Context, images map[string]any) (config.Client, error) {
	data, err := yaml.Marshal(images)
	if err != nil {
		return nil, fmt.Errorf("writing the images for clusterctl's client: %w", err)
	}
	return release.ClusterctlConfig(ctx, map[string]string{"images": string(data)})
}

// imagesOf returns the images of components, without their digests, and reports those that are not mirrored.
func imagesOf(ctx context.Context, all []component, tell func(string)) ([]Image, error) {
	configuration, err := withImages(ctx, nil)
	if err != nil {
		return nil, err
	}
	var images []Image
	repositories := map[string]string{} // by the component and the name of the image
	for _, c := range all {
		installed, err := c.installed(configuration)
		if err != nil {
			return nil, err
		}
		for _, line := range c.notRewritten(installed.Objs()) {
			tell(line)
		}
		for _, reference := range installed.Images() {
			image, err := container.ImageFromString(reference)
			if err != nil {
				return nil, fmt.Errorf("%s: image %q: %w", c, reference, err)
			}
			key := c.label() + "/" + image.Name
			if other, ok := repositories[key]; ok && other != image.Repository {
				return nil, fmt.Errorf("%s: images of the name %s are in %s and in %s: clusterctl's configuration moves both to the same repository; mirror the provider without this command", c, image.Name, other, image.Repository)
			}
			repositories[key] = image.Repository
			images = append(images, Image{Component: c.label(), Reference: reference})
		}
	}
	slices.SortFunc(images, func(a, b Image) int {
		return strings.Compare(a.Component+" "+a.Reference, b.Component+" "+b.Reference)
	})
	return slices.Compact(images), nil
}

// fetchImages writes images to a layout, and sets their digests. It does not fetch blobs again that the layout has.
func fetchImages(ctx context.Context, dir string, images []Image, tell func(string)) error {
	there, err := layout.FromPath(dir)
	if err != nil {
		if there, err = layout.Write(dir, empty.Index); err != nil {
			return fmt.Errorf("writing the images to %s: %w", dir, err)
		}
	}
	halfWritten, err := damaged(dir)
	if err != nil {
		return err
	}
	for _, file := range halfWritten {
		if err := os.Remove(file); err != nil {
			return fmt.Errorf("removing a file that is half written: %w", err)
		}
	}
	puller, err := remote.NewPuller(credentials)
	if err != nil {
		return err
	}
	index := v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex}
	for i := range images {
		tell(fmt.Sprintf("fetching image %d of %d: %s", i+1, len(images), images[i].Reference))
		descriptor, err := fetchImage(ctx, puller, there, images[i].Reference)
		if err != nil {
			return failed(fmt.Sprintf("fetching the image %s, which %s names", images[i].Reference, images[i].Component), images[i].Reference, err)
		}
		images[i].Digest = descriptor.Digest
		descriptor.Annotations = map[string]string{ocispec.AnnotationRefName: images[i].Reference}
		index.Manifests = append(index.Manifests, descriptor)
	}
	data, err := json.MarshalIndent(index, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, "index.json"), data)
}

// fetchImage writes an image to a layout unless it exists.
func fetchImage(ctx context.Context, puller *remote.Puller, there layout.Path, reference string) (v1.Descriptor, error) {
	ref, err := name.ParseReference(reference, name.StrictValidation)
	if err != nil {
		return v1.Descriptor{}, fmt.Errorf("%w: give it a tag or a digest", err)
	}
	source, err := puller.Get(ctx, ref)
	if err != nil {
		return v1.Descriptor{}, err
	}
	descriptor := v1.Descriptor{MediaType: source.MediaType, Size: source.Size, Digest: source.Digest}
	if len(missing(there, source.Digest)) == 0 {
		return descriptor, nil
	}
	if source.MediaType.IsIndex() {
		index, err := source.ImageIndex()
		if err != nil {
			return v1.Descriptor{}, err
		}
		return descriptor, there.WriteIndex(index)
	}
	image, err := source.Image()
	if err != nil {
		return v1.Descriptor{}, err
	}
	return descriptor, there.WriteImage(image)
}

// failed adds advice to an error of a registry.
func failed(doing, reference string, err error) error {
	host, _, _ := strings.Cut(reference, "/")
	advice := "run the same command again to continue"
	var refused *transport.Error
	if errors.As(err, &refused) {
		switch refused.StatusCode {
		case http.StatusUnauthorized, http.StatusForbidden:
			advice = fmt.Sprintf("log in with `docker login %s` as a user who is allowed to do this", host)
		case http.StatusNotFound:
			advice = fmt.Sprintf("%s does not have it, or shows it only after `docker login %s`", host, host)
		}
	}
	return fmt.Errorf("%s: %w: %s", doing, err, advice)
}

// damaged returns the files of a layout whose content does not match the digest in their name.
func damaged(dir string) ([]string, error) {
	var files []string
	err := filepath.WalkDir(filepath.Join(dir, "blobs", "sha256"), func(file string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || entry.IsDir() {
			return err
		}
		blob, err := os.Open(file) //nolint:gosec // a file of the mirror
		if err != nil {
			return err
		}
		defer func() { _ = blob.Close() }() // it is only read
		digest, _, err := v1.SHA256(blob)
		if err == nil && digest.Hex != entry.Name() {
			files = append(files, file)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the images in %s: %w", dir, err)
	}
	return files, nil
}

// missing returns the blobs of an image that a layout lacks.
func missing(there layout.Path, digest v1.Hash) []v1.Hash {
	data, err := there.Bytes(digest)
	var manifest struct {
		Manifests, Layers []v1.Descriptor
		Config            *v1.Descriptor
	}
	if err != nil || json.Unmarshal(data, &manifest) != nil {
		return []v1.Hash{digest}
	}
	var absent []v1.Hash
	blobs := manifest.Layers
	if manifest.Config != nil {
		blobs = append(blobs, *manifest.Config)
	}
	for _, child := range manifest.Manifests {
		if child.MediaType.IsIndex() || child.MediaType.IsImage() {
			absent = append(absent, missing(there, child.Digest)...)
		} else {
			blobs = append(blobs, child)
		}
	}
	for _, blob := range blobs {
		content, err := there.Blob(blob.Digest)
		if err != nil {
			absent = append(absent, blob.Digest)
			continue
		}
		_ = content.Close() // it was not read
	}
	return absent
}

// checkImages returns the defects of a mirror's layout.
func (m *Manifest) checkImages(dir string) []error {
	there, err := layout.FromPath(dir)
	if err != nil {
		return []error{fmt.Errorf("reading the images: %w: copy the mirror again", err)}
	}
	var problems []error
	for _, image := range m.Images {
		for _, digest := range missing(there, image.Digest) {
			problems = append(problems, fmt.Errorf("%s: the image %s is incomplete: %s is missing: copy the mirror again", dir, image.Reference, digest))
		}
	}
	files, err := damaged(dir)
	if err != nil {
		problems = append(problems, err)
	}
	for _, file := range files {
		problems = append(problems, fmt.Errorf("%s is damaged, as its content has another digest: copy the mirror again", file))
	}
	return problems
}
