// Package statuswrite writes the status of objects, with all conditions: as one patch, only where something
// has changed, and only over what was read.
package statuswrite

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
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
	written, patched := write(ctx, c, before, after)
	switch {
	case apierrors.IsConflict(patched):
		result.RequeueAfter = ConflictDelay
	case client.IgnoreNotFound(patched) != nil:
		err = errors.Join(err, fmt.Errorf("%s: %w", doing, patched))
	case written:
		announce(before, after)
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	return result, nil
}

// write writes the status if it has changed, and says whether it did.
func write(ctx context.Context, c client.Client, before, after client.Object) (bool, error) {
	change, err := client.MergeFrom(before).Data(after)
	if err != nil || string(change) == "{}" {
		return false, err
	}
	// Only over what was read: whoever reads something old can't decide by it.
	err = c.Status().Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	return err == nil, err
}
