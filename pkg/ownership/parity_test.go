package ownership_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/cluster"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"
	clusterctllog "sigs.k8s.io/cluster-api/cmd/clusterctl/log"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	"github.com/clusterctl-release/clusterctl-release/internal/pinned"
	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
	"github.com/clusterctl-release/clusterctl-release/pkg/ownership"
)

// world is an API server with Cluster API's CRDs and those of a made-up provider.
type world struct {
	config      *rest.Config
	client      client.Client
	kubeconfig  string
	environment *envtest.Environment
	// mover returns a mover of clusterctl's, which remembers that it once was for a dry run.
	mover func() cluster.ObjectMover
}

var (
	testWorld *world
	errWorld  error
)

// TestMain starts one API server for all tests that need it.
func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	stop := func() {}
	if os.Getenv("KUBEBUILDER_ASSETS") != "" {
		testWorld, stop, errWorld = startWorld()
	}
	code := m.Run()
	stop()
	os.Exit(code)
}

// theWorld returns the API server, or ends the test when there is none.
func theWorld(t *testing.T) *world {
	t.Helper()
	if errWorld != nil {
		t.Fatalf("starting the API server: %v", errWorld)
	}
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		const message = `run "make test", or set KUBEBUILDER_ASSETS to a folder with etcd and kube-apiserver`
		if os.Getenv("CI") != "" {
			t.Fatal(message)
		}
		t.Skip(message)
	}
	return testWorld
}

func startWorld() (_ *world, stop func(), err error) {
	stop = func() {}
	ctx := context.Background()
	// The server is short of time, not of memory.
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
	configClient, err := config.New(ctx, "", config.InjectReader(config.NewMemoryReader()))
	if err != nil {
		return nil, stop, err
	}
	kubeconfig := cluster.Kubeconfig{Path: w.kubeconfig}
	clusterctls, err := cluster.NewProxy(kubeconfig).NewClient(ctx)
	if err != nil {
		return nil, stop, err
	}
	injected := cluster.InjectProxy(proxy{Proxy: cluster.NewProxy(kubeconfig), client: clusterctls})
	w.mover = func() cluster.ObjectMover { return cluster.New(kubeconfig, configClient, injected).ObjectMover() }
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

// addUser makes a user and writes a kubeconfig.
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

// proxy is clusterctl's own, which makes a client once instead of for each request.
type proxy struct {
	cluster.Proxy
	client client.Client
}

func (p proxy) NewClient(context.Context) (client.Client, error) { return p.client, nil }

// create creates an object.
func (w *world) create(t *testing.T, o client.Object) {
	t.Helper()
	if err := w.client.Create(t.Context(), o); err != nil {
		t.Fatalf("creating %s %s: %v", o.GetObjectKind().GroupVersionKind().Kind, o.GetName(), err)
	}
}

// coreCRDs returns the CRDs of Cluster API, its kubeadm providers and clusterctl, labelled as
// clusterctl does when it installs them, with the one version that a move reads.
func coreCRDs(ctx context.Context) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-api").Output()
	if err != nil {
		return nil, fmt.Errorf("finding the sources of Cluster API: %w", err)
	}
	var crds []*apiextensionsv1.CustomResourceDefinition
	for _, folder := range []string{"core", "bootstrap/kubeadm", "controlplane/kubeadm", "cmd/clusterctl"} {
		files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), folder, "config/crd/bases/*.yaml"))
		if err != nil || len(files) == 0 {
			return nil, fmt.Errorf("no CRDs in %s of Cluster API: %w", folder, err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			crd := &apiextensionsv1.CustomResourceDefinition{}
			if err := yaml.Unmarshal(data, crd); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			crd.Spec.Versions = slices.DeleteFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return !v.Storage })
			for i := range crd.Spec.Versions {
				withoutDescriptions(crd.Spec.Versions[i].Schema.OpenAPIV3Schema)
			}
			crd.Labels = map[string]string{"clusterctl.cluster.x-k8s.io": "", "cluster.x-k8s.io/v1beta2": "v1beta2"}
			crds = append(crds, crd)
		}
	}
	return crds, nil
}

// withoutDescriptions drops what makes CRDs large: clusterctl reads them all for each move.
func withoutDescriptions(schema *apiextensionsv1.JSONSchemaProps) {
	schema.Description = ""
	for name, property := range schema.Properties {
		withoutDescriptions(&property)
		schema.Properties[name] = property
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		withoutDescriptions(schema.Items.Schema)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		withoutDescriptions(schema.AdditionalProperties.Schema)
	}
}

// demoCRDs returns the CRDs of the made-up provider, and one that clusterctl did not install.
func demoCRDs() []*apiextensionsv1.CustomResourceDefinition {
	anything := true
	define := func(group, kind string, scope apiextensionsv1.ResourceScope, labels ...string) *apiextensionsv1.CustomResourceDefinition {
		plural := strings.ToLower(kind) + "s"
		crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group, Labels: map[string]string{}}}
		for _, label := range labels {
			crd.Labels[label] = ""
		}
		version := "v1beta1"
		if group == "images.example.com" {
			version = "v1"
		}
		crd.Spec = apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: scope,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind, ListKind: kind + "List", Plural: plural, Singular: strings.ToLower(kind)},
		}
		for _, name := range []string{"v1alpha1", version} {
			crd.Spec.Versions = append(crd.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{
				Name: name, Served: true, Storage: name == version,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &anything}},
			})
		}
		return crd
	}
	const group, label = "infrastructure.cluster.x-k8s.io", "clusterctl.cluster.x-k8s.io"
	crds := []*apiextensionsv1.CustomResourceDefinition{
		define(group, "DemoIdentity", apiextensionsv1.ClusterScoped, label, hierarchyLabel),
		define(group, "DemoHost", apiextensionsv1.ClusterScoped, label),
		define(group, "DemoShared", apiextensionsv1.NamespaceScoped, label, moveLabel),
		define(group, "DemoPool", apiextensionsv1.NamespaceScoped, label, hierarchyLabel),
		define("images.example.com", "Image", apiextensionsv1.NamespaceScoped),
	}
	for _, kind := range []string{"DemoCluster", "DemoClusterTemplate", "DemoMachine", "DemoMachineTemplate", "DemoMachinePool", "DemoPort"} {
		crds = append(crds, define(group, kind, apiextensionsv1.NamespaceScoped, label))
	}
	return crds
}

// install creates the objects of a scenario, wave by wave: those come first whose owners are there, as
// references need UIDs. Of objects in a cycle, the references are set in the end.
func (w *world) install(t *testing.T, s *scenario) {
	t.Helper()
	for _, name := range []string{s.space, s.second} {
		w.create(t, &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}})
	}
	create := func(ctx context.Context, m *made) error {
		m.SetOwnerReferences(m.references())
		if err := w.client.Create(ctx, m.Unstructured); err != nil || m.status == nil {
			return err
		}
		m.Object["status"] = m.status
		return w.client.Status().Update(ctx, m.Unstructured)
	}
	exists := func(m *made) bool { return m.GetUID() != "" }
	waiting := slices.Clone(s.objects)
	for len(waiting) > 0 {
		var wave, next []*made
		for _, m := range waiting {
			if slices.ContainsFunc(m.owners, func(o *made) bool { return !exists(o) }) {
				next = append(next, m)
			} else {
				wave = append(wave, m)
			}
		}
		if len(wave) == 0 {
			break
		}
		w.each(t, wave, create)
		waiting = next
	}
	w.each(t, waiting, create)
	w.each(t, waiting, func(ctx context.Context, m *made) error {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"ownerReferences": m.references()}})
		if err != nil {
			return err
		}
		return w.client.Patch(ctx, m.Unstructured, client.RawPatch(types.MergePatchType, patch))
	})
}

// references returns references to the owners that exist, and to the ghost.
func (m *made) references() []metav1.OwnerReference {
	var references []metav1.OwnerReference
	for _, owner := range m.owners {
		known := slices.ContainsFunc(references, func(r metav1.OwnerReference) bool { return r.UID == owner.GetUID() })
		if owner.GetUID() != "" && !known {
			references = append(references, metav1.OwnerReference{APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(), UID: owner.GetUID()})
		}
	}
	if m.ghost != "" {
		references = append(references, ghost(m.ghost))
	}
	return references
}

// ghost returns a reference to an owner that does not exist.
func ghost(kind string) metav1.OwnerReference {
	apiVersion := map[string]string{
		"DemoMachine": demoAPI, "Job": "batch/v1", "Secret": "v1", "Cluster": coreAPI, "ClusterClass": coreAPI, "Machine": coreAPI,
	}[kind]
	return metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: "ghost", UID: types.UID("00000000-0000-0000-0000-" + fmt.Sprintf("%012d", len(kind)))}
}

// each does something to objects, several at a time.
func (w *world) each(t *testing.T, objects []*made, do func(context.Context, *made) error) {
	t.Helper()
	group, ctx := errgroup.WithContext(context.WithoutCancel(t.Context()))
	group.SetLimit(8)
	for _, m := range objects {
		group.Go(func() error {
			if err := do(ctx, m); err != nil {
				return fmt.Errorf("%s %s/%s: %w", m.GetKind(), m.GetNamespace(), m.GetName(), err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

// remove deletes the objects of a scenario that the next ones would see, or all.
func (w *world) remove(t *testing.T, s *scenario, all bool) {
	t.Helper()
	seen := slices.DeleteFunc(slices.Clone(s.objects), func(m *made) bool {
		return !all && m.GetNamespace() != "" && m.GetNamespace() != providerNamespace
	})
	w.each(t, seen, func(ctx context.Context, m *made) error {
		return client.IgnoreNotFound(w.client.Delete(ctx, m.Unstructured))
	})
}

// taken is what clusterctl says it creates and deletes, in its order.
type taken struct {
	mutex            sync.Mutex
	created, deleted []string
}

// The sink of clusterctl's log: what it creates and deletes is all that is kept.
func (*taken) Init(logr.RuntimeInfo)            {}
func (*taken) Enabled(int) bool                 { return true }
func (*taken) Error(error, string, ...any)      {}
func (k *taken) WithValues(...any) logr.LogSink { return k }
func (k *taken) WithName(string) logr.LogSink   { return k }
func (k *taken) Info(_ int, message string, values ...any) {
	if len(values) != 4 || message != "Creating" && message != "Deleting" {
		return
	}
	k.mutex.Lock()
	defer k.mutex.Unlock()
	name := fmt.Sprintf("%v %v/%v", values[0], values[3], values[1])
	if message == "Creating" {
		k.created = append(k.created, name)
	} else {
		k.deleted = append(k.deleted, name)
	}
}

// nameOf names an object as taken does.
func nameOf(o manifest.Object) string { return fmt.Sprintf("%s %s/%s", o.Kind, o.Namespace, o.Name) }

// patience is how long clusterctl's code may take: it asks for what is missing again and again, for
// fifteen seconds.
func patience(stops bool) time.Duration {
	if stops {
		return time.Second
	}
	return time.Minute
}

// dryRun lets clusterctl's own code do a dry run, which the plan says will stop or not.
func (w *world) dryRun(ctx context.Context, namespace string, stops bool) (*taken, error) {
	ctx, cancel := context.WithTimeout(ctx, patience(stops))
	defer cancel()
	k := &taken{}
	before := clusterctllog.Log
	clusterctllog.SetLogger(logr.New(k))
	defer clusterctllog.SetLogger(before)
	return k, w.mover().Move(ctx, namespace, nil, true)
}

// toDirectory lets clusterctl's own code write files, and returns their names.
func (w *world) toDirectory(ctx context.Context, namespace, folder string, stops bool) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience(stops))
	defer cancel()
	if err := w.mover().ToDirectory(ctx, namespace, folder); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(folder)
	names := make([]string, 0, len(entries))
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names, err
}

// plan plans the move of a namespace of the live API server.
func (w *world) plan(t *testing.T, namespace string) *ownership.Plan {
	t.Helper()
	source, err := ownership.Live(t.Context(), w.config, namespace, false)
	if err != nil {
		t.Fatal(err)
	}
	plan := ownership.Discover(t.Context(), source, namespace).Plan()
	if plan.Incomplete || len(plan.Assumptions) > 0 {
		t.Errorf("problems %v, assumptions %v; want none", plan.Problems, plan.Assumptions)
	}
	return plan
}

// seeds is how many scenarios are compared.
const seeds = 200

// TestParity holds plans of live namespaces against what clusterctl's own code does with the same
// objects: what it creates and in which order, what it deletes, what it writes into a folder, and
// whether it refuses to start.
func TestParity(t *testing.T) {
	w := theWorld(t)
	seen := map[string]int{}
	for seed := range seeds {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			s := newScenario(seed, "parity")
			all := seed < 10 // of which the move of all namespaces at once is compared
			w.install(t, s)
			defer w.remove(t, s, all)
			namespaces := []string{s.space}
			if all {
				namespaces = append(namespaces, "")
			} else if seed%4 == 0 {
				namespaces = append(namespaces, s.second)
			}
			for _, namespace := range namespaces {
				plan := w.plan(t, namespace)
				count(seen, plan)
				compareDryRun(t, w, plan)
				if seed%2 == 0 {
					compareToDirectory(t, w, plan)
				}
			}
		})
	}
	// What is compared has all that the rules tell apart.
	for _, what := range []string{"moved", "deleted", "kept", "left alone in the target", "stuck", "left behind", "apart", "stops", "stops of dry runs", "goes on"} {
		if seen[what] < 10 {
			t.Errorf("%d plans have what is called %q, want at least 10 of %d", seen[what], what, seeds)
		}
	}
	t.Logf("plans by what they have: %v", seen)
}

// count counts a plan by what it has.
func count(seen map[string]int, plan *ownership.Plan) {
	has := map[string]bool{"apart": len(plan.Apart) > 0, "stops": len(plan.Stops) > 0}
	for _, s := range plan.Stops {
		has["stops of dry runs"] = has["stops of dry runs"] || s.DryRun
	}
	has["goes on"] = !has["stops of dry runs"]
	for _, group := range plan.Groups {
		for _, m := range group {
			has["moved"] = true
			has["deleted"] = has["deleted"] || m.Deleted
			has["kept"] = has["kept"] || m.Kept != ""
			has["left alone in the target"] = has["left alone in the target"] || m.IfThere == ownership.Leave
		}
	}
	for _, l := range plan.LeftBehind {
		has["stuck"] = has["stuck"] || l.Linked
		has["left behind"] = has["left behind"] || !l.Linked
	}
	for what, yes := range has {
		if yes {
			seen[what]++
		}
	}
}

// compareDryRun holds a plan against clusterctl's dry run.
func compareDryRun(t *testing.T, w *world, plan *ownership.Plan) {
	t.Helper()
	stops := slices.ContainsFunc(plan.Stops, func(s ownership.Stop) bool { return s.DryRun })
	got, err := w.dryRun(t.Context(), plan.Namespace, stops)
	if (err != nil) != stops {
		t.Errorf("clusterctl's dry run ends with %v; the plan's stops are %v", err, plan.Stops)
	}
	if err != nil {
		return
	}
	group := map[string]int{}
	var created, deleted []string
	for i, moved := range plan.Groups {
		for _, m := range moved {
			group[nameOf(m.Object)] = i
			created = append(created, nameOf(m.Object))
			if m.Deleted {
				deleted = append(deleted, nameOf(m.Object))
			}
		}
	}
	if diff := cmp.Diff(sorted(got.created), sorted(created)); diff != "" {
		t.Errorf("created (-clusterctl +plan):\n%s", diff)
	}
	if diff := cmp.Diff(sorted(got.deleted), sorted(deleted)); diff != "" {
		t.Errorf("deleted (-clusterctl +plan):\n%s", diff)
	}
	if !slices.IsSortedFunc(got.created, func(a, b string) int { return group[a] - group[b] }) {
		t.Errorf("clusterctl creates in an order that is not that of the plan's groups: %v", got.created)
	}
	if !slices.IsSortedFunc(got.deleted, func(a, b string) int { return group[b] - group[a] }) {
		t.Errorf("clusterctl deletes in an order that is not that of the plan's groups: %v", got.deleted)
	}
}

// compareToDirectory holds a plan against the files that clusterctl writes.
func compareToDirectory(t *testing.T, w *world, plan *ownership.Plan) {
	t.Helper()
	stops := slices.ContainsFunc(plan.Stops, func(s ownership.Stop) bool { return s.ToDirectory })
	got, err := w.toDirectory(t.Context(), plan.Namespace, t.TempDir(), stops)
	if (err != nil) != stops {
		t.Errorf("clusterctl's move to a directory ends with %v; the plan's stops are %v", err, plan.Stops)
	}
	if err != nil {
		return
	}
	files := map[string]bool{}
	for _, moved := range plan.Groups {
		for _, m := range moved {
			files[ownership.FileName(m.Object)] = true
		}
	}
	if diff := cmp.Diff(sorted(got), sorted(slices.Collect(maps.Keys(files)))); diff != "" {
		t.Errorf("files (-clusterctl +plan):\n%s", diff)
	}
}

// sorted returns the items in order.
func sorted(items []string) []string {
	items = append([]string{}, items...)
	slices.Sort(items)
	return items
}

// TestParityOfTheProgram holds plans against the clusterctl program itself, for a few scenarios.
func TestParityOfTheProgram(t *testing.T) {
	w := theWorld(t)
	clusterctl := pinned.Tool(t, "clusterctl")
	created := regexp.MustCompile(`(?m)^Creating (\w+)="([^"]*)" Namespace="([^"]*)"`)
	for seed := 1000; seed < 1006; seed++ {
		s := newScenario(seed, "program")
		w.install(t, s)
		plan := w.plan(t, s.space)
		if !slices.ContainsFunc(plan.Stops, func(s ownership.Stop) bool { return s.DryRun }) {
			cmd := exec.CommandContext(t.Context(), clusterctl, "move", "--dry-run", "-v", "1", "--kubeconfig", w.kubeconfig, "--namespace", s.space)
			cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "CLUSTERCTL_DISABLE_VERSIONCHECK=true")
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("seed %d: clusterctl move: %v\n%s", seed, err, out)
			}
			var got, want []string
			for _, match := range created.FindAllStringSubmatch(string(out), -1) {
				got = append(got, match[1]+" "+match[3]+"/"+match[2])
			}
			for _, group := range plan.Groups {
				for _, m := range group {
					want = append(want, nameOf(m.Object))
				}
			}
			if diff := cmp.Diff(sorted(got), sorted(want)); diff != "" {
				t.Errorf("seed %d: created (-clusterctl +plan):\n%s\n%s", seed, diff, out)
			}
		}
		w.remove(t, s, true)
	}
}
