package checks

import (
	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

// podSpecPaths are the places of pod specs by kind.
var podSpecPaths = map[string][]string{
	"Deployment":  {"spec", "template", "spec"},
	"StatefulSet": {"spec", "template", "spec"},
	"DaemonSet":   {"spec", "template", "spec"},
	"ReplicaSet":  {"spec", "template", "spec"},
	"Job":         {"spec", "template", "spec"},
	"CronJob":     {"spec", "jobTemplate", "spec", "template", "spec"},
	"Pod":         {"spec"},
}

// pod is the pod spec of an object. Fields may hold variables where their types ask for something
// else than text, so nothing here is a typed PodSpec.
type pod struct {
	*manifest.Document
	// path leads to spec in the document.
	path []any
	spec map[string]any
	// labels are those of the pod template.
	labels map[string]any
}

// container is a container of a pod.
type container struct {
	pod    *pod
	path   []any
	fields map[string]any
	init   bool
}

// name returns the container's name.
func (c container) name() string { return textAt(c.fields, "name") }

// isManager says whether it is the container in which clusterctl looks for the provider's controllers.
func (c container) isManager() bool {
	return !c.init && c.pod.Object.GetKind() == "Deployment" && c.name() == managerContainer
}

// managerContainer is the name by which clusterctl knows the container of the controllers.
const managerContainer = "manager"

// pods returns the pod specs of the components' workloads.
func (s *Subject) pods() []*pod {
	s.podsOnce.Do(func() {
		for _, d := range s.Objects() {
			fields, ok := podSpecPaths[d.Object.GetKind()]
			if !ok {
				continue
			}
			spec := mapAt(d.Object.Object, fields...)
			if spec == nil {
				continue
			}
			var path []any
			for _, field := range fields {
				path = append(path, field)
			}
			template := mapAt(d.Object.Object, fields[:len(fields)-1]...)
			s.podList = append(s.podList, &pod{Document: d, path: path, spec: spec, labels: mapAt(template, "metadata", "labels")})
		}
	})
	return s.podList
}

// containers returns the containers of a pod, init containers last.
func (p *pod) containers() []container {
	var all []container
	for _, field := range []string{"containers", "initContainers"} {
		for i, item := range listAt(p.spec, field) {
			if fields, ok := item.(map[string]any); ok {
				all = append(all, container{pod: p, path: steps(p.path, field, i), fields: fields, init: field == "initContainers"})
			}
		}
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
	return c.pod.Place(steps(c.path, path...)...)
}
