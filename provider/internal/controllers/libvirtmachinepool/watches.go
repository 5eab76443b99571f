package libvirtmachinepool

import (
	"context"
	"reflect"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/conditions"
	capicontrollerutil "sigs.k8s.io/cluster-api/util/controller"
	"sigs.k8s.io/cluster-api/util/predicates"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/outcome"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/watches"
)

// build registers the controller with what it watches. The watch filter and the externally managed
// annotation are looked for on LibvirtMachinePools only: the rest is Cluster API's, or the pool's.
func (r *Reconciler) build(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	scheme, log := mgr.GetScheme(), ctrl.LoggerFrom(ctx).WithValues("controller", "libvirtmachinepool")
	ofCluster, err := util.ClusterToTypedObjectsMapper(mgr.GetClient(), &infrav1.LibvirtMachinePoolList{}, scheme)
	if err != nil {
		return outcome.Wrap(err, "mapping Clusters to LibvirtMachinePools")
	}
	return capicontrollerutil.NewControllerManagedBy(mgr, log).
		For(&infrav1.LibvirtMachinePool{}, builder.WithPredicates(
			predicates.ResourceHasFilterLabel(scheme, log, r.WatchFilterValue),
			predicates.ResourceIsNotExternallyManaged(scheme, log),
		)).
		WithOptions(options).
		Watches(
			&clusterv1.MachinePool{},
			handler.EnqueueRequestsFromMapFunc(util.MachinePoolToInfrastructureMapFunc(ctx, infrav1.GroupVersion.WithKind("LibvirtMachinePool"))),
			predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}),
		).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(ofCluster), watches.ClusterChanged()).
		Watches(&infrav1.LibvirtMachine{}, handler.EnqueueRequestsFromMapFunc(poolOfLibvirtMachine)).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(r.poolOfMachine), machineChanged()).
		Complete(ctx, r)
}

// machineChanged lets pass what matters here of a Machine: its deletion, its annotations and version,
// whether it is available, and whether a health check wants it to be replaced, or no longer.
func machineChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*clusterv1.Machine), e.ObjectNew.(*clusterv1.Machine)
		return before.Generation != after.Generation || !reflect.DeepEqual(before.Annotations, after.Annotations) ||
			!reflect.DeepEqual(before.DeletionTimestamp, after.DeletionTimestamp) ||
			conditions.IsTrue(before, clusterv1.MachineAvailableCondition) != conditions.IsTrue(after, clusterv1.MachineAvailableCondition) ||
			collections.IsUnhealthyAndOwnerRemediated(before) != collections.IsUnhealthyAndOwnerRemediated(after) || hasRecovered(before) != hasRecovered(after)
	}}
}

// poolOfLibvirtMachine returns the LibvirtMachinePool that has made a LibvirtMachine.
func poolOfLibvirtMachine(_ context.Context, object client.Object) []ctrl.Request {
	for _, owner := range object.GetOwnerReferences() {
		if isKind(owner.APIVersion, owner.Kind, infrav1.GroupVersion.Group, "LibvirtMachinePool") {
			return []ctrl.Request{{NamespacedName: types.NamespacedName{Namespace: object.GetNamespace(), Name: owner.Name}}}
		}
	}
	return nil
}

// poolOfMachine returns the LibvirtMachinePool of a Machine, also of one whose LibvirtMachine is gone.
func (r *Reconciler) poolOfMachine(ctx context.Context, machine client.Object) []ctrl.Request {
	if machine.GetLabels()[clusterv1.MachinePoolNameLabel] == "" {
		return nil
	}
	owner, err := util.GetMachinePoolByLabels(ctx, r.Client, machine.GetNamespace(), machine.GetLabels())
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Looking for the MachinePool of a Machine")
	}
	if owner == nil || owner.Spec.Template.Spec.InfrastructureRef.Kind != "LibvirtMachinePool" {
		return nil
	}
	return []ctrl.Request{{NamespacedName: types.NamespacedName{
		Namespace: machine.GetNamespace(), Name: owner.Spec.Template.Spec.InfrastructureRef.Name}}}
}
