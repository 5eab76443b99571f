package updateextension

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"

	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// canUpdateMachine returns the changes of a machine that are made in place. It returns none for user-provided bootstrap
// data: Cluster API's Machine controller calls UpdateMachine only if status.initialization.bootstrapDataSecretCreated
// is true, which needs a bootstrap.configRef.
func canUpdateMachine(ctx context.Context, request *runtimehooksv1.CanUpdateMachineRequest, response *runtimehooksv1.CanUpdateMachineResponse) {
	response.SetStatus(runtimehooksv1.ResponseStatusSuccess)
	if !request.Desired.Machine.Spec.Bootstrap.ConfigRef.IsDefined() {
		return
	}
	patch, err := changes(request.Current.InfrastructureMachine, request.Desired.InfrastructureMachine, "LibvirtMachine", "spec")
	if err != nil {
		fail(ctx, response, err)
		return
	}
	response.InfrastructureMachinePatch = patch
}

// canUpdateMachineSet returns the changes of a template that are made in place, as canUpdateMachine does.
func canUpdateMachineSet(ctx context.Context, request *runtimehooksv1.CanUpdateMachineSetRequest, response *runtimehooksv1.CanUpdateMachineSetResponse) {
	response.SetStatus(runtimehooksv1.ResponseStatusSuccess)
	if !request.Desired.MachineSet.Spec.Template.Spec.Bootstrap.ConfigRef.IsDefined() {
		return
	}
	patch, err := changes(request.Current.InfrastructureMachineTemplate, request.Desired.InfrastructureMachineTemplate,
		"LibvirtMachineTemplate", "spec", "template", "spec")
	if err != nil {
		fail(ctx, response, err)
		return
	}
	response.InfrastructureMachineTemplatePatch = patch
}

// fail answers that a call failed, and logs why.
func fail(ctx context.Context, response runtimehooksv1.ResponseObject, err error) {
	ctrl.LoggerFrom(ctx).Error(err, "A call of the update extension failed")
	response.SetStatus(runtimehooksv1.ResponseStatusFailure)
	response.SetMessage(err.Error())
}

// operation is an operation of a JSON patch. "add" replaces an existing value.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// changes returns a patch with the changes that are made in place: CPUs that aren't dedicated, memory, larger disks and
// the run policy. The patch is undefined if there are none, and for objects of other providers.
func changes(current, desired runtime.RawExtension, kind string, path ...string) (runtimehooksv1.Patch, error) {
	before, isOwn, err := specOf(current, kind, path)
	if err != nil || !isOwn {
		return runtimehooksv1.Patch{}, err
	}
	after, isOwn, err := specOf(desired, kind, path)
	if err != nil || !isOwn {
		return runtimehooksv1.Patch{}, err
	}
	var operations []operation
	at := ""
	for _, field := range path {
		at += "/" + field
	}
	for _, field := range []string{"cpus", "memory", "runPolicy"} {
		if field == "cpus" && (dedicated(before) || dedicated(after)) {
			continue // dedicated CPUs are chosen when the machine is created
		}
		if wanted, set := after[field]; set && !reflect.DeepEqual(before[field], wanted) {
			operations = append(operations, operation{Op: "add", Path: at + "/" + field, Value: wanted})
		}
	}
	operations = append(operations, growth(before["rootDisk"], after["rootDisk"], at+"/rootDisk")...)
	disks, wanted := list(before["extraDisks"]), list(after["extraDisks"])
	for i := range min(len(disks), len(wanted)) {
		operations = append(operations, growth(disks[i], wanted[i], fmt.Sprintf("%s/extraDisks/%d", at, i))...)
	}
	if len(operations) == 0 {
		return runtimehooksv1.Patch{}, nil
	}
	patch, err := json.Marshal(operations)
	if err != nil {
		return runtimehooksv1.Patch{}, fmt.Errorf("writing the changes of %s: %w", kind, err)
	}
	return runtimehooksv1.Patch{PatchType: runtimehooksv1.JSONPatchType, Patch: patch}, nil
}

// dedicated reports whether a machine requests dedicated CPUs.
func dedicated(spec map[string]any) bool {
	asks, _, err := unstructured.NestedBool(spec, "cpu", "dedicated")
	return err == nil && asks
}

// growth returns the patch of a disk of the same name that grows, or whose size is written differently.
func growth(before, after any, path string) []operation {
	disk, _ := before.(map[string]any)
	wanted, _ := after.(map[string]any)
	if disk == nil || wanted == nil || !reflect.DeepEqual(disk["name"], wanted["name"]) || reflect.DeepEqual(disk["size"], wanted["size"]) {
		return nil
	}
	has, err := resource.ParseQuantity(fmt.Sprint(disk["size"]))
	if err != nil {
		return nil // can't happen: the API server has validated the sizes
	}
	size, err := resource.ParseQuantity(fmt.Sprint(wanted["size"]))
	if err != nil || size.Cmp(has) < 0 {
		return nil
	}
	return []operation{{Op: "add", Path: path + "/size", Value: wanted["size"]}}
}

func list(value any) []any {
	items, _ := value.([]any)
	return items
}

// specOf returns the spec of a machine in an object, and false if the object is of another kind.
func specOf(object runtime.RawExtension, kind string, path []string) (map[string]any, bool, error) {
	read, isOwn, err := readObject(object, kind)
	if err != nil || !isOwn {
		return nil, isOwn, err
	}
	spec, hasSpec, err := unstructured.NestedMap(read.Object, path...)
	if err != nil || !hasSpec {
		return nil, true, fmt.Errorf("reading %s %s/%s: it has no %v", kind, read.GetNamespace(), read.GetName(), path)
	}
	return spec, true, nil
}

// readObject decodes an object, and reports whether it has the group and the kind.
func readObject(object runtime.RawExtension, kind string) (*unstructured.Unstructured, bool, error) {
	read := &unstructured.Unstructured{}
	if err := read.UnmarshalJSON(object.Raw); err != nil {
		return nil, false, fmt.Errorf("reading the object of the infrastructure provider in the request: %w", err)
	}
	gvk := read.GroupVersionKind()
	if gvk.GroupKind() != (schema.GroupKind{Group: infrav1.GroupVersion.Group, Kind: kind}) {
		return read, false, nil
	}
	if gvk.Version != infrav1.GroupVersion.Version {
		return nil, false, fmt.Errorf("reading %s %s/%s: it has version %s, and this manager knows %s",
			kind, read.GetNamespace(), read.GetName(), gvk.Version, infrav1.GroupVersion.Version)
	}
	return read, true, nil
}
