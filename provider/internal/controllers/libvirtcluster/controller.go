// Package libvirtcluster reconciles LibvirtClusters: the infrastructure of a cluster, without its machines.
package libvirtcluster

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/finalizers"
	"sigs.k8s.io/cluster-api/util/labels"
	"sigs.k8s.io/cluster-api/util/paused"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/claims"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/notes"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/outcome"
)

// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=libvirtclusters,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=libvirtclusters/status,verbs=patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=libvirtclusters/finalizers,verbs=update
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=libvirtclusteridentities;libvirthosts,verbs=get;list;watch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=libvirtmachines,verbs=get;list;watch;create;patch;delete

// Reconciler reconciles LibvirtClusters.
type Reconciler struct {
	// Client reads from the manager's cache, and writes.
	Client client.Client

	// APIReader reads from the API server.
	APIReader client.Reader

	// WatchFilterValue is the required value of the label cluster.x-k8s.io/watch-filter, or empty for all objects.
	WatchFilterValue string

	recorder events.EventRecorder
}

// SetupWithManager registers the reconciler with a manager.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	r.recorder = notes.Short(mgr.GetEventRecorder("libvirtcluster-controller"))
	if err := r.build(ctx, mgr, options); err != nil {
		return fmt.Errorf("building the controller of LibvirtClusters: %w", err)
	}
	return nil
}

// scope is what one reconcile works on.
type scope struct {
	// infra's status is changed while it is reconciled, and written at the end.
	infra *infrav1.LibvirtCluster
	// cluster owns infra. It is nil when infra is being deleted and its Cluster is gone.
	cluster *clusterv1.Cluster
	// noAddress is the reason why there is no address for the endpoint from the pool, or nil.
	noAddress error
	// hosts has the hosts of the cluster. It is nil until they are read.
	hosts *hosts
	// taken names another cluster that had the endpoint first, or is empty.
	taken string
	// balancer is the condition of a load balancer that isn't ready, or nil.
	balancer *metav1.Condition
}

// Reconcile does what "Typical InfraCluster reconciliation workflow" of Cluster API's contract for
// InfraCluster says.
//
// Each write before the last is a reconcile of its own: the change brings the object here again. The
// status, with all conditions, is one write, and only over what was read.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	infra := &infrav1.LibvirtCluster{}
	if err := r.Client.Get(ctx, req.NamespacedName, infra); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if externallyManaged(infra) || !r.watched(infra) {
		return ctrl.Result{}, nil // also when a Cluster or host brought it here
	}
	cluster, err := r.ownerCluster(ctx, infra)
	if err != nil {
		return ctrl.Result{}, err
	}
	if cluster == nil && infra.DeletionTimestamp.IsZero() {
		ctrl.LoggerFrom(ctx).Info("Waiting for the Cluster controller to set the owner reference, and for that Cluster")
		return ctrl.Result{}, nil
	}
	if cluster != nil {
		ctx = ctrl.LoggerInto(ctx, ctrl.LoggerFrom(ctx).WithValues("Cluster", klog.KObj(cluster)))
	}

	if added, err := finalizers.EnsureFinalizer(ctx, r.Client, infra, infrav1.ClusterFinalizer); err != nil || added {
		return ctrl.Result{}, outcome.Wrap(err, "adding the finalizer")
	}
	if isPaused, written, err := paused.EnsurePausedCondition(ctx, r.Client, cluster, infra); err != nil || isPaused || written {
		return ctrl.Result{}, outcome.Wrap(err, "setting the Paused condition")
	}
	if taken, err := r.takeEndpoint(ctx, infra, cluster); err != nil || taken {
		return outcome.Again(outcome.Wrap(err, "writing spec.controlPlaneEndpoint"))
	}

	written, problem, err := r.claimEndpoint(ctx, infra, cluster)
	if err == nil && !written {
		written, err = r.takeBalancersEndpoint(ctx, infra, cluster)
	}
	if err != nil || written {
		return outcome.Again(outcome.Wrap(err, "writing the control plane endpoint"))
	}

	before := infra.DeepCopy()
	s := &scope{infra: infra, cluster: cluster, noAddress: problem}
	if infra.DeletionTimestamp.IsZero() {
		err = r.reconcileNormal(ctx, s)
	} else {
		var done bool
		if done, err = r.reconcileDelete(ctx, s); done {
			_, err := outcome.RemoveFinalizer(ctx, r.Client, before, infrav1.ClusterFinalizer)
			return outcome.Again(err)
		}
	}
	setReady(s.infra)
	return outcome.End(ctx, r.Client, "writing the status", before, s.infra, ctrl.Result{}, err, r.announce)
}

// reconcileNormal finds hosts and the endpoint, and says when there are both. One that fails doesn't
// keep the other from being looked at.
func (r *Reconciler) reconcileNormal(ctx context.Context, s *scope) error {
	err := errors.Join(r.reconcileHosts(ctx, s), r.lookForEndpoint(ctx, s))
	if s.taken == "" {
		err = errors.Join(err, r.reconcileBalancer(ctx, s))
	}
	setEndpointCondition(s)
	setProvisioned(s.infra)
	if claims.NotGiven(s.noAddress) == nil {
		err = errors.Join(err, s.noAddress) // to be tried again; otherwise the claim's change brings the object here
	}
	return err
}

// externallyManaged reports whether somebody else manages the infrastructure. Cluster API's code looks for an
// annotation, and its contract ("Externally managed infrastructure") speaks of a label.
func externallyManaged(object client.Object) bool {
	_, labelled := object.GetLabels()[clusterv1.ManagedByAnnotation]
	return labelled || annotations.IsExternallyManaged(object)
}

// watched reports whether an object has the watch filter's label.
func (r *Reconciler) watched(object client.Object) bool {
	return r.WatchFilterValue == "" || labels.HasWatchLabel(object, r.WatchFilterValue)
}

// ownerCluster returns the Cluster that owns an object, or nil when no owner is set or it doesn't exist.
func (r *Reconciler) ownerCluster(ctx context.Context, infra *infrav1.LibvirtCluster) (*clusterv1.Cluster, error) {
	cluster, err := util.GetOwnerCluster(ctx, r.Client, infra.ObjectMeta)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return cluster, outcome.Wrap(err, "reading the owner")
}
