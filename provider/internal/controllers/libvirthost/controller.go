// Package libvirthost reconciles LibvirtHosts: hypervisors.
package libvirthost

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	capicontrollerutil "sigs.k8s.io/cluster-api/util/controller"
	"sigs.k8s.io/cluster-api/util/predicates"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=libvirthosts,verbs=get;list;watch;update;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=libvirthosts/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=libvirthosts/finalizers,verbs=update

// Reconciler reconciles LibvirtHosts.
type Reconciler struct {
	// Client reads and writes objects. Its reads come from the manager's cache.
	Client client.Client

	// WatchFilterValue is the value of the label cluster.x-k8s.io/watch-filter that an object must
	// have to be looked at. Every object is when it is empty.
	WatchFilterValue string
}

// SetupWithManager registers the reconciler with a manager. It looks at objects that have the watch
// filter's label, not at those that are paused.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	log := ctrl.LoggerFrom(ctx).WithValues("controller", "libvirthost")
	err := capicontrollerutil.NewControllerManagedBy(mgr, log).
		For(&infrav1.LibvirtHost{}).
		WithOptions(options).
		WithEventFilter(predicates.ResourceNotPausedAndHasFilterLabel(mgr.GetScheme(), log, r.WatchFilterValue)).
		Complete(ctx, r)
	if err != nil {
		return fmt.Errorf("building the controller of LibvirtHosts: %w", err)
	}
	return nil
}

// Reconcile reads the object and leaves it alone: this version of the controller has no phases yet.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	object := &infrav1.LibvirtHost{}
	if err := r.Client.Get(ctx, req.NamespacedName, object); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}

	ctrl.LoggerFrom(ctx).V(4).Info("Read LibvirtHost", "generation", object.Generation)
	return ctrl.Result{}, nil
}
