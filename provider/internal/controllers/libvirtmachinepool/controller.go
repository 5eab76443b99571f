// Package libvirtmachinepool reconciles LibvirtMachinePools: pools of virtual machines.
package libvirtmachinepool

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/finalizers"
	"sigs.k8s.io/cluster-api/util/labels"
	"sigs.k8s.io/cluster-api/util/paused"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/notes"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/outcome"
)

// Machines are deleted by their Machines, so that Cluster API drains their nodes first.
//
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=get;list;watch;delete
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines/status,verbs=patch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machinepools,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=libvirtmachinepools,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=libvirtmachinepools/status,verbs=patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=libvirtmachinepools/finalizers,verbs=update
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=libvirtmachines,verbs=get;list;watch;create;patch;delete

// Reconciler reconciles LibvirtMachinePools.
type Reconciler struct {
	// Client reads from the manager's cache, and writes.
	Client client.Client

	// APIReader reads objects from the API server itself. Machines are made and deleted by what it says.
	APIReader client.Reader

	// WatchFilterValue is the required value of the label cluster.x-k8s.io/watch-filter, or empty for all objects.
	WatchFilterValue string

	recorder events.EventRecorder
	pace     pace
	// clock tells the time in tests.
	clock func() time.Time
}

func (r *Reconciler) now() time.Time {
	if r.clock != nil {
		return r.clock()
	}
	return time.Now()
}

// SetupWithManager registers the reconciler with a manager.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	r.recorder = notes.Short(mgr.GetEventRecorder("libvirtmachinepool-controller"))
	if err := r.build(ctx, mgr, options); err != nil {
		return fmt.Errorf("building the controller of LibvirtMachinePools: %w", err)
	}
	return nil
}

// scope is what one reconcile works on.
type scope struct {
	*Reconciler
	// infra is changed while it is reconciled.
	infra *infrav1.LibvirtMachinePool
	// owner owns infra, and cluster is what both belong to. Either may be nil while infra is deleted.
	owner   *clusterv1.MachinePool
	cluster *clusterv1.Cluster

	// madeFromNow is what madeFrom returns, once it was asked for.
	madeFromNow string
}

// Reconcile does what Cluster API's contract for InfraMachinePool says, with machines that have
// Machines ("MachinePoolMachines support").
//
// The finalizer and the Paused condition are reconciles of their own: the change brings the object here
// again. The status, with all conditions, is one write, and only over what was read.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	s, err := r.read(ctx, r.Client, req.NamespacedName)
	if err == nil && s == nil {
		r.pace.Delete(req.NamespacedName)
	}
	if err != nil || s == nil {
		return again(err)
	}
	if annotations.IsExternallyManaged(s.infra) || r.WatchFilterValue != "" && !labels.HasWatchLabel(s.infra, r.WatchFilterValue) {
		return ctrl.Result{}, nil // also when something else brought it here
	}
	if s.infra.DeletionTimestamp.IsZero() && (s.owner == nil || s.cluster == nil) {
		ctrl.LoggerFrom(ctx).Info("Waiting for the MachinePool controller to set the owner reference, and for the MachinePool and its Cluster")
		return ctrl.Result{}, nil
	}
	log := ctrl.LoggerFrom(ctx)
	if s.owner != nil {
		log = log.WithValues("MachinePool", klog.KObj(s.owner))
	}
	if s.cluster != nil {
		log = log.WithValues("Cluster", klog.KObj(s.cluster))
	}
	ctx = ctrl.LoggerInto(ctx, log)

	if added, err := finalizers.EnsureFinalizer(ctx, r.Client, s.infra, infrav1.MachinePoolFinalizer); err != nil || added {
		return again(outcome.Wrap(err, "adding the finalizer"))
	}
	if isPaused, written, err := paused.EnsurePausedCondition(ctx, r.Client, s.cluster, s.infra); err != nil || isPaused || written {
		return again(outcome.Wrap(err, "setting the Paused condition"))
	}
	do := s.reconcileNormal
	if !s.infra.DeletionTimestamp.IsZero() {
		do = s.reconcileDelete
	}
	if wait := r.pace.wait(req.NamespacedName, s.size(), r.now()); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	defer func() { r.pace.Store(req.NamespacedName, r.now()) }()
	return again(do(ctx))
}

// size is about how many machines there are to look at.
func (s *scope) size() int {
	size := int(ptr.Deref(s.infra.Status.Replicas, 0))
	if s.owner != nil {
		size = max(size, s.replicas())
	}
	return size
}

// reconcileNormal brings the machines nearer to what is asked for, and writes what there is. A machine
// that can't be made or deleted doesn't keep the rest from being told.
func (s *scope) reconcileNormal(ctx context.Context) error {
	seen, err := s.machines(ctx, s.Client)
	if err != nil {
		return err
	}
	var problem error
	if !s.decide(seen).isEmpty() || len(seen.dangling) > 0 || s.desired(seen) != s.replicas() {
		// The cache may not show yet what was made or deleted a moment ago.
		if seen, err = s.readAgain(ctx); err != nil {
			return err
		}
		if written, err := s.surfaceReplicas(ctx, seen); err != nil || written {
			return err
		}
		problem = s.scale(ctx, seen)
	}
	problem = errors.Join(problem, s.forgetRecovered(ctx, seen), s.keepMetadata(ctx, seen))
	if err := s.writeSpec(ctx, seen); err != nil {
		return errors.Join(problem, err)
	}
	return errors.Join(problem, s.writeStatus(ctx, func() { s.observe(seen, problem) }))
}

// read reads a pool and what it belongs to. It returns nil when the pool is gone.
func (r *Reconciler) read(ctx context.Context, reader client.Reader, key client.ObjectKey) (*scope, error) {
	s := &scope{Reconciler: r, infra: &infrav1.LibvirtMachinePool{}}
	if err := reader.Get(ctx, key, s.infra); err != nil {
		return nil, outcome.Wrap(client.IgnoreNotFound(err), "reading the LibvirtMachinePool")
	}
	name := s.infra.Labels[clusterv1.ClusterNameLabel]
	for _, reference := range s.infra.OwnerReferences {
		if !isKind(reference.APIVersion, reference.Kind, clusterv1.GroupVersion.Group, "MachinePool") {
			continue
		}
		owner := &clusterv1.MachinePool{}
		err := reader.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: reference.Name}, owner)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading the owner: %w", err)
		}
		if err == nil {
			s.owner, name = owner, owner.Spec.ClusterName
		}
		break
	}
	if name == "" {
		return s, nil
	}
	cluster := &clusterv1.Cluster{}
	if err := reader.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: name}, cluster); err != nil {
		return s, outcome.Wrap(client.IgnoreNotFound(err), "reading the Cluster")
	}
	s.cluster = cluster
	return s, nil
}

// errLater says that something that others have written has to be looked at first.
var errLater = errors.New("something else comes first")

// again is outcome.Again, for which what is gone, or comes first, isn't an error either.
func again(err error) (ctrl.Result, error) {
	if apierrors.IsNotFound(err) || errors.Is(err, errLater) {
		return ctrl.Result{RequeueAfter: outcome.ConflictDelay}, nil
	}
	return outcome.Again(err)
}
