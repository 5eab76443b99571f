// Package updateextension serves the hooks CanUpdateMachine, CanUpdateMachineSet and UpdateMachine of "Implementing
// in-place update hooks" in Cluster API's book. They tell Cluster API which changes of machines this provider makes in
// place, and the progress of a change.
//
// The hooks change nothing. The controller of LibvirtMachines makes the changes and reports them in a condition, so
// each replica of the manager can answer, not only the leader.
package updateextension

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimecatalog "sigs.k8s.io/cluster-api/api/runtime/catalog"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	"sigs.k8s.io/cluster-api/exp/runtime/server"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// New returns a server of the hooks for a manager. reader reads LibvirtMachines from the API server itself, because a
// cache may be older than the requested change. New sets the catalog of options.
func New(reader client.Reader, options server.Options) (*server.Server, error) {
	options.Catalog = runtimecatalog.New()
	if err := runtimehooksv1.AddToCatalog(options.Catalog); err != nil {
		return nil, fmt.Errorf("listing the hooks of Cluster API: %w", err)
	}
	extension, err := server.New(options)
	if err != nil {
		return nil, fmt.Errorf("creating the server of the update extension: %w", err)
	}
	for _, handler := range []server.ExtensionHandler{
		{Name: "can-update-machine", Hook: runtimehooksv1.CanUpdateMachine, HandlerFunc: canUpdateMachine},
		{Name: "can-update-machine-set", Hook: runtimehooksv1.CanUpdateMachineSet, HandlerFunc: canUpdateMachineSet},
		{Name: "update-machine", Hook: runtimehooksv1.UpdateMachine,
			HandlerFunc: func(ctx context.Context, request *runtimehooksv1.UpdateMachineRequest, response *runtimehooksv1.UpdateMachineResponse) {
				updateMachine(ctx, reader, request, response)
			}},
	} {
		if err := extension.AddExtensionHandler(handler); err != nil {
			return nil, fmt.Errorf("adding the hook %s to the update extension: %w", handler.Name, err)
		}
	}
	return extension, nil
}

const retrySeconds = 5

// updateMachine reports the progress of an update.
func updateMachine(ctx context.Context, reader client.Reader, request *runtimehooksv1.UpdateMachineRequest, response *runtimehooksv1.UpdateMachineResponse) {
	message, err := progress(ctx, reader, request)
	if err != nil {
		fail(ctx, response, err)
		return
	}
	response.SetStatus(runtimehooksv1.ResponseStatusSuccess)
	if message != "" {
		response.SetMessage(message)
		response.SetRetryAfterSeconds(retrySeconds)
	}
}

// progress returns what an update waits for, or nothing if it is done. An error is why it is impossible.
func progress(ctx context.Context, reader client.Reader, request *runtimehooksv1.UpdateMachineRequest) (string, error) {
	object, isOwn, err := readObject(request.Desired.InfrastructureMachine, "LibvirtMachine")
	if err != nil {
		return "", err
	}
	if !isOwn {
		return "", fmt.Errorf("this extension updates LibvirtMachines, and not %s %s/%s: let the namespaceSelector of the ExtensionConfig leave its namespace out",
			object.GetKind(), object.GetNamespace(), object.GetName())
	}
	desired := &infrav1.LibvirtMachine{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, desired); err != nil {
		return "", fmt.Errorf("reading LibvirtMachine %s/%s in the request: %w", object.GetNamespace(), object.GetName(), err)
	}
	machine := &infrav1.LibvirtMachine{}
	if err := reader.Get(ctx, client.ObjectKeyFromObject(desired), machine); err != nil {
		if apierrors.IsNotFound(err) {
			return "", fmt.Errorf("LibvirtMachine %s/%s doesn't exist", desired.Namespace, desired.Name)
		}
		return "", fmt.Errorf("reading LibvirtMachine %s/%s: %w", desired.Namespace, desired.Name, err)
	}
	switch condition := conditions.Get(machine, infrav1.UpdatedInPlaceCondition); {
	case !machine.DeletionTimestamp.IsZero():
		return "", errors.New("the LibvirtMachine is being deleted")
	case !equality.Semantic.DeepEqual(machine.Spec, desired.Spec):
		return "The LibvirtMachine differs from the one in the request", nil
	case conditions.IsTrue(machine, infrav1.PausedCondition):
		return "The LibvirtMachine is paused", nil
	case condition == nil || condition.ObservedGeneration != machine.Generation:
		return "The controller of LibvirtMachines hasn't seen the change", nil
	case condition.Status == metav1.ConditionFalse:
		return "", errors.New(condition.Message)
	case condition.Status == metav1.ConditionUnknown:
		return condition.Message, nil
	}
	return "", nil
}
