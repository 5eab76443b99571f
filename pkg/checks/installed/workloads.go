// Package installed reads the objects of a release's components YAML for checks.
package installed

import (
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
	"github.com/clusterctl-release/clusterctl-release/pkg/templates"
)

// Image returns a container's image with the defaults of its variables. It returns false if the container has no image
// or if users set it.
func (c Container) Image() (string, bool) {
	image := manifest.Text(c.Fields, "image")
	if strings.Contains(image, "$") {
		rendered, ok := templates.WithDefaults([]byte(image))
		return string(rendered), ok
	}
	return image, image != ""
}

// Pod is the pod template of an object of the components.
type Pod struct {
	*manifest.Document
	manifest.Pod
}

// Container is a container of a pod.
type Container struct {
	manifest.Container
	Pod *Pod
}

// IsManager reports whether it is the container in which clusterctl looks for the provider's controllers.
func (c Container) IsManager() bool {
	return !c.Init && c.Pod.Object.GetKind() == "Deployment" && c.Name() == manifest.ManagerContainer
}

// Pods are the pod templates of the components' workloads.
var Pods = checks.OnceValue(func(s *checks.Subject) (all []*Pod) {
	for _, d := range s.Objects() {
		if p, ok := manifest.PodOf(d.Object); ok {
			all = append(all, &Pod{d, p})
		}
	}
	return all
})

// Containers returns the containers of a pod, init containers last.
func (p *Pod) Containers() []Container {
	var all []Container
	for _, c := range p.Pod.Containers() {
		all = append(all, Container{c, p})
	}
	return all
}

// Containers returns the containers of all workloads.
func Containers(s *checks.Subject) []Container {
	var all []Container
	for _, p := range Pods(s) {
		all = append(all, p.Containers()...)
	}
	return all
}

// Place returns the place of a field of the container.
func (c Container) Place(path ...any) manifest.Place {
	return c.Pod.Place(manifest.Join(c.Path, path...)...)
}
