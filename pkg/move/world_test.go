package move_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/cluster"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"
	clusterctllog "sigs.k8s.io/cluster-api/cmd/clusterctl/log"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterctl-release/clusterctl-release/internal/prerequisite"
	"github.com/clusterctl-release/clusterctl-release/pkg/move"
)

// world is an API server with the CRDs of Cluster API and of the demo provider.
type world struct {
	config      *rest.Config
	client      client.Client
	kubeconfig  string
	environment *envtest.Environment
	// clusterctlClient is a client as clusterctl creates it, clusterctlConfig its configuration, and crds the
	// CRDs that it has read.
	clusterctlClient client.Client
	clusterctlConfig config.Client
	crds             *apiextensionsv1.CustomResourceDefinitionList
}

var (
	testWorld *world
	errWorld  error
)

// TestMain starts one API server for all tests that need it.
func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	moves.sink = &moveLog{}
	clusterctllog.SetLogger(logr.New(moves.sink))
	stop := func() {}
	if os.Getenv("KUBEBUILDER_ASSETS") != "" {
		testWorld, stop, errWorld = startWorld()
	}
	code := m.Run()
	stop()
	os.Exit(code)
}

// theWorld returns the API server. It skips the test if there is none.
func theWorld(t *testing.T) *world {
	t.Helper()
	if errWorld != nil {
		t.Fatalf("starting the API server: %v", errWorld)
	}
	prerequisite.APIServer(t)
	return testWorld
}

func startWorld() (_ *world, stop func(), err error) {
	stop = func() {}
	ctx := context.Background()
	// The server needs memory rather than CPU time.
	if err := os.Setenv("GOGC", "400"); err != nil {
		return nil, stop, err
	}
	core, err := coreCRDs(ctx)
	if err != nil {
		return nil, stop, err
	}
	environment := &envtest.Environment{CRDs: append(core, demoCRDs()...)}
	environment.ControlPlane.GetAPIServer().Configure().Set("enable-priority-and-fairness", "false")
	restConfig, err := environment.Start()
	if err != nil {
		return nil, stop, err
	}
	folder, err := os.MkdirTemp("", "ownership-")
	stop = func() {
		_ = environment.Stop()
		_ = os.RemoveAll(folder)
	}
	if err != nil {
		return nil, stop, err
	}
	restConfig.QPS, restConfig.Burst = -1, -1
	w := &world{config: restConfig, kubeconfig: filepath.Join(folder, "kubeconfig"), environment: environment}
	if w.client, err = client.New(restConfig, client.Options{}); err != nil {
		return nil, stop, err
	}
	if err := w.addUser(w.kubeconfig, envtest.User{Name: "admin", Groups: []string{"system:masters"}}); err != nil {
		return nil, stop, err
	}
	if w.clusterctlConfig, err = config.New(ctx, "", config.InjectReader(config.NewMemoryReader())); err != nil {
		return nil, stop, err
	}
	if w.clusterctlClient, err = cluster.NewProxy(cluster.Kubeconfig{Path: w.kubeconfig}).NewClient(ctx); err != nil {
		return nil, stop, err
	}
	for _, o := range []map[string]any{
		{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": providerNamespace}},
		{
			"apiVersion": "clusterctl.cluster.x-k8s.io/v1alpha3", "kind": "Provider", "type": "InfrastructureProvider", "providerName": "demo", "version": "v1.0.0",
			"metadata": map[string]any{"name": "infrastructure-demo", "namespace": providerNamespace},
		},
	} {
		if err := w.client.Create(ctx, &unstructured.Unstructured{Object: o}); err != nil {
			return nil, stop, err
		}
	}
	return w, stop, nil
}

// addUser creates a user and writes a kubeconfig.
func (w *world) addUser(file string, user envtest.User) error {
	added, err := w.environment.AddUser(user, nil)
	if err != nil {
		return err
	}
	content, err := added.KubeConfig()
	if err != nil {
		return err
	}
	return os.WriteFile(file, content, 0o600)
}

// create creates an object.
func (w *world) create(t *testing.T, o client.Object) {
	t.Helper()
	if err := w.client.Create(t.Context(), o); err != nil {
		t.Fatalf("creating %s %s: %v", o.GetObjectKind().GroupVersionKind().Kind, o.GetName(), err)
	}
}

// plan plans the move of a namespace of the live API server.
func (w *world) plan(t *testing.T, namespace string) *move.Plan {
	t.Helper()
	source, err := move.Live(t.Context(), w.config, namespace, false)
	if err != nil {
		t.Fatal(err)
	}
	plan := move.Discover(t.Context(), source, namespace).Plan()
	if plan.Incomplete || len(plan.Assumptions) > 0 {
		t.Errorf("problems %v, assumptions %v; want none", plan.Problems, plan.Assumptions)
	}
	return plan
}
