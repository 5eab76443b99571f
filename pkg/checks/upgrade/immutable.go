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

// immutableField is a field that an API server lets nobody change.
type immutableField struct {
	path []string
	// unset is what the field is where a release does not set it.
	unset any
}

// immutableFields are such fields of the cluster-scoped kinds that clusterctl installs. Namespaced objects
// are not among them, as clusterctl upgrade makes them anew, nor are definitions and bindings, which have
// checks of their own.
//
// Source: Kubernetes, pkg/apis, validation.go and defaults.go of scheduling, node and storage.
var immutableFields = map[string][]immutableField{
	"PriorityClass": {{path: []string{"value"}, unset: int64(0)}, {path: []string{"preemptionPolicy"}, unset: "PreemptLowerPriority"}},
	"RuntimeClass":  {{path: []string{"handler"}}},
	"StorageClass": {
		{path: []string{"provisioner"}}, {path: []string{"parameters"}, unset: map[string]any{}},
		{path: []string{"reclaimPolicy"}, unset: "Delete"}, {path: []string{"volumeBindingMode"}, unset: "Immediate"},
	},
	"CSIDriver": {
		{path: []string{"spec", "attachRequired"}, unset: true},
		{path: []string{"spec", "volumeLifecycleModes"}, unset: []any{"Persistent"}},
	},
}

var immutableFieldChanged = upgradeCheck("immutable-field-changed", checks.Error, "Cluster-scoped objects keep the fields that can't change", sourceUpgrade,
	func(_ context.Context, s *checks.Subject, u *upgrade, report checks.Report) error {
		for _, kind := range slices.Sorted(maps.Keys(immutableFields)) {
			pairs(s, u, func(before, after *manifest.Document) {
				for _, f := range immutableFields[kind] {
					old, now, changed := f.change(before, after)
					if !changed {
						continue
					}
					name := strings.Join(f.path, ".")
					place := make([]any, 0, len(f.path))
					for _, step := range f.path {
						place = append(place, step)
					}
					finding := checks.Finding{Place: after.Place(place...),
						Message: fmt.Sprintf("%s is %v, and was %v, and can't be changed: clusterctl upgrade does not delete this object but patches it, which the API server refuses: the upgrade stops with the old manager deleted", name, now, old),
						Fix:     "give the object a new name, or keep the value"}
					if u.remakes(after) {
						finding.Severity = checks.Warning
						finding.Message = fmt.Sprintf("%s is %v, and was %v, and can't be changed: clusterctl upgrade makes the object anew, and kubectl apply and GitOps tools are refused", name, now, old)
					}
					report(finding)
				}
			}, kind)
		}
		return nil
	})

// change returns the values of a field in the installed object and in what clusterctl upgrade merges into
// it: what the new one does not set stays.
func (f immutableField) change(before, after *manifest.Document) (old, now any, changed bool) {
	parents, last := f.path[:len(f.path)-1], f.path[len(f.path)-1]
	now = manifest.Map(after.Object.Object, parents...)[last]
	if now == nil {
		return nil, nil, false
	}
	if old = manifest.Map(before.Object.Object, parents...)[last]; old == nil {
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

// remakes says whether clusterctl upgrade deletes a cluster-scoped object of the release before.
// Source: clusterctl, client/cluster/components.go, Delete.
func (u *upgrade) remakes(d *manifest.Document) bool {
	namespace := installed.OwnNamespace(u.before)
	return namespace != "" && strings.HasPrefix(d.Object.GetName(), namespace+"-")
}
