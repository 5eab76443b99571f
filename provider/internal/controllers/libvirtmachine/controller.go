// Package libvirtmachine reconciles LibvirtMachines: virtual machines.
package libvirtmachine

import (
	"context"
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
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	capicontrollerutil "sigs.k8s.io/cluster-api/util/controller"
	"sigs.k8s.io/cluster-api/util/finalizers"
	"sigs.k8s.io/cluster-api/util/labels"
	"sigs.k8s.io/cluster-api/util/paused"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/fleet"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/images"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/notes"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/outcome"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/placement"
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

// Hosts are the hosts that machines are made on: a fleet.Fleet.
type Hosts interface {
	// Snapshot returns what was last seen of a host, and false when nobody looks at it.
	Snapshot(host string) (fleet.Snapshot, bool)
	// Hypervisor returns the connection to a host, or an error with the reason ErrUnreachable.
	Hypervisor(host string) (hypervisor.Hypervisor, error)
	// Refresh brings a domain that was just changed into the snapshot.
	Refresh(ctx context.Context, host, uuid string) error
	// RefreshPool asks a host to look soon at what somebody has put into a storage pool.
	RefreshPool(host, pool string)
}

// News are what brings LibvirtMachines here besides changes of objects. Each is a channel of objects
// by name.
type News struct {
	// Machines are LibvirtMachines whose domains have changed.
	Machines <-chan event.GenericEvent
	// Reachability are LibvirtHosts that can be reached again, or no longer.
	Reachability <-chan event.GenericEvent
}

// Reconciler reconciles LibvirtMachines.
type Reconciler struct {
	// Client reads and writes objects. Its reads come from the manager's cache, but for Secrets.
	Client client.Client

	// APIReader reads objects from the API server itself.
	APIReader client.Reader

	// Hosts are the hosts, and News what happens there.
	Hosts Hosts
	News  News

	// Images brings images to hosts.
	Images *images.Store

	// Scheduler chooses hosts for machines.
	Scheduler *placement.Scheduler

	// InPlaceUpdates lets machines be changed in place when Cluster API asks for it. An update that has
	// begun is finished without it too.
	InPlaceUpdates bool

	// Workload are the workload clusters, whose nodes get their provider IDs. None do when it is nil.
	Workload clustercache.ClusterCache

	// WatchFilterValue is the value of the label cluster.x-k8s.io/watch-filter that an object must
	// have to be looked at. Every object is when it is empty.
	WatchFilterValue string

	recorder events.EventRecorder
	atWork   atWork
	copies   copies
	// configured has the last disk (a givenDisk) of each load balancer, and starts the lastStart of each machine, by object key.
	configured sync.Map
	starts     sync.Map
	controller capicontrollerutil.Controller
}

// SetupWithManager registers the reconciler with a manager.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	r.recorder = notes.Short(mgr.GetEventRecorder("libvirtmachine-controller"))
	if err := r.build(ctx, mgr, options); err != nil {
		return fmt.Errorf("building the controller of LibvirtMachines: %w", err)
	}
	return nil
}

// Reconcile does what "Typical InfraMachine reconciliation workflow" of Cluster API's contract for
// InfraMachine says.
//
// What is written before the status is a reconcile of its own: the change brings the object here
// again. The status, with all conditions, is one write, and only over what was read.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	infra := &infrav1.LibvirtMachine{}
	if err := r.Client.Get(ctx, req.NamespacedName, infra); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(req.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if annotations.IsExternallyManaged(infra) || r.WatchFilterValue != "" && !labels.HasWatchLabel(infra, r.WatchFilterValue) {
		return ctrl.Result{}, nil // also when something else brought it here
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
		return r.letMove(ctx, infra)
	}
	if host := infra.Spec.HostName; host != "" {
		if !r.atWork.begin(host, req.NamespacedName) {
			return ctrl.Result{RequeueAfter: turnDelay}, nil
		}
		defer r.atWork.end(host)
	}
	return r.reconcile(ctx, &scope{Reconciler: r, infra: infra, machine: machine, cluster: cluster})
}

// reconcile goes through the phases of a machine that isn't paused, and writes what has come of it.
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
		if err := s.err(); err != nil {
			return outcome.Again(err)
		}
		return ctrl.Result{RequeueAfter: s.after}, nil
	}
	s.setReady()
	written, err := false, s.blockMove(ctx, before)
	if err == nil {
		// What else is in the object was written where it was changed.
		written, err = outcome.WriteStatus(ctx, r.Client, before, s.infra)
		err = outcome.Wrap(err, "writing the status")
	}
	if !written {
		err = s.removeIfGone(ctx, err)
	}
	if err != nil {
		s.errs = append(s.errs, err)
	} else if written {
		r.announce(before, s.infra)
	}
	if err := s.err(); err != nil {
		return outcome.Again(err)
	}
	return ctrl.Result{RequeueAfter: s.after}, nil
}

// owners returns the Machine that owns an object and the Cluster that both belong to, each nil when it
// isn't known or doesn't exist.
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

// forget drops what is remembered of a machine that is gone.
func (r *Reconciler) forget(machine client.ObjectKey) {
	r.Images.Forget(machine)
	r.copies.forget(machine)
	r.configured.Delete(machine)
	r.starts.Delete(machine)
}

// moveDelay is how often to look whether a transfer of a paused machine has ended. Its end brings the
// machine here sooner.
const moveDelay = 10 * time.Second

// blockMove sets the annotation clusterctl.cluster.x-k8s.io/block-move while something is being
// transferred for the machine, and removes it otherwise: `clusterctl move` waits as long (Cluster API's
// provider contract for clusterctl, "Move"). before is what was read; both are as written afterwards.
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

// setBlockMove writes the annotation and nothing else, and returns what is there then.
func (r *Reconciler) setBlockMove(ctx context.Context, infra *infrav1.LibvirtMachine, block bool) (*infrav1.LibvirtMachine, error) {
	changed := infra.DeepCopy()
	delete(changed.Annotations, clusterctlv1.BlockMoveAnnotation)
	if block {
		metav1.SetMetaDataAnnotation(&changed.ObjectMeta, clusterctlv1.BlockMoveAnnotation, "")
	}
	err := r.Client.Patch(ctx, changed, outcome.Over(infra))
	return changed, outcome.Wrap(err, "writing the annotation "+clusterctlv1.BlockMoveAnnotation)
}

// letMove sees to it that a paused machine can be moved. What is under way, as the annotation says, comes
// to its end, which is waited for; nothing begins anew. Whoever has set the annotation may have been
// killed, and then nothing is under way.
func (r *Reconciler) letMove(ctx context.Context, infra *infrav1.LibvirtMachine) (ctrl.Result, error) {
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
