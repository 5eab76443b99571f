package upgrade

import (
	"context"
	"fmt"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/installed"
	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

// configReference is a Secret or ConfigMap without which a pod does not start.
type configReference struct{ kind, name string }

var configRequired = upgradeCheck("config-required", checks.Note, "Pods need no new Secret or ConfigMap", "Kubernetes, Secrets, Optional Secrets",
	func(_ context.Context, s *checks.Subject, u *upgrade, report checks.Report) error {
		before := map[configReference]bool{}
		eachConfigReference(u.before, func(r configReference, _ manifest.Place) { before[r] = true })
		eachConfigReference(s, func(r configReference, place manifest.Place) {
			if before[r] || s.Object(r.kind, r.name) != nil || r.kind == "Secret" && issued(s, r.name) {
				return
			}
			report(checks.Finding{Place: place, Cause: r.kind + " " + r.name,
				Message: fmt.Sprintf("pods need the %s %s, which the previous release did not need, and which is not in the file: they do not start until somebody creates it", r.kind, r.name),
				Fix:     "make it optional, add it to the components, or explain in the release notes how to create it before the upgrade"})
		})
		return nil
	})

// issued reports whether a Certificate of the components writes to a Secret.
func issued(s *checks.Subject, secret string) bool {
	for _, d := range s.Objects("Certificate") {
		if manifest.Text(d.Object.Object, "spec", "secretName") == secret {
			return true
		}
	}
	return false
}

// eachConfigReference calls a function with the required Secrets and ConfigMaps in the environment and the volumes of
// pods.
func eachConfigReference(s *checks.Subject, each func(r configReference, place manifest.Place)) {
	for _, p := range installed.Pods(s) {
		reference := func(kind, nameField string, fields map[string]any, path ...any) {
			if name := manifest.Text(fields, nameField); name != "" && fields["optional"] != true {
				each(configReference{kind, name}, p.Place(manifest.Join(path, nameField)...))
			}
		}
		for _, c := range p.Containers() {
			for i, fields := range manifest.Maps(c.Fields, "env") {
				path := manifest.Join(c.Path, "env", i, "valueFrom")
				reference("Secret", "name", manifest.Map(fields, "valueFrom", "secretKeyRef"), manifest.Join(path, "secretKeyRef")...)
				reference("ConfigMap", "name", manifest.Map(fields, "valueFrom", "configMapKeyRef"), manifest.Join(path, "configMapKeyRef")...)
			}
			for i, fields := range manifest.Maps(c.Fields, "envFrom") {
				path := manifest.Join(c.Path, "envFrom", i)
				reference("Secret", "name", manifest.Map(fields, "secretRef"), manifest.Join(path, "secretRef")...)
				reference("ConfigMap", "name", manifest.Map(fields, "configMapRef"), manifest.Join(path, "configMapRef")...)
			}
		}
		for i, fields := range manifest.Maps(p.Spec, "volumes") {
			path := manifest.Join(p.Path, "volumes", i)
			reference("Secret", "secretName", manifest.Map(fields, "secret"), manifest.Join(path, "secret")...)
			reference("ConfigMap", "name", manifest.Map(fields, "configMap"), manifest.Join(path, "configMap")...)
			for j, source := range manifest.Maps(fields, "projected", "sources") {
				path := manifest.Join(path, "projected", "sources", j)
				reference("Secret", "name", manifest.Map(source, "secret"), manifest.Join(path, "secret")...)
				reference("ConfigMap", "name", manifest.Map(source, "configMap"), manifest.Join(path, "configMap")...)
			}
		}
	}
}
