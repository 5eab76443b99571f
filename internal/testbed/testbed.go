// Package testbed is a management cluster of processes in a sandbox: a control plane, a node that runs pods, and a real
// clusterctl with a repository of Cluster API's own providers and the provider of this project. It needs root on Linux,
// but no virtualization, containers or network.
package testbed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/clusterctl-release/clusterctl-release/internal/testbed/audit"
	"github.com/clusterctl-release/clusterctl-release/internal/testbed/certificates"
	"github.com/clusterctl-release/clusterctl-release/internal/testbed/controlplane"
	"github.com/clusterctl-release/clusterctl-release/internal/testbed/libvirthost"
	"github.com/clusterctl-release/clusterctl-release/internal/testbed/pods"
	"github.com/clusterctl-release/clusterctl-release/internal/testbed/repository"
	"github.com/clusterctl-release/clusterctl-release/internal/testbed/sandbox"
	"github.com/clusterctl-release/clusterctl-release/internal/testbed/workload"
)

// network is the sandbox's network. The sandbox has its first address.
var network = netip.MustParsePrefix("10.88.0.0/16")

const (
	apiServerPort = 6443
	// nonRoot is the user of images based on distroless/static:nonroot.
	nonRoot = 65532

	providerImage = "ghcr.io/clusterctl-release/cluster-api-provider-libvirt"
)

// ManagerNamespace and ManagerAccount are the namespace and the name of the service account of the provider's manager
// in its release.
const (
	ManagerNamespace = "caplv-system"
	ManagerAccount   = "caplv-manager"
)

// Testbed is a running management cluster.
type Testbed struct {
	// Dir is the folder of all files of the testbed.
	Dir string
	// ControlPlane of the management cluster.
	ControlPlane *controlplane.ControlPlane
	// Client has all rights in the management cluster.
	Client client.Client
	// Network is the network of the pods, which hosts may join.
	Network *sandbox.Network
	// Pods runs the management cluster's pods.
	Pods *pods.Runner
	// Kubeconfig is the path of a kubeconfig with all rights in the management cluster.
	Kubeconfig string
	// ClusterctlConfig is the path of clusterctl's configuration.
	ClusterctlConfig string

	prepared prepared
	// node is the name of the node that runs pods.
	node string
	// first is the earlier testbed in the same sandbox, or nil.
	first *Testbed
	// player simulates workload clusters after PlayWorkloads.
	player *workload.Player
	// served serves the images of guests, after ServeGuest.
	served *http.ServeMux
	// stops are the functions that end the managers of the testbed's own controllers.
	stops []func() error
}

// Options are the options of Start.
type Options struct {
	// Scheme is the scheme of Client. Start adds the kinds that the testbed needs.
	Scheme *runtime.Scheme
	// Variables are clusterctl's variables.
	Variables map[string]string
	// Shared is a folder for the files of clients: the kubeconfig and clusterctl's repository. If it is empty, they are
	// in a folder of the sandbox, which isn't visible outside.
	Shared string
	// Server is the URL of the API server for these clients, or empty for its own.
	Server string
	// NetworkOf is a running testbed. The new one has its own API server, node and files, and shares the network with all
	// hosts, and clusterctl's repository. It uses the variables of the running testbed, and only its kubeconfig is in
	// Shared.
	NetworkOf *Testbed
}

// second is the name of the node and of the folder of a second testbed.
const second = "second"

// secondAddress is the address of its API server.
var secondAddress = netip.AddrFrom4([4]byte{10, 88, 254, 1})

// Start starts a management cluster without providers. It works only in a sandbox that was created with Prepare.
func Start(ctx context.Context, options Options) (_ *Testbed, err error) {
	t := &Testbed{Dir: sandbox.Dir, node: "testbed", first: options.NetworkOf}
	if t.prepared, err = load(); err != nil {
		return nil, err
	}
	var address netip.Addr
	if options.NetworkOf != nil {
		t.Dir, t.node, t.Network = filepath.Join(sandbox.Dir, second), second, options.NetworkOf.Network
		address = secondAddress
		err = t.Network.AddAddress(address)
	} else if t.Network, err = sandbox.NewNetwork("pods", network); err == nil {
		address = t.Network.Gateway()
	}
	if err != nil {
		return nil, err
	}
	t.ControlPlane, err = controlplane.Start(ctx, controlplane.Options{
		Dir:  filepath.Join(t.Dir, "management"),
		Etcd: t.prepared.Tools[Etcd], APIServer: t.prepared.Tools[APIServer], ControllerManager: t.prepared.Tools[ControllerManager],
		Address: address, Port: apiServerPort,
		Audited: audit.Account(ManagerNamespace, ManagerAccount),
	})
	if err != nil {
		return nil, fmt.Errorf("starting the management cluster: %w", err)
	}
	if err := t.startControllers(ctx, options.Scheme); err != nil {
		return nil, fmt.Errorf("starting the testbed's own controllers: %w", err)
	}
	return t, t.configure(ctx, options)
}

// startControllers starts the controllers that run pods and issue certificates.
func (t *Testbed) startControllers(ctx context.Context, scheme *runtime.Scheme) error {
	if scheme == nil {
		scheme = runtime.NewScheme()
	}
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, admissionv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	log, err := os.Create(filepath.Join(t.Dir, "testbed.log"))
	if err != nil {
		return err
	}
	ctrl.SetLogger(zap.New(zap.WriteTo(log)))
	mgr, err := t.newManager(scheme)
	if err != nil {
		return err
	}
	if t.Client, err = client.New(t.ControlPlane.Config, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	t.Pods = &pods.Runner{
		Node: t.node, Dir: filepath.Join(t.Dir, "pods"), Network: t.Network, Images: t.images(),
		APIServer: [2]string{t.ControlPlane.Address().String(), strconv.Itoa(apiServerPort)}, CA: t.ControlPlane.CA,
	}
	if err := t.Pods.SetupWithManager(ctx, mgr); err != nil {
		return err
	}
	if err := certificates.SetupWithManager(mgr); err != nil {
		return err
	}
	t.run(ctx, mgr)
	return nil
}

// newManager returns a manager for the management cluster. Another testbed in this process may have controllers with
// the same names.
func (t *Testbed) newManager(scheme *runtime.Scheme) (ctrl.Manager, error) {
	anyName := true
	return ctrl.NewManager(t.ControlPlane.Config, ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: &anyName},
	})
}

// run runs a manager until Stop.
func (t *Testbed) run(ctx context.Context, mgr ctrl.Manager) {
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(running) }()
	t.stops = append(t.stops, func() error {
		cancel()
		return <-ended
	})
}

// PlayWorkloads simulates the machines of workload clusters whose guests report from hosts. Call it once, after Cluster
// API is installed.
func (t *Testbed) PlayWorkloads(ctx context.Context, hosts []*libvirthost.Host) (*workload.Player, error) {
	t.player = &workload.Player{
		Dir: filepath.Join(t.Dir, "workload"), Network: t.Network,
		Etcd: t.prepared.Tools[Etcd], APIServer: t.prepared.Tools[APIServer],
	}
	for _, host := range hosts {
		t.player.Hosts = append(t.player.Hosts, host)
	}
	return t.player, t.JoinWorkloads(ctx, t.player)
}

// JoinWorkloads lets the player of another testbed simulate the workload clusters of this one too.
func (t *Testbed) JoinWorkloads(ctx context.Context, player *workload.Player) error {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), clusterv1.AddToScheme(scheme)); err != nil {
		return err
	}
	mgr, err := t.newManager(scheme)
	if err != nil {
		return err
	}
	if err := player.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("simulating workload clusters: %w", err)
	}
	t.run(ctx, mgr)
	return nil
}

func (t *Testbed) images() map[string]pods.Image {
	images := map[string]pods.Image{providerImage: {Program: t.prepared.Manager, Entrypoint: "/manager", User: nonRoot}}
	for _, provider := range repository.Providers {
		images[provider.Image] = pods.Image{Program: t.prepared.Tools[provider.Tool], Entrypoint: "/manager", User: nonRoot}
	}
	return images
}

const componentsFile = "infrastructure-components.yaml"

// ReleaseFolder returns the folder of the provider's release in clusterctl's local repository, which only this process
// uses.
func (t *Testbed) ReleaseFolder() (string, error) {
	components, err := filepath.Glob(filepath.Join(t.prepared.Release, "repository", "infrastructure-libvirt", "*", componentsFile))
	if err != nil || len(components) != 1 {
		return "", fmt.Errorf("finding the provider's release in %s: %w: %v", t.prepared.Release, err, components)
	}
	return filepath.Dir(components[0]), nil
}

// configure writes clusterctl's configuration and repository.
func (t *Testbed) configure(ctx context.Context, options Options) error {
	shared := cmp.Or(options.Shared, t.Dir)
	t.Kubeconfig = filepath.Join(t.Dir, "kubeconfig")
	for file, url := range map[string]string{
		filepath.Join(shared, "kubeconfig"): cmp.Or(options.Server, t.ControlPlane.URL()), t.Kubeconfig: t.ControlPlane.URL(),
	} {
		config, err := t.ControlPlane.Kubeconfig(url)
		if err != nil {
			return err
		}
		if err := os.WriteFile(file, config, 0o600); err != nil {
			return err
		}
	}
	if t.first != nil {
		t.ClusterctlConfig = t.first.ClusterctlConfig
		return nil
	}
	release, err := t.ReleaseFolder()
	if err != nil {
		return err
	}
	t.ClusterctlConfig, err = repository.Write(ctx, repository.Options{
		Dir: filepath.Join(shared, "repository"), Sources: t.prepared.Sources,
		Kustomize: t.prepared.Tools["kustomize"], CertManager: certificates.Manifest, Variables: options.Variables,
		Entries: []repository.Entry{{Name: "libvirt", Type: "InfrastructureProvider", URL: filepath.Join(release, componentsFile)}},
	})
	return err
}

// Clusterctl runs clusterctl in the management cluster and returns its standard output.
func (t *Testbed) Clusterctl(ctx context.Context, args ...string) (string, error) {
	return t.ClusterctlWith(ctx, nil, args...)
}

// ClusterctlWith is Clusterctl with additional variables, each as NAME=value, which override those of Options.
func (t *Testbed) ClusterctlWith(ctx context.Context, variables []string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, t.prepared.Tools["clusterctl"], append(args, "--config="+t.ClusterctlConfig)...)
	command.Env = append(os.Environ(), "KUBECONFIG="+t.Kubeconfig, "XDG_CONFIG_HOME="+filepath.Join(t.Dir, "config"), "CLUSTERCTL_DISABLE_VERSIONCHECK=true")
	command.Env = append(command.Env, variables...)
	var stdout, stderr strings.Builder
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return stdout.String(), fmt.Errorf("clusterctl %s: %w: %s", strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String(), nil
}

// Init installs Cluster API's own providers, the in-cluster IPAM provider and the provider of this project, and waits
// until all of them are available. The variables, each as NAME=value, override those of Options.
func (t *Testbed) Init(ctx context.Context, variables ...string) error {
	_, err := t.ClusterctlWith(ctx, variables, "init", "--infrastructure=libvirt", "--ipam=in-cluster", "--wait-providers")
	if err != nil {
		return fmt.Errorf("%w\n%s", err, t.Logs())
	}
	return nil
}

// Logs returns the ends of the logs of all containers, for failed tests.
func (t *Testbed) Logs() string {
	const most = 2000
	files, err := filepath.Glob(filepath.Join(t.Pods.LogDir(), "*.log"))
	if err != nil {
		return err.Error()
	}
	var out strings.Builder
	for _, file := range files {
		content, err := os.ReadFile(file)
		fmt.Fprintf(&out, "== %s\n%s\n", filepath.Base(file), content[max(0, len(content)-most):])
		if err != nil {
			fmt.Fprintln(&out, err)
		}
	}
	return out.String()
}

// logsVariable has the folder to which all logs are copied when a testbed stops.
const logsVariable = "TESTBED_LOGS"

// saveLogs copies every log of the testbed to a folder, with its path.
func (t *Testbed) saveLogs(folder string) error {
	return filepath.WalkDir(t.Dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".log" {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		target := filepath.Join(folder, strings.TrimPrefix(path, t.Dir))
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		return os.WriteFile(target, content, 0o644)
	})
}

// Stop ends all processes of the testbed. The sandbox would do so too, but without errors.
func (t *Testbed) Stop() error {
	var errs []error
	for i := len(t.stops) - 1; i >= 0; i-- {
		errs = append(errs, t.stops[i]())
	}
	if t.player != nil {
		t.player.Stop()
	}
	t.Pods.Stop()
	t.ControlPlane.Stop()
	// The folder of the first testbed contains this one's.
	if folder := os.Getenv(logsVariable); folder != "" && t.first == nil {
		errs = append(errs, t.saveLogs(folder))
	}
	return errors.Join(errs...)
}
