package libvirtcluster

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/conditions"
	capicontrollerutil "sigs.k8s.io/cluster-api/util/controller"
	"sigs.k8s.io/cluster-api/util/predicates"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/claims"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/notes"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/watches"
)

// SetupWithManager registers the reconciler with a manager. The watch filter and the externally managed label apply to
// LibvirtClusters only: other objects are shared.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	r.recorder = notes.Short(mgr.GetEventRecorder("libvirtcluster-controller"))
	scheme, log := mgr.GetScheme(), ctrl.LoggerFrom(ctx).WithValues("controller", "libvirtcluster")
	toClaimer := handler.EnqueueRequestsFromMapFunc(claims.ToOwner(mgr.GetClient(), infrav1.GroupVersion.WithKind("LibvirtCluster").GroupKind()))
	toAll := handler.EnqueueRequestsFromMapFunc(r.allClusters)
	return capicontrollerutil.NewControllerManagedBy(mgr, log).
		For(&infrav1.LibvirtCluster{}, builder.WithPredicates(
			predicates.ResourceHasFilterLabel(scheme, log, r.WatchFilterValue),
			predicates.ResourceIsNotExternallyManaged(scheme, log),
		)).
		WithOptions(options).
		Watches(
			&clusterv1.Cluster{},
			handler.EnqueueRequestsFromMapFunc(util.ClusterToInfrastructureMapFunc(
				ctx, infrav1.GroupVersion.WithKind("LibvirtCluster"), mgr.GetClient(), &infrav1.LibvirtCluster{})),
			predicate.GenerationChangedPredicate{}, // spec.paused, spec.controlPlaneEndpoint
		).
		Watches(&infrav1.LibvirtHost{}, handler.EnqueueRequestsFromMapFunc(r.hostToClusters), hostChanged()).
		Watches(&infrav1.LibvirtClusterIdentity{}, toAll, predicate.GenerationChangedPredicate{}).
		Watches(&infrav1.LibvirtCluster{}, handler.EnqueueRequestsFromMapFunc(r.endpointToClusters), predicate.Funcs{
			CreateFunc:  func(event.CreateEvent) bool { return false },
			UpdateFunc:  func(event.UpdateEvent) bool { return false },
			GenericFunc: func(event.GenericEvent) bool { return false },
		}).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(r.namespaceToClusters), predicate.LabelChangedPredicate{}).
		Watches(&ipamv1.IPAddressClaim{}, toClaimer).
		Watches(&ipamv1.IPAddress{}, toClaimer).
		Watches(&infrav1.LibvirtMachine{}, handler.EnqueueRequestsFromMapFunc(r.machineToClusters), machineChanged()).
		Complete(ctx, r)
}

// hostChanged passes the changes of hosts that affect clusters. Changed usage numbers don't.
func hostChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*infrav1.LibvirtHost), e.ObjectNew.(*infrav1.LibvirtHost)
		return before.Generation != after.Generation || // also at the start of the deletion
			!maps.Equal(before.Labels, after.Labels) ||
			conditions.IsTrue(before, infrav1.ReadyCondition) != conditions.IsTrue(after, infrav1.ReadyCondition)
	}}
}

// machineChanged passes deletions of machines, and changes of load balancers and of control plane machines.
func machineChanged() predicate.Predicate {
	matters := func(object client.Object) bool {
		_, balancer := object.GetLabels()[infrav1.LoadBalancerLabel]
		_, controlPlane := object.GetLabels()[clusterv1.MachineControlPlaneLabel]
		return balancer || controlPlane
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return matters(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, after := e.ObjectOld.(*infrav1.LibvirtMachine), e.ObjectNew.(*infrav1.LibvirtMachine)
			ready := func(machine *infrav1.LibvirtMachine) metav1.Condition {
				return ptr.Deref(conditions.Get(machine, infrav1.ReadyCondition), metav1.Condition{})
			}
			return (matters(before) || matters(after)) && (before.Generation != after.Generation || // also at the start of the deletion
				!maps.Equal(before.Labels, after.Labels) || // its role may have changed
				!slices.Equal(before.Status.Addresses, after.Status.Addresses) || before.Status.InstanceState != after.Status.InstanceState ||
				!maps.Equal(before.Annotations, after.Annotations) || ready(before) != ready(after) ||
				ptr.Deref(before.Status.Initialization.Provisioned, false) != ptr.Deref(after.Status.Initialization.Provisioned, false))
		},
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// hostToClusters returns the LibvirtClusters that select a host. If the labels of a host change, it is called with the
// old and the new host.
func (r *Reconciler) hostToClusters(ctx context.Context, host client.Object) []ctrl.Request {
	return r.requests(ctx, func(infra *infrav1.LibvirtCluster) bool {
		selected, err := selects(infra, host)
		return selected || err != nil
	})
}

// endpointToClusters returns the LibvirtClusters with the endpoint of a deleted one.
func (r *Reconciler) endpointToClusters(ctx context.Context, deleted client.Object) []ctrl.Request {
	endpoint := deleted.(*infrav1.LibvirtCluster).Spec.ControlPlaneEndpoint
	return r.requests(ctx, func(infra *infrav1.LibvirtCluster) bool { return infra.Spec.ControlPlaneEndpoint == endpoint })
}

func (r *Reconciler) namespaceToClusters(ctx context.Context, namespace client.Object) []ctrl.Request {
	return r.requests(ctx, func(*infrav1.LibvirtCluster) bool { return true }, client.InNamespace(namespace.GetName()))
}

// machineToClusters returns the LibvirtClusters that wait for the deletion of a machine, or whose load balancer depends
// on it.
func (r *Reconciler) machineToClusters(ctx context.Context, machine client.Object) []ctrl.Request {
	name := machine.GetLabels()[clusterv1.ClusterNameLabel]
	if name == "" {
		return nil
	}
	return r.requests(ctx, func(infra *infrav1.LibvirtCluster) bool {
		return clusterName(infra) == name && (!infra.DeletionTimestamp.IsZero() || hasBalancer(infra))
	}, client.InNamespace(machine.GetNamespace()))
}

func (r *Reconciler) allClusters(ctx context.Context, _ client.Object) []ctrl.Request {
	return r.requests(ctx, func(*infrav1.LibvirtCluster) bool { return true })
}

func (r *Reconciler) requests(ctx context.Context, wanted func(*infrav1.LibvirtCluster) bool, options ...client.ListOption) []ctrl.Request {
	return watches.Requests(ctx, r.Client, &infrav1.LibvirtClusterList{}, wanted, options...)
}

// clusterName returns the name of the owning Cluster, or of the one in the label.
func clusterName(object metav1.Object) string {
	for _, owner := range object.GetOwnerReferences() {
		if owner.Kind == "Cluster" {
			return owner.Name
		}
	}
	return object.GetLabels()[clusterv1.ClusterNameLabel]
}
