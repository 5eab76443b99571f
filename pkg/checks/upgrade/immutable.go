package upgrade

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/installed"
	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

// immutableField is a field that an API server does not let users change.
type immutableField struct {
	path []any
	// unset is the value of the field in a release that does not set it.
	unset any
}

// immutableFields are the immutable fields of the cluster-scoped kinds that clusterctl installs. Namespaced objects are
// not among them, because clusterctl upgrade deletes and creates them again. CRDs and bindings have their own checks.
//
// Source: Kubernetes, pkg/apis, validation.go and defaults.go of scheduling, node and storage.
var immutableFields = map[string][]immutableField{
	"PriorityClass": {{path: []any{"value"}, unset: int64(0)}, {path: []any{"preemptionPolicy"}, unset: "PreemptLowerPriority"}},
	"RuntimeClass":  {{path: []any{"handler"}}},
	"StorageClass": {
		{path: []any{"provisioner"}}, {path: []any{"parameters"}, unset: map[string]any{}},
		{path: []any{"reclaimPolicy"}, unset: "Delete"}, {path: []any{"volumeBindingMode"}, unset: "Immediate"},
	},
	"CSIDriver": {
		{path: []any{"spec", "attachRequired"}, unset: true},
		{path: []any{"spec", "volumeLifecycleModes"}, unset: []any{"Persistent"}},
	},
}

var immutableFieldChanged = upgradeCheck("immutable-field-changed", checks.Error, "Cluster-scoped objects keep their immutable fields", sourceUpgrade,
	func(_ context.Context, s *checks.Subject, u *upgrade, report checks.Report) error {
		for _, kind := range slices.Sorted(maps.Keys(immutableFields)) {
			pairs(s, u, func(before, after *manifest.Document) {
				for _, f := range immutableFields[kind] {
					old, now, changed := f.change(before, after)
					if !changed {
						continue
					}
					name := manifest.FieldPath(f.path...)
					finding := checks.Finding{Place: after.Place(f.path...),
						Message: fmt.Sprintf("%s is %v, was %v, and can't be changed: clusterctl upgrade does not delete this object but patches it, which the API server refuses: the upgrade stops after the old manager is deleted", name, now, old),
						Fix:     "give the object a new name, or keep the value"}
					if u.remakes(after) {
						finding.Severity = checks.Warning
						finding.Message = fmt.Sprintf("%s is %v, was %v, and can't be changed: clusterctl upgrade deletes the object and creates it again, kubectl apply and GitOps tools fail", name, now, old)
					}
					report(finding)
				}
			}, kind)
		}
		return nil
	})

// change returns the values of a field in the installed object and in the object that clusterctl upgrade merges: fields
// that the new object does not set stay.
func (f immutableField) change(before, after *manifest.Document) (old, now any, changed bool) {
	if now = manifest.At(after.Object.Object, f.path...); now == nil {
		return nil, nil, false
	}
	if old = manifest.At(before.Object.Object, f.path...); old == nil {
		old = f.unset
	}
	if installed, ok := old.(map[string]any); ok {
		merged := maps.Clone(installed)
		values, _ := now.(map[string]any)
		maps.Copy(merged, values)
		now = merged
	}
	return old, now, !equality.Semantic.DeepEqual(old, now)
}

// remakes reports whether clusterctl upgrade deletes a cluster-scoped object of the previous release.
// Source: clusterctl, client/cluster/components.go, Delete.
func (u *upgrade) remakes(d *manifest.Document) bool {
	namespace := installed.OwnNamespace(u.before)
	return namespace != "" && strings.HasPrefix(d.Object.GetName(), namespace+"-")
}
