// Package outcome ends reconciles: it summarizes their results in the condition Ready, in messages and in errors, and
// writes the status with all conditions as one patch, only after a change, and only if the object is as it was read.
package outcome

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// ConflictDelay is how long to wait for the cache after a conflict.
const ConflictDelay = time.Second

// End writes the status at the end of a reconcile, with its result and err. before is the object as read, and after the
// changed one. After a write it calls announce, for events.
//
// After a conflict the object is requeued. A missing object isn't an error. Another failed write is joined to err, with
// doing.
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

// Over returns a patch that fails if the object has changed since it was read.
func Over(before client.Object) client.Patch {
	return client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
}

// RemoveFinalizer writes the object without a finalizer, and reports whether it had it. The object in memory stays.
func RemoveFinalizer(ctx context.Context, c client.Client, object client.Object, finalizer string) (bool, error) {
	after := object.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy has the type of the original
	if !controllerutil.RemoveFinalizer(after, finalizer) {
		return false, nil
	}
	return true, Wrap(client.IgnoreNotFound(c.Patch(ctx, after, Over(object))), "removing the finalizer")
}

// Again returns the result of a reconcile with an error, if any. After a conflict it requeues without an error.
func Again(err error) (ctrl.Result, error) {
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: ConflictDelay}, nil
	}
	return ctrl.Result{}, err
}

// SetReady summarizes conditions of an object in Ready.
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

// Wrap adds what was being done to an error. nil stays nil.
func Wrap(err error, doing string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// OneLine writes joined errors on one line.
func OneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// shown is the maximum number of entries of List.
const shown = 10

// List joins the first entries, and adds the number of the others.
func List(things []string, separator string) string {
	if rest := len(things) - shown; rest > 0 {
		things = append(things[:shown:shown], fmt.Sprintf("and %d more", rest))
	}
	return strings.Join(things, separator)
}

// Names is List for sorted names.
func Names(names []string) string { return List(slices.Sorted(slices.Values(names)), ", ") }

// NamesOf is Names for things with names.
func NamesOf[T any](things []T, name func(T) string) string {
	var names []string
	for _, thing := range things {
		names = append(names, name(thing))
	}
	return Names(names)
}
