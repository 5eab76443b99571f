package components

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/tree"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// demo returns a provider whose kustomization is the root of the tree.
func demo() release.ProviderConfig {
	return release.ProviderConfig{Name: "demo", Type: clusterctlv1.InfrastructureProviderType, Kustomize: "."}
}

// buildFiles builds the components of a tree with these files.
func buildFiles(t *testing.T, files map[string]string, options Options) (*Components, error) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	source, err := tree.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return Build(source, options)
}

// buildObjects builds the components of a kustomization with only these objects.
func buildObjects(t *testing.T, objects string, options Options) (*Components, error) {
	t.Helper()
	return buildFiles(t, map[string]string{"kustomization.yaml": "resources: [objects.yaml]\n", "objects.yaml": objects}, options)
}

// TestGolden builds each testdata/*/in.yaml and compares the result with want.yaml next to it.
func TestGolden(t *testing.T) {
	inputs, err := filepath.Glob(filepath.Join("testdata", "*", "in.yaml"))
	if err != nil || len(inputs) == 0 {
		t.Fatalf("no golden cases: %v", err)
	}
	for _, input := range inputs {
		t.Run(filepath.Base(filepath.Dir(input)), func(t *testing.T) {
			in, err := os.ReadFile(input)
			if err != nil {
				t.Fatal(err)
			}
			c, err := buildObjects(t, string(in), Options{Provider: demo(), Version: "v0.1.0"})
			if err != nil {
				t.Fatal(err)
			}
			got, err := c.YAML()
			if err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join(filepath.Dir(input), "want.yaml")
			if *update {
				if err := os.WriteFile(golden, got, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("want -, got +; -update rewrites %s:\n%s", golden, diff)
			}
		})
	}
}

const manager = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: demo-manager, namespace: demo-system}
spec:
  selector: {matchLabels: {control-plane: demo}}
  template:
    metadata: {labels: {control-plane: demo}}
    spec:
      containers:
      - {name: manager, image: ghcr.io/example/demo:main}
`

func TestBuildRefuses(t *testing.T) {
	image := func(name string) string { return strings.Replace(manager, "ghcr.io/example/demo:main", name, 1) }
	for _, tc := range []struct {
		name    string
		objects string
		options Options
		want    string
	}{
		{name: "two Namespaces", objects: manager + "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: b}\n",
			want: "the kustomization has 2 Namespaces (a, b), but clusterctl accepts only one"},
		{name: "no Deployment", objects: "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n",
			want: `the kustomization has no Deployment: clusterctl expects one with a container called "manager"`},
		{name: "no container manager", objects: strings.Replace(manager, "name: manager, image", "name: controller, image", 1),
			want: `no Deployment has a container called "manager"; the containers are: controller in Deployment demo-system/demo-manager`},
		{name: "a manager in a DaemonSet", objects: strings.Replace(manager, "kind: Deployment", "kind: DaemonSet", 1),
			want: `no Deployment has a container called "manager"; the containers are: manager in DaemonSet demo-system/demo-manager`},
		{name: "image not canonical", objects: image("controller:latest"),
			want: `Deployment demo-system/demo-manager, container manager: image "controller:latest": couldn't parse image name: repository name must be canonical: clusterctl refuses the whole file; name the image with its registry, e.g. registry.example.com/controller, under images in clusterctl-release.yaml, or with --image controller=REFERENCE`},
		{name: "image of a variable's default not canonical", objects: image("'${DEMO_IMAGE:=demo:v1}'"), want: "must be canonical"},
		{name: "missing image", objects: manager, options: Options{Provider: release.ProviderConfig{Images: []release.ImageConfig{{Name: "controller"}}}},
			want: `no container has the image "controller"; the images are: ghcr.io/example/demo`},
		{name: "override not canonical", objects: manager, options: Options{Images: map[string]string{"ghcr.io/example/demo": "demo:v1"}},
			want: "--image ghcr.io/example/demo=demo:v1: repository name must be canonical"},
		{name: "no namespace anywhere", objects: strings.Replace(manager, ", namespace: demo-system", "", 1),
			want: "the namespace of the components is unknown"},
		{name: "several namespaces", objects: manager + "---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: a, namespace: other}\n",
			want: "the kustomization has no Namespace, and its objects are in several: demo-system (1 objects), other (1 objects)"},
		{name: "pods distinguished only by the provider label", objects: strings.ReplaceAll(manager, "control-plane: demo", "cluster.x-k8s.io/provider: infrastructure-demo"),
			want: "spec.selector.matchLabels distinguishes its pods only by cluster.x-k8s.io/provider"},
		{name: "selector of no pods", objects: manager + "---\napiVersion: v1\nkind: Service\nmetadata: {name: s, namespace: demo-system}\nspec: {selector: {cluster.x-k8s.io/provider: infrastructure-demo}}\n",
			want: "Service demo-system/s: spec.selector requires cluster.x-k8s.io/provider, which no pod of the components has"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			options := tc.options
			images := options.Provider.Images
			options.Provider, options.Version = demo(), "v0.1.0"
			options.Provider.Images = images
			_, err := buildObjects(t, tc.objects, options)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error =\n%v\nwant\n%s", err, tc.want)
			}
			if err != nil && !strings.Contains(err.Error(), "infrastructure-demo") {
				t.Errorf("the error does not name the provider: %v", err)
			}
		})
	}
}

func TestImages(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0", 64)
	for _, tc := range []struct {
		name      string
		image     string
		entries   []release.ImageConfig
		overrides map[string]string
		version   string
		want      string
		note      bool
	}{
		{name: "the version becomes the tag", entries: []release.ImageConfig{{Name: "ghcr.io/example/demo"}}, want: "ghcr.io/example/demo:v0.1.0"},
		{name: "another name", entries: []release.ImageConfig{{Name: "ghcr.io/example/demo", NewName: "quay.io/demo/manager"}}, want: "quay.io/demo/manager:v0.1.0"},
		{name: "another tag", entries: []release.ImageConfig{{Name: "ghcr.io/example/demo", NewTag: "v9"}}, want: "ghcr.io/example/demo:v9"},
		{name: "a digest", entries: []release.ImageConfig{{Name: "ghcr.io/example/demo", Digest: digest}}, want: "ghcr.io/example/demo@" + digest},
		{name: "build metadata isn't a tag", entries: []release.ImageConfig{{Name: "ghcr.io/example/demo"}}, version: "v0.1.0+build.1", want: "ghcr.io/example/demo:v0.1.0_build.1"},
		{name: "override", entries: []release.ImageConfig{{Name: "ghcr.io/example/demo"}}, overrides: map[string]string{"ghcr.io/example/demo": "localhost:5000/demo:dev"}, want: "localhost:5000/demo:dev"},
		{name: "override without a tag", overrides: map[string]string{"ghcr.io/example/demo": "localhost:5000/demo"}, want: "localhost:5000/demo:v0.1.0"},
		{name: "override of a digest", image: "ghcr.io/example/demo:main@" + digest, overrides: map[string]string{"ghcr.io/example/demo": "ghcr.io/example/demo:v1"}, want: "ghcr.io/example/demo:v1"},
		{name: "not listed", want: "ghcr.io/example/demo:main", note: true},
		{name: "a variable", image: "${DEMO_IMAGE:=ghcr.io/example/demo:main}", want: "${DEMO_IMAGE:=ghcr.io/example/demo:main}", note: true},
		{name: "a variable without a default", image: "${DEMO_IMAGE}", want: "${DEMO_IMAGE}", note: true},
		{name: "a registry with a port", image: "localhost:5000/demo", entries: []release.ImageConfig{{Name: "localhost:5000/demo"}}, want: "localhost:5000/demo:v0.1.0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			objects := manager
			if tc.image != "" {
				objects = strings.Replace(manager, "{name: manager, image: ghcr.io/example/demo:main}", "{name: manager, image: \""+tc.image+"\"}", 1)
			}
			options := Options{Provider: demo(), Version: "v0.1.0", Images: tc.overrides}
			options.Provider.Images = tc.entries
			if tc.version != "" {
				options.Version = tc.version
			}
			c, err := buildObjects(t, objects, options)
			if err != nil {
				t.Fatal(err)
			}
			var got any
			for _, o := range c.Objects {
				if pod, ok := manifest.PodOf(o); ok {
					got = pod.Containers()[0].Fields["image"]
				}
			}
			if got != tc.want {
				t.Errorf("image = %v, want %s", got, tc.want)
			}
			if (len(c.Notes) > 0) != tc.note {
				t.Errorf("Notes = %q, want some: %v", c.Notes, tc.note)
			}
			if len(c.UsedImages) != len(tc.overrides) {
				t.Errorf("UsedImages = %q, want those of %v", c.UsedImages, tc.overrides)
			}
		})
	}
}

// TestKustomizeErrorText checks that an error of kustomize keeps its text, without a stack trace.
func TestKustomizeErrorText(t *testing.T) {
	_, err := buildFiles(t, map[string]string{"kustomization.yaml": "resources: [missing.yaml]\n"}, Options{Provider: demo(), Version: "v0.1.0"})
	var kustomize *tree.KustomizeError
	if !errors.As(err, &kustomize) || !strings.Contains(err.Error(), "missing.yaml") {
		t.Errorf("error = %v, want kustomize's", err)
	}
	if strings.Contains(err.Error(), "goroutine") || strings.Contains(err.Error(), ".go:") {
		t.Errorf("the error has a stack trace: %v", err)
	}
}
