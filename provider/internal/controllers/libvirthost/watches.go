package libvirthost

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"sigs.k8s.io/cluster-api/util/conditions"
	capicontrollerutil "sigs.k8s.io/cluster-api/util/controller"
	"sigs.k8s.io/cluster-api/util/predicates"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/index"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/watches"
)

// build registers the controller with what it watches. The watch filter is looked for on LibvirtHosts only.
func (r *Reconciler) build(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	scheme, log := mgr.GetScheme(), ctrl.LoggerFrom(ctx).WithValues("controller", "libvirthost")
	of := capicontrollerutil.NewControllerManagedBy(mgr, log).
		For(&infrav1.LibvirtHost{}, builder.WithPredicates(predicates.ResourceHasFilterLabel(scheme, log, r.WatchFilterValue))).
		WithOptions(options).
		Watches(&infrav1.LibvirtClusterIdentity{}, handler.EnqueueRequestsFromMapFunc(r.identityToHosts), identityChanged()).
		Watches(&infrav1.LibvirtHost{}, handler.EnqueueRequestsFromMapFunc(r.twins), hypervisorChanged()).
		Watches(&infrav1.LibvirtMachine{}, handler.EnqueueRequestsFromMapFunc(machineToHost), predicate.GenerationChangedPredicate{}).
		WatchesRawSource(source.Channel(r.Fleet.Hosts(), &handler.EnqueueRequestForObject{}))
	if r.Secrets != nil {
		of = of.WatchesRawSource(r.Secrets.Source(r.identityToHosts))
	}
	return of.Complete(ctx, r)
}

// identityChanged lets pass that an identity refers to another Secret, or that the Secret has become
// another one as far as the identity's controller sees.
func identityChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*infrav1.LibvirtClusterIdentity), e.ObjectNew.(*infrav1.LibvirtClusterIdentity)
		return before.Generation != after.Generation ||
			conditions.GetReason(before, infrav1.ReadyCondition) != conditions.GetReason(after, infrav1.ReadyCondition)
	}}
}

func (r *Reconciler) identityToHosts(ctx context.Context, identity client.Object) []ctrl.Request {
	return watches.Requests(ctx, r.Client, &infrav1.LibvirtHostList{}, func(host *infrav1.LibvirtHost) bool {
		return host.Spec.IdentityRef != nil && host.Spec.IdentityRef.Name == identity.GetName()
	})
}

// machineToHost returns the host that a machine is bound to.
func machineToHost(_ context.Context, machine client.Object) []ctrl.Request {
	var requests []ctrl.Request
	for _, host := range index.HostOf(machine) {
		requests = append(requests, ctrl.Request{NamespacedName: types.NamespacedName{Name: host}})
	}
	return requests
}
