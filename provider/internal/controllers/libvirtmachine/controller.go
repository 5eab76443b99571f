// Package libvirtmachine reconciles LibvirtMachines: virtual machines.
package libvirtmachine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	capicontrollerutil "sigs.k8s.io/cluster-api/util/controller"
	"sigs.k8s.io/cluster-api/util/finalizers"
	"sigs.k8s.io/cluster-api/util/paused"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/fleet"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/images"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/outcome"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/placement"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/watches"
)

// Bootstrap data is read from Secrets, one by one: they are never listed or watched.
//
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters;machines;machinepools,verbs=get;list;watch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=libvirtmachines,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=libvirtmachines/status,verbs=patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=libvirtmachines/finalizers,verbs=update
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=libvirtclusters;libvirthosts;libvirtclusteridentities,verbs=get;list;watch

// Hosts gives access to the libvirt hosts. fleet.Fleet implements it.
type Hosts interface {
	fleet.Snapshots
	// Hypervisor returns the connection to a host. The error has the reason ErrUnreachable.
	Hypervisor(host string) (hypervisor.Hypervisor, error)
	// Refresh reads a changed domain into the snapshot.
	Refresh(ctx context.Context, host, uuid string) error
	// RefreshPool makes a host refresh a storage pool soon.
	RefreshPool(host, pool string)
}

// News has the events of hosts that trigger reconciles, as channels of objects with only their names.
type News struct {
	// Machines has LibvirtMachines whose domains have changed.
	Machines <-chan event.GenericEvent
	// Reachability has LibvirtHosts that became reachable or unreachable.
	Reachability <-chan event.GenericEvent
}

// Reconciler reconciles LibvirtMachines.
type Reconciler struct {
	// Client reads from the manager's cache, except for Secrets, and writes.
	Client client.Client

	// APIReader reads from the API server.
	APIReader client.Reader

	// Hosts gives access to hosts, and News has their events.
	Hosts Hosts
	News  News

	// Images brings images to hosts.
	Images *images.Store

	// Scheduler chooses hosts for machines.
	Scheduler *placement.Scheduler

	// InPlaceUpdates enables updates in place. Started updates are finished if it is off.
	InPlaceUpdates bool

	// Workload has the connections to workload clusters, for setting provider IDs of nodes. It may be nil.
	Workload clustercache.ClusterCache

	// WatchFilterValue is the required value of the label cluster.x-k8s.io/watch-filter, or empty for all objects.
	WatchFilterValue string

	recorder    events.EventRecorder
	hostLimiter hostLimiter
	copies      copies
	// configured has the last upload (an uploadedDisk) for each load balancer, by object key.
	configured sync.Map
	// starts has the lastStart of each machine, by object key.
	starts     sync.Map
	controller capicontrollerutil.Controller
}

// Reconcile implements "Typical InfraMachine reconciliation workflow" of Cluster API's contract for InfraMachine.
//
// A write of anything but the status ends the reconcile: the change triggers the next one. The status, with all
// conditions, is one write, which fails if the object has changed since it was read.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	infra := &infrav1.LibvirtMachine{}
	if err := r.Client.Get(ctx, req.NamespacedName, infra); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(req.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if annotations.IsExternallyManaged(infra) || !watches.HasFilterLabel(infra, r.WatchFilterValue) {
		return ctrl.Result{}, nil // watches of other objects don't filter
	}
	machine, cluster, err := r.owners(ctx, infra)
	if err != nil {
		return ctrl.Result{}, err
	}
	if infra.DeletionTimestamp.IsZero() && (machine == nil && !isLoadBalancer(infra) || cluster == nil) {
		ctrl.LoggerFrom(ctx).Info("Waiting for the Machine controller to set the owner reference, and for the Machine and its Cluster")
		return ctrl.Result{}, nil
	}
	log := ctrl.LoggerFrom(ctx)
	if machine != nil {
		log = log.WithValues("Machine", klog.KObj(machine))
	}
	if cluster != nil {
		log = log.WithValues("Cluster", klog.KObj(cluster))
	}
	ctx = ctrl.LoggerInto(ctx, log)

	if added, err := finalizers.EnsureFinalizer(ctx, r.Client, infra, infrav1.MachineFinalizer); err != nil || added {
		return outcome.Again(outcome.Wrap(client.IgnoreNotFound(err), "adding the finalizer"))
	}
	if cluster != nil && annotations.IsPaused(cluster, infra) || annotations.HasPaused(infra) {
		if _, _, err := paused.EnsurePausedCondition(ctx, r.Client, cluster, infra); err != nil {
			return outcome.Again(outcome.Wrap(client.IgnoreNotFound(err), "setting the Paused condition"))
		}
		return r.allowMove(ctx, infra)
	}
	if host := infra.Spec.HostName; host != "" {
		if !r.hostLimiter.begin(host, req.NamespacedName) {
			return ctrl.Result{RequeueAfter: turnDelay}, nil
		}
		defer r.hostLimiter.end(host)
	}
	return r.reconcile(ctx, &scope{Reconciler: r, infra: infra, machine: machine, cluster: cluster})
}

// reconcile runs the phases of a machine that isn't paused, and writes the status.
func (r *Reconciler) reconcile(ctx context.Context, s *scope) (ctrl.Result, error) {
	s.uuid = strings.TrimPrefix(s.infra.Spec.ProviderID, infrav1.ProviderIDPrefix)
	before := s.infra.DeepCopy()
	conditions.Set(s.infra, metav1.Condition{Type: infrav1.PausedCondition, Status: metav1.ConditionFalse, Reason: infrav1.NotPausedReason})
	do := s.run
	if !s.infra.DeletionTimestamp.IsZero() {
		do = s.remove
	}
	if err := do(ctx); err != nil {
		s.errs = append(s.errs, err)
	}
	if s.written {
		return s.result()
	}
	s.setReady()
	written, err := false, s.blockMove(ctx, before)
	if err == nil {
		// Other changes of the object were written where they were made.
		written, err = outcome.WriteStatus(ctx, r.Client, before, s.infra)
		err = outcome.Wrap(err, "writing the status")
	}
	if !written {
		err = s.removeIfDeleted(ctx, err)
	}
	if err != nil {
		s.errs = append(s.errs, err)
	} else if written {
		r.announce(before, s.infra)
	}
	return s.result()
}

func (s *scope) result() (ctrl.Result, error) {
	if err := errors.Join(s.errs...); err != nil {
		return outcome.Again(err)
	}
	return ctrl.Result{RequeueAfter: s.after}, nil
}

// owners returns the Machine that owns a LibvirtMachine and their Cluster, each nil if it doesn't exist.
func (r *Reconciler) owners(ctx context.Context, infra *infrav1.LibvirtMachine) (*clusterv1.Machine, *clusterv1.Cluster, error) {
	machine, err := util.GetOwnerMachine(ctx, r.Client, infra.ObjectMeta)
	if client.IgnoreNotFound(err) != nil {
		return nil, nil, fmt.Errorf("reading the owner: %w", err)
	}
	if err != nil {
		machine = nil
	}
	name := infra.Labels[clusterv1.ClusterNameLabel]
	if machine != nil {
		name = machine.Spec.ClusterName
	}
	if name == "" {
		return machine, nil, nil
	}
	cluster := &clusterv1.Cluster{}
	if err := r.Client.Get(ctx, client.ObjectKey{Namespace: infra.Namespace, Name: name}, cluster); err != nil {
		return machine, nil, outcome.Wrap(client.IgnoreNotFound(err), "reading the Cluster")
	}
	return machine, cluster, nil
}

// forget removes the data in memory about a deleted machine.
func (r *Reconciler) forget(machine client.ObjectKey) {
	r.Images.Forget(machine)
	r.copies.forget(machine)
	r.configured.Delete(machine)
	r.starts.Delete(machine)
}

// moveDelay is the interval of checking a transfer for a paused machine. The end of the transfer triggers a reconcile
// sooner.
const moveDelay = 10 * time.Second

// blockMove sets the annotation clusterctl.cluster.x-k8s.io/block-move during a transfer for the machine, and removes
// it afterwards. `clusterctl move` waits for the removal (Cluster API's provider contract for clusterctl, "Move").
// before is the object as read. The write updates both objects.
func (s *scope) blockMove(ctx context.Context, before *infrav1.LibvirtMachine) error {
	if _, blocked := before.Annotations[clusterctlv1.BlockMoveAnnotation]; blocked == s.transferring {
		return nil
	}
	written, err := s.setBlockMove(ctx, before, s.transferring)
	if err != nil {
		return err
	}
	for _, infra := range []*infrav1.LibvirtMachine{before, s.infra} {
		infra.Annotations, infra.ResourceVersion = written.Annotations, written.ResourceVersion
	}
	return nil
}

// setBlockMove writes only the annotation and returns the written object.
func (r *Reconciler) setBlockMove(ctx context.Context, infra *infrav1.LibvirtMachine, block bool) (*infrav1.LibvirtMachine, error) {
	changed := infra.DeepCopy()
	delete(changed.Annotations, clusterctlv1.BlockMoveAnnotation)
	if block {
		metav1.SetMetaDataAnnotation(&changed.ObjectMeta, clusterctlv1.BlockMoveAnnotation, "")
	}
	err := r.Client.Patch(ctx, changed, outcome.Over(infra))
	return changed, outcome.Wrap(err, "writing the annotation "+clusterctlv1.BlockMoveAnnotation)
}

// allowMove makes a paused machine movable. It waits for a running transfer, and starts no new one. After a restart of
// the manager, the annotation may exist without a transfer.
func (r *Reconciler) allowMove(ctx context.Context, infra *infrav1.LibvirtMachine) (ctrl.Result, error) {
	key := client.ObjectKeyFromObject(infra)
	_, blocked := infra.Annotations[clusterctlv1.BlockMoveAnnotation]
	if blocked && (r.Images.UnderWay(key) || r.copies.underWay(key)) {
		return ctrl.Result{RequeueAfter: moveDelay}, nil
	}
	r.Images.Forget(key)
	r.copies.forget(key)
	if !blocked {
		return ctrl.Result{}, nil
	}
	_, err := r.setBlockMove(ctx, infra, false)
	return outcome.Again(client.IgnoreNotFound(err))
}
