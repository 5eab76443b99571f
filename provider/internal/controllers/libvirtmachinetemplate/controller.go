// Package libvirtmachinetemplate reconciles LibvirtMachineTemplates: it writes the capacity of nodes for autoscalers.
package libvirtmachinetemplate

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"
	capicontrollerutil "sigs.k8s.io/cluster-api/util/controller"
	"sigs.k8s.io/cluster-api/util/predicates"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/outcome"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/watches"
)

// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=libvirtmachinetemplates,verbs=get;list;watch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=libvirtmachinetemplates/status,verbs=patch

// operatingSystem is the operating system of nodes, the only one that Cluster API's bootstrap providers support for
// virtual machines.
const operatingSystem = "linux"

// Reconciler reconciles LibvirtMachineTemplates.
type Reconciler struct {
	// Client reads from the manager's cache, and writes.
	Client client.Client

	// WatchFilterValue is the required value of the label cluster.x-k8s.io/watch-filter, or empty for all objects.
	WatchFilterValue string
}

// SetupWithManager registers the reconciler with a manager.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	log := ctrl.LoggerFrom(ctx).WithValues("controller", "libvirtmachinetemplate")
	return capicontrollerutil.NewControllerManagedBy(mgr, log).
		For(&infrav1.LibvirtMachineTemplate{}, builder.WithPredicates(
			predicates.ResourceHasFilterLabel(mgr.GetScheme(), log, r.WatchFilterValue))).
		WithOptions(options).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(r.clusterToTemplates), predicates.Any(mgr.GetScheme(), log,
			predicates.ClusterCreateNotPaused(mgr.GetScheme(), log),
			predicates.ClusterPausedTransitions(mgr.GetScheme(), log),
		)).
		Complete(ctx, r)
}

// clusterToTemplates returns the templates that a Cluster owns. They have no label by which they could be selected.
func (r *Reconciler) clusterToTemplates(ctx context.Context, cluster client.Object) []ctrl.Request {
	return watches.Requests(ctx, r.Client, &infrav1.LibvirtMachineTemplateList{}, func(template *infrav1.LibvirtMachineTemplate) bool {
		return util.IsOwnedByObject(template, cluster, clusterv1.GroupVersion.WithKind("Cluster").GroupKind())
	}, client.InNamespace(cluster.GetNamespace()))
}

// Reconcile writes the capacity of a node from a template into the template's status (contract of InfraMachine,
// "InfraMachineTemplate: support cluster autoscaling from zero").
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	template := &infrav1.LibvirtMachineTemplate{}
	if err := r.Client.Get(ctx, req.NamespacedName, template); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !watches.HasFilterLabel(template, r.WatchFilterValue) || !template.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	// Templates have no conditions to show that they are paused. An unused template has no owner. If the owner is
	// missing in the cache, the template may be paused, and waits for it.
	cluster, err := util.GetOwnerCluster(ctx, r.Client, template.ObjectMeta)
	if apierrors.IsNotFound(err) {
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading the owner: %w", err)
	}
	if annotations.HasPaused(template) || cluster != nil && annotations.IsPaused(cluster, template) {
		return ctrl.Result{}, nil
	}

	before := template.DeepCopy()
	template.Status.Capacity = capacity(&template.Spec.Template.Spec)
	template.Status.NodeInfo = infrav1.NodeInfo{
		Architecture:    cmp.Or(template.Spec.Template.Spec.CPU.Architecture, infrav1.ArchitectureAmd64),
		OperatingSystem: operatingSystem,
	}
	_, err = outcome.WriteStatus(ctx, r.Client, before, template)
	return outcome.Again(outcome.Wrap(client.IgnoreNotFound(err), "writing the status"))
}

// capacity returns the capacity of a node. It doesn't include devices: their names depend on the device plugin of the
// node.
func capacity(spec *infrav1.LibvirtMachineSpec) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewQuantity(int64(spec.CPUs), resource.DecimalSI),
		corev1.ResourceMemory: spec.Memory,
	}
}
