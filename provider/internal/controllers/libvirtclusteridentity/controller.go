// Package libvirtclusteridentity reconciles LibvirtClusterIdentities: credentials for hypervisors.
package libvirtclusteridentity

import (
	"context"
	"fmt"
	"slices"
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
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"sigs.k8s.io/cluster-api/util/conditions"
	capicontrollerutil "sigs.k8s.io/cluster-api/util/controller"
	"sigs.k8s.io/cluster-api/util/finalizers"
	"sigs.k8s.io/cluster-api/util/paused"
	"sigs.k8s.io/cluster-api/util/predicates"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/access"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/notes"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/outcome"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/secretwatch"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/watches"
)

// Secrets are read one by one: the manager can read those in the specs, and caches none. In its own namespace it
// watches their metadata, and can patch them (config/rbac/credentials_role.yaml).
//
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=libvirtclusteridentities,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=libvirtclusteridentities/status,verbs=patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=libvirthosts,verbs=get;list;watch

// secretInterval is the interval of reading a Secret that is unusable or not watched.
const secretInterval = 15 * time.Second

// Reconciler reconciles LibvirtClusterIdentities.
type Reconciler struct {
	// Client reads from the manager's cache, except for Secrets, and writes.
	Client client.Client

	// WatchFilterValue is the required value of the label cluster.x-k8s.io/watch-filter, or empty for all objects.
	WatchFilterValue string

	// Namespace is the namespace of the manager, whose Secrets may be changed. If it is empty, all Secrets may be.
	Namespace string

	// Secrets watches Secrets. It may be nil.
	Secrets *secretwatch.Watch

	recorder events.EventRecorder
}

// SetupWithManager registers the reconciler with a manager.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	r.recorder = notes.Short(mgr.GetEventRecorder("libvirtclusteridentity-controller"))
	log := ctrl.LoggerFrom(ctx).WithValues("controller", "libvirtclusteridentity")
	of := capicontrollerutil.NewControllerManagedBy(mgr, log).
		For(&infrav1.LibvirtClusterIdentity{}, builder.WithPredicates(
			predicates.ResourceHasFilterLabel(mgr.GetScheme(), log, r.WatchFilterValue))).
		WithOptions(options).
		Watches(&infrav1.LibvirtHost{}, handler.EnqueueRequestsFromMapFunc(hostToIdentity), predicate.GenerationChangedPredicate{})
	if r.Secrets != nil {
		of = of.WatchesRawSource(r.Secrets.Source(func(_ context.Context, identity client.Object) []ctrl.Request {
			return []ctrl.Request{{NamespacedName: client.ObjectKeyFromObject(identity)}}
		}))
	}
	return of.Complete(ctx, r)
}

// hostToIdentity returns the identity of a host. If the identity of a host changes, it is called with the old and the
// new host.
func hostToIdentity(_ context.Context, object client.Object) []ctrl.Request {
	host, ok := object.(*infrav1.LibvirtHost)
	if !ok || host.Spec.IdentityRef == nil {
		return nil
	}
	return []ctrl.Request{{NamespacedName: types.NamespacedName{Name: host.Spec.IdentityRef.Name}}}
}

// Reconcile makes an identity an owner of its Secret and reports whether the Secret can be used.
//
// A write of anything but the status ends the reconcile: the change triggers the next one.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	identity := &infrav1.LibvirtClusterIdentity{}
	if err := r.Client.Get(ctx, req.NamespacedName, identity); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !watches.HasFilterLabel(identity, r.WatchFilterValue) {
		return ctrl.Result{}, nil // watches of hosts don't filter
	}
	if added, err := finalizers.EnsureFinalizer(ctx, r.Client, identity, infrav1.ClusterIdentityFinalizer); err != nil || added {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if isPaused, written, err := paused.EnsurePausedCondition(ctx, r.Client, nil, identity); err != nil || isPaused || written {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}

	before := identity.DeepCopy()
	do := r.reconcileNormal
	if !identity.DeletionTimestamp.IsZero() {
		do = r.reconcileDelete
	}
	result, err := do(ctx, identity)
	return outcome.End(ctx, r.Client, "writing the status", before, identity, result, err, r.announce)
}

func (r *Reconciler) reconcileNormal(ctx context.Context, identity *infrav1.LibvirtClusterIdentity) (ctrl.Result, error) {
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: identity.Spec.SecretRef.Namespace, Name: identity.Spec.SecretRef.Name}
	err := r.Client.Get(ctx, key, secret)
	if apierrors.IsNotFound(err) {
		setReady(identity, metav1.ConditionFalse, infrav1.SecretNotFoundReason, fmt.Sprintf("Secret %s doesn't exist", key))
		return ctrl.Result{RequeueAfter: secretInterval}, nil
	}
	note := ""
	if r.Namespace != "" && key.Namespace != r.Namespace {
		note = fmt.Sprintf("`clusterctl move` doesn't move Secret %s: it isn't in namespace %s", key, r.Namespace)
	} else if err == nil {
		err = r.own(ctx, identity, secret)
	}
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: outcome.ConflictDelay}, nil
	}
	if err != nil {
		setReady(identity, metav1.ConditionUnknown, infrav1.InternalErrorReason, fmt.Sprintf("Secret %s: %v", key, err))
		return ctrl.Result{}, fmt.Errorf("owning Secret %s: %w", key, err)
	}
	if _, err := access.Identity(identity, &corev1.Namespace{}); err != nil {
		setReady(identity, metav1.ConditionFalse, infrav1.AllowedNamespacesInvalidReason, "Only the namespaces in spec.allowedNamespaces.list may use its hosts: "+err.Error())
		return ctrl.Result{}, nil //nolint:nilerr // a change of the spec triggers a reconcile
	}
	if err := check(secret.Data, time.Now()); err != nil {
		setReady(identity, metav1.ConditionFalse, infrav1.SecretInvalidReason, fmt.Sprintf("Secret %s %s", key, outcome.OneLine(err)))
		return ctrl.Result{RequeueAfter: secretInterval}, nil
	}
	setReady(identity, metav1.ConditionTrue, infrav1.ReadyReason, note)
	if r.Secrets.Covers(identity) {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{RequeueAfter: secretInterval}, nil
}

// own makes an identity an additional owner of its Secret, so that `clusterctl move` moves the Secret (contract for
// clusterctl, "Move").
func (r *Reconciler) own(ctx context.Context, identity *infrav1.LibvirtClusterIdentity, secret *corev1.Secret) error {
	before := secret.DeepCopy()
	if err := controllerutil.SetOwnerReference(identity, secret, r.Client.Scheme()); err != nil {
		return fmt.Errorf("setting the owner reference: %w", err)
	}
	if slices.EqualFunc(before.OwnerReferences, secret.OwnerReferences, func(a, b metav1.OwnerReference) bool { return a.UID == b.UID }) {
		return nil
	}
	return r.Client.Patch(ctx, secret, outcome.Over(before))
}

// reconcileDelete removes the finalizer when no LibvirtHost refers to the identity: a host without credentials, and its
// machines, would be lost.
func (r *Reconciler) reconcileDelete(ctx context.Context, identity *infrav1.LibvirtClusterIdentity) (ctrl.Result, error) {
	hosts := &infrav1.LibvirtHostList{}
	if err := r.Client.List(ctx, hosts); err != nil {
		setReady(identity, metav1.ConditionFalse, infrav1.DeletingReason, err.Error())
		return ctrl.Result{}, fmt.Errorf("listing LibvirtHosts: %w", err)
	}
	var names []string
	for _, host := range hosts.Items {
		if host.Spec.IdentityRef != nil && host.Spec.IdentityRef.Name == identity.Name {
			names = append(names, host.Name)
		}
	}
	if len(names) == 0 {
		removed, err := outcome.RemoveFinalizer(ctx, r.Client, identity, infrav1.ClusterIdentityFinalizer)
		if !removed { // another finalizer remains
			setReady(identity, metav1.ConditionFalse, infrav1.DeletingReason, "")
		}
		return outcome.Again(err)
	}
	slices.Sort(names)
	setReady(identity, metav1.ConditionFalse, infrav1.DeletingReason, fmt.Sprintf(
		"Waiting for %d LibvirtHosts to be deleted or to get another identity, the first is %s", len(names), names[0]))
	return ctrl.Result{}, nil
}

func setReady(identity *infrav1.LibvirtClusterIdentity, status metav1.ConditionStatus, reason, message string) {
	conditions.Set(identity, metav1.Condition{Type: infrav1.ReadyCondition, Status: status, Reason: reason, Message: message})
}

// announce records an event when the condition becomes False.
func (r *Reconciler) announce(before, after *infrav1.LibvirtClusterIdentity) {
	was, is := conditions.Get(before, infrav1.ReadyCondition), conditions.Get(after, infrav1.ReadyCondition)
	if is == nil || is.Status != metav1.ConditionFalse || is.Message == "" || was != nil && was.Reason == is.Reason {
		return
	}
	r.recorder.Eventf(after, nil, corev1.EventTypeWarning, is.Reason, "Reconcile", "%s", is.Message)
}
