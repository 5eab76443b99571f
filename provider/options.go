package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/component-base/logs"
	logsv1 "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/remote"
	"sigs.k8s.io/cluster-api/core/setup"
	"sigs.k8s.io/cluster-api/exp/runtime/server"
	"sigs.k8s.io/cluster-api/util/apiwarnings"
	capiflags "sigs.k8s.io/cluster-api/util/flags"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/feature"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/controllers"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/controllers/orphans"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/images"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/updateextension"
)

const (
	controllerName   = "caplv-controller-manager"
	leaderElectionID = "controller-leader-election-caplv"
	cacheSyncTimeout = 5 * time.Minute
	// minOrphanAge is the minimum of --orphan-min-age: longer than a successful move takes.
	minOrphanAge = 10 * time.Minute
)

// options has the values of the flags.
type options struct {
	leaderElect              bool
	leaderElectLeaseDuration time.Duration
	leaderElectRenewDeadline time.Duration
	leaderElectRetryPeriod   time.Duration

	namespace   string
	watchFilter string
	syncPeriod  time.Duration
	concurrency controllers.Concurrency
	images      images.Options
	orphans     orphans.Options

	kubeAPIQPS   float32
	kubeAPIBurst int

	webhookPort     int
	webhookCertDir  string
	webhookCertName string
	webhookKeyName  string
	extensionPort   int

	healthAddr          string
	profilerAddress     string
	contentionProfiling bool

	diagnostics capiflags.ManagerOptions
	logs        *logs.Options
}

func newOptions() *options {
	return &options{logs: logs.NewOptions()}
}

// addFlags adds the flags, with the names of Cluster API's own managers.
func (o *options) addFlags(flags *pflag.FlagSet) {
	logsv1.AddFlags(o.logs, flags)
	o.addLeaderElectionFlags(flags)
	o.addReconcileFlags(flags)
	o.addServerFlags(flags)
	capiflags.AddManagerOptions(flags, &o.diagnostics)
	feature.MutableGates.AddFlag(flags)
}

func (o *options) addLeaderElectionFlags(flags *pflag.FlagSet) {
	flags.BoolVar(&o.leaderElect, "leader-elect", false,
		"Elect a leader, so that only one manager is active.")
	flags.DurationVar(&o.leaderElectLeaseDuration, "leader-elect-lease-duration", 15*time.Second,
		"How long other managers wait for a silent leader before one of them takes over.")
	flags.DurationVar(&o.leaderElectRenewDeadline, "leader-elect-renew-deadline", 10*time.Second,
		"How long the leader tries to renew its leadership before it gives up.")
	flags.DurationVar(&o.leaderElectRetryPeriod, "leader-elect-retry-period", 2*time.Second,
		"How long a manager waits between two attempts to become or stay the leader.")
}

func (o *options) addReconcileFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.namespace, "namespace", "",
		"Namespace whose objects are reconciled. All namespaces when empty.")
	flags.StringVar(&o.watchFilter, "watch-filter", "",
		fmt.Sprintf("Value of the label %s that objects must have to be reconciled. All objects when empty.", clusterv1.WatchLabel))
	flags.DurationVar(&o.syncPeriod, "sync-period", 10*time.Minute,
		"How often unchanged objects are reconciled.")

	flags.IntVar(&o.concurrency.LibvirtCluster, "libvirtcluster-concurrency", 10,
		"Number of LibvirtClusters that are reconciled at once.")
	flags.IntVar(&o.concurrency.LibvirtMachine, "libvirtmachine-concurrency", 50,
		"Number of LibvirtMachines that are reconciled at once.")
	flags.IntVar(&o.concurrency.LibvirtMachineTemplate, "libvirtmachinetemplate-concurrency", 10,
		"Number of LibvirtMachineTemplates that are reconciled at once.")
	flags.IntVar(&o.concurrency.LibvirtMachinePool, "libvirtmachinepool-concurrency", 10,
		"Number of LibvirtMachinePools that are reconciled at once.")
	flags.IntVar(&o.concurrency.LibvirtHost, "libvirthost-concurrency", 10,
		"Number of LibvirtHosts that are reconciled at once.")
	flags.IntVar(&o.concurrency.LibvirtClusterIdentity, "libvirtclusteridentity-concurrency", 5,
		"Number of LibvirtClusterIdentities that are reconciled at once.")

	flags.IntVar(&o.images.PerHost, "image-transfers-per-host", 4,
		"Number of concurrent downloads and copies of images on a host. A namespace can have at most half of them.")
	flags.IntVar(&o.images.InAll, "image-transfers", 16,
		"Number of concurrent downloads of images on all hosts. A namespace can have at most half of them.")
	flags.Int64Var(&o.images.MinRate, "image-min-rate", 64<<10,
		"Minimum bytes per second of a download, over each minute. A slower download is aborted and retried.")
	flags.StringSliceVar(&o.images.Sources.Allowed, "image-hosts-allowed", nil,
		"Names (*.example.com for all names below), IP addresses and networks for downloads of images. When empty or *, all but those of --image-hosts-denied. "+
			"Loopback, link-local and multicast addresses and the manager's own need their network or address in the list.")
	flags.StringSliceVar(&o.images.Sources.Denied, "image-hosts-denied", nil,
		"Names, IP addresses and networks that images are never downloaded from, for example those of the management cluster's services. Overrides --image-hosts-allowed.")

	flags.BoolVar(&o.orphans.Collect, "collect-orphans", false,
		"Delete domains and volumes of LibvirtMachines that don't exist. Otherwise they are only reported.")
	flags.DurationVar(&o.orphans.MinAge, "orphan-min-age", 24*time.Hour,
		"How long a LibvirtMachine must have been missing before --collect-orphans deletes its domain and volumes. At least 10 minutes.")
	flags.DurationVar(&o.images.Retention, "image-retention", 24*time.Hour,
		"How long an unused image stays on a host. Images are never deleted when 0.")

	flags.Float32Var(&o.kubeAPIQPS, "kube-api-qps", 100,
		"Maximum requests per second to the API server.")
	flags.IntVar(&o.kubeAPIBurst, "kube-api-burst", 200,
		"Maximum burst of requests to the API server.")
}

func (o *options) addServerFlags(flags *pflag.FlagSet) {
	flags.IntVar(&o.webhookPort, "webhook-port", 9443,
		"Port of the webhook server.")
	flags.StringVar(&o.webhookCertDir, "webhook-cert-dir", "/tmp/k8s-webhook-server/serving-certs/",
		"Folder with the webhook server's certificate and key.")
	flags.StringVar(&o.webhookCertName, "webhook-cert-name", "tls.crt",
		"File name of the webhook server's certificate, in the folder of --webhook-cert-dir.")
	flags.StringVar(&o.webhookKeyName, "webhook-key-name", "tls.key",
		"File name of the webhook server's key, in the folder of --webhook-cert-dir.")
	flags.IntVar(&o.extensionPort, "update-extension-port", 9444,
		"Port of the update extension, which has the webhook server's certificate. Served with the feature gate InPlaceUpdates only.")
	flags.StringVar(&o.healthAddr, "health-addr", ":9440",
		"Address that /healthz and /readyz are served on.")
	flags.StringVar(&o.profilerAddress, "profiler-address", "",
		"Address that the pprof profiler is served on, for example localhost:6060. Not served when empty.")
	flags.BoolVar(&o.contentionProfiling, "contention-profiling", false,
		"Enable block profiling.")
}

// validate returns an error for each invalid flag.
func (o *options) validate() error {
	var errs []error
	for _, flag := range []struct {
		name  string
		value int
	}{
		{"libvirtcluster-concurrency", o.concurrency.LibvirtCluster},
		{"libvirtmachine-concurrency", o.concurrency.LibvirtMachine},
		{"libvirtmachinetemplate-concurrency", o.concurrency.LibvirtMachineTemplate},
		{"libvirtmachinepool-concurrency", o.concurrency.LibvirtMachinePool},
		{"libvirthost-concurrency", o.concurrency.LibvirtHost},
		{"libvirtclusteridentity-concurrency", o.concurrency.LibvirtClusterIdentity},
		{"image-transfers-per-host", o.images.PerHost},
		{"image-transfers", o.images.InAll},
	} {
		if flag.value < 1 {
			errs = append(errs, fmt.Errorf("--%s=%d: must be at least 1", flag.name, flag.value))
		}
	}
	if o.orphans.MinAge < minOrphanAge {
		errs = append(errs, fmt.Errorf("--orphan-min-age=%s: must be at least %s", o.orphans.MinAge, minOrphanAge))
	}
	if o.orphans.Collect && (o.namespace != "" || o.watchFilter != "") {
		errs = append(errs, errors.New("--collect-orphans: a manager with --namespace or --watch-filter isn't the only one, and must not delete what it doesn't know: leave it out"))
	}
	if err := o.images.Sources.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("--image-hosts-allowed and --image-hosts-denied: %w", err))
	}
	if o.images.MinRate < 1 {
		errs = append(errs, fmt.Errorf("--image-min-rate=%d: must be at least 1", o.images.MinRate))
	}
	if o.images.Retention < 0 {
		errs = append(errs, fmt.Errorf("--image-retention=%s: must not be negative", o.images.Retention))
	}
	if o.leaderElect && o.leaderElectLeaseDuration <= o.leaderElectRenewDeadline {
		errs = append(errs, fmt.Errorf("--leader-elect-lease-duration=%s: must be greater than --leader-elect-renew-deadline, which is %s",
			o.leaderElectLeaseDuration, o.leaderElectRenewDeadline))
	}
	return errors.Join(errs...)
}

// restConfig returns the configuration for the API server.
func (o *options) restConfig() (*rest.Config, error) {
	config, err := ctrl.GetConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the API server: %w", err)
	}
	config.QPS = o.kubeAPIQPS
	config.Burst = o.kubeAPIBurst
	config.UserAgent = remote.DefaultClusterAPIUserAgent(controllerName)
	config.WarningHandler = apiwarnings.DefaultHandler(klog.Background().WithName("API Server Warning"))
	return config, nil
}

// managerOptions returns the options of controller-runtime's manager.
func (o *options) managerOptions() (*ctrl.Options, error) {
	tlsOptions, metricsOptions, err := capiflags.GetManagerOptions(o.diagnostics)
	if err != nil {
		return nil, fmt.Errorf("reading the TLS and diagnostics flags: %w", err)
	}
	scheme := newScheme()
	return &ctrl.Options{
		Scheme:                     scheme,
		Controller:                 config.Controller{CacheSyncTimeout: cacheSyncTimeout},
		LeaderElection:             o.leaderElect,
		LeaderElectionID:           leaderElectionID,
		LeaderElectionNamespace:    managerNamespace(),
		LeaseDuration:              &o.leaderElectLeaseDuration,
		RenewDeadline:              &o.leaderElectRenewDeadline,
		RetryPeriod:                &o.leaderElectRetryPeriod,
		LeaderElectionResourceLock: resourcelock.LeasesResourceLock,
		HealthProbeBindAddress:     o.healthAddr,
		PprofBindAddress:           o.profilerAddress,
		Metrics:                    *metricsOptions,
		Cache:                      setup.ManagerCacheOptions(scheme, controllerName, o.namespace, o.syncPeriod),
		Client:                     setup.ManagerClientOptions(),
		WebhookServer: webhook.NewServer(webhook.Options{
			Port:     o.webhookPort,
			CertDir:  o.webhookCertDir,
			CertName: o.webhookCertName,
			KeyName:  o.webhookKeyName,
			TLSOpts:  tlsOptions,
		}),
	}, nil
}

// newScheme returns the kinds that the manager reads or writes.
func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, addToScheme := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, clusterv1.AddToScheme, ipamv1.AddToScheme, infrav1.AddToScheme,
	} {
		utilruntime.Must(addToScheme(scheme))
	}
	return scheme
}

// addUpdateExtension adds the server of the hooks for updates in place, and its check, if the feature is enabled.
func (o *options) addUpdateExtension(mgr ctrl.Manager) error {
	if !feature.Gates.Enabled(feature.InPlaceUpdates) {
		return nil
	}
	tlsOptions, _, err := capiflags.GetManagerOptions(o.diagnostics)
	if err != nil {
		return fmt.Errorf("reading the TLS flags: %w", err)
	}
	extension, err := updateextension.New(mgr.GetAPIReader(), server.Options{
		Port: o.extensionPort, CertDir: o.webhookCertDir, CertName: o.webhookCertName, KeyName: o.webhookKeyName, TLSOpts: tlsOptions,
	})
	if err != nil {
		return err
	}
	if err := mgr.Add(extension); err != nil {
		return fmt.Errorf("adding the update extension to the manager: %w", err)
	}
	if err := mgr.AddReadyzCheck("update-extension", extension.StartedChecker()); err != nil {
		return fmt.Errorf("adding the readiness check of the update extension: %w", err)
	}
	return nil
}
