package components

import (
	"context"
	"fmt"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/installed"
	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

const sourceManager = "clusterctl provider contract, Components YAML, Controllers & Watching namespace"

var managerDeployment = checks.Check{
	ID: "manager-deployment", Group: checks.Components, Severity: checks.Warning,
	Title:  "The controllers are in a Deployment",
	Source: sourceManager,
	Run: func(_ context.Context, s *checks.Subject, report checks.Report) error {
		if len(s.Objects()) == 0 || len(s.Objects("Deployment")) > 0 {
			return nil
		}
		place := s.At(s.Release.Provider.ComponentsFile())
		message := "the file has no Deployment: clusterctl recognizes no controllers of the release"
		if pods := installed.Pods(s); len(pods) > 0 {
			place = pods[0].Place()
			message = "the file has no Deployment, and clusterctl finds controllers only in a Deployment, not in a " + pods[0].Object.GetKind()
		}
		report(checks.Finding{Place: place, Message: message, Fix: "run the controllers in a Deployment"})
		return nil
	},
}

var managerContainerName = checks.Check{
	ID: "manager-container", Group: checks.Components, Severity: checks.Error,
	Title:  "The container of the controllers is called manager",
	Source: sourceManager,
	Run: func(_ context.Context, s *checks.Subject, report checks.Report) error {
		var candidates []installed.Container
		for _, c := range installed.Containers(s) {
			if c.IsManager() {
				return nil
			}
			if !c.Init && c.Pod.Object.GetKind() == "Deployment" {
				candidates = append(candidates, c)
			}
		}
		if len(candidates) == 0 {
			return nil // manager-deployment reports it
		}
		var names []string
		for _, c := range candidates {
			names = append(names, c.Name())
		}
		report(checks.Finding{
			Place: candidates[0].Place("name"),
			Message: fmt.Sprintf("no container of a Deployment is called %s, only %s: clusterctl and tools based on it do not find the controllers",
				manifest.ManagerContainer, strings.Join(names, ", ")),
			Fix: "call the container that runs the controllers " + manifest.ManagerContainer,
		})
		return nil
	},
}

// flagValue returns the value of a flag in a container's arguments, and the index of the argument that contains it;
// found is false if the flag is not set.
func flagValue(c installed.Container, name string) (value string, index int, found bool) {
	args := manifest.Texts(c.Fields, "args")
	for i, arg := range args {
		flag, value, hasValue := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if !strings.HasPrefix(arg, "-") || flag != name {
			continue
		}
		if !hasValue && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
			value = args[i+1]
		}
		return value, i, true
	}
	return "", 0, false
}

var namespaceFlag = checks.Check{
	ID: "namespace-flag", Group: checks.Components, Severity: checks.Warning,
	Title:  "The manager watches all namespaces",
	Source: sourceManager,
	Run: checks.Each(installed.Containers, func(_ *checks.Subject, c installed.Container, report checks.Report) {
		value, i, _ := flagValue(c, "namespace")
		if !c.IsManager() || value == "" || strings.Contains(value, "${") {
			return
		}
		report(checks.Finding{
			Place:   c.Place("args", i),
			Message: fmt.Sprintf("the manager reconciles only namespace %s, but clusterctl installs providers to watch all namespaces: clusters in other namespaces are never provisioned", value),
			Fix:     "remove the flag, or set it to a variable whose default is empty text",
		})
	}),
}

var watchFilterFlag = checks.Check{
	ID: "watch-filter-flag", Group: checks.Components, Severity: checks.Warning,
	Title:  "The manager also watches objects without a filter label",
	Source: "InfraMachine contract, Multi tenancy, and multiple instances",
	Run: checks.Each(installed.Containers, func(_ *checks.Subject, c installed.Container, report checks.Report) {
		for _, flag := range []string{"watch-filter", "watch-filter-value"} {
			value, i, _ := flagValue(c, flag)
			if !c.IsManager() || value == "" || strings.Contains(value, "${") {
				continue
			}
			report(checks.Finding{
				Place:   c.Place("args", i),
				Message: fmt.Sprintf("the manager reconciles only objects with the label cluster.x-k8s.io/watch-filter=%s: it ignores clusters that are created from templates", value),
				Fix:     "remove the flag: users who run several instances set it themselves",
			})
		}
	}),
}

var probes = checks.Check{
	ID: "probes", Group: checks.Components, Severity: checks.Note,
	Title:  "The manager has probes",
	Source: "Kubernetes, Configure Liveness, Readiness and Startup Probes",
	Run: checks.Each(installed.Containers, func(_ *checks.Subject, c installed.Container, report checks.Report) {
		if !c.IsManager() {
			return
		}
		var missing []string
		for _, probe := range []string{"livenessProbe", "readinessProbe"} {
			if manifest.Map(c.Fields, probe) == nil {
				missing = append(missing, probe)
			}
		}
		if len(missing) > 0 {
			report(checks.Finding{
				Place:   c.Place(),
				Message: fmt.Sprintf("the manager has no %s: clusterctl's --wait-providers waits for an available Deployment, and this one is available before the manager works", strings.Join(missing, " and no ")),
				Fix:     "probe /healthz and /readyz, as controller-runtime serves them",
			})
		}
	}),
}

var securityContext = checks.Check{
	ID: "security-context", Group: checks.Components, Severity: checks.Note,
	Title:  "Pods run without privileges",
	Source: "Kubernetes, Pod Security Standards, Restricted",
	Run: checks.Each(installed.Containers, func(_ *checks.Subject, c installed.Container, report checks.Report) {
		if manifest.Map(c.Fields, "securityContext")["privileged"] == true {
			report(checks.Finding{
				Place:   c.Place("securityContext", "privileged"),
				Message: fmt.Sprintf("container %s is privileged: management clusters that enforce a Pod Security Standard do not run it", c.Name()),
				Fix:     "run it without privileges, or tell users which namespace label it needs",
			})
			return
		}
		if manifest.Map(c.Fields, "securityContext")["runAsNonRoot"] != true && manifest.Map(c.Pod.Spec, "securityContext")["runAsNonRoot"] != true {
			report(checks.Finding{
				Place:   c.Place(),
				Message: fmt.Sprintf("container %s may run as root: management clusters that enforce the restricted Pod Security Standard do not run it", c.Name()),
				Fix:     "set runAsNonRoot: true in the pod's securityContext, and the other fields of the restricted standard",
			})
		}
	}),
}
