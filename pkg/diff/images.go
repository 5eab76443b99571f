package diff

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

// ImageChange is a container with a changed image; "" means that the container is missing.
type ImageChange struct {
	Object        manifest.Object
	Container     string
	Before, After string
}

// imageKey is a container of an object.
type imageKey struct {
	objectKey
	container string
}

// Images returns the containers whose images changed, by their objects.
func Images(before, after []*manifest.Document) []ImageChange {
	old, now := images(before), images(after)
	var changes []ImageChange
	for key := range union(old, now) {
		if old[key].After != now[key].After {
			changes = append(changes, ImageChange{Object: cmp.Or(now[key].Object, old[key].Object), Container: key.container, Before: old[key].After, After: now[key].After})
		}
	}
	slices.SortFunc(changes, func(a, b ImageChange) int {
		return cmp.Or(cmp.Compare(a.Object.String(), b.Object.String()), cmp.Compare(a.Container, b.Container))
	})
	return changes
}

// images returns the image of each container, in After.
func images(documents []*manifest.Document) map[imageKey]ImageChange {
	all := map[imageKey]ImageChange{}
	for _, d := range documents {
		pod, _ := manifest.PodOf(d.Object)
		for _, c := range pod.Containers() {
			all[imageKey{keyOf(d.Object), c.Name()}] = ImageChange{Object: d.Place().Object, After: manifest.Text(c.Fields, "image")}
		}
	}
	return all
}

// withoutImages returns a copy of an object without its containers' images.
func withoutImages(fields map[string]any) map[string]any {
	o := unstructured.Unstructured{Object: fields}
	o = *o.DeepCopy()
	pod, _ := manifest.PodOf(o)
	for _, c := range pod.Containers() {
		delete(c.Fields, "image")
	}
	return o.Object
}

// Repository splits an image's name into its registry and the rest, without tag and digest. An image
// without a registry, which clusterctl refuses, has "".
func Repository(image string) (registry, path string) {
	image, _, _ = strings.Cut(image, "@")
	if i := strings.LastIndexByte(image, ':'); i > strings.LastIndexByte(image, '/') {
		image = image[:i]
	}
	registry, path, ok := strings.Cut(image, "/")
	if !ok || !strings.ContainsAny(registry, ".:") && registry != "localhost" {
		return "", image
	}
	return registry, path
}
