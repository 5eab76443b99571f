// Package world is a management cluster for tests, in one process: a kube-apiserver with Cluster API's own controllers
// and webhooks, an IPAM provider, this provider's controllers and webhooks with their released RBAC rules, and fake
// hosts whose guests get addresses and join as nodes.
//
// It has no garbage collection, no kubelet and no control plane provider. Only scenes that ask for it have a bootstrap
// provider; the others create bootstrap data themselves. The workload cluster is the management cluster itself.
package world

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2/textlogger"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/yaml"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/cluster-api/feature"

	"github.com/clusterctl-release/clusterctl-release/internal/prerequisite"
	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	ownfeature "github.com/clusterctl-release/clusterctl-release/provider/feature"
)

const (
	// ManagerNamespace is the namespace of the provider.
	ManagerNamespace = "caplv-system"
	managerUser      = "caplv-manager"
)

// World is the environment that all tests of a program share. Each test works in its own Scene.
type World struct {
	// Client has all rights and no cache.
	Client client.Client
	// Config is the configuration of Client.
	Config *rest.Config
	// Log has the output of both managers.
	Log *Log

	environment *envtest.Environment
	hosts       *hosts
	kubeconfig  []byte
	// extensionURL is the URL of the provider's update extension.
	extensionURL string
	stop         context.CancelFunc
	stopped      []<-chan error

	// own is the provider's manager's access to the API server, server serves its webhooks, and life is the context of
	// the world. provider is the current run of the manager.
	own      *rest.Config
	server   webhook.Server
	life     context.Context
	provider *provider
}

var (
	lock     sync.Mutex
	theWorld *World
	errWorld error
)

// Main runs a program's tests, at most sixteen parallel ones at a time, stops the world if a test has started it, and
// returns the exit status. It is for TestMain.
func Main(m *testing.M) int {
	// Tests wait most of the time.
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	status := m.Run()
	lock.Lock()
	defer lock.Unlock()
	if theWorld == nil {
		return status
	}
	if err := theWorld.end(); err != nil {
		fmt.Fprintf(os.Stderr, "stopping the world: %v\n", err)
		return max(status, 1)
	}
	return status
}

// get returns the world, which the first call starts. It fails the test if the world can't start.
func get(t *testing.T) *World {
	t.Helper()
	prerequisite.APIServer(t)
	lock.Lock()
	defer lock.Unlock()
	if theWorld == nil && errWorld == nil {
		theWorld, errWorld = start()
	}
	if errWorld != nil {
		t.Fatalf("starting the world: %v", errWorld)
	}
	return theWorld
}

func start() (_ *World, err error) {
	// Updates in place are only for scenes that enable them. ReconcilerRateLimiting stays on, although it delays tests:
	// without it controllers don't wait for their caches either.
	if err := feature.MutableGates.SetFromMap(map[string]bool{string(feature.RuntimeSDK): true,
		string(feature.InPlaceUpdates): true, string(feature.ClusterTopology): true}); err != nil {
		return nil, fmt.Errorf("setting Cluster API's feature gates: %w", err)
	}
	if err := ownfeature.MutableGates.SetFromMap(map[string]bool{string(ownfeature.InPlaceUpdates): true}); err != nil {
		return nil, fmt.Errorf("setting the provider's feature gates: %w", err)
	}
	log := &Log{}
	ctrl.SetLogger(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(log), textlogger.Verbosity(3))))
	clusterAPI, err := folder("sigs.k8s.io/cluster-api")
	if err != nil {
		return nil, err
	}
	own, err := folder("github.com/clusterctl-release/clusterctl-release")
	if err != nil {
		return nil, err
	}
	config := filepath.Join(own, "provider", "config")
	webhooks, err := readWebhooks(filepath.Join(clusterAPI, "core/config/webhook/manifests.yaml"), filepath.Join(config, "webhook/manifests.yaml"))
	if err != nil {
		return nil, err
	}
	w := &World{Log: log, hosts: newHosts(), environment: &envtest.Environment{
		CRDDirectoryPaths: append([]string{filepath.Join(config, "crd/bases"), filepath.Join(clusterAPI, "core/config/crd/bases")},
			kubeadmCRDs(clusterAPI)...),
		CRDs:                  append(bootstrapCRDs(), poolCRD()),
		ErrorIfCRDPathMissing: true, ControlPlaneStopTimeout: soon,
		WebhookInstallOptions: webhooks,
	}}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.end())
		}
	}()
	if w.Config, err = w.environment.Start(); err != nil {
		return nil, fmt.Errorf("starting the API server: %w", err)
	}
	w.Config.QPS, w.Config.Burst = -1, 0
	if w.Client, err = client.New(w.Config, client.Options{Scheme: newScheme(runtimev1.AddToScheme)}); err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	if err := w.labelKubeadmCRDs(); err != nil {
		return nil, err
	}
	manager, err := w.install(filepath.Join(config, "rbac/role.yaml"))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.stop = cancel
	return w, w.startManagers(ctx, manager)
}

// end stops everything, in the reverse order.
func (w *World) end() error {
	var errs []error
	if w.stop != nil {
		w.stop()
	}
	for _, stopped := range w.stopped {
		err := <-stopped
		if err != nil { // a goroutine doesn't end: show the stacks
			_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
		}
		errs = append(errs, err)
	}
	if w.provider != nil {
		<-w.provider.ended
		errs = append(errs, w.provider.err)
	}
	return errors.Join(append(errs, w.environment.Stop())...)
}

// folder returns the folder with a module's sources.
func folder(module string) (string, error) {
	out, err := exec.CommandContext(context.Background(), "go", "list", "-m", "-f", "{{.Dir}}", module).Output() //nolint:gosec // constant names
	if err != nil {
		return "", fmt.Errorf("finding the sources of %s: %w", module, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// readWebhooks reads webhook configurations, and gives them distinct names, as kustomize does.
func readWebhooks(files ...string) (envtest.WebhookInstallOptions, error) {
	options := envtest.WebhookInstallOptions{}
	for i, file := range files {
		content, err := os.ReadFile(file) //nolint:gosec // files of the project and of Cluster API
		if err != nil {
			return options, fmt.Errorf("reading webhooks: %w", err)
		}
		for document := range strings.SplitSeq(string(content), "\n---\n") {
			var kind metav1.TypeMeta
			mutating, validating := &admissionv1.MutatingWebhookConfiguration{}, &admissionv1.ValidatingWebhookConfiguration{}
			if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
				return options, fmt.Errorf("reading %s: %w", file, err)
			}
			switch kind.Kind {
			case "MutatingWebhookConfiguration":
				err = yaml.UnmarshalStrict([]byte(document), mutating)
				mutating.Name = fmt.Sprintf("mutating-%d", i)
				options.MutatingWebhooks = append(options.MutatingWebhooks, mutating)
			case "ValidatingWebhookConfiguration":
				err = yaml.UnmarshalStrict([]byte(document), validating)
				validating.Name = fmt.Sprintf("validating-%d", i)
				options.ValidatingWebhooks = append(options.ValidatingWebhooks, validating)
			default:
				err = fmt.Errorf("unexpected kind %q", kind.Kind)
			}
			if err != nil {
				return options, fmt.Errorf("reading %s: %w", file, err)
			}
		}
	}
	return options, nil
}

// install creates the provider's namespace and its released role. It returns the manager's access to the API server,
// with only the rights of that role.
func (w *World) install(roleFile string) (*rest.Config, error) {
	role := &rbacv1.ClusterRole{}
	content, err := os.ReadFile(roleFile) //nolint:gosec // a file of the project
	if err != nil {
		return nil, fmt.Errorf("reading the manager's role: %w", err)
	}
	if err := yaml.UnmarshalStrict(content, role); err != nil {
		return nil, fmt.Errorf("reading %s: %w", roleFile, err)
	}
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ManagerNamespace}},
		role,
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: managerUser},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: managerUser}},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name}},
	} {
		if err := w.Client.Create(context.Background(), object); err != nil {
			return nil, fmt.Errorf("creating %T %s: %w", object, object.GetName(), err)
		}
	}
	manager, err := w.environment.AddUser(envtest.User{Name: managerUser}, nil)
	if err != nil {
		return nil, fmt.Errorf("adding the manager's user: %w", err)
	}
	// Cluster API accesses workload clusters as an administrator.
	admin, err := w.environment.AddUser(envtest.User{Name: "admin", Groups: []string{"system:masters"}}, nil)
	if err != nil {
		return nil, fmt.Errorf("adding the administrator of workload clusters: %w", err)
	}
	if w.kubeconfig, err = admin.KubeConfig(); err != nil {
		return nil, fmt.Errorf("creating the kubeconfig of workload clusters: %w", err)
	}
	return manager.Config(), nil
}

// newScheme returns a scheme with all kinds that the provider's manager reads or writes, and more.
func newScheme(more ...func(*runtime.Scheme) error) *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range append(more, clientgoscheme.AddToScheme, clusterv1.AddToScheme, ipamv1.AddToScheme, infrav1.AddToScheme) {
		if err := add(scheme); err != nil {
			panic(err) // can't fail: the kinds are compiled in
		}
	}
	return scheme
}

// poll is the interval at which tests check for an event, and soon the time limit, which is far more than needed on an
// idle machine.
const (
	poll = 50 * time.Millisecond
	soon = 3 * time.Minute
)
