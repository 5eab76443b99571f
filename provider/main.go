// The manager of Cluster API Provider libvirt: it runs the provider's controllers and webhooks.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	goruntime "runtime"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	logsv1 "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/controllers"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/fleet"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/webhooks"
	"github.com/clusterctl-release/clusterctl-release/provider/version"
)

// The metrics endpoint authenticates and authorizes its clients at the API server.
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

func main() {
	options, err := readFlags(pflag.CommandLine, os.Args[1:])
	if err != nil {
		fmt.Fprintf(os.Stderr, "manager: %v\n", err)
		os.Exit(2)
	}
	if err := run(ctrl.SetupSignalHandler(), options); err != nil {
		klog.Background().Error(err, "The manager stopped")
		klog.Flush()
		os.Exit(1)
	}
	klog.Flush()
}

// readFlags parses the command line and sets up logging.
func readFlags(flags *pflag.FlagSet, args []string) (*options, error) {
	options := newOptions()
	options.addFlags(flags)
	flags.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	flags.AddGoFlagSet(flag.CommandLine) // --kubeconfig
	if err := flags.Set("v", "2"); err != nil {
		return nil, fmt.Errorf("setting the default log level: %w", err)
	}
	if err := flags.Parse(args); err != nil {
		return nil, fmt.Errorf("reading flags: %w", err)
	}
	if err := options.validate(); err != nil {
		return nil, err
	}
	if err := logsv1.ValidateAndApply(options.logs, nil); err != nil {
		return nil, fmt.Errorf("setting up logging: %w", err)
	}
	ctrl.SetLogger(klog.Background())
	flags.VisitAll(func(f *pflag.Flag) {
		klog.V(1).Infof("FLAG: --%s=%q", f.Name, f.Value)
	})
	return options, nil
}

// run runs the manager until the context ends.
func run(ctx context.Context, options *options) error {
	log := ctrl.Log.WithName("setup")
	log.Info("Starting manager", "version", version.String())

	if options.contentionProfiling {
		goruntime.SetBlockProfileRate(1)
	}

	config, err := options.restConfig()
	if err != nil {
		return err
	}
	managerOptions, err := options.managerOptions()
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(config, *managerOptions)
	if err != nil {
		return fmt.Errorf("creating the manager: %w", err)
	}

	if err := addChecks(mgr); err != nil {
		return err
	}
	if err := webhooks.SetupWithManager(mgr, webhooks.Options{ManagerNamespace: managerNamespace()}); err != nil {
		return err
	}
	if err := options.addUpdateExtension(mgr); err != nil {
		return err
	}
	hosts := fleet.New(fleet.Libvirt, fleet.Options{})
	if err := mgr.Add(hosts); err != nil {
		return fmt.Errorf("adding the sessions with hosts to the manager: %w", err)
	}
	workload, err := controllers.WorkloadClusters(ctx, mgr, controllerName)
	if err != nil {
		return err
	}
	if err := controllers.SetupWithManager(ctx, mgr, controllers.Options{
		WatchFilterValue: options.watchFilter,
		Namespace:        managerNamespace(),
		Concurrency:      options.concurrency,
		Fleet:            hosts,
		Workload:         workload,
		Images:           options.images,
		Orphans:          options.orphans,
	}); err != nil {
		return err
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("running the manager: %w", err)
	}
	return nil
}

// addChecks makes /healthz and /readyz check the webhook server, which all writes of the provider's objects need.
func addChecks(mgr ctrl.Manager) error {
	started := mgr.GetWebhookServer().StartedChecker()
	if err := mgr.AddReadyzCheck("webhook", started); err != nil {
		return fmt.Errorf("adding the readiness check: %w", err)
	}
	if err := mgr.AddHealthzCheck("webhook", started); err != nil {
		return fmt.Errorf("adding the health check: %w", err)
	}
	return nil
}

// managerNamespace returns the namespace of the manager, from its Deployment.
func managerNamespace() string {
	if namespace := os.Getenv("POD_NAMESPACE"); namespace != "" {
		return namespace
	}
	return "caplv-system"
}
