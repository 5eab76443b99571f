// Package libvirtcluster reconciles LibvirtClusters: the infrastructure of a cluster, without its machines.
package libvirtcluster

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/finalizers"
	"sigs.k8s.io/cluster-api/util/paused"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/claims"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/outcome"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/watches"
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

// scope is the state of one reconcile.
type scope struct {
	// infra is the reconciled object. Its status is written at the end.
	infra *infrav1.LibvirtCluster
	// cluster owns infra. It may be nil during deletion.
	cluster *clusterv1.Cluster
	// noAddress is the reason why the endpoint has no address from the pool, or nil.
	noAddress error
	// hosts has the hosts of the cluster. It is nil until they are read.
	hosts *hosts
	// taken describes another cluster that had the endpoint first, or is empty.
	taken string
	// balancer is the condition of a load balancer that isn't ready, or nil.
	balancer *metav1.Condition
}

// Reconcile implements "Typical InfraCluster reconciliation workflow" of Cluster API's contract for InfraCluster.
//
// A write of anything but the status ends the reconcile: the change triggers the next one. The status, with all
// conditions, is one write, which fails if the object has changed since it was read.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	infra := &infrav1.LibvirtCluster{}
	if err := r.Client.Get(ctx, req.NamespacedName, infra); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if externallyManaged(infra) || !watches.HasFilterLabel(infra, r.WatchFilterValue) {
		return ctrl.Result{}, nil // watches of other objects don't filter
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
	written, problem, err := r.setEndpoint(ctx, infra, cluster)
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
	return outcome.End(ctx, r.Client, "writing the status", before, s.infra, ctrl.Result{}, err, r.announce)
}

// reconcileNormal reconciles the hosts and the endpoint, each also if the other one fails.
func (r *Reconciler) reconcileNormal(ctx context.Context, s *scope) error {
	err := errors.Join(r.reconcileHosts(ctx, s), r.lookForEndpoint(ctx, s))
	if s.taken == "" {
		err = errors.Join(err, r.reconcileBalancer(ctx, s))
	}
	setEndpointCondition(s)
	setProvisioned(s.infra)
	outcome.SetReady(s.infra, summarized)
	if claims.NotGiven(s.noAddress) == nil {
		err = errors.Join(err, s.noAddress) // an error is retried; a change of the claim triggers a reconcile
	}
	return err
}

// externallyManaged reports whether an external system manages the infrastructure. Cluster API's code uses an
// annotation, and its contract ("Externally managed infrastructure") a label.
func externallyManaged(object client.Object) bool {
	_, labelled := object.GetLabels()[clusterv1.ManagedByAnnotation]
	return labelled || annotations.IsExternallyManaged(object)
}

// ownerCluster returns the Cluster that owns an object, or nil if it doesn't exist.
func (r *Reconciler) ownerCluster(ctx context.Context, infra *infrav1.LibvirtCluster) (*clusterv1.Cluster, error) {
	cluster, err := util.GetOwnerCluster(ctx, r.Client, infra.ObjectMeta)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return cluster, outcome.Wrap(err, "reading the owner")
}

// reconcileDelete reports whether everything is deleted. Otherwise Ready shows what it waits for.
func (r *Reconciler) reconcileDelete(ctx context.Context, s *scope) (bool, error) {
	waits, err := r.deleteAll(ctx, s)
	if err == nil && waits == "" {
		return true, nil
	}
	if err != nil {
		waits = err.Error()
	}
	conditions.Set(s.infra, metav1.Condition{Type: infrav1.ReadyCondition, Status: metav1.ConditionFalse, Reason: infrav1.DeletingReason, Message: waits})
	return false, err
}

// deleteAll waits until the cluster's LibvirtMachines are deleted, which need it to know their hosts. Then it deletes
// the load balancer and releases the endpoint's address, because IPAM providers don't release claims of a deleted
// Cluster. It returns what it waits for, or "" when everything is deleted.
func (r *Reconciler) deleteAll(ctx context.Context, s *scope) (string, error) {
	names, err := r.machineNames(ctx, s.infra)
	if err != nil {
		return "", err
	}
	if len(names) > 0 {
		return fmt.Sprintf("Waiting for %d LibvirtMachines to be deleted: %s", len(names), outcome.Names(names)), nil
	}
	if waits, err := r.deleteBalancer(ctx, s); err != nil || waits != "" {
		return waits, err
	}
	left, err := r.claimer(s.infra).Release(ctx, []string{claimName(s.infra)})
	if err != nil || len(left) == 0 {
		return "", err
	}
	return "Waiting for the IPAM provider to release IPAddressClaims: " + outcome.Names(left), nil
}

// machineNames lists the LibvirtMachines of the cluster without its load balancer.
func (r *Reconciler) machineNames(ctx context.Context, infra *infrav1.LibvirtCluster) ([]string, error) {
	name := clusterName(infra)
	if name == "" {
		return nil, nil // never owned by a Cluster
	}
	list := &infrav1.LibvirtMachineList{}
	if err := r.Client.List(ctx, list, client.InNamespace(infra.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: name}); err != nil {
		return nil, fmt.Errorf("listing the LibvirtMachines of the cluster: %w", err)
	}
	var names []string
	for i := range list.Items {
		if !isBalancerOf(&list.Items[i], infra) {
			names = append(names, list.Items[i].Name)
		}
	}
	return names, nil
}

// summarized has the conditions that Ready summarizes.
var summarized = conditions.ForConditionTypes{infrav1.HostsAvailableCondition, infrav1.ControlPlaneEndpointReadyCondition}

// setProvisioned marks the infrastructure as provisioned. This is never reverted.
func setProvisioned(infra *infrav1.LibvirtCluster) {
	for _, condition := range summarized {
		if !conditions.IsTrue(infra, condition) {
			return
		}
	}
	infra.Status.Initialization.Provisioned = ptr.To(true)
}

// waiting has the reasons of normal progress, for which no event is recorded.
var waiting = []string{infrav1.WaitingForControlPlaneEndpointReason, infrav1.WaitingForAddressReason}

// announce records events of the changed conditions after the status was written.
func (r *Reconciler) announce(before, after *infrav1.LibvirtCluster) {
	if !ptr.Deref(before.Status.Initialization.Provisioned, false) && ptr.Deref(after.Status.Initialization.Provisioned, false) {
		r.recorder.Eventf(after, nil, corev1.EventTypeNormal, "Provisioned", "Provision",
			"The endpoint is %s, and hosts are available", after.Spec.ControlPlaneEndpoint.String())
	}
	for _, condition := range append([]string{infrav1.ReadyCondition}, summarized...) {
		was, is := conditions.Get(before, condition), conditions.Get(after, condition)
		if is == nil || was != nil && was.Status == is.Status && was.Reason == is.Reason {
			continue
		}
		switch {
		case condition == infrav1.ReadyCondition && is.Reason == infrav1.DeletingReason && is.Message != "":
			r.recorder.Eventf(after, nil, corev1.EventTypeNormal, is.Reason, "Delete", "%s", is.Message)
		case condition != infrav1.ReadyCondition && is.Status == metav1.ConditionFalse && !slices.Contains(waiting, is.Reason):
			r.recorder.Eventf(after, nil, corev1.EventTypeWarning, is.Reason, "Reconcile", "%s", is.Message)
		}
	}
}
