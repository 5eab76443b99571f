package checks

import (
	"fmt"
	"slices"
	"strings"

	containerutil "sigs.k8s.io/cluster-api/util/container"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

const sourceImages = "clusterctl provider contract, Components YAML, Controllers & Watching namespace"

// image returns a container's image with its variables' defaults, or false where it has none or
// only its users know it.
func (c container) image() (string, bool) {
	image := manifest.Text(c.Fields, "image")
	if strings.Contains(image, "$") {
		rendered, ok := withDefaults([]byte(image))
		return string(rendered), ok
	}
	return image, image != ""
}

// scaffoldImage is the image of a scaffolded manager.
const scaffoldImage = "controller:latest"

// canonicalImage returns a container's image, or "" where it has none or only its users know it. The
// error is that of a name that clusterctl can't read.
func (c container) canonicalImage() (string, error) {
	image, ok := c.image()
	if !ok {
		return "", nil
	}
	_, err := containerutil.ImageFromString(image)
	return image, err
}

var imageCanonical = Check{
	ID: "image-canonical", Group: Components, Severity: Error,
	Title:  "Images have canonical names",
	Source: sourceImages,
	Run: func(s *Subject, report Report) {
		for _, c := range s.containers() {
			image, err := c.canonicalImage()
			if err == nil {
				continue
			}
			fix := "name the image with its registry and repository, such as docker.io/library/busybox or registry.example.com/team/name"
			if image == scaffoldImage || vars.MatchString(image) {
				fix = "let the kustomization replace the placeholder by the image, named with its registry and repository"
			}
			severity, consequence := Error, "clusterctl refuses the whole file"
			if kind := c.pod.Object.GetKind(); kind != "Deployment" && kind != "DaemonSet" {
				severity, consequence = Warning, "clusterctl would refuse it in a Deployment, and overrides no image in a "+kind
			}
			report(Finding{
				Place: c.place("image"), Severity: severity,
				Message: fmt.Sprintf("image %q of container %s: %v: %s", image, c.Name(), err, consequence),
				Fix:     fix,
			})
		}
	},
}

// movingTags are names of tags that are moved from image to image.
var movingTags = []string{"latest", "main", "master", "dev", "devel", "develop", "edge", "nightly", "canary", "snapshot"}

var imageTag = Check{
	ID: "image-tag", Group: Components, Severity: Warning,
	Title:  "Images have tags that stay, and the manager's is the release's version",
	Source: sourceImages,
	Run: func(s *Subject, report Report) {
		released := hasReleasedManager(s)
		for _, c := range s.containers() {
			text, ok := c.image()
			if !ok {
				continue
			}
			image, err := containerutil.ImageFromString(text)
			if err != nil || image.Digest != "" {
				continue
			}
			if message, fix := tagProblem(c, image.Tag, s.Release.Version, released); message != "" {
				report(Finding{Place: c.place("image"), Message: fmt.Sprintf("image %s of container %s: %s", text, c.Name(), message), Fix: fix})
			}
		}
	},
}

// hasReleasedManager says whether a manager's image has the release's version for its tag.
func hasReleasedManager(s *Subject) bool {
	return slices.ContainsFunc(s.containers(), func(c container) bool {
		text, _ := c.image()
		image, err := containerutil.ImageFromString(text)
		return err == nil && c.isManager() && isTagOf(image.Tag, s.Release.Version)
	})
}

// tagProblem says what is wrong with an image's tag in a release of a version. Where one manager is
// released, others are those of projects that the provider brings along, with versions of their own.
func tagProblem(c container, tag, version string, released bool) (message, fix string) {
	switch {
	case tag == "":
		return "it has no tag, so every node pulls what is latest on its day", "give it a tag or a digest"
	case slices.Contains(movingTags, strings.ToLower(tag)):
		return fmt.Sprintf("the tag %s moves: the release does not stay what it was when it was published", tag), "release it with the version as its tag, or with a digest"
	case c.isManager() && !released && !isTagOf(tag, version):
		return fmt.Sprintf("the tag is not that of release %s: the release may install the manager of another version", version), "release it with the version as its tag: `clusterctl release build` sets it"
	}
	return "", ""
}

// isTagOf says whether a tag is a version's: with or without the v, with whatever is said of the
// build behind it.
func isTagOf(tag, version string) bool {
	wanted := strings.TrimPrefix(containerutil.SemverToOCIImageTag(version), "v")
	tag = strings.TrimPrefix(tag, "v")
	rest, ok := strings.CutPrefix(tag, wanted)
	return ok && (rest == "" || rest[0] == '-' || rest[0] == '_')
}
