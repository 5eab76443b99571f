package move_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// install creates the objects of a scenario in waves: owners first, because references need their UIDs. The
// references of objects in a cycle are set at the end.
func (w *world) install(t *testing.T, s *scenario) {
	t.Helper()
	for _, name := range []string{s.space, s.second} {
		w.create(t, &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}})
	}
	create := func(ctx context.Context, m *scenarioObject) error {
		if err := w.client.Create(ctx, m.Unstructured); err != nil || m.status == nil {
			return err
		}
		m.Object["status"] = m.status
		return w.client.Status().Update(ctx, m.Unstructured)
	}
	exists := func(m *scenarioObject) bool { return m.GetUID() != "" }
	waiting := slices.Clone(s.objects)
	for len(waiting) > 0 {
		var wave, next []*scenarioObject
		for _, m := range waiting {
			if slices.ContainsFunc(m.owners, func(o *scenarioObject) bool { return !exists(o) }) {
				next = append(next, m)
			} else {
				wave = append(wave, m)
			}
		}
		if len(wave) == 0 {
			break
		}
		setOwners(wave)
		w.each(t, wave, create)
		waiting = next
	}
	setOwners(waiting)
	w.each(t, waiting, create)
	setOwners(waiting)
	w.each(t, waiting, func(ctx context.Context, m *scenarioObject) error {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"ownerReferences": m.GetOwnerReferences()}})
		if err != nil {
			return err
		}
		return w.client.Patch(ctx, m.Unstructured, client.RawPatch(types.MergePatchType, patch))
	})
}

// setOwners sets the references of objects to existing owners. It runs before requests for several objects run
// concurrently, because one object may be the owner of another.
func setOwners(objects []*scenarioObject) {
	for _, m := range objects {
		m.SetOwnerReferences(m.references())
	}
}

// references returns references to the existing owners and to the missing one.
func (m *scenarioObject) references() []metav1.OwnerReference {
	var references []metav1.OwnerReference
	for _, owner := range m.owners {
		known := slices.ContainsFunc(references, func(r metav1.OwnerReference) bool { return r.UID == owner.GetUID() })
		if owner.GetUID() != "" && !known {
			references = append(references, metav1.OwnerReference{APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(), UID: owner.GetUID()})
		}
	}
	if m.missingOwner != "" {
		references = append(references, missingReference(m.missingOwner))
	}
	return references
}

// missingReference returns a reference to an owner that does not exist.
func missingReference(kind string) metav1.OwnerReference {
	apiVersion := map[string]string{
		"DemoMachine": demoAPI, "Job": "batch/v1", "Secret": "v1", "Cluster": coreAPI, "ClusterClass": coreAPI, "Machine": coreAPI,
	}[kind]
	return metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: "ghost", UID: types.UID("00000000-0000-0000-0000-" + fmt.Sprintf("%012d", len(kind)))}
}

// each calls do for several objects concurrently.
func (w *world) each(t *testing.T, objects []*scenarioObject, do func(context.Context, *scenarioObject) error) {
	t.Helper()
	group, ctx := errgroup.WithContext(context.WithoutCancel(t.Context()))
	group.SetLimit(8)
	for _, m := range objects {
		group.Go(func() error {
			if err := do(ctx, m); err != nil {
				return fmt.Errorf("%s %s/%s: %w", m.GetKind(), m.GetNamespace(), m.GetName(), err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

// remove deletes the objects of a scenario that are in namespaces of other scenarios too, or all of them.
func (w *world) remove(t *testing.T, s *scenario, all bool) {
	t.Helper()
	seen := slices.DeleteFunc(slices.Clone(s.objects), func(m *scenarioObject) bool {
		return !all && m.GetNamespace() != "" && m.GetNamespace() != providerNamespace
	})
	w.each(t, seen, func(ctx context.Context, m *scenarioObject) error {
		return client.IgnoreNotFound(w.client.Delete(ctx, m.Unstructured))
	})
}
