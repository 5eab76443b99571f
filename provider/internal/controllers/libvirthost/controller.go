// Package libvirthost reconciles LibvirtHosts: it keeps a session with each host, and writes the state of the host.
package libvirthost

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
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
	"sigs.k8s.io/cluster-api/util/finalizers"
	"sigs.k8s.io/cluster-api/util/paused"
	"sigs.k8s.io/cluster-api/util/predicates"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/fleet"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/index"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/notes"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/outcome"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/placement"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/secretwatch"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/watches"
)

// Secrets are read one by one. Only their metadata is watched.
//
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=libvirthosts,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=libvirthosts/status,verbs=patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=libvirtclusteridentities;libvirtmachines,verbs=get;list;watch

// secretInterval is the interval of reading credentials, because not all Secrets are watched.
const secretInterval = time.Minute

// Reconciler reconciles LibvirtHosts.
type Reconciler struct {
	// Client reads from the manager's cache, except for Secrets, and writes.
	Client client.Client

	// Fleet has the sessions with hosts.
	Fleet *fleet.Fleet

	// Scheduler has the resources of machines.
	Scheduler *placement.Scheduler

	// WatchFilterValue is the required value of the label cluster.x-k8s.io/watch-filter, or empty for all objects.
	WatchFilterValue string

	// CountInterval is the minimum time between two writes of a status in which only numbers or messages differ. These
	// change all the time while many machines are created. The default is 30 seconds.
	CountInterval time.Duration

	// Secrets watches Secrets. It may be nil.
	Secrets *secretwatch.Watch

	recorder events.EventRecorder
	// written has the time of the last write of the status, by the name of the host.
	written sync.Map
}

// Reconcile keeps a session with a host and writes its state. A deleted host keeps its session while machines are bound
// to it, because their domains must be removed.
//
// A write of anything but the status ends the reconcile: the change triggers the next one.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (_ ctrl.Result, reterr error) {
	host := &infrav1.LibvirtHost{}
	if err := r.Client.Get(ctx, req.NamespacedName, host); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(req.Name)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !watches.HasFilterLabel(host, r.WatchFilterValue) {
		r.forget(host.Name) // watches of other objects request it too
		return ctrl.Result{}, nil
	}
	if added, err := finalizers.EnsureFinalizer(ctx, r.Client, host, infrav1.HostFinalizer); err != nil || added {
		return ctrl.Result{}, outcome.Wrap(client.IgnoreNotFound(err), "adding the finalizer")
	}
	if isPaused, written, err := paused.EnsurePausedCondition(ctx, r.Client, nil, host); err != nil || written {
		return ctrl.Result{}, outcome.Wrap(client.IgnoreNotFound(err), "setting the Paused condition")
	} else if isPaused {
		if _, err := r.keepSession(ctx, host); err != nil {
			return ctrl.Result{}, err
		}
		return nextReading(host), nil
	}

	before := host.DeepCopy()
	result, err := r.reconcile(ctx, host)
	if delay := r.writeDelay(before, host); err == nil && delay > 0 {
		return ctrl.Result{RequeueAfter: delay}, nil
	}
	return outcome.End(ctx, r.Client, "writing the status", before, host, result, err, func(before, after *infrav1.LibvirtHost) {
		r.written.Store(after.Name, time.Now())
		r.announce(before, after)
	})
}

func (r *Reconciler) reconcile(ctx context.Context, host *infrav1.LibvirtHost) (ctrl.Result, error) {
	machines, err := index.BoundTo(ctx, r.Client, host.Name)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !host.DeletionTimestamp.IsZero() && len(machines) == 0 {
		return outcome.Again(r.finishDeletion(ctx, host))
	}
	unusable, err := r.keepSession(ctx, host)
	if unusable != nil {
		if snapshot, isOpen := r.Fleet.Snapshot(host.Name); isOpen {
			r.setAll(host, snapshot, machines, unusable)
		} else {
			setUnreachable(host, unusable.reason, unusable.Error())
			setReady(host, machines)
		}
		return nextReading(host), nil
	}
	if err != nil {
		if !seen(host) { // otherwise the status stays until the API server works again
			set(host, infrav1.ReachableCondition, metav1.ConditionUnknown, infrav1.InternalErrorReason, err.Error())
			setUnseen(host)
			setReady(host, machines)
		}
		return ctrl.Result{}, err
	}
	if recorded, err := r.recognize(ctx, host); err != nil || recorded {
		return outcome.Again(outcome.Wrap(client.IgnoreNotFound(err), "checking the UUID of the hypervisor"))
	}
	snapshot, _ := r.Fleet.Snapshot(host.Name)
	if connecting(snapshot) && seen(host) {
		return ctrl.Result{}, nil // the status stays until the end of the first attempt, which triggers a reconcile
	}
	r.setAll(host, snapshot, machines, r.Fleet.Rotation(host.Name))
	return nextReading(host), nil
}

// nextReading requeues a host with credentials, which are read again.
func nextReading(host *infrav1.LibvirtHost) ctrl.Result {
	if host.Spec.IdentityRef == nil {
		return ctrl.Result{}
	}
	return ctrl.Result{RequeueAfter: secretInterval}
}

// setAll sets the status. unused is the reason why the open connection still has earlier credentials, or nil.
func (r *Reconciler) setAll(host *infrav1.LibvirtHost, snapshot fleet.Snapshot, machines []infrav1.LibvirtMachine, unused error) {
	setSeen(host, snapshot)
	if snapshot.Reachable && unused != nil {
		set(host, infrav1.ReachableCondition, metav1.ConditionTrue, infrav1.EarlierCredentialsReason,
			"The open connection uses earlier credentials; connecting with the current ones fails: "+outcome.OneLine(unused))
	}
	setCounts(host, snapshot, len(machines), r.Scheduler.Allocated(host, snapshot, machines))
	setReady(host, machines)
}

// keepSession keeps the session with a host. unusable is why the host can't be connected to until a user changes it: the
// session then ends, unless it has a connection with earlier credentials.
func (r *Reconciler) keepSession(ctx context.Context, host *infrav1.LibvirtHost) (unusable *targetError, err error) {
	target, err := r.target(ctx, host)
	switch {
	case errors.As(err, &unusable):
		if !r.Fleet.IsOpen(host.Name, target) {
			r.Fleet.Forget(host.Name)
		}
		return unusable, nil
	case err == nil:
		r.Fleet.Ensure(host.Name, target)
	}
	return nil, err
}

func (r *Reconciler) forget(host string) {
	r.Fleet.Forget(host)
	r.written.Delete(host)
}

// finishDeletion ends the session and removes the finalizer. No machine is bound to the host.
func (r *Reconciler) finishDeletion(ctx context.Context, host *infrav1.LibvirtHost) error {
	r.forget(host.Name)
	removed, err := outcome.RemoveFinalizer(ctx, r.Client, host, infrav1.HostFinalizer)
	if !removed { // another finalizer remains
		set(host, infrav1.ReadyCondition, metav1.ConditionFalse, infrav1.DeletingReason, "")
	}
	return err
}

// targetError is the reason why a host can't be connected to until a user changes it.
type targetError struct{ reason, message string }

// Error returns the message.
func (e *targetError) Error() string { return e.message }

// target returns the target of a host. With a *targetError it lacks the credentials.
func (r *Reconciler) target(ctx context.Context, host *infrav1.LibvirtHost) (fleet.Target, error) {
	data, missing := r.credentials(ctx, host.Spec.IdentityRef)
	target, err := fleet.TargetOf(&host.Spec, data)
	if err != nil {
		return fleet.Target{}, &targetError{infrav1.ConnectionFailedReason, err.Error()}
	}
	target.UUID = hypervisorUUID(host)
	return target, missing
}

// credentials reads the Secret of an identity. The connection, and the condition of the identity, report invalid
// content.
func (r *Reconciler) credentials(ctx context.Context, ref *infrav1.ClusterIdentityReference) (map[string][]byte, error) {
	if ref == nil {
		return nil, nil
	}
	identity, secret := &infrav1.LibvirtClusterIdentity{}, &corev1.Secret{}
	err := r.Client.Get(ctx, client.ObjectKey{Name: ref.Name}, identity)
	if apierrors.IsNotFound(err) {
		return nil, &targetError{infrav1.IdentityNotFoundReason, fmt.Sprintf("LibvirtClusterIdentity %s doesn't exist", ref.Name)}
	}
	if err != nil {
		return nil, fmt.Errorf("reading LibvirtClusterIdentity %s: %w", ref.Name, err)
	}
	key := client.ObjectKey{Namespace: identity.Spec.SecretRef.Namespace, Name: identity.Spec.SecretRef.Name}
	err = r.Client.Get(ctx, key, secret)
	if apierrors.IsNotFound(err) {
		return nil, &targetError{infrav1.IdentityNotFoundReason,
			fmt.Sprintf("Secret %s of LibvirtClusterIdentity %s doesn't exist", key, ref.Name)}
	}
	if err != nil {
		return nil, fmt.Errorf("reading Secret %s of LibvirtClusterIdentity %s: %w", key, ref.Name, err)
	}
	return secret.Data, nil
}

// SetupWithManager registers the reconciler with a manager. The watch filter applies to LibvirtHosts only.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	r.recorder = notes.Short(mgr.GetEventRecorder("libvirthost-controller"))
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

// identityChanged passes changes of the Secret that an identity refers to, and changes of the Secret's content that the
// identity's controller has seen.
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
