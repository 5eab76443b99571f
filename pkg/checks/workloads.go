package checks

import (
	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

// pod is the pod template of an object of the components.
type pod struct {
	*manifest.Document
	manifest.Pod
}

// container is a container of a pod.
type container struct {
	manifest.Container
	pod *pod
}

// isManager says whether it is the container in which clusterctl looks for the provider's controllers.
func (c container) isManager() bool {
	return !c.Init && c.pod.Object.GetKind() == "Deployment" && c.Name() == manifest.ManagerContainer
}

// pods returns the pod templates of the components' workloads.
func (s *Subject) pods() []*pod {
	return s.oncePods.get(func() (all []*pod) {
		for _, d := range s.Objects() {
			if p, ok := manifest.PodOf(d.Object); ok {
				all = append(all, &pod{d, p})
			}
		}
		return all
	})
}

// containers returns the containers of a pod, init containers last.
func (p *pod) containers() []container {
	var all []container
	for _, c := range p.Containers() {
		all = append(all, container{c, p})
	}
	return all
}

// containers returns the containers of all workloads.
func (s *Subject) containers() []container {
	var all []container
	for _, p := range s.pods() {
		all = append(all, p.containers()...)
	}
	return all
}

// place returns where a field of the container is.
func (c container) place(path ...any) manifest.Place {
	return c.pod.Place(manifest.Join(c.Path, path...)...)
}
