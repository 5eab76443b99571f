package components

import (
	"bytes"
	"fmt"

	yamlv2 "go.yaml.in/yaml/v2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/resmap"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

// ObjectsOf converts kustomize's resources to objects from their nodes: writing YAML and parsing it again, as the
// library's own conversions do, takes longer than the rest of a build.
func ObjectsOf(resources resmap.ResMap) ([]unstructured.Unstructured, error) {
	objects := make([]unstructured.Unstructured, 0, resources.Size())
	for _, resource := range resources.Resources() {
		raw, err := resource.Map()
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", resource.CurId(), err)
		}
		object, ok := manifest.JSONValue(raw).(map[string]any)
		if !ok {
			return nil, fmt.Errorf("reading %s: it isn't an object", resource.CurId())
		}
		objects = append(objects, unstructured.Unstructured{Object: object})
	}
	return objects, nil
}

// YAML returns the components YAML. The same objects result in the same bytes.
func (c *Components) YAML() ([]byte, error) {
	var out bytes.Buffer
	for i, o := range c.Objects {
		if i > 0 {
			out.WriteString("---\n")
		}
		// This is the encoder of sigs.k8s.io/yaml without its conversion to JSON.
		data, err := yamlv2.Marshal(o.Object)
		if err != nil {
			return nil, fmt.Errorf("writing %s: %w", describe(o), err)
		}
		out.Write(data)
	}
	return out.Bytes(), nil
}

// Images returns the images of the containers in an object that has a pod template.
func Images(o unstructured.Unstructured) []string {
	var images []string
	pod, _ := manifest.PodOf(o)
	for _, c := range pod.Containers() {
		if image := manifest.Text(c.Fields, "image"); image != "" {
			images = append(images, image)
		}
	}
	return images
}
