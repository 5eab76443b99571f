// Package libvirthost reconciles LibvirtHosts: it has a session kept with each host, and says what is
// seen of it.
package libvirthost

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"sigs.k8s.io/cluster-api/util/finalizers"
	"sigs.k8s.io/cluster-api/util/labels"
	"sigs.k8s.io/cluster-api/util/paused"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/fleet"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/notes"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/outcome"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/placement"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/secretwatch"
)

// Secrets are read one by one. Whether they change is watched by their metadata.
//
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=libvirthosts,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=libvirthosts/status,verbs=patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=libvirtclusteridentities;libvirtmachines,verbs=get;list;watch

// secretInterval is how often credentials are looked at, whether they have been rotated or are there at
// last: not all Secrets are watched.
const secretInterval = time.Minute

// Reconciler reconciles LibvirtHosts.
type Reconciler struct {
	// Client reads from the manager's cache, except for Secrets, and writes.
	Client client.Client

	// Fleet keeps the sessions with hosts.
	Fleet *fleet.Fleet

	// Scheduler knows what machines take of hosts.
	Scheduler *placement.Scheduler

	// WatchFilterValue is the required value of the label cluster.x-k8s.io/watch-filter, or empty for all objects.
	WatchFilterValue string

	// CountInterval is how long a status that was written stays as it is when only numbers or messages
	// differ: how much is allocated, how many machines there are, what exactly an error says. With a
	// thousand machines on their way these change all the time. 30 seconds when it is 0.
	CountInterval time.Duration

	// Secrets watches Secrets. None is watched when it is nil.
	Secrets *secretwatch.Watch

	recorder events.EventRecorder
	// written has the time of the last write of the status, by the name of the host.
	written sync.Map
}

// SetupWithManager registers the reconciler with a manager.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	r.recorder = notes.Short(mgr.GetEventRecorder("libvirthost-controller"))
	if err := r.build(ctx, mgr, options); err != nil {
		return fmt.Errorf("building the controller of LibvirtHosts: %w", err)
	}
	return nil
}

// Reconcile keeps a session with a host and writes what is seen of it. A host that is being deleted
// keeps its session as long as machines are bound to it, because their domains have to be removed.
//
// Each write but that of the status ends the reconcile: the change triggers the next one.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (_ ctrl.Result, reterr error) {
	host := &infrav1.LibvirtHost{}
	if err := r.Client.Get(ctx, req.NamespacedName, host); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(req.Name)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if r.WatchFilterValue != "" && !labels.HasWatchLabel(host, r.WatchFilterValue) {
		r.forget(host.Name) // a machine, an identity or news brought it here
		return ctrl.Result{}, nil
	}
	if added, err := finalizers.EnsureFinalizer(ctx, r.Client, host, infrav1.HostFinalizer); err != nil || added {
		return ctrl.Result{}, outcome.Wrap(client.IgnoreNotFound(err), "adding the finalizer")
	}
	if isPaused, written, err := paused.EnsurePausedCondition(ctx, r.Client, nil, host); err != nil || written {
		return ctrl.Result{}, outcome.Wrap(client.IgnoreNotFound(err), "setting the Paused condition")
	} else if isPaused {
		return r.keepSession(ctx, host)
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
	machines, err := r.machines(ctx, host.Name)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !host.DeletionTimestamp.IsZero() && len(machines) == 0 {
		return outcome.Again(r.finishDeletion(ctx, host))
	}
	target, err := r.target(ctx, host)
	hopeless := (*targetError)(nil)
	if errors.As(err, &hopeless) && r.Fleet.IsOpen(host.Name, target) {
		snapshot, _ := r.Fleet.Snapshot(host.Name)
		r.setAll(host, snapshot, machines, hopeless)
		return ctrl.Result{RequeueAfter: secretInterval}, nil
	}
	if hopeless != nil {
		r.Fleet.Forget(host.Name)
		setUnreachable(host, hopeless.reason, hopeless.Error())
		setReady(host, machines)
		return ctrl.Result{RequeueAfter: secretInterval}, nil //nolint:nilerr // the condition says it
	}
	if err != nil {
		if !seen(host) { // or else it is as it was: the API server will be back
			set(host, infrav1.ReachableCondition, metav1.ConditionUnknown, infrav1.InternalErrorReason, err.Error())
			setUnseen(host)
			setReady(host, machines)
		}
		return ctrl.Result{}, err
	}
	r.Fleet.Ensure(host.Name, target)
	if recorded, err := r.recognize(ctx, host); err != nil || recorded {
		return outcome.Again(outcome.Wrap(client.IgnoreNotFound(err), "finding out which hypervisor this is"))
	}
	snapshot, _ := r.Fleet.Snapshot(host.Name)
	if connecting(snapshot) && seen(host) {
		return ctrl.Result{}, nil // what was written holds until the first try has ended, which brings the host here
	}
	r.setAll(host, snapshot, machines, r.Fleet.Rotation(host.Name))
	if host.Spec.IdentityRef == nil {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{RequeueAfter: secretInterval}, nil
}

// setAll sets the status. unused says why the connection that is open was made with earlier credentials, if it was.
func (r *Reconciler) setAll(host *infrav1.LibvirtHost, snapshot fleet.Snapshot, machines []infrav1.LibvirtMachine, unused error) {
	setSeen(host, snapshot)
	if snapshot.Reachable && unused != nil {
		set(host, infrav1.ReachableCondition, metav1.ConditionTrue, infrav1.EarlierCredentialsReason,
			"The open connection uses earlier credentials; connecting with the current ones fails: "+outcome.OneLine(unused))
	}
	setCounts(host, snapshot, len(machines), r.Scheduler.Allocated(host, snapshot, machines))
	setReady(host, machines)
}

// keepSession is all that is done for a host that is paused: its machines aren't, and need the session,
// also after a restart. Nothing of the LibvirtHost is written.
func (r *Reconciler) keepSession(ctx context.Context, host *infrav1.LibvirtHost) (ctrl.Result, error) {
	target, err := r.target(ctx, host)
	if hopeless := (*targetError)(nil); errors.As(err, &hopeless) {
		if !r.Fleet.IsOpen(host.Name, target) {
			r.Fleet.Forget(host.Name)
		}
		return ctrl.Result{RequeueAfter: secretInterval}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	r.Fleet.Ensure(host.Name, target)
	if host.Spec.IdentityRef == nil {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{RequeueAfter: secretInterval}, nil
}

func (r *Reconciler) forget(host string) {
	r.Fleet.Forget(host)
	r.written.Delete(host)
}
