package world

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	addonsv1beta1 "sigs.k8s.io/cluster-api/api/addons/v1beta1" //nolint:staticcheck // as long as Cluster API has it
	addonsv1 "sigs.k8s.io/cluster-api/api/addons/v1beta2"
	clusterv1beta1 "sigs.k8s.io/cluster-api/api/core/v1beta1"      //nolint:staticcheck // as long as Cluster API has it
	ipamv1alpha1 "sigs.k8s.io/cluster-api/api/ipam/v1alpha1"       //nolint:staticcheck // as long as Cluster API has it
	ipamv1beta1 "sigs.k8s.io/cluster-api/api/ipam/v1beta1"         //nolint:staticcheck // as long as Cluster API has it
	runtimev1alpha1 "sigs.k8s.io/cluster-api/api/runtime/v1alpha1" //nolint:staticcheck // as long as Cluster API has it
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/core/reconcilers/cluster"
	"sigs.k8s.io/cluster-api/core/reconcilers/clusterclass"
	"sigs.k8s.io/cluster-api/core/reconcilers/machine"
	"sigs.k8s.io/cluster-api/core/reconcilers/machinedeployment"
	"sigs.k8s.io/cluster-api/core/reconcilers/machinehealthcheck"
	"sigs.k8s.io/cluster-api/core/reconcilers/machinepool"
	"sigs.k8s.io/cluster-api/core/reconcilers/machineset"
	topologycluster "sigs.k8s.io/cluster-api/core/reconcilers/topology/cluster"
	topologymachinedeployment "sigs.k8s.io/cluster-api/core/reconcilers/topology/machinedeployment"
	topologymachineset "sigs.k8s.io/cluster-api/core/reconcilers/topology/machineset"
	"sigs.k8s.io/cluster-api/core/setup"
	"sigs.k8s.io/cluster-api/core/webhooks/admission"
	"sigs.k8s.io/cluster-api/util/index"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/controllers"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/fleet"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/placement"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/webhooks"
)

// startManagers starts Cluster API's manager and the provider's, and waits until both serve.
func (w *World) startManagers(ctx context.Context, own *rest.Config) error {
	options := w.environment.WebhookInstallOptions
	server := webhook.NewServer(webhook.Options{
		Host: options.LocalServingHost, Port: options.LocalServingPort, CertDir: options.LocalServingCertDir})
	w.own, w.server, w.life = own, server, ctx
	clusterAPI, err := w.clusterAPIManager(ctx, server)
	if err != nil {
		return fmt.Errorf("creating Cluster API's manager: %w", err)
	}
	provider, err := w.newProvider()
	if err != nil {
		return fmt.Errorf("creating the provider's manager: %w", err)
	}
	stopped := make(chan error, 1)
	w.stopped = append(w.stopped, stopped)
	go func() { stopped <- clusterAPI.Start(ctx) }()
	w.startProvider(provider)
	started := server.StartedChecker()
	for deadline := time.Now().Add(soon); ; time.Sleep(poll) {
		if err = started(nil); err == nil {
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("waiting for the webhooks: %w", err)
		}
	}
	for _, mgr := range []ctrl.Manager{provider.Manager, clusterAPI} {
		if !mgr.GetCache().WaitForCacheSync(ctx) {
			return errors.New("a manager's cache doesn't sync")
		}
	}
	return nil
}

// clusterAPIManager returns Cluster API's own manager, set up as in its main, without the parts that this provider
// doesn't use: ClusterResourceSets and migrations of CRDs.
func (w *World) clusterAPIManager(ctx context.Context, server webhook.Server) (ctrl.Manager, error) {
	scheme := newScheme(addonsv1.AddToScheme, runtimev1.AddToScheme,
		// Its webhooks need the older versions too.
		addonsv1beta1.AddToScheme, clusterv1beta1.AddToScheme, ipamv1alpha1.AddToScheme, ipamv1beta1.AddToScheme, runtimev1alpha1.AddToScheme)
	config := rest.CopyConfig(w.Config)
	if settings.ClusterAPITransport != nil {
		config.Wrap(settings.ClusterAPITransport)
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{Scheme: scheme, WebhookServer: server,
		Metrics: metricsserver.Options{BindAddress: "0"}, Client: setup.ManagerClientOptions(),
		Cache: setup.ManagerCacheOptions(scheme, "cluster-api", "", 10*time.Minute)})
	if err != nil {
		return nil, err
	}
	if err := index.AddDefaultIndexes(ctx, mgr); err != nil {
		return nil, fmt.Errorf("adding indexes: %w", err)
	}
	c, reader, ten := mgr.GetClient(), mgr.GetAPIReader(), controller.Options{MaxConcurrentReconciles: 10}
	secrets, err := setup.CreateSecretCachingClient(mgr)
	if err != nil {
		return nil, err
	}
	clusters, err := clustercache.SetupWithManager(ctx, mgr, clustercache.Options{SecretClient: secrets,
		Cache: setup.ClusterCacheCacheOptions(), Client: setup.ClusterCacheClientOptions("world", 100, 200)}, ten)
	if err != nil {
		return nil, err
	}
	if running, can := clusters.(interface{ Shutdown() }); can {
		context.AfterFunc(ctx, running.Shutdown) // its caches don't end with the manager
	}
	own, err := client.New(w.own, client.Options{Scheme: newScheme()})
	if err != nil {
		return nil, err
	}
	called, err := w.addExtensions(ctx, mgr, own)
	if err != nil {
		return nil, fmt.Errorf("setting up runtime extensions: %w", err)
	}
	for _, one := range []interface {
		SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error
	}{
		&cluster.Reconciler{Client: c, APIReader: reader, ClusterCache: clusters, RemoteConnectionGracePeriod: 5 * time.Minute},
		&machine.Reconciler{Client: c, APIReader: reader, ClusterCache: clusters, RuntimeClient: called, RemoteConditionsGracePeriod: 5 * time.Minute},
		&machineset.Reconciler{Client: c, APIReader: reader, ClusterCache: clusters},
		&machinedeployment.Reconciler{Client: c, APIReader: reader, RuntimeClient: called},
		&machinehealthcheck.Reconciler{Client: c, ClusterCache: clusters},
		&machinepool.Reconciler{Client: c, APIReader: reader, ClusterCache: clusters},
		&ipamProvider{w.Client},
		&clusterclass.Reconciler{Client: c, RuntimeClient: called},
		&topologycluster.Reconciler{Client: c, APIReader: reader, ClusterCache: clusters, RuntimeClient: called},
		&topologymachinedeployment.Reconciler{Client: c, APIReader: reader},
		&topologymachineset.Reconciler{Client: c, APIReader: reader},
	} {
		if err := one.SetupWithManager(ctx, mgr, ten); err != nil {
			return nil, fmt.Errorf("setting up %T: %w", one, err)
		}
	}
	for _, one := range []interface {
		SetupWebhookWithManager(mgr ctrl.Manager) error
	}{
		&admission.Cluster{Client: c, ClusterCacheReader: clusters}, &admission.ClusterClass{Client: c}, &admission.Machine{},
		&admission.MachineSet{}, &admission.MachineDeployment{}, &admission.MachineDrainRule{}, &admission.MachinePool{},
		&admission.MachineHealthCheck{}, &admission.IPAddress{Client: reader}, &admission.IPAddressClaim{},
		&admission.ClusterResourceSet{}, &admission.ClusterResourceSetBinding{}, &admission.ExtensionConfig{},
	} {
		if err := one.SetupWebhookWithManager(mgr); err != nil {
			return nil, fmt.Errorf("setting up %T: %w", one, err)
		}
	}
	return mgr, nil
}

// borrowed is a webhook server that another manager starts.
type borrowed struct{ webhook.Server }

// Start waits until the context ends.
func (b borrowed) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// runs counts the provider's managers, because the names of their informers must differ. The names of controllers are
// not checked: Cluster API's manager has a clustercache too.
var runs atomic.Int32

// providerManager returns this provider's manager, set up as in its main, with fake hosts that connect connects to. Its
// webhooks are those of the first manager, because they don't depend on one.
func (w *World) providerManager(ctx context.Context, config *rest.Config, ledger *placement.Ledger, connect fleet.Connect) (ctrl.Manager, error) {
	scheme, first := newScheme(), w.provider == nil
	config.QPS, config.Burst = -1, 0
	mgr, err := ctrl.NewManager(config, ctrl.Options{Scheme: scheme, WebhookServer: borrowed{w.server},
		Metrics: metricsserver.Options{BindAddress: "0"}, Client: setup.ManagerClientOptions(),
		Controller: ctrlconfig.Controller{SkipNameValidation: ptr.To(true)},
		Cache:      setup.ManagerCacheOptions(scheme, fmt.Sprintf("caplv-%d", runs.Add(1)), "", 10*time.Minute)})
	if err != nil {
		return nil, err
	}
	if first {
		if err := webhooks.SetupWithManager(mgr, webhooks.Options{ManagerNamespace: ManagerNamespace}); err != nil {
			return nil, err
		}
	}
	sessions := fleet.New(connect, fleet.Options{ListInterval: time.Second, RefreshInterval: time.Second, MinBackoff: 50 * time.Millisecond, MaxBackoff: time.Second})
	if err := mgr.Add(sessions); err != nil {
		return nil, err
	}
	orphans := settings.Orphans
	orphans.Interval = cmp.Or(orphans.Interval, time.Second)
	workload, err := controllers.WorkloadClusters(ctx, mgr, "world")
	if err != nil {
		return nil, err
	}
	if running, can := workload.(interface{ Shutdown() }); can {
		context.AfterFunc(ctx, running.Shutdown) // its caches don't end with the manager
	}
	return mgr, controllers.SetupWithManager(ctx, mgr, controllers.Options{Fleet: sessions, Workload: workload, Images: settings.Images, Orphans: orphans,
		Ledger: ledger, CountInterval: settings.CountInterval, Concurrency: controllers.Concurrency{
			LibvirtCluster: 10, LibvirtMachine: 50, LibvirtMachineTemplate: 10, LibvirtMachinePool: 10, LibvirtHost: 10, LibvirtClusterIdentity: 5}})
}
