package components

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/installed"
	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

var portName = checks.Check{
	ID: "port-name", Group: checks.Components, Severity: checks.Error,
	Title:  "Ports have names that the API server accepts, and Services target existing ports",
	Source: "Kubernetes API, ContainerPort.name, ServicePort.name and ServicePort.targetPort",
	Run: func(_ context.Context, s *checks.Subject, report checks.Report) error {
		for _, c := range installed.Containers(s) {
			reportContainerPorts(c, report)
		}
		for _, d := range s.Objects("Service") {
			reportServicePorts(s, d, report)
		}
		return nil
	},
}

// reportContainerPorts checks the names of a container's ports, and the port names of its probes.
func reportContainerPorts(c installed.Container, report checks.Report) {
	seen := map[string]bool{}
	for i, fields := range manifest.Maps(c.Fields, "ports") {
		name, at := manifest.Text(fields, "name"), c.Pod.Place(manifest.Join(c.Path, "ports", i, "name")...)
		reportPortName(at, name, report)
		if name != "" && seen[name] {
			report(checks.Finding{Place: at,
				Message: fmt.Sprintf("the container has two ports with the name %s: the API server refuses the %s", name, c.Pod.Object.GetKind()),
				Fix:     "give each port a unique name"})
		}
		seen[name] = true
	}
	for _, probe := range []string{"livenessProbe", "readinessProbe", "startupProbe"} {
		for _, action := range []string{"httpGet", "tcpSocket"} {
			name, at := manifest.Text(c.Fields, probe, action, "port"), c.Pod.Place(manifest.Join(c.Path, probe, action, "port")...)
			reportPortName(at, name, report)
			if name != "" && !strings.Contains(name, "$") && !seen[name] {
				report(checks.Finding{Place: at,
					Message: fmt.Sprintf("the %s uses port %s, which the container does not have: it always fails", probe, name),
					Fix:     "name a port of the container, or use its number"})
			}
		}
	}
}

// reportPortName checks the name of a container's port, or a reference to it.
func reportPortName(at manifest.Place, name string, report checks.Report) {
	if name == "" || strings.Contains(name, "$") {
		return
	}
	if problems := validation.IsValidPortName(name); len(problems) > 0 {
		report(checks.Finding{Place: at,
			Message: fmt.Sprintf("%s is not a valid name of a port: it %s; the API server refuses the object", name, strings.Join(problems, ", and it ")),
			Fix:     "use a name of at most 15 lower case letters, digits and '-', with a letter among them"})
	}
}

// reportServicePorts checks the names of a Service's ports, and their targets.
func reportServicePorts(s *checks.Subject, d *manifest.Document, report checks.Report) {
	isOne := len(manifest.List(d.Object.Object, "spec", "ports")) == 1
	seen := map[string]bool{}
	for i, fields := range manifest.Maps(d.Object.Object, "spec", "ports") {
		name, at := manifest.Text(fields, "name"), d.Place("spec", "ports", i, "name")
		switch {
		case strings.Contains(name, "$"):
		case name == "" && !isOne:
			report(checks.Finding{Place: d.Place("spec", "ports", i),
				Message: "one of several ports has no name: the API server refuses the Service",
				Fix:     "name each port"})
		case name != "" && len(validation.IsDNS1123Label(name)) > 0:
			report(checks.Finding{Place: at,
				Message: fmt.Sprintf("%s is not a valid name of a Service's port: it has to be a DNS label; the API server refuses the Service", name),
				Fix:     "use a name of at most 63 lower case letters, digits and '-'"})
		case name != "" && seen[name]:
			report(checks.Finding{Place: at,
				Message: fmt.Sprintf("two ports have the name %s: the API server refuses the Service", name),
				Fix:     "give each port a unique name"})
		}
		seen[name] = true
		target, at := manifest.Text(fields, "targetPort"), d.Place("spec", "ports", i, "targetPort")
		reportPortName(at, target, report)
		if target == "" || strings.Contains(target, "$") {
			continue
		}
		if behind := selectedBy(s, d); len(behind) > 0 && !slices.ContainsFunc(behind, func(p *installed.Pod) bool { return hasPort(p, target) }) {
			report(checks.Finding{Severity: checks.Warning, Place: at,
				Message: fmt.Sprintf("the Service targets port %s, which no container of %s has: connections fail", target, behind[0].Object.GetKind()+" "+behind[0].Object.GetName()),
				Fix:     "name a port that the container has, or add it to the container's ports"})
		}
	}
}

// selectedBy returns the pods in the file that a Service selects.
func selectedBy(s *checks.Subject, service *manifest.Document) []*installed.Pod {
	selector := manifest.Map(service.Object.Object, "spec", "selector")
	if len(selector) == 0 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(installed.Pods(s)), func(p *installed.Pod) bool {
		for key, value := range selector {
			if p.Labels[key] != value {
				return true
			}
		}
		return false
	})
}

// hasPort reports whether a container of the pod has a port with that name.
func hasPort(p *installed.Pod, name string) bool {
	for _, c := range p.Containers() {
		for _, fields := range manifest.Maps(c.Fields, "ports") {
			if manifest.Text(fields, "name") == name {
				return true
			}
		}
	}
	return false
}
