package upgrade

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	k8sversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/installed"
	"github.com/clusterctl-release/clusterctl-release/pkg/diff"
	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

// sayInNotes is the fix for a change that is right but that users have to know before they upgrade.
const sayInNotes = "announce it in the release notes"

var storageVersionBack = upgradeCheck("storage-version-back", checks.Note, "CRDs do not go back to an older storage version", sourceStoredVersions,
	func(_ context.Context, _ *checks.Subject, u *upgrade, report checks.Report) error {
		for _, p := range u.pairs {
			before, after := storageVersion(p.before), storageVersion(p.after)
			if before == "" || after == "" || diff.VersionIndex(&p.after, before) < 0 || k8sversion.CompareKubeAwareVersionStrings(after, before) >= 0 {
				continue
			}
			report(checks.Finding{Place: p.after.Place("spec", "versions", diff.VersionIndex(&p.after, after), "storage"), Cause: before + " " + after,
				Message: fmt.Sprintf("objects are stored in %s, and were in %s: fields that only %s has are lost at the next write, unless the conversion keeps them, and %s stays in status.storedVersions", after, before, before, before),
				Fix:     "keep the storage version, or " + sayInNotes})
		}
		return nil
	})

// storageVersion returns the version that a definition stores, or "".
func storageVersion(crd checks.CRD) string {
	for _, v := range crd.Spec.Versions {
		if v.Storage {
			return v.Name
		}
	}
	return ""
}

var failurePolicyFail = upgradeCheck("failure-policy-fail", checks.Note, "Webhooks whose failure was ignored do not fail requests", "Kubernetes, Dynamic Admission Control, Failure policy",
	func(_ context.Context, s *checks.Subject, u *upgrade, report checks.Report) error {
		for _, kind := range []string{"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"} {
			ignored := map[string]bool{}
			eachWebhook(u.before, kind, func(_ *manifest.Document, _ int, fields map[string]any) {
				ignored[manifest.Text(fields, "name")] = manifest.Text(fields, "failurePolicy") == "Ignore"
			})
			eachWebhook(s, kind, func(d *manifest.Document, i int, fields map[string]any) {
				if !ignored[manifest.Text(fields, "name")] || manifest.Text(fields, "failurePolicy") == "Ignore" {
					return // Fail is the default
				}
				report(checks.Finding{Place: d.Place("webhooks", i, "failurePolicy"),
					Message: "a failure of the webhook was ignored, and now fails the request: while the manager can't be reached, as in an upgrade, the webhook's objects can't be changed",
					Fix:     sayInNotes})
			})
		}
		return nil
	})

// eachWebhook calls a function with the webhooks of a kind of configuration.
func eachWebhook(s *checks.Subject, kind string, each func(d *manifest.Document, index int, fields map[string]any)) {
	for _, d := range s.Objects(kind) {
		for i, fields := range manifest.Maps(d.Object.Object, "webhooks") {
			each(d, i, fields)
		}
	}
}

var permissionsWidened = upgradeCheck("permissions-widened", checks.Note, "Permissions do not become *", "Kubernetes, Role Based Access Control Good Practices, Least privilege",
	func(_ context.Context, s *checks.Subject, u *upgrade, report checks.Report) error {
		for _, kind := range []string{"Role", "ClusterRole"} {
			before := installed.Rules(u.before, kind)
			for _, r := range installed.Rules(s, kind) {
				field := wildcard(r)
				if field == "" || slices.ContainsFunc(before, func(old installed.Rule) bool { return covers(old, r) }) {
					continue
				}
				i := slices.IndexFunc(manifest.List(r.Role.Object.Object, "rules"), func(item any) bool {
					fields, _ := item.(map[string]any)
					return covers(installed.Rule{Fields: fields}, r)
				})
				report(checks.Finding{Place: r.Role.Place("rules", i, field),
					Message: fmt.Sprintf("%s is *, and no rule of the previous release allowed as much: the manager gets more permissions in users' clusters", field),
					Fix:     "list what the manager needs, or " + sayInNotes})
			}
		}
		return nil
	})

// ruleFields are the lists of a rule in which * stands for everything.
var ruleFields = []string{"verbs", "resources", "apiGroups", "nonResourceURLs"}

// wildcard returns the first field of a rule that has *, or "".
func wildcard(r installed.Rule) string {
	for _, field := range ruleFields {
		if slices.Contains(manifest.Texts(r.Fields, field), "*") {
			return field
		}
	}
	return ""
}

// covers reports whether a rule allows everything that another one allows.
func covers(r installed.Rule, o installed.Rule) bool {
	for _, field := range ruleFields {
		own := manifest.Texts(r.Fields, field)
		if slices.ContainsFunc(manifest.Texts(o.Fields, field), func(item string) bool { return !installed.Has(own, item) }) {
			return false
		}
	}
	names, others := manifest.Texts(r.Fields, "resourceNames"), manifest.Texts(o.Fields, "resourceNames")
	return len(names) == 0 || len(others) > 0 && !slices.ContainsFunc(others, func(name string) bool { return !slices.Contains(names, name) })
}

// kubernetesVersion is a minor version of Kubernetes.
type kubernetesVersion struct{ major, minor int }

func (v kubernetesVersion) compare(o kubernetesVersion) int {
	return cmp.Or(cmp.Compare(v.major, o.major), cmp.Compare(v.minor, o.minor))
}

// introduced returns the version of Kubernetes that introduced one of its APIs, or a zero version.
func introduced(gvk schema.GroupVersionKind) kubernetesVersion {
	object, err := scheme.Scheme.New(gvk)
	if err != nil {
		return kubernetesVersion{} // an API of another project
	}
	api, ok := object.(interface{ APILifecycleIntroduced() (major, minor int) })
	if !ok {
		return kubernetesVersion{}
	}
	major, minor := api.APILifecycleIntroduced()
	return kubernetesVersion{major, minor}
}

var kubernetesRequired = upgradeCheck("kubernetes-required", checks.Note, "No kind needs a newer Kubernetes than before", "Kubernetes, Deprecated API Migration Guide",
	func(_ context.Context, s *checks.Subject, u *upgrade, report checks.Report) error {
		if len(u.before.Objects()) == 0 {
			return nil
		}
		var oldest kubernetesVersion
		for _, d := range u.before.Objects() {
			if v := introduced(d.Object.GroupVersionKind()); v.compare(oldest) > 0 {
				oldest = v
			}
		}
		for _, d := range s.Objects() {
			gvk := d.Object.GroupVersionKind()
			if v := introduced(gvk); v.compare(oldest) > 0 {
				report(checks.Finding{Place: d.Place("apiVersion"), Cause: gvk.GroupVersion().String(),
					Message: fmt.Sprintf("%s %s needs Kubernetes %d.%d, and all kinds of the previous release need %d.%d or older: clusterctl upgrade stops in an older management cluster, after the old manager is deleted",
						gvk.GroupVersion(), gvk.Kind, v.major, v.minor, oldest.major, oldest.minor),
					Fix: sayInNotes})
			}
		}
		return nil
	})
