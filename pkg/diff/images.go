package diff

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

// ImageChange is a container with another image; "" where the container is missing.
type ImageChange struct {
	Object        manifest.Object
	Container     string
	Before, After string
}

// podSpecs are the places of pod specs by kind.
var podSpecs = map[string][]string{
	"Deployment":  {"spec", "template", "spec"},
	"StatefulSet": {"spec", "template", "spec"},
	"DaemonSet":   {"spec", "template", "spec"},
	"ReplicaSet":  {"spec", "template", "spec"},
	"Job":         {"spec", "template", "spec"},
	"CronJob":     {"spec", "jobTemplate", "spec", "template", "spec"},
	"Pod":         {"spec"},
}

// imageKey is a container of an object.
type imageKey struct {
	objectKey
	container string
}

// Images returns the containers whose images changed, by their objects.
func Images(before, after []*manifest.Document) []ImageChange {
	old, now := images(before), images(after)
	keys := maps.Clone(old)
	maps.Copy(keys, now)
	var changes []ImageChange
	for key, one := range keys {
		if old[key].After != now[key].After {
			changes = append(changes, ImageChange{Object: one.Object, Container: key.container, Before: old[key].After, After: now[key].After})
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
		path, ok := podSpecs[d.Object.GetKind()]
		if !ok {
			continue
		}
		spec, _, err := unstructured.NestedMap(d.Object.Object, path...)
		if err != nil {
			continue
		}
		for _, field := range []string{"containers", "initContainers"} {
			list, _ := spec[field].([]any)
			for _, item := range list {
				fields, _ := item.(map[string]any)
				name, _ := fields["name"].(string)
				image, _ := fields["image"].(string)
				all[imageKey{keyOf(d.Object), name}] = ImageChange{Object: d.Place().Object, After: image}
			}
		}
	}
	return all
}

// withoutImages returns a copy of an object without its containers' images.
func withoutImages(fields map[string]any, path []string) map[string]any {
	copied := unstructured.Unstructured{Object: fields}
	fields = copied.DeepCopy().Object
	spec, _, err := unstructured.NestedFieldNoCopy(fields, path...)
	if err != nil {
		return fields
	}
	containers, _ := spec.(map[string]any)
	for _, field := range []string{"containers", "initContainers"} {
		list, _ := containers[field].([]any)
		for _, item := range list {
			if container, ok := item.(map[string]any); ok {
				delete(container, "image")
			}
		}
	}
	return fields
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
