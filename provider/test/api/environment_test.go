// Package api tests the provider's API with an API server, the built manager with its webhooks, and the released roles.
package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/clusterctl-release/clusterctl-release/internal/prerequisite"
	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

const (
	// config is the path of the provider's configuration: CRDs, webhooks and roles.
	config = "../../config/"

	testNamespace = "caplv-system"
	managerUser   = "caplv-manager"
	startTimeout  = 3 * time.Minute
)

// world is an API server with the provider installed, and the manager program running against it.
type world struct {
	environment *envtest.Environment
	// program is the path of the built manager.
	program   string
	client    client.Client
	clientset *kubernetes.Clientset
	manager   *managerProcess
}

// managerProcess is a running manager.
type managerProcess struct {
	healthURL   string
	diagnostics string
	log         *logBuffer
	stop        func()
}

var (
	testWorld *world
	errWorld  error
)

// TestMain starts one API server and one manager for all tests.
func TestMain(m *testing.M) {
	var stop func()
	if os.Getenv("KUBEBUILDER_ASSETS") != "" {
		testWorld, stop, errWorld = startWorld()
	}
	code := m.Run()
	if stop != nil {
		stop()
	}
	os.Exit(code)
}

// theWorld returns the API server and the manager, or fails the test if they haven't started.
func theWorld(t *testing.T) *world {
	t.Helper()
	if errWorld != nil {
		t.Fatalf("starting the API server and the manager: %v", errWorld)
	}
	prerequisite.APIServer(t)
	return testWorld
}

func startWorld() (_ *world, stop func(), err error) {
	clusterAPI, err := exec.CommandContext(context.Background(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-api").Output()
	if err != nil {
		return nil, nil, fmt.Errorf("finding the sources of Cluster API: %w", err)
	}
	module := strings.TrimSpace(string(clusterAPI))
	environment := &envtest.Environment{
		CRDDirectoryPaths:     []string{config + "crd/bases", module + "/core/config/crd/bases", module + "/bootstrap/kubeadm/config/crd/bases"},
		ErrorIfCRDPathMissing: true,
		WebhookInstallOptions: envtest.WebhookInstallOptions{Paths: []string{config + "webhook/manifests.yaml"}},
	}
	stops := []func(){func() { _ = environment.Stop() }}
	stop = func() {
		for i := len(stops) - 1; i >= 0; i-- {
			stops[i]()
		}
	}
	defer func() {
		if err != nil {
			stop()
			stop = nil
		}
	}()

	folder, err := os.MkdirTemp("", "manager")
	if err != nil {
		return nil, stop, fmt.Errorf("creating a folder for the manager: %w", err)
	}
	stops = append(stops, func() { _ = os.RemoveAll(folder) })
	w := &world{environment: environment, program: filepath.Join(folder, "manager")}
	if output, err := exec.CommandContext(context.Background(), "go", "build", "-o", w.program, "../..").CombinedOutput(); err != nil {
		return nil, stop, fmt.Errorf("building the manager: %w\n%s", err, output)
	}
	access, err := environment.Start()
	if err != nil {
		return nil, stop, fmt.Errorf("starting the API server: %w", err)
	}
	if w.client, err = client.New(access, client.Options{Scheme: newScheme()}); err != nil {
		return nil, stop, fmt.Errorf("creating a client: %w", err)
	}
	if w.clientset, err = kubernetes.NewForConfig(access); err != nil {
		return nil, stop, fmt.Errorf("creating a client: %w", err)
	}
	if err := w.install(); err != nil {
		return nil, stop, err
	}
	if w.manager, err = w.startManager("--leader-elect", "--webhook-port="+strconv.Itoa(environment.WebhookInstallOptions.LocalServingPort)); err != nil {
		return nil, stop, err
	}
	stops = append(stops, w.manager.stop)
	return w, stop, nil
}

// newScheme returns a scheme with the kinds that the tests read and write.
func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, clusterv1.AddToScheme, infrav1.AddToScheme} {
		utilruntime.Must(add(scheme))
	}
	return scheme
}

// install creates the namespace, and the roles of config/rbac: the manager has only its released permissions.
func (w *world) install() error {
	ctx := context.Background()
	manager := []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: managerUser}}
	clusterRole, role, credentials, metricsReader := &rbacv1.ClusterRole{}, &rbacv1.Role{}, &rbacv1.Role{}, &rbacv1.ClusterRole{}
	for file, object := range map[string]any{
		config + "rbac/role.yaml": clusterRole, config + "rbac/leader_election_role.yaml": role,
		config + "rbac/credentials_role.yaml": credentials, config + "rbac/metrics_reader_role.yaml": metricsReader,
	} {
		content, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("reading a role: %w", err)
		}
		if err := yaml.UnmarshalStrict(content, object); err != nil {
			return fmt.Errorf("reading %s: %w", file, err)
		}
	}
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: testNamespace}},
		clusterRole, role, credentials, metricsReader,
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: managerUser}, Subjects: manager,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: clusterRole.Name}},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: testNamespace, Name: managerUser}, Subjects: manager,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name}},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: testNamespace, Name: managerUser + "-credentials"}, Subjects: manager,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: credentials.Name}},
	} {
		if err := w.client.Create(ctx, object); err != nil {
			return fmt.Errorf("creating %T %s: %w", object, object.GetName(), err)
		}
	}
	return nil
}

// startManager starts a manager with additional flags, and waits until it is ready.
func (w *world) startManager(flags ...string) (*managerProcess, error) {
	user, err := w.environment.AddUser(envtest.User{Name: managerUser}, nil)
	if err != nil {
		return nil, fmt.Errorf("adding the manager's user: %w", err)
	}
	kubeconfig, err := user.KubeConfig()
	if err != nil {
		return nil, fmt.Errorf("creating the manager's kubeconfig: %w", err)
	}
	certDir := w.environment.WebhookInstallOptions.LocalServingCertDir
	kubeconfigFile := filepath.Join(certDir, "kubeconfig")
	if err := os.WriteFile(kubeconfigFile, kubeconfig, 0o600); err != nil {
		return nil, fmt.Errorf("writing the manager's kubeconfig: %w", err)
	}
	addresses, err := freeAddresses(2)
	if err != nil {
		return nil, err
	}

	process := &managerProcess{healthURL: "http://" + addresses[0], diagnostics: addresses[1], log: &logBuffer{}}
	command := exec.CommandContext(context.Background(), w.program, append([]string{
		"--kubeconfig=" + kubeconfigFile, "--v=4", "--webhook-cert-dir=" + certDir,
		"--health-addr=" + addresses[0], "--diagnostics-address=" + addresses[1]}, flags...)...)
	command.Env = append(os.Environ(), "POD_NAMESPACE="+testNamespace)
	command.Stdout, command.Stderr = process.log, process.log
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("starting the manager: %w", err)
	}
	process.stop = func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		_ = command.Wait()
	}
	if err := waitFor(process.healthURL + "/readyz"); err != nil {
		process.stop()
		return nil, fmt.Errorf("waiting for the manager: %w; its log:\n%s", err, process.log.String())
	}
	return process, nil
}

func waitFor(url string) error {
	var err error
	for deadline := time.Now().Add(startTimeout); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		var status int
		if status, _, err = get(http.DefaultClient, url, ""); err == nil && status == http.StatusOK {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("%s answers %d", url, status)
		}
	}
	return err
}

func freeAddresses(count int) ([]string, error) {
	var addresses []string
	for range count {
		listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("looking for a free port: %w", err)
		}
		addresses = append(addresses, listener.Addr().String())
		defer func() { _ = listener.Close() }()
	}
	return addresses, nil
}

// get requests a URL, with a bearer token if there is one, and returns status and body.
func get(httpClient *http.Client, url, token string) (int, string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := httpClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	var body bytes.Buffer
	_, readErr := body.ReadFrom(response.Body)
	return response.StatusCode, body.String(), errors.Join(readErr, response.Body.Close())
}

// logBuffer has the output of a running manager.
type logBuffer struct {
	lock   sync.Mutex
	buffer bytes.Buffer
}

// Write adds to the log.
func (b *logBuffer) Write(content []byte) (int, error) {
	b.lock.Lock()
	defer b.lock.Unlock()
	return b.buffer.Write(content)
}

// String returns the current log.
func (b *logBuffer) String() string {
	b.lock.Lock()
	defer b.lock.Unlock()
	return b.buffer.String()
}
