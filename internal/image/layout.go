package image

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/match"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/clusterctl-release/clusterctl-release/internal/program"
)

// Write replaces a folder with an OCI image layout with one index under a tag.
func Write(dir, tag string, index v1.ImageIndex) error {
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("writing an image layout: %w", err)
	}
	written, err := layout.Write(dir, empty.Index)
	if err == nil {
		err = written.AppendIndex(index, layout.WithAnnotations(map[string]string{ocispec.AnnotationRefName: tag}))
	}
	if err != nil {
		return fmt.Errorf("writing an image layout to %s: %w", dir, err)
	}
	return nil
}

// Read returns the index of a layout from Write, and its tag.
func Read(dir string) (index v1.ImageIndex, tag string, err error) {
	root, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, "", fmt.Errorf("reading the image layout in %s: %w", dir, err)
	}
	manifest, err := root.IndexManifest()
	if err != nil {
		return nil, "", fmt.Errorf("reading the image layout in %s: %w", dir, err)
	}
	if n := len(manifest.Manifests); n != 1 {
		return nil, "", fmt.Errorf("reading the image layout in %s: it has %d images, and one is expected", dir, n)
	}
	if index, err = root.ImageIndex(manifest.Manifests[0].Digest); err != nil {
		return nil, "", fmt.Errorf("reading the image layout in %s: %w", dir, err)
	}
	return index, manifest.Manifests[0].Annotations[ocispec.AnnotationRefName], nil
}

// Extract writes the program of a layout's image for a platform to a file.
func Extract(dir string, platform program.Platform, target string) error {
	index, _, err := Read(dir)
	if err != nil {
		return err
	}
	images, err := partial.FindImages(index, match.Platforms(v1.Platform{OS: platform.OS, Architecture: platform.Architecture}))
	if err != nil {
		return fmt.Errorf("reading the image layout in %s: %w", dir, err)
	}
	if len(images) != 1 {
		return fmt.Errorf("the image layout in %s has %d images for %s, and one is expected", dir, len(images), platform)
	}
	config, err := images[0].ConfigFile()
	if err != nil {
		return fmt.Errorf("reading the image layout in %s: %w", dir, err)
	}
	files := mutate.Extract(images[0])
	defer func() { _ = files.Close() }() // it is only read
	return extractFile(files, strings.TrimPrefix(config.Config.Entrypoint[0], "/"), target)
}

// extractFile writes one file of an archive to a program's file.
func extractFile(archive io.Reader, path, target string) error {
	for r := tar.NewReader(archive); ; {
		header, err := r.Next()
		if err != nil {
			return fmt.Errorf("looking for %s in the image: %w", path, err)
		}
		if header.Name != path {
			continue
		}
		data, err := io.ReadAll(r)
		if err != nil {
			return fmt.Errorf("reading %s of the image: %w", path, err)
		}
		return os.WriteFile(target, data, 0o755) //nolint:gosec // a program
	}
}

// Push copies the image of a layout to a repository, under its tag, and returns the reference with the digest. It does
// not replace an existing tag: another digest is an error. The credentials are those of docker login and podman login.
func Push(ctx context.Context, dir, repository string) (string, error) {
	index, tag, err := Read(dir)
	if err != nil {
		return "", err
	}
	digest, err := index.Digest()
	if err != nil {
		return "", fmt.Errorf("reading the image layout in %s: %w", dir, err)
	}
	ref, err := name.NewTag(repository+":"+tag, name.StrictValidation)
	if err != nil {
		return "", fmt.Errorf("pushing to %s: %w", repository, err)
	}
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	existing, err := remote.Head(ref, options...)
	var refused *transport.Error
	switch {
	case err == nil && existing.Digest != digest:
		return "", fmt.Errorf("%s exists with the digest %s, and %s has %s: a released image is not replaced; release it as a new version", ref, existing.Digest, filepath.Clean(dir), digest)
	case err != nil && (!errors.As(err, &refused) || refused.StatusCode != http.StatusNotFound):
		return "", fmt.Errorf("looking for %s: %w", ref, err)
	}
	if err := remote.WriteIndex(ref, index, options...); err != nil {
		return "", fmt.Errorf("pushing %s: %w", ref, err)
	}
	return ref.String() + "@" + digest.String(), nil
}
