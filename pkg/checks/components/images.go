package components

import (
	"context"
	"fmt"
	"slices"
	"strings"

	containerutil "sigs.k8s.io/cluster-api/util/container"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/installed"
)

const sourceImages = "clusterctl provider contract, Components YAML, Controllers & Watching namespace"

// scaffoldImage is the image of a scaffolded manager.
const scaffoldImage = "controller:latest"

// canonicalImage returns a container's image, or "" if it has none or if users set it. The error describes a name that
// clusterctl can't parse.
func canonicalImage(c installed.Container) (string, error) {
	image, ok := c.Image()
	if !ok {
		return "", nil
	}
	_, err := containerutil.ImageFromString(image)
	return image, err
}

var imageCanonical = checks.Check{
	ID: "image-canonical", Group: checks.Components, Severity: checks.Error,
	Title:  "Images have canonical names",
	Source: sourceImages,
	Run: checks.Each(installed.Containers, func(_ *checks.Subject, c installed.Container, report checks.Report) {
		image, err := canonicalImage(c)
		if err == nil {
			return
		}
		fix := "name the image with its registry and repository, such as docker.io/library/busybox or registry.example.com/team/name"
		if image == scaffoldImage || vars.MatchString(image) {
			fix = "let the kustomization replace the placeholder by the image, named with its registry and repository"
		}
		severity, consequence := checks.Error, "clusterctl refuses the whole file"
		if kind := c.Pod.Object.GetKind(); kind != "Deployment" && kind != "DaemonSet" {
			severity, consequence = checks.Warning, "clusterctl would refuse it in a Deployment, and does not override images in a "+kind
		}
		report(checks.Finding{
			Place: c.Place("image"), Severity: severity,
			Message: fmt.Sprintf("image %q of container %s: %v: %s", image, c.Name(), err, consequence),
			Fix:     fix,
		})
	}),
}

// movingTags are the names of tags that move from image to image.
var movingTags = []string{"latest", "main", "master", "dev", "devel", "develop", "edge", "nightly", "canary", "snapshot"}

var imageTag = checks.Check{
	ID: "image-tag", Group: checks.Components, Severity: checks.Warning,
	Title:  "Images have fixed tags, and the manager's tag is the release's version",
	Source: sourceImages,
	Run: func(_ context.Context, s *checks.Subject, report checks.Report) error {
		released := hasReleasedManager(s)
		for _, c := range installed.Containers(s) {
			text, ok := c.Image()
			if !ok {
				continue
			}
			image, err := containerutil.ImageFromString(text)
			if err != nil || image.Digest != "" {
				continue
			}
			if message, fix := tagProblem(c, image.Tag, s.Release.Version, released); message != "" {
				report(checks.Finding{Place: c.Place("image"), Message: fmt.Sprintf("image %s of container %s: %s", text, c.Name(), message), Fix: fix})
			}
		}
		return nil
	},
}

// hasReleasedManager reports whether a manager's image has the release's version as its tag.
func hasReleasedManager(s *checks.Subject) bool {
	return slices.ContainsFunc(installed.Containers(s), func(c installed.Container) bool {
		text, _ := c.Image()
		image, err := containerutil.ImageFromString(text)
		return err == nil && c.IsManager() && isTagOf(image.Tag, s.Release.Version)
	})
}

// tagProblem returns the defect of an image's tag in a release of a version. If one manager has the release's version,
// other images belong to other projects, with their own versions.
func tagProblem(c installed.Container, tag, version string, released bool) (message, fix string) {
	switch {
	case tag == "":
		return "it has no tag, so every node pulls the image that is the latest at that time", "give it a tag or a digest"
	case slices.Contains(movingTags, strings.ToLower(tag)):
		return fmt.Sprintf("the tag %s moves: the release changes after it was published", tag), "release it with the version as its tag, or with a digest"
	case c.IsManager() && !released && !isTagOf(tag, version):
		return fmt.Sprintf("the tag is not that of release %s: the release may install the manager of another version", version), "release it with the version as its tag: `clusterctl release build` sets it"
	}
	return "", ""
}

// isTagOf reports whether a tag is that of a version: with or without the v, and with any build suffix.
func isTagOf(tag, version string) bool {
	wanted := strings.TrimPrefix(containerutil.SemverToOCIImageTag(version), "v")
	tag = strings.TrimPrefix(tag, "v")
	rest, ok := strings.CutPrefix(tag, wanted)
	return ok && (rest == "" || rest[0] == '-' || rest[0] == '_')
}
