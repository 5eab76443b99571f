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

	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// retrySeconds is how soon Cluster API asks again how far an update is.
const retrySeconds = 5

// updateMachine says how far the update of a machine is: done, failed, or to be asked about again.
func updateMachine(ctx context.Context, reader client.Reader, request *runtimehooksv1.UpdateMachineRequest, response *runtimehooksv1.UpdateMachineResponse) {
	left, err := progress(ctx, reader, request)
	if err != nil {
		fail(ctx, response, err)
		return
	}
	response.SetStatus(runtimehooksv1.ResponseStatusSuccess)
	if left != "" {
		response.SetMessage(left)
		response.SetRetryAfterSeconds(retrySeconds)
	}
}

// progress returns what an update waits for, or nothing when the machine is as it is wanted. An error
// says why it can't be.
func progress(ctx context.Context, reader client.Reader, request *runtimehooksv1.UpdateMachineRequest) (string, error) {
	object, ours, err := readObject(request.Desired.InfrastructureMachine, "LibvirtMachine")
	if err != nil {
		return "", err
	}
	if !ours {
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
