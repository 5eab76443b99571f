package mirror

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/cluster"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// server is a registry in memory. It calls intercept for each request, and answers it only if intercept returns
// false.
type server struct {
	host      string
	intercept atomic.Pointer[func(http.ResponseWriter, *http.Request) bool]
	*httptest.Server
}

func startRegistry(t *testing.T) *server {
	t.Helper()
	s := &server{}
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if intercept := s.intercept.Load(); intercept == nil || !(*intercept)(w, r) {
			inner.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(s.Close)
	s.host = strings.TrimPrefix(s.URL, "http://")
	return s
}

// refuse makes the registry answer all requests for manifests with a status.
func (s *server) refuse(status int) {
	refuse := func(w http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/manifests/") {
			w.WriteHeader(status)
		}
		return strings.Contains(r.URL.Path, "/manifests/")
	}
	s.intercept.Store(&refuse)
}

// push pushes an image of random bytes for two platforms, and returns its digest.
func (s *server) push(t *testing.T, reference string) v1.Hash {
	t.Helper()
	index, err := random.Index(2048, 2, 2)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(s.host + "/" + reference)
	if err == nil {
		err = remote.WriteIndex(ref, index)
	}
	if err != nil {
		t.Fatal(err)
	}
	digest, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return digest
}

// world has the releases of two providers and cert-manager, with their images in a registry, and the registry of a
// site.
type world struct {
	source, site *server
	// config is the path of clusterctl's configuration, which has the URLs of the releases.
	config string
	// dir is the folder of the mirror.
	dir string
}

var providers = []string{"infrastructure-alpha:v0.1.0", "bootstrap-beta"}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{source: startRegistry(t), site: startRegistry(t), dir: filepath.Join(t.TempDir(), "mirror")}
	w.source.push(t, "alpha/controller:v0.1.0")
	w.source.push(t, "beta/controller:v0.1.0") // the same name as alpha's
	digest := w.source.push(t, "alpha/init:v3")
	for _, component := range []string{"controller", "webhook"} {
		w.source.push(t, "jetstack/cert-manager-"+component+":v1.2.3")
	}
	root := t.TempDir()
	w.config = filepath.Join(root, "clusterctl.yaml")
	write := func(file, text string) {
		file = filepath.Join(root, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(strings.ReplaceAll(text, "SOURCE", w.source.host)), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write("infrastructure-alpha/v0.1.0/infrastructure-components.yaml", namespaced("alpha",
		"SOURCE/alpha/controller:${TAG:=v0.1.0}", "SOURCE/alpha/init:v3@"+digest.String()))
	write("infrastructure-alpha/v0.1.0/cluster-template.yaml", "kind: Cluster # ${CLUSTER_NAME}")
	write("bootstrap-beta/v0.1.0/bootstrap-components.yaml", namespaced("beta", "SOURCE/beta/controller:v0.1.0"))
	for _, label := range []string{"infrastructure-alpha", "bootstrap-beta"} {
		write(label+"/v0.1.0/metadata.yaml", "apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3\nkind: Metadata\nreleaseSeries: [{major: 0, minor: 1, contract: v1beta2}]\n")
	}
	write("cert-manager/v1.2.3/cert-manager.yaml", "# ${ is not a variable\n"+
		namespaced("cert-manager", "SOURCE/jetstack/cert-manager-controller:v1.2.3")+namespaced("", "SOURCE/jetstack/cert-manager-webhook:v1.2.3"))
	write("clusterctl.yaml", fmt.Sprintf(`providers:
- {name: alpha, type: InfrastructureProvider, url: "file://%[1]s/infrastructure-alpha/latest/infrastructure-components.yaml"}
- {name: beta, type: BootstrapProvider, url: "file://%[1]s/bootstrap-beta/latest/bootstrap-components.yaml"}
cert-manager: {url: "file://%[1]s/cert-manager/v1.2.3/cert-manager.yaml", version: v1.2.3}
`, root))
	return w
}

// namespaced returns a Deployment with these images and with a variable without a value, and a Namespace unless name
// is "".
func namespaced(name string, images ...string) string {
	text := ""
	if name != "" {
		text = "apiVersion: v1\nkind: Namespace\nmetadata: {name: " + name + "}\n"
	}
	text += "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: manager, namespace: system}\nspec:\n  template:\n    spec:\n      containers:\n"
	for i, image := range images {
		text += fmt.Sprintf("      - {name: c%d, image: %q, args: [\"$(POD)\", \"${TOKEN}\"]}\n", i, image)
	}
	return text + "---\n"
}

func (w *world) fetch(ctx context.Context) error {
	_, err := Fetch(ctx, w.dir, providers, w.config, func(string) {})
	return err
}

func (w *world) push(ctx context.Context) error {
	_, err := Push(ctx, w.dir, w.site.host+"/capi", func(string) {})
	return err
}

func (w *world) verify(ctx context.Context) error {
	_, err := Verify(ctx, w.dir, func(string) {})
	return err
}

// must runs steps, and fails the test at the first error.
func must(t *testing.T, steps ...func(context.Context) error) {
	t.Helper()
	for _, step := range steps {
		if err := step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSite mirrors providers, moves the folder to a site without the source, and prepares the components there with
// clusterctl's own code. The registry of the site has each image of the components, complete.
func TestSite(t *testing.T) {
	w := newWorld(t)
	must(t, w.fetch)
	w.source.Close()
	if err := os.RemoveAll(filepath.Dir(w.config)); err != nil {
		t.Fatal(err)
	}
	moved := filepath.Join(t.TempDir(), "with space", "copy")
	if err := errors.Join(os.Mkdir(filepath.Dir(moved), 0o700), os.Rename(w.dir, moved)); err != nil {
		t.Fatal(err)
	}
	w.dir = moved
	must(t, w.push, w.verify, w.push)

	file := filepath.Join(w.dir, ConfigFile)
	clusterctl, err := client.New(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("TAG", "v0.1.0")
	t.Setenv("TOKEN", "any")
	var images []string
	for name, kind := range map[string]clusterctlv1.ProviderType{"alpha": clusterctlv1.InfrastructureProviderType, "beta": clusterctlv1.BootstrapProviderType} {
		components, err := clusterctl.GetProviderComponents(t.Context(), name, kind, client.ComponentsOptions{})
		if err != nil {
			t.Fatal(err)
		}
		images = append(images, components.Images()...)
	}
	images = append(images, certManagerImages(t, file)...)
	slices.Sort(images)
	m, _, err := load(w.dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(images) != 5 || len(m.Images) != 5 || len(m.Files) != 6 {
		t.Fatalf("clusterctl installs %v, want 5 images; the mirror has %d images and %d files, want 5 and 6",
			images, len(m.Images), len(m.Files))
	}
	for _, image := range images {
		if !strings.HasPrefix(image, w.site.host+"/capi/") {
			t.Errorf("clusterctl installs %s, want an image of the site's registry", image)
			continue
		}
		ref, err := name.ParseReference(image)
		if err != nil {
			t.Fatal(err)
		}
		index, err := remote.Index(ref)
		if err == nil {
			err = validate.Index(index)
		}
		if err != nil {
			t.Errorf("%s: %v", image, err)
		}
	}
}

// certManagerImages returns the images of cert-manager that clusterctl installs with a configuration.
func certManagerImages(t *testing.T, file string) []string {
	t.Helper()
	configuration, err := config.New(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	images, err := cluster.New(cluster.Kubeconfig{}, configuration, cluster.InjectProxy(emptyCluster{})).CertManager().Images(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return images
}

// emptyCluster is a management cluster without objects.
type emptyCluster struct{ cluster.Proxy }

func (emptyCluster) NewClient(context.Context) (crclient.Client, error) {
	return fake.NewClientBuilder().Build(), nil
}

// TestFaults checks that the error of each fault contains the cause and advice, and that a failed fetch succeeds once
// the fault is removed.
func TestFaults(t *testing.T) {
	const copyAgain, again = "copy the mirror again", "run `clusterctl release mirror` for it again"
	for _, tc := range []struct {
		name string
		// before are the steps that succeed before the fault.
		before   []string
		fault    func(t *testing.T, w *world)
		step     string
		wantText []string
	}{
		{name: "image that the source does not have", step: "fetch", fault: func(_ *testing.T, w *world) { w.source.refuse(http.StatusNotFound) },
			wantText: []string{"fetching the image", "/beta/controller:v0.1.0, which bootstrap-beta names", "does not have it", "docker login 127.0.0.1:"}},
		{name: "source that requires credentials", step: "fetch", fault: func(_ *testing.T, w *world) { w.source.refuse(http.StatusForbidden) },
			wantText: []string{"fetching the image", "log in with `docker login 127.0.0.1:"}},
		{name: "source that fails", step: "fetch", fault: func(_ *testing.T, w *world) { w.source.refuse(http.StatusNotImplemented) },
			wantText: []string{"fetching the image", "run the same command again to continue"}},
		{name: "incomplete folder", step: "push", before: []string{"fetch"}, fault: removeFile(ManifestFile), wantText: []string{"is an incomplete mirror", again}},
		{name: "cert-manager outside of the folder", step: "push", before: []string{"fetch"}, wantText: []string{"reading the manifest of the mirror", "not a path in the folder", copyAgain},
			fault: func(t *testing.T, w *world) {
				edit(t, filepath.Join(w.dir, ManifestFile), `{"certManager": "../v1.2.3/cert-manager.yaml"}`)
			}},
		{name: "release that the manifest lacks", step: "push", before: []string{"fetch"}, wantText: []string{"infrastructure-alpha/v0.1.1/metadata.yaml is not in mirror.json", again},
			fault: func(t *testing.T, w *world) {
				edit(t, filepath.Join(w.dir, "infrastructure-alpha/v0.1.1/metadata.yaml"), "")
			}},
		{name: "components that were changed", step: "push", before: []string{"fetch"}, wantText: []string{"bootstrap-beta/v0.1.0/bootstrap-components.yaml is missing, or is not the file", copyAgain},
			fault: func(t *testing.T, w *world) {
				edit(t, filepath.Join(w.dir, "bootstrap-beta/v0.1.0/bootstrap-components.yaml"), namespaced("beta"))
			}},
		{name: "blob with another digest", step: "push", before: []string{"fetch"}, wantText: []string{"is damaged", copyAgain},
			fault: func(t *testing.T, w *world) { edit(t, blobs(t, w)[0], "other") }},
		{name: "blob that is missing", step: "push", before: []string{"fetch"}, wantText: []string{"is incomplete: sha256:", copyAgain},
			fault: func(t *testing.T, w *world) {
				if err := os.Remove(blobs(t, w)[0]); err != nil {
					t.Fatal(err)
				}
			}},
		{name: "site that refuses", step: "push", before: []string{"fetch"}, fault: func(_ *testing.T, w *world) { w.site.refuse(http.StatusUnauthorized) },
			wantText: []string{"pushing the image", "/capi/bootstrap-beta/controller:v0.1.0", "log in with `docker login 127.0.0.1:"}},
		{name: "site that has another image", step: "push", before: []string{"fetch"}, fault: func(t *testing.T, w *world) { w.site.push(t, "capi/bootstrap-beta/controller:v0.1.0") },
			wantText: []string{"pushing the image", "has another image under this name", "choose another path for --registry"}},
		{name: "images that were not pushed", step: "verify", before: []string{"fetch"}, wantText: []string{"from its own registry", "clusterctl release mirror push"}},
		{name: "image that the site lost", step: "verify", before: []string{"fetch", "push"}, fault: func(_ *testing.T, w *world) { w.site.refuse(http.StatusNotFound) },
			wantText: []string{"looking up the image", "does not have it"}},
		{name: "image that the site replaced", step: "verify", before: []string{"fetch", "push"}, fault: func(t *testing.T, w *world) { w.site.push(t, "capi/cert-manager/cert-manager-webhook:v1.2.3") },
			wantText: []string{"/capi/cert-manager/cert-manager-webhook:v1.2.3 has the digest sha256:", "push again"}},
		{name: "variable that changes an image", step: "verify", before: []string{"fetch", "push"}, fault: func(t *testing.T, _ *world) { t.Setenv("TAG", "v9.9.9") },
			wantText: []string{"alpha/controller:v9.9.9", "does not have it"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			steps := map[string]func(context.Context) error{"fetch": w.fetch, "push": w.push, "verify": w.verify}
			for _, before := range tc.before {
				must(t, steps[before])
			}
			if tc.fault != nil {
				tc.fault(t, w)
			}
			err := steps[tc.step](t.Context())
			if err == nil {
				t.Fatal("error = nil, want an error")
			}
			for _, text := range tc.wantText {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("the error does not contain %q: %v", text, err)
				}
			}
			var problems Problems
			if tc.step == "fetch" {
				if err := w.push(t.Context()); !errors.As(err, &problems) {
					t.Errorf("pushing a folder without all images: error = %v, want Problems", err)
				}
				w.source.intercept.Store(nil)
				must(t, w.fetch, w.push, w.verify)
			}
		})
	}
}

// TestFetchAgain checks that a second fetch fetches no existing blob, and replaces partly written ones.
func TestFetchAgain(t *testing.T) {
	w := newWorld(t)
	must(t, w.fetch)
	var fetched atomic.Int64
	count := func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/blobs/") {
			fetched.Add(1)
		}
		return false
	}
	w.source.intercept.Store(&count)
	must(t, w.fetch)
	if n := fetched.Load(); n > 0 {
		t.Errorf("the second fetch fetched %d blobs, want none", n)
	}
	for _, file := range blobs(t, w) {
		edit(t, file, "half")
		edit(t, file+"123", "half")
	}
	must(t, w.fetch, w.push, w.verify)
}

// TestProviders checks the errors for providers that can't be found, and for invalid registries.
func TestProviders(t *testing.T) {
	w := newWorld(t)
	for provider, want := range map[string]string{
		"alpha":                       "infrastructure-libvirt:v0.1.0",
		"infrastructure-alpha:latest": "infrastructure-libvirt:v0.1.0",
		"infrastructure-alpha:v0.2.0": "it has v0.1.0",
		"infrastructure-unknown":      "infrastructure-unknown",
	} {
		if _, err := Fetch(t.Context(), w.dir, []string{provider}, w.config, func(string) {}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("provider %q: error = %v, want %q", provider, err, want)
		}
	}
	for _, registry := range []string{"", "capi", "https://registry.example.com", "registry.example.com/Capi"} {
		if _, err := Push(t.Context(), w.dir, registry, func(string) {}); err == nil || !strings.Contains(err.Error(), "such as registry.example.com/capi") {
			t.Errorf("registry %q: error = %v, want one with an example", registry, err)
		}
	}
}

// TestSameNameInTwoRepositories checks the error for images of a component that have the same name in two
// repositories: clusterctl can't distinguish them.
func TestSameNameInTwoRepositories(t *testing.T) {
	_, err := imagesOf(t.Context(), []component{{name: "alpha", kind: clusterctlv1.InfrastructureProviderType, version: "v0.1.0",
		raw: []byte(namespaced("alpha", "a.example.com/x/controller:v1", "a.example.com/y/controller:v1"))}}, func(string) {})
	if err == nil || !strings.Contains(err.Error(), "a.example.com/x and in a.example.com/y") {
		t.Errorf("error = %v, want one with both repositories", err)
	}
}

// TestCredentials checks that the site's registry gets the credentials of docker login, and that no error shows them.
func TestCredentials(t *testing.T) {
	w := newWorld(t)
	must(t, w.fetch)
	requireLogin := func(rw http.ResponseWriter, r *http.Request) bool {
		if user, password, _ := r.BasicAuth(); user == "me" && password == "right" {
			return false
		}
		rw.Header().Set("WWW-Authenticate", `Basic realm="site"`)
		rw.WriteHeader(http.StatusUnauthorized)
		return true
	}
	w.site.intercept.Store(&requireLogin)
	docker := t.TempDir()
	t.Setenv("DOCKER_CONFIG", docker)
	login := func(password string) {
		auth := base64.StdEncoding.EncodeToString([]byte("me:" + password))
		edit(t, filepath.Join(docker, "config.json"), fmt.Sprintf(`{"auths": {%q: {"auth": %q}}}`, w.site.host, auth))
	}
	login("wrong-password")
	if err := w.push(t.Context()); err == nil || !strings.Contains(err.Error(), "log in with `docker login 127.0.0.1:") || strings.Contains(err.Error(), "wrong-password") {
		t.Errorf("error = %v, want advice to log in without the password", err)
	}
	login("right")
	must(t, w.push, w.verify)
}

// TestNotRewritten checks that images that clusterctl does not rewrite are not mirrored, and are reported.
func TestNotRewritten(t *testing.T) {
	job := "apiVersion: batch/v1\nkind: Job\nmetadata: {name: once}\nspec: {template: {spec: {initContainers: [{name: a, image: a.example.com/x/job:v1}]}}}\n"
	var lines []string
	images, err := imagesOf(t.Context(), []component{{name: "alpha", kind: clusterctlv1.InfrastructureProviderType, version: "v0.1.0",
		raw: []byte(namespaced("alpha", "a.example.com/x/controller:v1") + job)}}, func(line string) { lines = append(lines, line) })
	if err != nil || len(images) != 1 || len(lines) != 1 || !strings.Contains(lines[0], "infrastructure-alpha v0.1.0: the image a.example.com/x/job:v1 of Job once is not mirrored") {
		t.Errorf("imagesOf = %v, %v with the lines %v, want one image and one line about Job once", images, err, lines)
	}
}

// TestKilled kills a process that fetches, and then one that pushes, at its first, third, ... request, until it
// succeeds. Only then is the folder complete, and can clusterctl install from the site.
func TestKilled(t *testing.T) {
	if step := os.Getenv("MIRROR_STEP"); step != "" {
		w := &world{dir: os.Getenv("MIRROR_DIR"), config: os.Getenv("MIRROR_CONFIG"), site: &server{host: os.Getenv("MIRROR_SITE")}}
		must(t, map[string]func(context.Context) error{"fetch": w.fetch, "push": w.push}[step])
		return
	}
	w := newWorld(t)
	for _, step := range []string{"fetch", "push"} {
		registry := map[string]*server{"fetch": w.source, "push": w.site}[step]
		for n := int64(1); ; n += 2 {
			if n > 1000 {
				t.Fatal(step, "does not succeed")
			}
			if w.runWithKill(t, step, registry, n) {
				if n == 1 {
					t.Fatal(step, "was not killed")
				}
				break
			}
			var problems Problems
			if err := w.verify(t.Context()); !errors.As(err, &problems) {
				t.Fatalf("after %s was killed at request %d, verify returns %v, want Problems", step, n, err)
			}
		}
	}
	must(t, w.push, w.verify)
}

// runWithKill runs a step in a process that is killed at its n-th request, and reports whether the step succeeded
// before.
func (w *world) runWithKill(t *testing.T, step string, registry *server, n int64) bool {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	child := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestKilled$")
	child.Env = append(os.Environ(), "MIRROR_STEP="+step, "MIRROR_DIR="+w.dir, "MIRROR_CONFIG="+w.config, "MIRROR_SITE="+w.site.host)
	var requests atomic.Int64
	var wasKilled atomic.Bool
	kill := func(http.ResponseWriter, *http.Request) bool {
		if requests.Add(1) == n {
			wasKilled.Store(true)
			cancel()
		}
		return wasKilled.Load()
	}
	registry.intercept.Store(&kill)
	defer registry.intercept.Store(nil)
	out, err := child.CombinedOutput()
	if err != nil && !wasKilled.Load() {
		t.Fatalf("%s: %v\n%s", step, err, out)
	}
	return err == nil
}

// removeFile returns a fault that removes a file of the mirror.
func removeFile(file string) func(*testing.T, *world) {
	return func(t *testing.T, w *world) {
		t.Helper()
		if err := os.Remove(filepath.Join(w.dir, file)); err != nil {
			t.Fatal(err)
		}
	}
}

func edit(t *testing.T, file, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// blobs returns the paths of the blobs of a mirror.
func blobs(t *testing.T, w *world) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(w.dir, imagesFolder, "blobs", "sha256", "*"))
	if err != nil || len(files) < 10 {
		t.Fatal(len(files), err)
	}
	return files
}
