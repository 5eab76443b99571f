package checks

import (
	"fmt"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

// configReference is a Secret or ConfigMap without which a pod does not start.
type configReference struct{ kind, name string }

var configRequired = upgradeCheck("config-required", Note, "Pods need no Secret or ConfigMap that they did not need before", "Kubernetes, Secrets, Optional Secrets",
	func(s *Subject, u *upgrade, report Report) {
		before := map[configReference]bool{}
		u.before.eachConfigReference(func(r configReference, _ manifest.Place) { before[r] = true })
		s.eachConfigReference(func(r configReference, place manifest.Place) {
			if before[r] || s.object(r.kind, r.name) != nil || r.kind == "Secret" && s.issued(r.name) {
				return
			}
			report(Finding{Place: place, Cause: r.kind + " " + r.name,
				Message: fmt.Sprintf("pods need the %s %s, which the release before did not, and which is not in the file: they do not start before somebody makes it", r.kind, r.name),
				Fix:     "make it optional, add it to the components, or say in the release notes how to make it before the upgrade"})
		})
	})

// issued says whether a Certificate of the components has its key in a Secret.
func (s *Subject) issued(secret string) bool {
	for _, d := range s.Objects("Certificate") {
		if textAt(d.Object.Object, "spec", "secretName") == secret {
			return true
		}
	}
	return false
}

// eachConfigReference calls a function with the Secrets and ConfigMaps that are not optional in the
// environment and the volumes of pods.
func (s *Subject) eachConfigReference(each func(r configReference, place manifest.Place)) {
	for _, p := range s.pods() {
		reference := func(kind, nameField string, fields map[string]any, path ...any) {
			if name := textAt(fields, nameField); name != "" && fields["optional"] != true {
				each(configReference{kind, name}, p.Place(steps(path, nameField)...))
			}
		}
		for _, c := range p.containers() {
			for i, item := range listAt(c.fields, "env") {
				fields, _ := item.(map[string]any)
				path := steps(c.path, "env", i, "valueFrom")
				reference("Secret", "name", mapAt(fields, "valueFrom", "secretKeyRef"), steps(path, "secretKeyRef")...)
				reference("ConfigMap", "name", mapAt(fields, "valueFrom", "configMapKeyRef"), steps(path, "configMapKeyRef")...)
			}
			for i, item := range listAt(c.fields, "envFrom") {
				fields, _ := item.(map[string]any)
				path := steps(c.path, "envFrom", i)
				reference("Secret", "name", mapAt(fields, "secretRef"), steps(path, "secretRef")...)
				reference("ConfigMap", "name", mapAt(fields, "configMapRef"), steps(path, "configMapRef")...)
			}
		}
		for i, item := range listAt(p.spec, "volumes") {
			fields, _ := item.(map[string]any)
			path := steps(p.path, "volumes", i)
			reference("Secret", "secretName", mapAt(fields, "secret"), steps(path, "secret")...)
			reference("ConfigMap", "name", mapAt(fields, "configMap"), steps(path, "configMap")...)
			for j, item := range listAt(fields, "projected", "sources") {
				source, _ := item.(map[string]any)
				path := steps(path, "projected", "sources", j)
				reference("Secret", "name", mapAt(source, "secret"), steps(path, "secret")...)
				reference("ConfigMap", "name", mapAt(source, "configMap"), steps(path, "configMap")...)
			}
		}
	}
}
