// Package watches has the event mappings and predicates that several controllers share.
package watches

import (
	"context"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/labels"
)

// Requests lists objects and returns a request for each one that is wanted. The objects belong to the cache: wanted
// must not change them. If they can't be listed, Requests logs the error and returns nothing.
func Requests[T client.Object](ctx context.Context, reader client.Reader, list client.ObjectList, wanted func(T) bool, options ...client.ListOption) []ctrl.Request {
	if err := reader.List(ctx, list, append(options, client.UnsafeDisableDeepCopy)...); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing objects to reconcile", "list", fmt.Sprintf("%T", list))
		return nil
	}
	var requests []ctrl.Request
	_ = meta.EachListItem(list, func(item runtime.Object) error { // the function returns no error
		if object, ok := item.(T); ok && wanted(object) {
			requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(object)})
		}
		return nil
	})
	return requests
}

// HasFilterLabel reports whether an object is to be reconciled by a manager with a --watch-filter, which may be empty.
func HasFilterLabel(object client.Object, filter string) bool {
	return filter == "" || labels.HasWatchLabel(object, filter)
}

// ClusterChanged passes the changes of a Cluster that matter to its machines: whether it is paused, and whether its
// infrastructure is provisioned.
func ClusterChanged() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, after := e.ObjectOld.(*clusterv1.Cluster), e.ObjectNew.(*clusterv1.Cluster)
			return !reflect.DeepEqual(before.Spec.Paused, after.Spec.Paused) ||
				!reflect.DeepEqual(before.Status.Initialization.InfrastructureProvisioned, after.Status.Initialization.InfrastructureProvisioned)
		},
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
}
