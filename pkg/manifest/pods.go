package manifest

import "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

// podTemplates are the places of pod templates by kind.
var podTemplates = map[string][]string{
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

// Pod is the pod template of an object, or a Pod. It is untyped, because fields of other types than text may contain
// variables.
type Pod struct {
	// Path leads to the spec in the object.
	Path []any
	// Labels are those of the pods, nil if there are none.
	Labels map[string]any
	Spec   map[string]any
}

// HasPods reports whether objects of a kind have a pod template.
func HasPods(kind string) bool {
	_, ok := podTemplates[kind]
	return ok
}

// PodOf returns the pod template of an object, or false without one.
func PodOf(o unstructured.Unstructured) (Pod, bool) {
	path, ok := podTemplates[o.GetKind()]
	if !ok {
		return Pod{}, false
	}
	template := Map(o.Object, path...)
	pod := Pod{Labels: Map(template, "metadata", "labels"), Spec: Map(template, "spec")}
	for _, step := range path {
		pod.Path = append(pod.Path, step)
	}
	pod.Path = append(pod.Path, "spec")
	return pod, pod.Spec != nil
}

// ManagerContainer is clusterctl's name for the container of a provider's controllers.
const ManagerContainer = "manager"

// Container is a container of a pod.
type Container struct {
	// Path leads to it in the object.
	Path   []any
	Fields map[string]any
	// Init says that it is an init container.
	Init bool
}

// Name returns the container's name.
func (c Container) Name() string { return Text(c.Fields, "name") }

// Containers returns the containers of a pod, init containers last.
func (p Pod) Containers() []Container {
	var all []Container
	for _, field := range []string{"containers", "initContainers"} {
		for i, fields := range Maps(p.Spec, field) {
			all = append(all, Container{Path: Join(p.Path, field, i), Fields: fields, Init: field == "initContainers"})
		}
	}
	return all
}
