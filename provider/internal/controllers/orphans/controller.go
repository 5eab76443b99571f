// Package orphans finds domains and volumes on hosts whose LibvirtMachines don't exist, reports them on the
// LibvirtHost, and optionally deletes them.
//
// A missing machine may still be in use: `clusterctl move` moves machines to another management cluster, several
// management clusters may share hosts, and the API server may have been restored from a backup. Therefore
//
//   - machines are looked up on the API server, in all namespaces, by UUID;
//   - paused Clusters have no orphans: their machines may be moving;
//   - a domain is deleted only while its Cluster exists;
//   - each management cluster keeps a marker on the hosts of its machines, and nothing is deleted on a host with a
//     marker of another;
//   - an orphan is deleted only after a long time, and all of this is checked again before each deletion.
package orphans

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	capicontrollerutil "sigs.k8s.io/cluster-api/util/controller"
	"sigs.k8s.io/cluster-api/util/predicates"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/fleet"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/index"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/metrics"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/notes"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/outcome"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/watches"
)

// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=libvirthosts;libvirtmachines,verbs=get;list;watch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=libvirthosts/status,verbs=patch

const (
	maxOrphans = 64
	// maxKept is the maximum length of a reason in the status, in bytes.
	maxKept = 1024
	// maxNamed is the maximum length of an orphan in a message, in bytes.
	maxNamed = 1024
	// maxDomain and maxMachine are the maximum lengths of names in the status.
	maxDomain, maxMachine = 255, 317
)

// Options has the intervals, and whether orphans are deleted. A zero value means the default.
type Options struct {
	// Collect enables the deletion of orphans.
	Collect bool
	// MinAge is the minimum age of a deleted orphan. The default is a day.
	MinAge time.Duration
	// Interval is the interval of checking a host. The default is a minute.
	Interval time.Duration
}

// Hosts gives access to hosts. fleet.Fleet implements it.
type Hosts interface {
	fleet.Snapshots
	// Hypervisor returns the connection to a host, or an error with the reason ErrUnreachable.
	Hypervisor(host string) (hypervisor.Hypervisor, error)
	// Refresh reads a changed domain into the snapshot.
	Refresh(ctx context.Context, host, uuid string) error
}

// Reconciler looks for orphans on LibvirtHosts.
type Reconciler struct {
	// Client reads from the manager's cache, and writes.
	Client client.Client

	// APIReader reads from the API server.
	APIReader client.Reader

	// Hosts gives access to hosts.
	Hosts Hosts

	// Options has the intervals, and enables the deletion.
	Options Options

	// WatchFilterValue is the required value of the label cluster.x-k8s.io/watch-filter, or empty for all
	// LibvirtHosts.
	WatchFilterValue string

	recorder events.EventRecorder
	now      func() time.Time
	// marked has the creation times of markers, by markerPool.
	marked sync.Map

	lock sync.Mutex
	// self is the UID of the namespace kube-system, once it is known.
	self string
}

// SetupWithManager registers the reconciler with a manager.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	r.recorder = notes.Short(mgr.GetEventRecorder("libvirthost-orphans-controller"))
	scheme, log := mgr.GetScheme(), ctrl.LoggerFrom(ctx).WithValues("controller", "libvirthost-orphans")
	return capicontrollerutil.NewControllerManagedBy(mgr, log).
		Named("libvirthost-orphans").
		For(&infrav1.LibvirtHost{}, builder.WithPredicates(predicates.ResourceHasFilterLabel(scheme, log, r.WatchFilterValue))).
		WithOptions(options).
		Complete(ctx, r)
}

// Reconcile finds the orphans on one host, at intervals.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	host := &infrav1.LibvirtHost{}
	if err := r.Client.Get(ctx, req.NamespacedName, host); err != nil {
		if apierrors.IsNotFound(err) {
			metrics.Orphans.DeleteLabelValues(req.Name)
			r.forgetMarkers(req.Name)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !watches.HasFilterLabel(host, r.WatchFilterValue) || annotations.HasPaused(host) || !host.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	before := host.DeepCopy()
	err := r.findOrphans(ctx, host)
	return outcome.End(ctx, r.Client, "writing the status", before, host, ctrl.Result{RequeueAfter: cmp.Or(r.Options.Interval, time.Minute)}, err, r.announce)
}

func (r *Reconciler) time() time.Time {
	if r.now != nil {
		return r.now()
	}
	return time.Now()
}

// findOrphans finds the orphans on a host, sets the status, and deletes the orphans that may be deleted.
func (r *Reconciler) findOrphans(ctx context.Context, host *infrav1.LibvirtHost) error {
	snapshot, _ := r.Hosts.Snapshot(host.Name)
	if !snapshot.Reachable && snapshot.Err == nil {
		return nil // connecting for the first time: the earlier status stays
	}
	connection, err := r.Hosts.Hypervisor(host.Name)
	if err == nil && !snapshot.Reachable {
		err = &hypervisor.Error{Operation: "reaching host", Object: host.Name, Reason: hypervisor.ErrUnreachable}
	}
	if err != nil {
		return r.failed(host, err)
	}
	self, err := r.identify(ctx)
	if err != nil {
		return r.failed(host, err)
	}
	v := &visit{Reconciler: r, host: host, connection: connection, self: self, pools: activePools(snapshot)}
	bound, err := index.BoundTo(ctx, r.Client, host.Name)
	if err != nil {
		return r.failed(host, err)
	}
	seen := seenIn(snapshot)
	marked := v.keepMarker(ctx, seen, snapshot.Taken, r.Options.Collect || len(bound) > 0)
	unknown, err := r.unknown(ctx, find(seen, knownOf(bound)))
	if err != nil {
		return errors.Join(r.failed(host, err), marked)
	}
	var orphans []orphan
	// Without suspects, which is usual, nothing has to be confirmed.
	if unknown {
		if orphans, err = v.confirmOrphans(ctx); err != nil {
			return errors.Join(r.failed(host, err), marked)
		}
	}
	orphans, err = v.collect(ctx, orphans)
	setStatus(host, v.kept, orphans)
	metrics.Orphans.WithLabelValues(host.Name).Set(float64(len(orphans)))
	return errors.Join(unlessUnreachable(err), unlessUnreachable(marked))
}

// unlessUnreachable drops errors of an unreachable host, whose return triggers a reconcile.
func unlessUnreachable(err error) error {
	if errors.Is(err, hypervisor.ErrUnreachable) {
		return nil
	}
	return err
}

func (r *Reconciler) failed(host *infrav1.LibvirtHost, err error) error {
	if errors.Is(err, hypervisor.ErrUnreachable) {
		setCondition(host, metav1.ConditionUnknown, infrav1.HostUnreachableReason, "There is no connection to the host")
		return nil
	}
	setCondition(host, metav1.ConditionUnknown, infrav1.InternalErrorReason, err.Error())
	return err
}

// identify returns the ID of this management cluster.
func (r *Reconciler) identify(ctx context.Context) (string, error) {
	r.lock.Lock()
	defer r.lock.Unlock()
	if r.self != "" {
		return r.self, nil
	}
	namespace := &corev1.Namespace{}
	if err := r.APIReader.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, namespace); err != nil {
		return "", fmt.Errorf("reading the namespace %s, whose UID identifies the management cluster: %w", metav1.NamespaceSystem, err)
	}
	if namespace.UID == "" {
		return "", fmt.Errorf("the namespace %s has no UID", metav1.NamespaceSystem)
	}
	r.self = string(namespace.UID)
	return r.self, nil
}

// unknown reports whether an orphan belongs to no machine in the cache, on any host.
func (r *Reconciler) unknown(ctx context.Context, found []orphan) (bool, error) {
	for _, o := range found {
		machines := &infrav1.LibvirtMachineList{}
		if err := r.Client.List(ctx, machines, client.MatchingFields{index.MachineProviderID: infrav1.ProviderIDPrefix + o.uuid}, client.UnsafeDisableDeepCopy); err != nil {
			return false, fmt.Errorf("listing LibvirtMachines: %w", err)
		}
		if len(machines.Items) == 0 {
			return true, nil
		}
	}
	return false, nil
}

func setCondition(host *infrav1.LibvirtHost, status metav1.ConditionStatus, reason, message string) {
	conditions.Set(host, metav1.Condition{Type: infrav1.OrphansFoundCondition, Status: status, Reason: reason, Message: message})
}

// setStatus sets the orphans, with the reasons why they still exist.
func setStatus(host *infrav1.LibvirtHost, kept map[string]keptOrphan, orphans []orphan) {
	host.Status.Orphans = nil
	var names []string
	for i := range orphans {
		o := &orphans[i]
		why := kept[o.uuid]
		if len(host.Status.Orphans) < maxOrphans {
			entry := infrav1.HostOrphan{UUID: o.uuid, Volumes: ptr.To(int32(len(o.volumes))), Since: why.since, //nolint:gosec // few
				KeptBecause: notes.Cut(why.because, maxKept)}
			if o.domain != nil {
				entry.Domain = notes.Cut(o.domain.Name, maxDomain)
				entry.Machine = notes.Cut(o.domain.Owner.Namespace+"/"+o.domain.Owner.Name, maxMachine)
			}
			host.Status.Orphans = append(host.Status.Orphans, entry)
		}
		names = append(names, notes.Cut(o.String(), maxNamed))
	}
	if len(orphans) == 0 {
		setCondition(host, metav1.ConditionFalse, infrav1.NoOrphansReason, "")
		return
	}
	setCondition(host, metav1.ConditionTrue, infrav1.OrphansFoundReason,
		fmt.Sprintf("%d missing LibvirtMachines have left domains or volumes: %s", len(orphans), outcome.List(names, "; ")))
}

// announce records an event when the orphans have changed.
func (r *Reconciler) announce(before, after *infrav1.LibvirtHost) {
	is := conditions.Get(after, infrav1.OrphansFoundCondition)
	was := conditions.Get(before, infrav1.OrphansFoundCondition)
	if is.Status != metav1.ConditionTrue || was != nil && was.Status == is.Status && was.Message == is.Message {
		return
	}
	r.recorder.Eventf(after, nil, corev1.EventTypeWarning, is.Reason, "LookForOrphans", "%s", is.Message)
}
