package checks

import (
	"fmt"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

const sourceManager = "clusterctl provider contract, Components YAML, Controllers & Watching namespace"

var managerDeployment = Check{
	ID: "manager-deployment", Group: Components, Severity: Warning,
	Title:  "The controllers are in a Deployment",
	Source: sourceManager,
	Run: func(s *Subject, report Report) {
		documents, err := s.Components()
		if len(documents) == 0 || err != nil || len(s.Objects("Deployment")) > 0 {
			return
		}
		place := s.At(s.Release.Provider.ComponentsFile())
		message := "there is no Deployment: the release installs no controllers that clusterctl knows of"
		if pods := s.pods(); len(pods) > 0 {
			place = pods[0].Place()
			message = "there is no Deployment, and clusterctl finds the controllers in a Deployment only, not in a " + pods[0].Object.GetKind()
		}
		report(Finding{Place: place, Message: message, Fix: "run the controllers in a Deployment"})
	},
}

var managerContainerName = Check{
	ID: "manager-container", Group: Components, Severity: Error,
	Title:  "The container of the controllers is called manager",
	Source: sourceManager,
	Run: func(s *Subject, report Report) {
		var candidates []container
		for _, c := range s.containers() {
			if c.isManager() {
				return
			}
			if !c.Init && c.pod.Object.GetKind() == "Deployment" {
				candidates = append(candidates, c)
			}
		}
		if len(candidates) == 0 {
			return // manager-deployment says so
		}
		var names []string
		for _, c := range candidates {
			names = append(names, c.Name())
		}
		report(Finding{
			Place: candidates[0].place("name"),
			Message: fmt.Sprintf("no container of a Deployment is called %s, only %s: clusterctl and what builds upon it do not find the controllers",
				manifest.ManagerContainer, strings.Join(names, ", ")),
			Fix: "call the container that runs the controllers " + manifest.ManagerContainer,
		})
	},
}

// flagValue returns the value of a flag among a container's arguments, and the index of the argument
// that has it in args; found is false where it is not given.
func (c container) flagValue(name string) (value string, index int, found bool) {
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

var namespaceFlag = Check{
	ID: "namespace-flag", Group: Components, Severity: Warning,
	Title:  "The manager watches all namespaces",
	Source: sourceManager,
	Run: func(s *Subject, report Report) {
		for _, c := range s.containers() {
			value, i, _ := c.flagValue("namespace")
			if !c.isManager() || value == "" || strings.Contains(value, "${") {
				continue
			}
			report(Finding{
				Place:   c.place("args", i),
				Message: fmt.Sprintf("the manager reconciles in namespace %s only, and clusterctl installs providers to watch all namespaces: clusters elsewhere are never made", value),
				Fix:     "leave the flag out, or give it a variable whose default is empty text",
			})
		}
	},
}

var watchFilterFlag = Check{
	ID: "watch-filter-flag", Group: Components, Severity: Warning,
	Title:  "The manager watches objects without a filter label too",
	Source: "InfraMachine contract, Multi tenancy, and multiple instances",
	Run: func(s *Subject, report Report) {
		for _, c := range s.containers() {
			for _, flag := range []string{"watch-filter", "watch-filter-value"} {
				value, i, _ := c.flagValue(flag)
				if !c.isManager() || value == "" || strings.Contains(value, "${") {
					continue
				}
				report(Finding{
					Place:   c.place("args", i),
					Message: fmt.Sprintf("the manager reconciles objects labelled cluster.x-k8s.io/watch-filter=%s only: clusters made from any template are left alone", value),
					Fix:     "leave the flag out: those who run several instances set it themselves",
				})
			}
		}
	},
}

var probes = Check{
	ID: "probes", Group: Components, Severity: Note,
	Title:  "The manager has probes",
	Source: "Kubernetes, Configure Liveness, Readiness and Startup Probes",
	Run: func(s *Subject, report Report) {
		for _, c := range s.containers() {
			if !c.isManager() {
				continue
			}
			var missing []string
			for _, probe := range []string{"livenessProbe", "readinessProbe"} {
				if manifest.Map(c.Fields, probe) == nil {
					missing = append(missing, probe)
				}
			}
			if len(missing) > 0 {
				report(Finding{
					Place:   c.place(),
					Message: fmt.Sprintf("the manager has no %s: clusterctl's --wait-providers waits for the Deployment to be available, which it is before the manager works", strings.Join(missing, " and no ")),
					Fix:     "probe /healthz and /readyz, as controller-runtime serves them",
				})
			}
		}
	},
}

var securityContext = Check{
	ID: "security-context", Group: Components, Severity: Note,
	Title:  "Pods run without privileges",
	Source: "Kubernetes, Pod Security Standards, Restricted",
	Run: func(s *Subject, report Report) {
		for _, c := range s.containers() {
			if manifest.Map(c.Fields, "securityContext")["privileged"] == true {
				report(Finding{
					Place:   c.place("securityContext", "privileged"),
					Message: fmt.Sprintf("container %s is privileged: management clusters that enforce a Pod Security Standard do not run it", c.Name()),
					Fix:     "run it without privileges, or tell users which namespace label it needs",
				})
				continue
			}
			if manifest.Map(c.Fields, "securityContext")["runAsNonRoot"] != true && manifest.Map(c.pod.Spec, "securityContext")["runAsNonRoot"] != true {
				report(Finding{
					Place:   c.place(),
					Message: fmt.Sprintf("container %s may run as root: management clusters that enforce the restricted Pod Security Standard do not run it", c.Name()),
					Fix:     "set runAsNonRoot: true in the pod's securityContext, and the other fields of the restricted standard",
				})
			}
		}
	},
}
