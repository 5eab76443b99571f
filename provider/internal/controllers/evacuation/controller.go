// Package evacuation empties LibvirtHosts whose spec.maintenance requests it: it makes MachineHealthChecks replace
// the machines, one after the other.
//
// It only sets the annotation cluster.x-k8s.io/remediate-machine on a Machine, which makes a MachineHealthCheck mark
// it as unhealthy. The MachineHealthCheck, with its limits, and the owner of the Machine (a MachineSet, a control
// plane, or this provider's controller of LibvirtMachinePools) replace it.
//
// The host's status has the name of the Machine before the Machine is changed, so that one Machine at a time is
// replaced, even if the controller is killed.
package evacuation

import (
	"context"
	"time"

	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	capicontrollerutil "sigs.k8s.io/cluster-api/util/controller"
	"sigs.k8s.io/cluster-api/util/predicates"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/notes"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/outcome"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/watches"
)

// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters;machinehealthchecks;machinepools;machinesets,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=libvirthosts;libvirtmachines,verbs=get;list;watch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=libvirthosts/status,verbs=patch

// lookDelay is the maximum delay between two reconciles. Watches trigger them sooner.
const lookDelay = time.Minute

// Reconciler empties LibvirtHosts.
type Reconciler struct {
	// Client reads from the manager's cache, and writes.
	Client client.Client

	// WatchFilterValue is the required value of the label cluster.x-k8s.io/watch-filter, or empty for all
	// LibvirtHosts.
	WatchFilterValue string

	recorder events.EventRecorder
}

// SetupWithManager registers the reconciler with a manager.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	r.recorder = notes.Short(mgr.GetEventRecorder("libvirthost-evacuation-controller"))
	scheme, log := mgr.GetScheme(), ctrl.LoggerFrom(ctx).WithValues("controller", "libvirthost-evacuation")
	toEvacuated := handler.EnqueueRequestsFromMapFunc(r.evacuatedHosts)
	return capicontrollerutil.NewControllerManagedBy(mgr, log).
		Named("libvirthost-evacuation").
		For(&infrav1.LibvirtHost{}, builder.WithPredicates(predicates.ResourceHasFilterLabel(scheme, log, r.WatchFilterValue))).
		WithOptions(options).
		Watches(&infrav1.LibvirtMachine{}, toEvacuated).
		Watches(&clusterv1.Machine{}, toEvacuated).
		Watches(&clusterv1.MachineSet{}, toEvacuated).
		Watches(&clusterv1.MachineHealthCheck{}, toEvacuated).
		Watches(&clusterv1.Cluster{}, toEvacuated).
		Complete(ctx, r)
}

// evacuatedHosts returns the hosts that are being evacuated. Usually there are none.
func (r *Reconciler) evacuatedHosts(ctx context.Context, _ client.Object) []ctrl.Request {
	return watches.Requests(ctx, r.Client, &infrav1.LibvirtHostList{}, isRequested)
}

// isRequested reports whether the evacuation of a host is requested.
func isRequested(host *infrav1.LibvirtHost) bool {
	return host.Spec.Maintenance != nil && host.Spec.Maintenance.Mode == infrav1.MaintenanceEvacuate
}

// Reconcile takes the next step with one host.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	host := &infrav1.LibvirtHost{}
	if err := r.Client.Get(ctx, req.NamespacedName, host); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !watches.HasFilterLabel(host, r.WatchFilterValue) || annotations.HasPaused(host) || !host.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	before := host.DeepCopy()
	result, do := ctrl.Result{}, r.cancel
	if isRequested(host) {
		result.RequeueAfter, do = lookDelay, r.evacuate
	}
	err := do(ctx, host)
	// An old cache can't cause the choice of a second machine: the write fails if the status has changed.
	return outcome.End(ctx, r.Client, "writing the progress of the evacuation", before, host, result, err, r.announce)
}
