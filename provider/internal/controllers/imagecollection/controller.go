// Package imagecollection deletes images from hosts that no machine has used for a while.
package imagecollection

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"sigs.k8s.io/cluster-api/util/annotations"
	capicontrollerutil "sigs.k8s.io/cluster-api/util/controller"
	"sigs.k8s.io/cluster-api/util/predicates"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/fleet"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/images"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/index"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/metrics"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/notes"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/watches"
)

// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=libvirthosts;libvirtmachines,verbs=get;list;watch

const (
	// name is the name of the controller, which differs from the one of LibvirtHosts.
	name = "libvirthost-images"
	// longestInterval and shortestInterval limit the interval of checking a host, by its snapshot.
	longestInterval, shortestInterval = 10 * time.Minute, time.Second
	// shownImages is the maximum number of images in an event.
	shownImages = 5
)

// Reconciler deletes unused images from hosts. It never writes to a LibvirtHost.
type Reconciler struct {
	// Client reads from the manager's cache.
	Client client.Client

	Hosts fleet.Snapshots

	// Images has the images on hosts, and how long they stay.
	Images *images.Store

	// WatchFilterValue is the required value of the label cluster.x-k8s.io/watch-filter, or empty for all LibvirtHosts.
	WatchFilterValue string

	recorder events.EventRecorder
}

// SetupWithManager registers the reconciler with a manager.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	r.recorder = notes.Short(mgr.GetEventRecorder(name + "-controller"))
	log := ctrl.LoggerFrom(ctx).WithValues("controller", name)
	return capicontrollerutil.NewControllerManagedBy(mgr, log).
		Named(name).
		For(&infrav1.LibvirtHost{}, builder.WithPredicates(
			predicates.ResourceHasFilterLabel(mgr.GetScheme(), log, r.WatchFilterValue),
			// Other changes are processed at the next interval.
			predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		WithOptions(options).
		Complete(ctx, r)
}

// Reconcile deletes unused images from one host, at intervals. It ignores paused and unreachable hosts.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	host := &infrav1.LibvirtHost{}
	if err := r.Client.Get(ctx, req.NamespacedName, host); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(req.Name)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !watches.HasFilterLabel(host, r.WatchFilterValue) || annotations.HasPaused(host) {
		r.forget(host.Name)
		return ctrl.Result{}, nil
	}
	later := ctrl.Result{RequeueAfter: min(max(r.Images.Retention()/4, shortestInterval), longestInterval)}
	snapshot, _ := r.Hosts.Snapshot(host.Name)
	if !snapshot.Reachable {
		return later, nil
	}
	collection, err := r.collection(ctx, host, snapshot)
	if err != nil {
		return ctrl.Result{}, err
	}
	collected, err := r.Images.Collect(ctx, collection)
	r.report(host, collected)
	if errors.Is(err, hypervisor.ErrUnreachable) {
		return later, nil // the controller of LibvirtHosts reports it
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("deleting images that no machine uses: %w", err)
	}
	return later, nil
}

func (r *Reconciler) collection(ctx context.Context, host *infrav1.LibvirtHost, snapshot fleet.Snapshot) (images.Collection, error) {
	machines, err := index.BoundTo(ctx, r.Client, host.Name)
	if err != nil {
		return images.Collection{}, err
	}
	collection := images.Collection{
		Host: host.Name, Age: r.Images.Retention(),
		Pools:   append([]string{host.Spec.StoragePools.Images}, host.Spec.StoragePools.Disks...),
		Domains: slices.Collect(maps.Values(snapshot.Domains)),
	}
	for i := range machines {
		machine := &machines[i]
		if machine.Spec.Image.URL != "" && !ptr.Deref(machine.Status.Initialization.Provisioned, false) {
			wish, err := images.WishOf(ctx, r.Client, host, machine)
			if err != nil {
				return images.Collection{}, err
			}
			collection.Wanted = append(collection.Wanted, wish)
		}
	}
	for _, pool := range snapshot.Pools {
		collection.Volumes = slices.AppendSeq(collection.Volumes, maps.Values(pool.Volumes))
	}
	return collection, nil
}

// report counts the deleted images and records an event.
func (r *Reconciler) report(host *infrav1.LibvirtHost, collected images.Collected) {
	count := len(collected.Images) + collected.HalfImages
	if count == 0 {
		return
	}
	metrics.DeletedImages.WithLabelValues(host.Name).Add(float64(count))
	metrics.DeletedBytes.WithLabelValues(host.Name).Add(float64(collected.Bytes))
	shown := slices.Sorted(slices.Values(collected.Images))
	if rest := len(shown) - shownImages; rest > 0 {
		shown = append(shown[:shownImages:shownImages], fmt.Sprintf("%d more", rest))
	}
	if collected.HalfImages > 0 {
		shown = append(shown, fmt.Sprintf("%d incomplete images", collected.HalfImages))
	}
	r.recorder.Eventf(host, nil, corev1.EventTypeNormal, "ImagesDeleted", "DeleteImages", "Deleted images that no machine has used for %s, %s in total: %s",
		r.Images.Retention(), resource.NewQuantity(collected.Bytes, resource.BinarySI), strings.Join(shown, ", "))
}

func (r *Reconciler) forget(host string) {
	r.Images.ForgetHost(host)
	metrics.DeletedImages.DeleteLabelValues(host)
	metrics.DeletedBytes.DeleteLabelValues(host)
}
