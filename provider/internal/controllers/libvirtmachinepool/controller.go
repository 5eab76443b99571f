// Package libvirtmachinepool reconciles LibvirtMachinePools: pools of virtual machines.
package libvirtmachinepool

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/conditions"
	capicontrollerutil "sigs.k8s.io/cluster-api/util/controller"
	"sigs.k8s.io/cluster-api/util/finalizers"
	"sigs.k8s.io/cluster-api/util/paused"
	"sigs.k8s.io/cluster-api/util/predicates"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/notes"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/outcome"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/watches"
)

// LibvirtMachines are deleted through their Machines, so that Cluster API drains the nodes first.
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

	// APIReader reads from the API server. Its results decide which machines are created and deleted.
	APIReader client.Reader

	// WatchFilterValue is the required value of the label cluster.x-k8s.io/watch-filter, or empty for all objects.
	WatchFilterValue string

	recorder events.EventRecorder
	pace     pace
	// clock returns the time in tests.
	clock func() time.Time
}

func (r *Reconciler) now() time.Time {
	if r.clock != nil {
		return r.clock()
	}
	return time.Now()
}

// scope is the state of one reconcile.
type scope struct {
	*Reconciler
	// infra is the reconciled object.
	infra *infrav1.LibvirtMachinePool
	// owner owns infra, and cluster is the Cluster of both. Either may be nil during deletion.
	owner   *clusterv1.MachinePool
	cluster *clusterv1.Cluster

	// sourceHashCache caches the result of sourceHash.
	sourceHashCache string
}

// Reconcile implements Cluster API's contract for InfraMachinePool, with "MachinePoolMachines support".
//
// A write of the finalizer or of the Paused condition ends the reconcile: the change triggers the next one. The status,
// with all conditions, is one write, which fails if the object has changed since it was read.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	s, err := r.read(ctx, r.Client, req.NamespacedName)
	if err == nil && s == nil {
		r.pace.Delete(req.NamespacedName)
	}
	if err != nil || s == nil {
		return again(err)
	}
	if annotations.IsExternallyManaged(s.infra) || !watches.HasFilterLabel(s.infra, r.WatchFilterValue) {
		return ctrl.Result{}, nil // watches of other objects don't filter
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

// size returns the approximate number of machines.
func (s *scope) size() int {
	size := int(ptr.Deref(s.infra.Status.Replicas, 0))
	if s.owner != nil {
		size = max(size, s.replicas())
	}
	return size
}

// reconcileNormal creates and deletes machines, and writes the status, also after an error.
func (s *scope) reconcileNormal(ctx context.Context) error {
	seen, err := s.machines(ctx, s.Client)
	if err != nil {
		return err
	}
	var problem error
	if !s.decide(seen).isEmpty() || len(seen.dangling) > 0 || s.desired(seen) != s.replicas() {
		// The cache may not have the latest creations and deletions yet.
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

// read reads a pool with its owner and Cluster. It returns nil if the pool doesn't exist.
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

// errLater reports that a change by another writer must be processed first.
var errLater = errors.New("another change must be processed first")

// again is outcome.Again, but ignores missing objects and errLater too.
func again(err error) (ctrl.Result, error) {
	if apierrors.IsNotFound(err) || errors.Is(err, errLater) {
		return ctrl.Result{RequeueAfter: outcome.ConflictDelay}, nil
	}
	return outcome.Again(err)
}

// reconcileDelete deletes the machines, and removes the finalizer when all are deleted.
//
// It reads the machines from the API server only if the cache may lack a machine or its Machine: in a large pool, a
// read after each deletion would cost too much.
func (s *scope) reconcileDelete(ctx context.Context) error {
	seen, err := s.machines(ctx, s.Client)
	if err == nil && (len(seen.all) == 0 || count(seen.all, func(m member) bool { return m.machine == nil && !m.deleting }) > 0) {
		seen, err = s.machines(ctx, s.APIReader)
	}
	if err != nil {
		return err
	}
	var problem error
	changes := 0
	for _, m := range seen.all {
		if m.object().GetDeletionTimestamp().IsZero() && changes < changesAtOnce {
			changes++
			problem = errors.Join(problem, s.deleteMember(ctx, m))
		}
	}
	for _, machine := range seen.dangling {
		if machine.DeletionTimestamp.IsZero() && changes < changesAtOnce {
			changes++
			problem = errors.Join(problem, s.deleteDangling(ctx, machine))
		}
	}
	if problem == nil && len(seen.all) == 0 {
		_, err := outcome.RemoveFinalizer(ctx, s.Client, s.infra, infrav1.MachinePoolFinalizer)
		return err
	}
	return errors.Join(problem, s.writeStatus(ctx, func() {
		message := fmt.Sprintf("Waiting for %d machines to be deleted: %s", len(seen.all), outcome.Names(names(seen.planned())))
		if problem != nil {
			message = problem.Error()
		}
		conditions.Set(s.infra, metav1.Condition{Type: infrav1.ReadyCondition, Status: metav1.ConditionFalse, Reason: infrav1.DeletingReason, Message: message})
	}))
}

// SetupWithManager registers the reconciler with a manager. The watch filter and the externally managed annotation
// apply to LibvirtMachinePools only.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	r.recorder = notes.Short(mgr.GetEventRecorder("libvirtmachinepool-controller"))
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

// machineChanged passes changes of a Machine's deletion, annotations, spec, availability and health.
func machineChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*clusterv1.Machine), e.ObjectNew.(*clusterv1.Machine)
		return before.Generation != after.Generation || !reflect.DeepEqual(before.Annotations, after.Annotations) ||
			!reflect.DeepEqual(before.DeletionTimestamp, after.DeletionTimestamp) ||
			conditions.IsTrue(before, clusterv1.MachineAvailableCondition) != conditions.IsTrue(after, clusterv1.MachineAvailableCondition) ||
			collections.IsUnhealthyAndOwnerRemediated(before) != collections.IsUnhealthyAndOwnerRemediated(after) || hasRecovered(before) != hasRecovered(after)
	}}
}

// poolOfLibvirtMachine returns the LibvirtMachinePool of a LibvirtMachine.
func poolOfLibvirtMachine(_ context.Context, object client.Object) []ctrl.Request {
	for _, owner := range object.GetOwnerReferences() {
		if isKind(owner.APIVersion, owner.Kind, infrav1.GroupVersion.Group, "LibvirtMachinePool") {
			return []ctrl.Request{{NamespacedName: types.NamespacedName{Namespace: object.GetNamespace(), Name: owner.Name}}}
		}
	}
	return nil
}

// poolOfMachine returns the LibvirtMachinePool of a Machine, even if its LibvirtMachine is deleted.
func (r *Reconciler) poolOfMachine(ctx context.Context, machine client.Object) []ctrl.Request {
	if machine.GetLabels()[clusterv1.MachinePoolNameLabel] == "" {
		return nil
	}
	owner, err := util.GetMachinePoolByLabels(ctx, r.Client, machine.GetNamespace(), machine.GetLabels())
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Reading the MachinePool of a Machine")
	}
	if owner == nil || owner.Spec.Template.Spec.InfrastructureRef.Kind != "LibvirtMachinePool" {
		return nil
	}
	return []ctrl.Request{{NamespacedName: types.NamespacedName{
		Namespace: machine.GetNamespace(), Name: owner.Spec.Template.Spec.InfrastructureRef.Name}}}
}
