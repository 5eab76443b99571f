package components

import (
	"bytes"
	"fmt"

	yamlv2 "go.yaml.in/yaml/v2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/resmap"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

// decode turns kustomize's resources into objects, by way of their nodes: emitting YAML to parse
// it again, as the library's own conversions do, costs more than all the rest of a build.
func decode(resources resmap.ResMap) ([]unstructured.Unstructured, error) {
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

// YAML returns the components YAML. The same objects give the same bytes.
func (c *Components) YAML() ([]byte, error) {
	var out bytes.Buffer
	for i, o := range c.Objects {
		if i > 0 {
			out.WriteString("---\n")
		}
		// The encoder below sigs.k8s.io/yaml, without its detour by JSON.
		data, err := yamlv2.Marshal(o.Object)
		if err != nil {
			return nil, fmt.Errorf("writing %s: %w", describe(o), err)
		}
		out.Write(data)
	}
	return out.Bytes(), nil
}

// podTemplate is a pod template within an object.
type podTemplate struct {
	// labels are the template's labels, nil where there are none.
	labels map[string]any
	spec   map[string]any
}

// podTemplatePaths are the places of pod templates by kind.
var podTemplatePaths = map[string][]string{
	"Deployment":            {"spec", "template"},
	"StatefulSet":           {"spec", "template"},
	"DaemonSet":             {"spec", "template"},
	"ReplicaSet":            {"spec", "template"},
	"ReplicationController": {"spec", "template"},
	"Job":                   {"spec", "template"},
	"CronJob":               {"spec", "jobTemplate", "spec", "template"},
	"PodTemplate":           {"template"},
	"Pod":                   {},
}

// podTemplates returns the pod template of an object that has one.
func podTemplates(o unstructured.Unstructured) []podTemplate {
	path, ok := podTemplatePaths[o.GetKind()]
	if !ok {
		return nil
	}
	template := nested(o.Object, path...)
	spec := nested(template, "spec")
	if spec == nil {
		return nil
	}
	return []podTemplate{{labels: nested(template, "metadata", "labels"), spec: spec}}
}

// containers returns the containers of a pod, init containers last.
func (p podTemplate) containers() []map[string]any {
	return append(nestedList(p.spec, "containers"), nestedList(p.spec, "initContainers")...)
}

// Images returns the images of the containers in an object that has a pod template.
func Images(o unstructured.Unstructured) []string {
	var images []string
	for _, pod := range podTemplates(o) {
		for _, c := range pod.containers() {
			if image, _ := c["image"].(string); image != "" {
				images = append(images, image)
			}
		}
	}
	return images
}

// nested returns the map at a path, itself and no copy, or nil.
func nested(m map[string]any, path ...string) map[string]any {
	for _, step := range path {
		m, _ = m[step].(map[string]any)
	}
	return m
}

// nestedList returns the maps in the list at a path, themselves and no copies.
func nestedList(m map[string]any, path ...string) []map[string]any {
	parent := nested(m, path[:len(path)-1]...)
	list, _ := parent[path[len(path)-1]].([]any)
	maps := make([]map[string]any, 0, len(list))
	for _, item := range list {
		if m, ok := item.(map[string]any); ok {
			maps = append(maps, m)
		}
	}
	return maps
}
