package upgrade

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	k8sversion "k8s.io/apimachinery/pkg/version"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/installed"
	"github.com/clusterctl-release/clusterctl-release/pkg/crdupdate"
	"github.com/clusterctl-release/clusterctl-release/pkg/diff"
	"github.com/clusterctl-release/clusterctl-release/pkg/schemas"
)

// refusedUpdate is an error of the API server for an updated CRD.
type refusedUpdate struct {
	before, after checks.CRD
	err           *field.Error
}

// refusedUpdates returns the errors of the API server's own code for the CRDs that clusterctl upgrade patches: those in
// both releases.
var refusedUpdates = checks.OnceValues(func(ctx context.Context, s *checks.Subject) (refused []refusedUpdate, err error) {
	u := upgradeOf(s)
	for _, p := range u.pairs {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		refusals, err := crdupdate.Refusals(installedCRD(u.before, p.before), &p.after.CustomResourceDefinition)
		if err != nil {
			continue // crd-valid reports a CRD that an API server can't read
		}
		for _, refusal := range refusals {
			refused = append(refused, refusedUpdate{p.before, p.after, refusal})
		}
	}
	return refused, nil
})

// installedCRD returns a CRD of a release in the form that a cluster has after the installation.
func installedCRD(s *checks.Subject, crd checks.CRD) *apiextensionsv1.CustomResourceDefinition {
	return crdupdate.Installed(&crd.CustomResourceDefinition, installed.InjectsCA(s, crd.Document))
}

// reportRefused reports, once for each CRD, the refusals that belong to a check; at returns their place in the CRD.
func reportRefused(ctx context.Context, s *checks.Subject, report checks.Report, isOwn func(r refusedUpdate) bool, at func(path string) []any, fix string) error {
	said := map[string]bool{}
	refused, err := refusedUpdates(ctx, s)
	for _, r := range refused {
		if !isOwn(r) || said[r.after.Name] {
			continue
		}
		said[r.after.Name] = true
		report(checks.Finding{Place: r.after.Place(at(r.err.Field)...),
			Message: "the API server refuses the CRD as an update of the previous one, and clusterctl upgrade stops there, after the old manager is deleted: " + installed.Reason(r.err),
			Fix:     fix})
	}
	return err
}

// aboutStored reports whether a version with stored objects was removed.
func aboutStored(r refusedUpdate) bool {
	return strings.HasPrefix(r.err.Field, "status.storedVersions")
}

// aboutIdentity reports whether the scope, a name or the group changed.
func aboutIdentity(r refusedUpdate) bool {
	return r.err.Field == "spec.scope" || strings.HasPrefix(r.err.Field, "spec.names") || r.err.Field == "spec.group"
}

// aboutLostConversion reports whether the new CRD sets a strategy without a webhook, which keeps the webhook of the
// installed CRD.
func aboutLostConversion(r refusedUpdate) bool {
	conversion := r.after.Spec.Conversion
	return strings.HasPrefix(r.err.Field, "spec.conversion") && conversion != nil && conversion.Strategy == apiextensionsv1.NoneConverter
}

// aboutCABundle reports whether the new CRD has a caBundle that can't replace the installed one, which crd-ca-bundle
// reports, also without a previous release.
func aboutCABundle(r refusedUpdate) bool {
	return strings.HasSuffix(r.err.Field, ".caBundle") && crdupdate.InvalidCABundle(&r.after.CustomResourceDefinition) != nil
}

var crdUpdateRefused = upgradeCheck("crd-update-refused", checks.Error, "The API server accepts each CRD as an update of the previous one", sourceCRDUpdate,
	func(ctx context.Context, s *checks.Subject, _ *upgrade, report checks.Report) error {
		isOwn := func(r refusedUpdate) bool {
			return !aboutStored(r) && !aboutIdentity(r) && !aboutLostConversion(r) && !aboutCABundle(r)
		}
		return reportRefused(ctx, s, report, isOwn, func(path string) []any { return schemas.Steps(nil, installed.PublishedPath(path)) },
			"clusterctl upgrade merges the new CRD into the installed one, and fields that the new one leaves out stay: keep the fields of the previous release, and change only their values")
	})

var crdRemoved = upgradeCheck("crd-removed", checks.Warning, "No CRD of the previous release is missing", sourceUpgrade,
	func(_ context.Context, s *checks.Subject, u *upgrade, report checks.Report) error {
		for _, c := range u.crds {
			if c.After != nil {
				continue
			}
			report(checks.Finding{Place: placeOfRemoved(s, c.Before.Document), Cause: "gone",
				Message: fmt.Sprintf("the previous release defines %s %s: clusterctl upgrade leaves the CRD and its objects in the cluster without a controller: those with a finalizer can't be deleted", c.Before.Spec.Names.Kind, c.Name),
				Fix:     "keep the CRD until its objects have been migrated, or explain in the release notes how to remove them"})
		}
		return nil
	})

var crdVersionRemoved = upgradeCheck("crd-version-removed", checks.Error, "No version is missing that objects may be stored in", sourceStoredVersions,
	func(ctx context.Context, s *checks.Subject, u *upgrade, report checks.Report) error {
		if err := reportRefused(ctx, s, report, aboutStored, func(string) []any { return []any{"spec", "versions"} }, "keep the version in the CRD, unserved if necessary; remove it one release after another version became the stored one and the manager migrated the objects (Cluster API's crdmigrator)"); err != nil {
			return err
		}
		for _, c := range u.crds {
			if c.Before != nil && c.After != nil {
				u.reportVersions(c, report)
			}
		}
		return nil
	})

// reportVersions reports the removed versions of a kind that were not the stored one.
func (u *upgrade) reportVersions(c diff.CRDChange, report checks.Report) {
	for _, v := range c.Before.Spec.Versions {
		at := diff.VersionIndex(c.After, v.Name)
		switch {
		case at >= 0 && v.Served && !c.After.Spec.Versions[at].Served:
			report(checks.Finding{Place: c.After.Place("spec", "versions", at, "served"), Severity: checks.Note, Cause: "not served " + v.Name,
				Message: fmt.Sprintf("%s %s is no longer served: manifests and clients of that version are refused", c.After.Spec.Names.Kind, v.Name),
				Fix:     "announce it in the release notes"})
		case at >= 0 || v.Storage:
		case v.Served:
			report(checks.Finding{Place: c.After.Place("spec", "versions"), Severity: checks.Warning, Cause: "gone " + v.Name,
				Message: fmt.Sprintf("%s %s is served by the previous release and was removed: manifests and clients of that version are refused%s", c.After.Spec.Names.Kind, v.Name, u.storedOnce(c.Before, v.Name)),
				Fix:     "stop serving a version one release before you remove it"})
		default:
			severity := checks.Warning
			if u.migrates() {
				severity = checks.Note
			}
			if stored := u.storedOnce(c.Before, v.Name); stored != "" {
				report(checks.Finding{Place: c.After.Place("spec", "versions"), Severity: severity, Cause: "gone " + v.Name,
					Message: fmt.Sprintf("%s %s was removed%s", c.After.Spec.Names.Kind, v.Name, stored),
					Fix:     "let a release migrate the objects and status.storedVersions first (Cluster API's crdmigrator), and document from which release users may upgrade"})
			}
		}
	}
}

// storedOnce describes the consequences if an older release stored objects in a version: a version older than the
// stored one was most likely stored itself.
func (u *upgrade) storedOnce(before *checks.CRD, version string) string {
	for _, v := range before.Spec.Versions {
		if v.Storage && k8sversion.CompareKubeAwareVersionStrings(version, v.Name) < 0 {
			return fmt.Sprintf("; a cluster that has stored objects in it lists it in status.storedVersions, and the API server refuses the CRD there until they are migrated, which clusterctl 1.13 and newer do not do%s", u.migrator())
		}
	}
	return ""
}

// migrator describes the permissions of the manager of the previous release.
func (u *upgrade) migrator() string {
	if u.migrates() {
		return " (the manager of the previous release has the permission to write it, and may have migrated)"
	}
	return " (the manager of the previous release has no permission to)"
}

// migrates reports whether a manager of the previous release may remove a version from status.storedVersions.
func (u *upgrade) migrates() bool {
	const group, resource = "apiextensions.k8s.io", "customresourcedefinitions/status"
	return slices.ContainsFunc(installed.Rules(u.before, "ClusterRole"), func(r installed.Rule) bool {
		return r.Grants(group, resource, "update") || r.Grants(group, resource, "patch")
	})
}

var crdScopeChanged = upgradeCheck("crd-scope-changed", checks.Error, "CRDs keep their scope and their kind", sourceCRDUpdate,
	func(ctx context.Context, s *checks.Subject, _ *upgrade, report checks.Report) error {
		return reportRefused(ctx, s, report, aboutIdentity, func(path string) []any { return schemas.Steps(nil, path) }, "define another kind under another name, and migrate: scope and kind of an installed CRD can't change")
	})

var conversionRemoved = upgradeCheck("conversion-removed", checks.Error, "The conversion webhook of a CRD is not left out", sourceUpgrade,
	func(ctx context.Context, s *checks.Subject, u *upgrade, report checks.Report) error {
		if err := reportRefused(ctx, s, report, aboutLostConversion, func(string) []any { return []any{"spec", "conversion", "strategy"} }, "keep the strategy Webhook and serve it: clusterctl upgrade can't remove it; users can, with `kubectl replace` before the upgrade"); err != nil {
			return err
		}
		for _, p := range u.pairs {
			if p.after.Spec.Conversion != nil || !installed.ConvertedByWebhook(p.before) || onlyOneVersion(p) {
				continue
			}
			report(checks.Finding{Place: p.after.Place("spec"), Severity: checks.Warning,
				Message: "the CRD had a conversion webhook, but the new one has no conversion: clusterctl upgrade patches the CRD, so the webhook stays, and objects that are stored in another version can't be read if its Service no longer answers",
				Fix:     "keep the conversion in the CRD, and serve it"})
		}
		return nil
	})

// onlyOneVersion reports whether a kind has the same single version in both releases, so that objects can't be stored
// or requested in another.
func onlyOneVersion(p crdPair) bool {
	return len(p.before.Spec.Versions) == 1 && len(p.after.Spec.Versions) == 1 && p.before.Spec.Versions[0].Name == p.after.Spec.Versions[0].Name
}
