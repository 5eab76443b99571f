package upgrade

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/installed"
	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

// objectLeft reports cluster-scoped objects that clusterctl upgrade neither deletes nor replaces: those whose names do
// not begin with the provider's namespace. crd-removed reports CRDs, namespace-changed the Namespace, and clusterctl
// deletes configurations of webhooks.
//
// Source: clusterctl, client/cluster/components.go, Delete.
var objectLeft = upgradeCheck("object-left", checks.Note, "No cluster-scoped object of the previous release stays in the cluster", sourceUpgrade,
	func(ctx context.Context, s *checks.Subject, u *upgrade, report checks.Report) error {
		if _, err := s.Components(); err != nil {
			return nil // components-parse reports it
		}
		for _, d := range u.before.Objects() {
			switch kind := d.Object.GetKind(); {
			case slices.Contains([]string{"Namespace", "CustomResourceDefinition", "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"}, kind),
				u.remakes(d),
				s.Object(kind, d.Object.GetName()) != nil,
				installed.KindScopes(u.before).Namespaced(d.Object):
				continue
			}
			if taken, err := installed.TreatedAsNamespaced(ctx, u.before, d); err != nil {
				return err
			} else if taken {
				continue
			}
			f := checks.Finding{Place: placeOfRemoved(s, d), Cause: "left",
				Message: "only the previous release has the object, and clusterctl upgrade leaves it in the cluster",
				Fix:     "keep its name, or explain in the release notes how to delete it; clusterctl deletes an object whose name begins with the provider's namespace and a dash"}
			if who := stillGranted(s, d); len(who) > 0 {
				f.Severity, f.Cause = checks.Warning, ""
				f.Message = fmt.Sprintf("only the previous release has the object, and clusterctl upgrade leaves it in the cluster: %s keeps the permissions of %s, which this release does not grant", strings.Join(who, " and "), roleOf(d))
			}
			report(f)
		}
		return nil
	})

// roleOf returns the name of the role that a binding grants.
func roleOf(binding *manifest.Document) string {
	return manifest.Text(binding.Object.Object, "roleRef", "name")
}

// stillGranted returns the service accounts of this release to which a binding of the previous release grants a role
// that this release does not grant them.
func stillGranted(s *checks.Subject, binding *manifest.Document) []string {
	if binding.Object.GetKind() != "ClusterRoleBinding" {
		return nil
	}
	granted := func(d *manifest.Document) []string {
		var names []string
		for _, subject := range manifest.Maps(d.Object.Object, "subjects") {
			if manifest.Text(subject, "kind") == "ServiceAccount" {
				names = append(names, manifest.Text(subject, "name"))
			}
		}
		return names
	}
	var still []string
	for _, name := range granted(binding) {
		again := slices.ContainsFunc(s.Objects("ClusterRoleBinding"), func(d *manifest.Document) bool {
			return roleOf(d) == roleOf(binding) && slices.Contains(granted(d), name)
		})
		if !again && s.Object("ServiceAccount", name) != nil {
			still = append(still, "the service account "+name)
		}
	}
	return still
}
