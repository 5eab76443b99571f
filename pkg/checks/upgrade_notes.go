package checks

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	k8sversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

// sayInNotes is the fix of what is right, and what users have to know before they upgrade.
const sayInNotes = "say so in the release notes"

var storageVersionBack = upgradeCheck("storage-version-back", Note, "CRDs do not go back to an older storage version", sourceStoredVersions,
	func(_ *Subject, u *upgrade, report Report) {
		for _, p := range u.pairs {
			before, after := storageVersion(p.before), storageVersion(p.after)
			if before == "" || after == "" || versionIndex(p.after, before) < 0 || k8sversion.CompareKubeAwareVersionStrings(after, before) >= 0 {
				continue
			}
			report(Finding{Place: p.after.Place("spec", "versions", versionIndex(p.after, after), "storage"), Cause: before + " " + after,
				Message: fmt.Sprintf("objects are stored in %s, and were in %s: what only %s has is lost at the next write, unless the conversion keeps it, and %s stays in status.storedVersions", after, before, before, before),
				Fix:     "keep the storage version, or " + sayInNotes})
		}
	})

// storageVersion returns the version that a definition stores, or "".
func storageVersion(crd CRD) string {
	for _, v := range crd.Spec.Versions {
		if v.Storage {
			return v.Name
		}
	}
	return ""
}

var failurePolicyFail = upgradeCheck("failure-policy-fail", Note, "Webhooks whose failure was ignored do not fail requests", "Kubernetes, Dynamic Admission Control, Failure policy",
	func(s *Subject, u *upgrade, report Report) {
		for _, kind := range []string{"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"} {
			ignored := map[string]bool{}
			eachWebhook(u.before, kind, func(_ *manifest.Document, _ int, fields map[string]any) {
				ignored[manifest.Text(fields, "name")] = manifest.Text(fields, "failurePolicy") == "Ignore"
			})
			eachWebhook(s, kind, func(d *manifest.Document, i int, fields map[string]any) {
				if !ignored[manifest.Text(fields, "name")] || manifest.Text(fields, "failurePolicy") == "Ignore" {
					return // Fail is the default
				}
				report(Finding{Place: d.Place("webhooks", i, "failurePolicy"),
					Message: "the failure of the webhook was ignored, and now fails the request: while the manager can't be reached, as in an upgrade, nobody can change what the webhook is to see",
					Fix:     sayInNotes})
			})
		}
	})

// eachWebhook calls a function with the webhooks of a kind of configuration.
func eachWebhook(s *Subject, kind string, each func(d *manifest.Document, index int, fields map[string]any)) {
	for _, d := range s.Objects(kind) {
		for i, fields := range manifest.Maps(d.Object.Object, "webhooks") {
			each(d, i, fields)
		}
	}
}

var permissionsWidened = upgradeCheck("permissions-widened", Note, "Permissions do not become *", "Kubernetes, Role Based Access Control Good Practices, Least privilege",
	func(s *Subject, u *upgrade, report Report) {
		for _, kind := range []string{"Role", "ClusterRole"} {
			before := u.before.rules(kind)
			for _, r := range s.rules(kind) {
				field := r.wildcard()
				if field == "" || slices.ContainsFunc(before, func(old rule) bool { return old.covers(r) }) {
					continue
				}
				i := slices.IndexFunc(manifest.List(r.role.Object.Object, "rules"), func(item any) bool {
					fields, _ := item.(map[string]any)
					return rule{fields: fields}.covers(r)
				})
				report(Finding{Place: r.role.Place("rules", i, field),
					Message: fmt.Sprintf("%s is *, and no rule of the release before allowed as much: the manager may do more in users' clusters than before", field),
					Fix:     "name what the manager needs, or " + sayInNotes})
			}
		}
	})

// ruleFields are the lists of a rule in which * stands for everything.
var ruleFields = []string{"verbs", "resources", "apiGroups", "nonResourceURLs"}

// wildcard returns the first field of a rule that has *, or "".
func (r rule) wildcard() string {
	for _, field := range ruleFields {
		if slices.Contains(manifest.Texts(r.fields, field), "*") {
			return field
		}
	}
	return ""
}

// covers says whether a rule allows all that another one allows.
func (r rule) covers(o rule) bool {
	for _, field := range ruleFields {
		own := manifest.Texts(r.fields, field)
		if slices.ContainsFunc(manifest.Texts(o.fields, field), func(item string) bool { return !has(own, item) }) {
			return false
		}
	}
	names, others := manifest.Texts(r.fields, "resourceNames"), manifest.Texts(o.fields, "resourceNames")
	return len(names) == 0 || len(others) > 0 && !slices.ContainsFunc(others, func(name string) bool { return !slices.Contains(names, name) })
}

// kubernetesVersion is a minor version of Kubernetes.
type kubernetesVersion struct{ major, minor int }

func (v kubernetesVersion) compare(o kubernetesVersion) int {
	return cmp.Or(cmp.Compare(v.major, o.major), cmp.Compare(v.minor, o.minor))
}

// introduced returns the version of Kubernetes in which an API of its own came, or a zero version.
func introduced(gvk schema.GroupVersionKind) kubernetesVersion {
	object, err := scheme.Scheme.New(gvk)
	if err != nil {
		return kubernetesVersion{} // an API of somebody else
	}
	api, ok := object.(interface{ APILifecycleIntroduced() (major, minor int) })
	if !ok {
		return kubernetesVersion{}
	}
	major, minor := api.APILifecycleIntroduced()
	return kubernetesVersion{major, minor}
}

var kubernetesRequired = upgradeCheck("kubernetes-required", Note, "No kind needs a newer Kubernetes than before", "Kubernetes, Deprecated API Migration Guide",
	func(s *Subject, u *upgrade, report Report) {
		if len(u.before.Objects()) == 0 {
			return
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
				report(Finding{Place: d.Place("apiVersion"), Cause: gvk.GroupVersion().String(),
					Message: fmt.Sprintf("%s %s came with Kubernetes %d.%d, and all kinds of the release before with %d.%d or earlier: clusterctl upgrade stops in an older management cluster, with the old manager deleted",
						gvk.GroupVersion(), gvk.Kind, v.major, v.minor, oldest.major, oldest.minor),
					Fix: sayInNotes})
			}
		}
	})
