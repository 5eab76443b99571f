package components

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/distribution/reference"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/yamlprocessor"
	"sigs.k8s.io/cluster-api/util/container"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// setImages sets the names and tags of the release in the images of all containers.
func (c *Components) setImages(options Options) error {
	entries, err := imageEntries(options)
	if err != nil {
		return err
	}
	used := map[string]bool{}
	var present []string
	for _, o := range c.Objects {
		pod, _ := manifest.PodOf(o)
		for _, ctr := range pod.Containers() {
			image := manifest.Text(ctr.Fields, "image")
			name := ImageName(image)
			present = append(present, name)
			if target, ok := entries[name]; ok {
				used[name] = true
				image = target
				ctr.Fields["image"] = image
			} else if ctr.Name() == manifest.ManagerContainer {
				c.note("%s: image %s keeps the tag of the tree: list it under images in %s to set the release's version as its tag", describe(o), image, release.ConfigFile)
			}
			if err := requireCanonical(image); err != nil {
				name := ImageName(image)
				return fmt.Errorf("%s, container %s: image %q: %w: clusterctl refuses the whole file; name the image with its registry, e.g. registry.example.com/%s, under images in %s, or with --image %s=REFERENCE",
					describe(o), ctr.Name(), image, err, strings.TrimLeft(name, "/"), release.ConfigFile, name)
			}
		}
	}
	c.UsedImages = slices.DeleteFunc(slices.Sorted(maps.Keys(options.Images)), func(name string) bool { return !used[name] })
	slices.Sort(present)
	for _, image := range options.Provider.Images {
		if !used[image.Name] {
			return fmt.Errorf("images in %s: no container has the image %q; the images are: %s",
				release.ConfigFile, image.Name, strings.Join(slices.Compact(present), ", "))
		}
	}
	return nil
}

// imageEntries returns the full references of the images to set, by image name.
func imageEntries(options Options) (map[string]string, error) {
	entries := map[string]string{}
	for _, image := range options.Provider.Images {
		suffix := ":" + cmp.Or(image.NewTag, tagFor(options.Version))
		if image.Digest != "" {
			suffix = "@" + image.Digest
		}
		entries[image.Name] = cmp.Or(image.NewName, image.Name) + suffix
	}
	for _, name := range slices.Sorted(maps.Keys(options.Images)) {
		ref := options.Images[name]
		named, err := reference.ParseNamed(ref)
		if err != nil {
			return nil, fmt.Errorf("--image %s=%s: %w: write the reference with its registry, e.g. registry.example.com/name:tag", name, ref, err)
		}
		if reference.IsNameOnly(named) {
			ref += ":" + tagFor(options.Version)
		}
		entries[name] = ref
	}
	return entries, nil
}

// tagFor returns the image tag of a version: a tag can't contain the '+' of build metadata.
func tagFor(version string) string {
	return strings.ReplaceAll(version, "+", "_")
}

// requireCanonical reports an image that clusterctl would refuse. It uses clusterctl's own parser, after clusterctl's
// own substitution of variables by their defaults.
func requireCanonical(image string) error {
	if strings.Contains(image, "$") {
		processed, err := yamlprocessor.NewSimpleProcessor().Process([]byte(image), func(string) (string, error) {
			return "", fmt.Errorf("not set")
		})
		if err != nil {
			return nil //nolint:nilerr // a variable without a default: what it will be is the user's to say
		}
		image = string(processed)
	}
	_, err := container.ImageFromString(image)
	return err
}

// ImageName returns an image's name, without its tag and digest.
func ImageName(image string) string {
	name, _, _ := strings.Cut(image, "@")
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') && !strings.Contains(name, "${") {
		name = name[:i]
	}
	return name
}
