// Package outcome ends reconciles: it says in the condition Ready, in messages and in errors what has come of them,
// and writes the status with all conditions, as one patch, only where something has changed, and only over what was read.
package outcome

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// ConflictDelay is how long the cache gets to show what somebody else wrote.
const ConflictDelay = time.Second

// End ends a reconcile that has changed an object's status and nothing else of it. before is the object as
// it was read, and after as it is to be; what has been written is announced, for example with events.
//
// result and err are what the reconcile has come to. A status that couldn't be written is another error,
// which says what doing was. Somebody who was faster is none: the object comes again after ConflictDelay.
// Neither is an object that is gone.
func End[T client.Object](ctx context.Context, c client.Client, doing string, before, after T, result ctrl.Result, err error, announce func(before, after T)) (ctrl.Result, error) {
	written, patched := WriteStatus(ctx, c, before, after)
	switch {
	case apierrors.IsConflict(patched):
		result.RequeueAfter = ConflictDelay
	case client.IgnoreNotFound(patched) != nil:
		err = errors.Join(err, Wrap(patched, doing))
	case written:
		announce(before, after)
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	return result, nil
}

// WriteStatus writes the status if it has changed, and reports whether it did.
func WriteStatus(ctx context.Context, c client.Client, before, after client.Object) (bool, error) {
	change, err := client.MergeFrom(before).Data(after)
	if err != nil || string(change) == "{}" {
		return false, err
	}
	err = c.Status().Patch(ctx, after, Over(before))
	return err == nil, err
}

// Over is a patch over what was read and nothing else: whoever reads something old can't decide by it.
func Over(before client.Object) client.Patch {
	return client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
}

// RemoveFinalizer removes a finalizer from an object, by a write of its own, and reports whether it was there. The
// object stays as it is in memory.
func RemoveFinalizer(ctx context.Context, c client.Client, object client.Object, finalizer string) (bool, error) {
	after := object.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy is what it is a copy of
	if !controllerutil.RemoveFinalizer(after, finalizer) {
		return false, nil
	}
	return true, Wrap(client.IgnoreNotFound(c.Patch(ctx, after, Over(object))), "removing the finalizer")
}

// Again is the result of a reconcile that ended with an error, if any. Somebody who was faster is no
// error worth a log: the cache shows what they wrote soon.
func Again(err error) (ctrl.Result, error) {
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: ConflictDelay}, nil
	}
	return ctrl.Result{}, err
}

// SetReady sums up conditions of an object in its condition Ready.
func SetReady(object conditions.Setter, of conditions.ForConditionTypes, options ...conditions.SummaryOption) {
	options = append(options, of, conditions.CustomMergeStrategy{MergeStrategy: conditions.DefaultMergeStrategy(
		conditions.ComputeReasonFunc(conditions.GetDefaultComputeMergeReasonFunc(
			infrav1.NotReadyReason, infrav1.ReadyUnknownReason, infrav1.ReadyReason)),
	)})
	if err := conditions.SetSummaryCondition(object, object, infrav1.ReadyCondition, options...); err != nil {
		conditions.Set(object, metav1.Condition{Type: infrav1.ReadyCondition, Status: metav1.ConditionUnknown,
			Reason: infrav1.InternalErrorReason, Message: err.Error()})
	}
}
