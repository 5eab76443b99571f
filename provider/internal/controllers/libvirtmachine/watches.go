package libvirtmachine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/conditions"
	capicontrollerutil "sigs.k8s.io/cluster-api/util/controller"
	"sigs.k8s.io/cluster-api/util/predicates"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/claims"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/index"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/notes"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/watches"
)

// SetupWithManager registers the reconciler with a manager. The watch filter and the externally managed annotation
// apply to LibvirtMachines only: other objects are shared or belong to Cluster API.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	r.recorder = notes.Short(mgr.GetEventRecorder("libvirtmachine-controller"))
	scheme, log := mgr.GetScheme(), ctrl.LoggerFrom(ctx).WithValues("controller", "libvirtmachine")
	ofCluster, err := util.ClusterToTypedObjectsMapper(mgr.GetClient(), &infrav1.LibvirtMachineList{}, scheme)
	if err != nil {
		return fmt.Errorf("mapping Clusters to LibvirtMachines: %w", err)
	}
	toClaimer := handler.EnqueueRequestsFromMapFunc(claims.ToOwner(mgr.GetClient(), infrav1.GroupVersion.WithKind("LibvirtMachine").GroupKind()))
	toUnbound := delayed(r.unboundMachines)
	of := capicontrollerutil.NewControllerManagedBy(mgr, log).
		For(&infrav1.LibvirtMachine{}, builder.WithPredicates(
			predicates.ResourceHasFilterLabel(scheme, log, r.WatchFilterValue),
			predicates.ResourceIsNotExternallyManaged(scheme, log),
		)).
		WithOptions(options).
		Watches(&infrav1.LibvirtMachine{}, r.Scheduler.Handler()).
		Watches(
			&clusterv1.Machine{},
			handler.EnqueueRequestsFromMapFunc(util.MachineToInfrastructureMapFunc(infrav1.GroupVersion.WithKind("LibvirtMachine"))),
			machineChanged(),
		).
		Watches(&ipamv1.IPAddressClaim{}, toClaimer).
		Watches(&ipamv1.IPAddress{}, toClaimer).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(ofCluster), watches.ClusterChanged()).
		Watches(&infrav1.LibvirtCluster{}, toUnbound, predicate.GenerationChangedPredicate{}). // spec.hostSelector
		Watches(&infrav1.LibvirtHost{}, toUnbound, hostChanged()).
		Watches(&infrav1.LibvirtHost{}, handler.EnqueueRequestsFromMapFunc(r.machinesOfHost), predicate.GenerationChangedPredicate{}).
		Watches(&infrav1.LibvirtClusterIdentity{}, toUnbound, predicate.GenerationChangedPredicate{}).
		WatchesRawSource(source.Channel(r.News.Machines, &handler.EnqueueRequestForObject{})).
		WatchesRawSource(source.Channel(r.News.Reachability, handler.Funcs{GenericFunc: r.reachabilityChanged})).
		WatchesRawSource(r.Images.Source()).
		WatchesRawSource(source.Func(r.copies.start)).
		WatchesRawSource(source.Func(r.hostLimiter.start))
	if r.Workload != nil {
		of = of.WatchesRawSource(r.Workload.GetClusterSource("libvirtmachine", r.machinesOfCluster))
	}
	r.controller, err = of.Build(ctx, r)
	return err
}

// machineChanged passes changes of a Machine's spec, deletion and node.
func machineChanged() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, after := e.ObjectOld.(*clusterv1.Machine), e.ObjectNew.(*clusterv1.Machine)
			return before.Generation != after.Generation || before.Status.NodeRef != after.Status.NodeRef
		},
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
}

// hostChanged passes the changes of a host for which machines without a host may wait.
func hostChanged() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, after := e.ObjectOld.(*infrav1.LibvirtHost), e.ObjectNew.(*infrav1.LibvirtHost)
			return before.Generation != after.Generation || !maps.Equal(before.Labels, after.Labels) ||
				conditions.IsTrue(before, infrav1.ReadyCondition) != conditions.IsTrue(after, infrav1.ReadyCondition) ||
				status(before, infrav1.ReachableCondition) != status(after, infrav1.ReachableCondition)
		},
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
}

func status(host *infrav1.LibvirtHost, condition string) metav1.ConditionStatus {
	if c := conditions.Get(host, condition); c != nil {
		return c.Status
	}
	return ""
}

// delayed requests reconciles hostsDelay after the first of several changes.
func delayed(objects handler.MapFunc) handler.EventHandler {
	add := func(ctx context.Context, object client.Object, queue queue) {
		for _, request := range objects(ctx, object) {
			queue.AddAfter(request, hostsDelay)
		}
	}
	return handler.Funcs{
		CreateFunc:  func(ctx context.Context, e event.CreateEvent, queue queue) { add(ctx, e.Object, queue) },
		UpdateFunc:  func(ctx context.Context, e event.UpdateEvent, queue queue) { add(ctx, e.ObjectNew, queue) },
		GenericFunc: func(ctx context.Context, e event.GenericEvent, queue queue) { add(ctx, e.Object, queue) },
	}
}

type queue = workqueue.TypedRateLimitingInterface[ctrl.Request]

// reachabilityChanged requests reconciles of the machines of a host, and of machines without a host, which may fit
// there. When a manager starts, the status of a host often doesn't change.
func (r *Reconciler) reachabilityChanged(ctx context.Context, e event.GenericEvent, queue queue) {
	handler.EnqueueRequestsFromMapFunc(r.machinesOfHost).Generic(ctx, e, queue)
	delayed(r.unboundMachines).Generic(ctx, e, queue)
}

// unboundMachines returns the machines without a host, and those that don't fit on their host.
func (r *Reconciler) unboundMachines(ctx context.Context, object client.Object) []ctrl.Request {
	return r.requests(ctx, func(infra *infrav1.LibvirtMachine) bool {
		return infra.Spec.HostName == "" || conditions.IsFalse(infra, infrav1.HostBoundCondition)
	}, client.InNamespace(object.GetNamespace()))
}

func (r *Reconciler) machinesOfHost(ctx context.Context, host client.Object) []ctrl.Request {
	return r.requests(ctx, func(*infrav1.LibvirtMachine) bool { return true }, client.MatchingFields{index.MachineHost: host.GetName()})
}

func (r *Reconciler) requests(ctx context.Context, wanted func(*infrav1.LibvirtMachine) bool, options ...client.ListOption) []ctrl.Request {
	return watches.Requests(ctx, r.Client, &infrav1.LibvirtMachineList{}, wanted, options...)
}

const (
	// maxPerHost is the maximum number of concurrent reconciles for one host: a slow host must not block all workers.
	maxPerHost = 10
	// turnDelay is the maximum delay of a machine that waits for its turn.
	turnDelay = 30 * time.Second
)

// hostLimiter limits the concurrent reconciles of each host. Machines above the limit don't block a worker: the end of
// each reconcile requeues one of them. The zero value is ready to use.
type hostLimiter struct {
	lock  sync.Mutex
	hosts map[string]*hostQueue
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
}

type hostQueue struct {
	working int
	waiting []client.ObjectKey
}

// begin reports whether a machine may be reconciled now. If so, the caller must call end afterwards.
func (a *hostLimiter) begin(host string, machine client.ObjectKey) bool {
	a.lock.Lock()
	defer a.lock.Unlock()
	if a.hosts == nil {
		a.hosts = map[string]*hostQueue{}
	}
	t := a.hosts[host]
	if t == nil {
		t = &hostQueue{}
		a.hosts[host] = t
	}
	if t.working == maxPerHost {
		if !slices.Contains(t.waiting, machine) {
			t.waiting = append(t.waiting, machine)
		}
		return false
	}
	t.working++
	return true
}

// end gives the turn to the machine that has waited longest.
func (a *hostLimiter) end(host string) {
	a.lock.Lock()
	defer a.lock.Unlock()
	t := a.hosts[host]
	t.working--
	if len(t.waiting) > 0 {
		next := t.waiting[0]
		t.waiting = t.waiting[1:]
		if a.queue != nil {
			a.queue.Add(reconcile.Request{NamespacedName: next})
		}
	}
	if t.working == 0 && len(t.waiting) == 0 {
		delete(a.hosts, host)
	}
}

// start implements source.Func.
func (a *hostLimiter) start(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	a.lock.Lock()
	defer a.lock.Unlock()
	a.queue = queue
	return nil
}
