// Package controllers registers the provider's controllers with a manager. Each has a folder.
package controllers

import (
	"cmp"
	"context"
	"fmt"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"sigs.k8s.io/cluster-api/controllers/clustercache"

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

// Options are what is the same for all controllers, and how much each does at once.
type Options struct {
	// WatchFilterValue is the value of the label cluster.x-k8s.io/watch-filter that an object must
	// have to be looked at. Every object is when it is empty.
	WatchFilterValue string

	// Concurrency is how many objects of each kind are reconciled at once.
	Concurrency Concurrency

	// Fleet keeps the sessions with hosts. It is started by whoever made it.
	Fleet *fleet.Fleet

	// Images are the limits of bringing images to hosts.
	Images images.Options

	// Namespace is the one that the manager runs in. The Secrets of LibvirtClusterIdentities are watched and changed
	// there; when it is empty none are watched.
	Namespace string

	// Orphans say how often to look for what is left of machines on hosts, and whether to delete it.
	Orphans orphans.Options

	// Workload are the workload clusters: what WorkloadClusters returned.
	Workload clustercache.ClusterCache

	// Ledger places machines on hosts. Whoever made it can see what is reserved. One is made when it is nil.
	Ledger *placement.Ledger

	// CountInterval is how long numbers in the status of a LibvirtHost stay as they are. 30 seconds when it is 0.
	CountInterval time.Duration
}

// Concurrency is how many objects of each kind are reconciled at once.
type Concurrency struct {
	// LibvirtCluster is for LibvirtClusters.
	LibvirtCluster int
	// LibvirtMachine is for LibvirtMachines.
	LibvirtMachine int
	// LibvirtMachineTemplate is for LibvirtMachineTemplates.
	LibvirtMachineTemplate int
	// LibvirtMachinePool is for LibvirtMachinePools.
	LibvirtMachinePool int
	// LibvirtHost is for LibvirtHosts.
	LibvirtHost int
	// LibvirtClusterIdentity is for LibvirtClusterIdentities.
	LibvirtClusterIdentity int
}

// hostsPatience is for how long machines wait for hosts that are being connected to for the first time. One
// that can be reached is, and is read, within a second or two.
const hostsPatience = 5 * time.Second

type reconciler interface {
	SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error
}

// SetupWithManager registers every controller that is on.
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
