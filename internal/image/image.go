// Package image builds container images of the project's programs, without a container engine and without a base image:
// a static program, the certificates of public authorities, a user who is not root, and licences. The same sources
// result in the same digest.
package image

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/clusterctl-release/clusterctl-release/internal/program"
)

// user is the number of the user and the group of programs. The manager's Deployment uses it too.
const user = 65532

// Image describes an image.
type Image struct {
	// Name is the last element of its repository, and Title its description.
	Name, Title string
	// Entrypoint is the path of the program.
	Entrypoint string
	Program    program.Program
	// Version is its tag.
	Version string
}

// Manager returns the image of the provider's manager.
func Manager(version string) Image {
	return Image{
		Name: "cluster-api-provider-libvirt", Title: "Cluster API Provider libvirt", Entrypoint: "/manager",
		Program: program.Manager(version), Version: version,
	}
}

// Tool returns the image of clusterctl-release.
func Tool(version string) Image {
	return Image{
		Name: "clusterctl-release", Title: "clusterctl-release", Entrypoint: "/clusterctl-release",
		Program: program.Tool(version), Version: version,
	}
}

// Tag returns the image's tag, which can't contain the '+' of build metadata.
func (i Image) Tag() string { return strings.ReplaceAll(i.Version, "+", "_") }

// Build compiles the program for each platform and returns the index of the images. root is the project's root folder.
func (i Image) Build(ctx context.Context, root string, platforms []program.Platform) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, platform := range platforms {
		image, err := i.buildFor(ctx, root, platform)
		if err != nil {
			return nil, fmt.Errorf("making the image %s for %s: %w", i.Name, platform, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: platform.OS, Architecture: platform.Architecture},
		}})
	}
	return mutate.Annotations(index, i.annotations()).(v1.ImageIndex), nil
}

func (i Image) annotations() map[string]string {
	return map[string]string{
		ocispec.AnnotationTitle: i.Title, ocispec.AnnotationVersion: i.Version, ocispec.AnnotationLicenses: "Apache-2.0",
		ocispec.AnnotationSource: "https://" + program.Module,
	}
}

func (i Image) buildFor(ctx context.Context, root string, platform program.Platform) (v1.Image, error) {
	dir, err := os.MkdirTemp("", "image-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a temporary folder
	compiled := filepath.Join(dir, "program")
	if err := i.Program.Compile(ctx, root, platform, compiled); err != nil {
		return nil, err
	}
	binary, err := os.ReadFile(compiled) //nolint:gosec // it was just compiled
	if err != nil {
		return nil, err
	}
	licences, err := i.Program.Licences(ctx, root, platform)
	if err != nil {
		return nil, err
	}
	image, err := assemble(baseFiles(licences), binary, i.Entrypoint, platform, i.annotations())
	if err != nil {
		return nil, err
	}
	return mutate.Annotations(image, i.annotations()).(v1.Image), nil
}

// Of returns an image of a compiled static program, for tests: it has no licences.
func Of(file, entrypoint string, platform program.Platform) (v1.Image, error) {
	binary, err := os.ReadFile(file) //nolint:gosec // the caller chooses it
	if err != nil {
		return nil, fmt.Errorf("making an image: %w", err)
	}
	return assemble(baseFiles(nil), binary, entrypoint, platform, nil)
}

// assemble returns an image of a program, with other files in a separate layer.
func assemble(files []program.File, binary []byte, entrypoint string, platform program.Platform, labels map[string]string) (v1.Image, error) {
	base, err := layerOf(files)
	if err != nil {
		return nil, err
	}
	top, err := layerOf([]program.File{{Path: strings.TrimPrefix(entrypoint, "/"), Mode: 0o755, Data: binary}})
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if image, err = mutate.AppendLayers(image, base, top); err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = platform.OS, platform.Architecture
	config.Config = v1.Config{Entrypoint: []string{entrypoint}, User: fmt.Sprintf("%d:%[1]d", user), WorkingDir: "/", Labels: labels}
	return mutate.ConfigFile(image, config)
}
