// Package controllers registers the provider's controllers with a manager. Each controller has a folder.
package controllers

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/core/setup"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/feature"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/controllers/evacuation"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/controllers/imagecollection"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/controllers/libvirtcluster"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/controllers/libvirtclusteridentity"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/controllers/libvirthost"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/controllers/libvirtmachine"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/controllers/libvirtmachinepool"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/controllers/libvirtmachinetemplate"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/controllers/orphans"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/fleet"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/images"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/index"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/metrics"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/placement"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/secretwatch"
)

// Options has the shared dependencies of the controllers, and the numbers of concurrent reconciles.
type Options struct {
	// WatchFilterValue is the required value of the label cluster.x-k8s.io/watch-filter, or empty for all objects.
	WatchFilterValue string

	// Concurrency is the number of concurrent reconciles of each kind.
	Concurrency Concurrency

	// Fleet has the sessions with hosts. The caller starts it.
	Fleet *fleet.Fleet

	// Images limits the transfers of images.
	Images images.Options

	// Namespace is the namespace of the manager. Secrets of LibvirtClusterIdentities are watched and changed there. If
	// it is empty, no Secret is.
	Namespace string

	// Orphans has the intervals for orphans, and enables their deletion.
	Orphans orphans.Options

	// Workload has the connections that WorkloadClusters returned.
	Workload clustercache.ClusterCache

	// Ledger may be nil. Tests set it to see the reservations.
	Ledger *placement.Ledger

	// CountInterval is the minimum time between two writes of numbers in a LibvirtHost's status. The default is 30
	// seconds.
	CountInterval time.Duration
}

// Concurrency has the number of concurrent reconciles of each kind.
type Concurrency struct {
	LibvirtCluster, LibvirtMachine, LibvirtMachineTemplate, LibvirtMachinePool, LibvirtHost, LibvirtClusterIdentity int
}

// hostsPatience is how long machines wait for first connections to hosts. A reachable host is read within two seconds.
const hostsPatience = 5 * time.Second

type reconciler interface {
	// SetupWithManager registers the reconciler with a manager.
	SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error
}

// SetupWithManager registers all enabled controllers.
func SetupWithManager(ctx context.Context, mgr ctrl.Manager, options Options) error {
	if err := index.Add(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	store := images.New(options.Fleet.Hypervisor, options.Fleet.Pools, options.Images)
	if err := mgr.Add(store); err != nil {
		return fmt.Errorf("adding the transfers of images to the manager: %w", err)
	}
	var secrets *secretwatch.Watch
	if options.Namespace != "" {
		var err error
		if secrets, err = secretwatch.New(mgr, options.Namespace); err != nil {
			return err
		}
	}
	client, filter := mgr.GetClient(), options.WatchFilterValue
	scheduler := &placement.Scheduler{Ledger: cmp.Or(options.Ledger, &placement.Ledger{}), Client: client, APIReader: mgr.GetAPIReader(),
		Hosts: options.Fleet, HostsPatience: hostsPatience, WatchFilterValue: filter}
	metrics.Reservations(scheduler.Reserved)
	all := []struct {
		name        string
		reconciler  reconciler
		concurrency int
		off         bool
	}{
		{name: "LibvirtCluster", concurrency: options.Concurrency.LibvirtCluster,
			reconciler: &libvirtcluster.Reconciler{Client: client, APIReader: mgr.GetAPIReader(), WatchFilterValue: filter}},
		{name: "LibvirtMachine", concurrency: options.Concurrency.LibvirtMachine,
			reconciler: &libvirtmachine.Reconciler{Client: client, APIReader: mgr.GetAPIReader(), Hosts: options.Fleet, Images: store,
				Scheduler:        scheduler,
				News:             libvirtmachine.News{Machines: options.Fleet.Machines(), Reachability: options.Fleet.Reachability()},
				Workload:         options.Workload,
				InPlaceUpdates:   feature.Gates.Enabled(feature.InPlaceUpdates),
				WatchFilterValue: filter}},
		{name: "LibvirtMachineTemplate", concurrency: options.Concurrency.LibvirtMachineTemplate,
			reconciler: &libvirtmachinetemplate.Reconciler{Client: client, WatchFilterValue: filter}},
		{name: "LibvirtMachinePool", concurrency: options.Concurrency.LibvirtMachinePool,
			reconciler: &libvirtmachinepool.Reconciler{Client: client, APIReader: mgr.GetAPIReader(), WatchFilterValue: filter},
			off:        !feature.Gates.Enabled(feature.MachinePool)},
		{name: "LibvirtHost", concurrency: options.Concurrency.LibvirtHost,
			reconciler: &libvirthost.Reconciler{Client: client, Fleet: options.Fleet, Scheduler: scheduler, Secrets: secrets, WatchFilterValue: filter, CountInterval: options.CountInterval}},
		{name: "evacuations", concurrency: options.Concurrency.LibvirtHost,
			reconciler: &evacuation.Reconciler{Client: client, WatchFilterValue: filter}},
		{name: "orphans", concurrency: options.Concurrency.LibvirtHost,
			reconciler: &orphans.Reconciler{Client: client, APIReader: mgr.GetAPIReader(), Hosts: options.Fleet, Options: options.Orphans, WatchFilterValue: filter}},
		{name: "images on LibvirtHosts", concurrency: options.Concurrency.LibvirtHost,
			reconciler: &imagecollection.Reconciler{Client: client, Hosts: options.Fleet, Images: store, WatchFilterValue: filter},
			off:        options.Images.Retention == 0},
		{name: "LibvirtClusterIdentity", concurrency: options.Concurrency.LibvirtClusterIdentity,
			reconciler: &libvirtclusteridentity.Reconciler{Client: client, Namespace: options.Namespace, Secrets: secrets, WatchFilterValue: filter}},
	}
	for _, c := range all {
		if c.off {
			continue
		}
		if err := c.reconciler.SetupWithManager(ctx, mgr, controller.Options{MaxConcurrentReconciles: c.concurrency}); err != nil {
			return fmt.Errorf("setting up the controller of %s: %w", c.name, err)
		}
	}
	return nil
}

// WorkloadClusters registers the connections to the workload clusters with a LibvirtCluster, by their kubeconfigs. It
// returns nil if no enabled feature needs them. name is the manager's.
func WorkloadClusters(ctx context.Context, mgr ctrl.Manager, name string) (clustercache.ClusterCache, error) {
	if !feature.Gates.Enabled(feature.NodeProviderIDs) {
		return nil, nil
	}
	// The manager's client reads Secrets one by one, without a cache: a kubeconfig is read for each connection.
	clusters, err := clustercache.SetupWithManager(ctx, mgr, clustercache.Options{
		SecretClient:  mgr.GetClient(),
		ClusterFilter: ofLibvirt,
		Cache:         cacheOptions(),
		Client:        setup.ClusterCacheClientOptions(name, 20, 30),
	}, controller.Options{MaxConcurrentReconciles: 10})
	if err != nil {
		return nil, fmt.Errorf("setting up the connections to workload clusters: %w", err)
	}
	return clusters, nil
}

// cacheOptions returns options with an index for finding the node of a machine.
func cacheOptions() clustercache.CacheOptions {
	options := setup.ClusterCacheCacheOptions()
	options.Indexes = append(options.Indexes, clustercache.CacheOptionsIndex{Object: &corev1.Node{}, Field: index.NodeDomain, ExtractValue: index.DomainsOf})
	return options
}

func ofLibvirt(cluster *clusterv1.Cluster) bool {
	infra := cluster.Spec.InfrastructureRef
	return infra.APIGroup == infrav1.GroupVersion.Group && infra.Kind == "LibvirtCluster"
}
