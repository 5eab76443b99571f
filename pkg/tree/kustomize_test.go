package tree_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/clusterctl-release/clusterctl-release/internal/pinned"
	"github.com/clusterctl-release/clusterctl-release/internal/treetest"
	"github.com/clusterctl-release/clusterctl-release/pkg/tree"
)

const configMap = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: demo\n"

// list returns a kustomization with these resources.
func list(resources ...string) string {
	return "resources:\n- " + strings.Join(resources, "\n- ") + "\n"
}

func TestKustomizeBounds(t *testing.T) {
	outside := []string{"leads out of the tree", "put a copy"}
	for _, tc := range []struct {
		name     string
		files    map[string]string
		wantErr  error
		wantText []string
	}{
		{name: "a file of the tree, above the kustomization", files: map[string]string{
			"tree/config/kustomization.yaml": list("../crds/a.yaml"), "tree/crds/a.yaml": configMap,
		}},
		{name: "a link to a file of the tree", files: map[string]string{
			"tree/config/kustomization.yaml": list("a.yaml"), "tree/config/a.yaml": treetest.LinkTo + "../a.yaml", "tree/a.yaml": configMap,
		}},
		{name: "a base that is a link to a folder of the tree", files: map[string]string{
			"tree/config/kustomization.yaml": list("base"), "tree/config/base": treetest.LinkTo + "../real",
			"tree/real/kustomization.yaml": list("a.yaml"), "tree/real/a.yaml": configMap,
		}},
		{name: "a file next to the tree", wantErr: tree.ErrOutside, wantText: outside, files: map[string]string{
			"tree/config/kustomization.yaml": list("../../outside/a.yaml"), "outside/a.yaml": configMap,
		}},
		{name: "a file by its absolute path", wantErr: tree.ErrOutside, wantText: outside, files: map[string]string{
			"tree/config/kustomization.yaml": list("/etc/hostname"),
		}},
		{name: "a base next to the tree", wantErr: tree.ErrOutside, wantText: outside, files: map[string]string{
			"tree/config/kustomization.yaml": list("../../outside"),
			"outside/kustomization.yaml":     list("a.yaml"), "outside/a.yaml": configMap,
		}},
		{name: "a link to a file outside", wantErr: tree.ErrOutside, wantText: []string{"tree/config/a.yaml", "symbolic link to", "outside/a.yaml", "put a copy"}, files: map[string]string{
			"tree/config/kustomization.yaml": list("a.yaml"), "tree/config/a.yaml": treetest.LinkTo + "../../outside/a.yaml", "outside/a.yaml": configMap,
		}},
		{name: "a base that is a link out", wantErr: tree.ErrOutside, wantText: []string{"tree/config/base", "symbolic link to", "put a copy"}, files: map[string]string{
			"tree/config/kustomization.yaml": list("base"), "tree/config/base": treetest.LinkTo + "../../outside",
			"outside/kustomization.yaml": list("a.yaml"), "outside/a.yaml": configMap,
		}},
		{name: "a kustomization that is a link out", wantErr: tree.ErrOutside, wantText: []string{"tree/config/kustomization.yaml", "put a copy"}, files: map[string]string{
			"tree/config/kustomization.yaml": treetest.LinkTo + "../../outside/k.yaml", "tree/config/a.yaml": configMap, "outside/k.yaml": list("a.yaml"),
		}},
		{name: "a patch that is a link out", wantErr: tree.ErrOutside, wantText: []string{"tree/config/patch.yaml", "symbolic link to", "put a copy"}, files: map[string]string{
			"tree/config/kustomization.yaml": list("a.yaml") + "patches:\n- path: patch.yaml\n", "tree/config/a.yaml": configMap,
			"tree/config/patch.yaml": treetest.LinkTo + "../../outside/patch.yaml", "outside/patch.yaml": configMap + "data: {a: b}\n",
		}},
		{name: "a generator's file that is a link out", wantErr: tree.ErrOutside, wantText: []string{"tree/config/key", "put a copy"}, files: map[string]string{
			"tree/config/kustomization.yaml": "configMapGenerator:\n- name: a\n  files: [key]\n",
			"tree/config/key":                treetest.LinkTo + "../../outside/key", "outside/key": "secret",
		}},
		{name: "a folder that is a link out", wantErr: tree.ErrOutside, wantText: []string{"tree/config", "put a copy"}, files: map[string]string{
			"tree/config": treetest.LinkTo + "../outside", "outside/kustomization.yaml": list("a.yaml"), "outside/a.yaml": configMap,
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			result, err := open(t, tc.files).Kustomize("config")
			if tc.wantErr != nil {
				requireError(t, err, tc.wantErr, tc.wantText...)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if result.Size() != 1 {
				t.Errorf("the result has %d objects, want 1", result.Size())
			}
		})
	}
}

func TestKustomizeErrors(t *testing.T) {
	for _, tc := range []struct {
		name     string
		files    map[string]string
		folder   string
		wantErr  error
		wantText []string
	}{
		{name: "no such folder", folder: "config/default", wantErr: fs.ErrNotExist, wantText: []string{"tree/config/default: the folder does not exist", "fix the path in clusterctl-release.yaml"}},
		{name: "a file", files: map[string]string{"tree/config/kustomization.yaml": list("a.yaml")}, folder: "config/kustomization.yaml",
			wantText: []string{"tree/config/kustomization.yaml is a file", "name the folder of a kustomization"}},
		{name: "above the tree", folder: "..", wantErr: tree.ErrOutside},
		{name: "no kustomization", files: map[string]string{"tree/config/a.yaml": configMap}, folder: "config",
			wantText: []string{"kustomize build", "tree/config", "unable to find one of 'kustomization.yaml'"}},
		{name: "invalid kustomization", files: map[string]string{"tree/config/kustomization.yaml": "resources: [a.yaml\n"}, folder: "config",
			wantText: []string{"tree/config", "invalid Kustomization", "line 1"}},
		{name: "unknown field", files: map[string]string{"tree/config/kustomization.yaml": "resource: [a.yaml]\n"}, folder: "config",
			wantText: []string{"tree/config", `unknown field "resource"`}},
		{name: "invalid resource", files: map[string]string{"tree/config/kustomization.yaml": list("a.yaml"), "tree/config/a.yaml": "a: b\nc: [d\n"}, folder: "config",
			wantText: []string{"tree/config", "a.yaml", "yaml: line"}},
		{name: "invalid resource of a base", files: map[string]string{
			"tree/config/kustomization.yaml": list("../base"), "tree/base/kustomization.yaml": list("a.yaml"), "tree/base/a.yaml": "a: [\n",
		}, folder: "config", wantText: []string{"tree/config", "base", "a.yaml"}},
		{name: "missing resource", files: map[string]string{"tree/config/kustomization.yaml": list("missing.yaml")}, folder: "config",
			wantText: []string{"tree/config", "missing.yaml", "no such file or directory", "config/missing.yaml does not exist", "config/kustomization.yaml names: is it generated?"}},
		{name: "missing resources that make may generate", files: map[string]string{
			"tree/config/kustomization.yaml": list("../base") + "patches:\n- path: patch.yaml\n", "tree/base/kustomization.yaml": list("crd.yaml"),
			"tree/Makefile": "generate: manifests\nmanifests: ## CRDs\n\tcontroller-gen\n",
		}, folder: "config", wantText: []string{"base/crd.yaml does not exist (and 1 more files)", "base/kustomization.yaml names", "does `make manifests` create it?"}},
		{name: "the same object twice", files: map[string]string{
			"tree/config/kustomization.yaml": list("a.yaml", "b.yaml"), "tree/config/a.yaml": configMap, "tree/config/b.yaml": configMap,
		}, folder: "config", wantText: []string{"tree/config", "ConfigMap"}},
		{name: "a circle", files: map[string]string{
			"tree/config/kustomization.yaml": list("../base"), "tree/base/kustomization.yaml": list("../config"),
		}, folder: "config", wantText: []string{"cycle detected"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := open(t, tc.files).Kustomize(tc.folder)
			requireError(t, err, tc.wantErr, tc.wantText...)
			if strings.Contains(err.Error(), "goroutine") || strings.Contains(err.Error(), ".go:") {
				t.Errorf("the error has a stack trace: %v", err)
			}
			var failed *tree.KustomizeError
			if errors.As(err, &failed) && failed.Hint != failed.Missing {
				t.Errorf("hint on the network for a build without remote bases: %s", failed.Hint)
			}
		})
	}
}

// TestKustomizeRemote checks that the error names bases that can't be fetched, with the files that list them. The
// tests connect to port 1 of this host, which is closed, and to no other host.
func TestKustomizeRemote(t *testing.T) {
	t.Setenv("NO_PROXY", "127.0.0.1")
	t.Setenv("no_proxy", "127.0.0.1")
	for _, base := range []string{
		"https://127.0.0.1:1/x.yaml",
		"https://127.0.0.1:1/x/y//config/default?ref=v1&timeout=5s",
		"git::https://127.0.0.1:1/x/y?ref=v1&timeout=5s",
		"ssh://git@127.0.0.1:1/x/y?ref=v1&timeout=5s",
	} {
		t.Run(base, func(t *testing.T) {
			source := open(t, map[string]string{
				"tree/config/kustomization.yaml": list("../base"),
				"tree/base/kustomization.yaml":   list(base),
			})
			began := time.Now()
			_, err := source.Kustomize("config")
			var failed *tree.KustomizeError
			if !errors.As(err, &failed) {
				t.Fatalf("error = %v, want a KustomizeError", err)
			}
			requireError(t, err, nil, "tree/config", "not in the tree", "put copies of them into the tree",
				base+" (in "+filepath.Join(source.Root(), "base", "kustomization.yaml")+")")
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("the build took %s, want at most 10s", took)
			}
		})
	}
}

// TestDeprecations checks that kustomize's warnings are counted and not printed.
func TestDeprecations(t *testing.T) {
	source := open(t, map[string]string{
		"tree/config/kustomization.yaml": "bases: [../base]\ncommonLabels: {a: b}\n",
		"tree/base/kustomization.yaml":   list("a.yaml") + "commonLabels: {c: d}\n", "tree/base/a.yaml": configMap,
	})
	if line := source.Deprecations(); line != "" {
		t.Errorf("before a build: Deprecations() = %q, want none", line)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr := os.Stderr
	os.Stderr = write
	_, err = source.Kustomize("config")
	os.Stderr = stderr
	_ = write.Close()
	if err != nil {
		t.Fatal(err)
	}
	if printed, err := io.ReadAll(read); err != nil || len(printed) > 0 {
		t.Errorf("stderr = %q, %v, want no output", printed, err)
	}
	if got, want := source.Deprecations(), "kustomize warned 3 times about deprecated fields: bases, commonLabels"; got != want {
		t.Errorf("Deprecations() = %q, want %q", got, want)
	}
}

// featureTrees are trees that each use one feature of kustomize.
var featureTrees = map[string]map[string]string{
	"legacy order": {
		"kustomization.yaml": list("objects.yaml"),
	},
	"order of the file": {
		"kustomization.yaml": list("objects.yaml") + "sortOptions:\n  order: fifo\n",
	},
	"a custom order": {
		"kustomization.yaml": list("objects.yaml") + "sortOptions:\n  order: legacy\n  legacySortOptions:\n    orderFirst: [Service]\n    orderLast: [Namespace]\n",
	},
	"names, labels and images": {
		"kustomization.yaml": list("objects.yaml") + `namespace: other
namePrefix: demo-
labels:
- pairs: {team: demo}
  includeSelectors: true
images:
- name: controller
  newName: registry.example.com/demo/controller
  newTag: v1
configMapGenerator:
- name: settings
  literals: [a=b]
`,
	},
	"patches and replacements": {
		"kustomization.yaml": list("objects.yaml") + `patches:
- path: patch.yaml
- target: {kind: Deployment}
  patch: |-
    - op: add
      path: /spec/template/spec/hostNetwork
      value: true
replacements:
- source: {kind: Service, name: service, fieldPath: metadata.namespace}
  targets:
  - select: {kind: Deployment}
    fieldPaths: [spec.template.spec.serviceAccountName]
    options: {create: true}
`,
		"patch.yaml": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: manager, namespace: system}\nspec: {replicas: 2}\n",
	},
	"components": {
		"kustomization.yaml":           list("objects.yaml") + "components: [component]\n",
		"component/kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nnameSuffix: -x\n",
	},
}

const objects = `# A comment that kustomize drops or keeps.
apiVersion: v1
kind: Service
metadata: {name: service, namespace: system}
spec:
  selector: {control-plane: manager}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: manager, namespace: system}
spec:
  selector: {matchLabels: {control-plane: manager}}
  template:
    metadata: {labels: {control-plane: manager}}
    spec:
      containers:
      - {name: manager, image: "controller:latest", args: ["--on=yes", "0x10", "010", "1e3", ""]}
---
apiVersion: v1
kind: Namespace
metadata: {name: system}
`

// TestKustomizeMatchesCommand compares the results with those of the kustomize command.
func TestKustomizeMatchesCommand(t *testing.T) {
	kustomize := pinned.Tool(t, "kustomize")
	for name, files := range featureTrees {
		t.Run(name, func(t *testing.T) {
			dir := treetest.New(t, treetest.Clone(files, map[string]string{"objects.yaml": objects}))
			var stderr bytes.Buffer
			cmd := exec.CommandContext(t.Context(), kustomize, "build", dir)
			cmd.Stderr = &stderr
			want, err := cmd.Output()
			if err != nil {
				t.Fatalf("kustomize build: %v\n%s", err, stderr.String())
			}
			source, err := tree.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			result, err := source.Kustomize(".")
			if err != nil {
				t.Fatal(err)
			}
			got, err := result.AsYaml()
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("result =\n%s\nwant the command's\n%s", got, want)
			}
		})
	}
}

// TestKustomizeFileAboveFolder checks that Kustomize builds a kustomization with a file above its folder, which the
// command refuses.
func TestKustomizeFileAboveFolder(t *testing.T) {
	dir := treetest.New(t, map[string]string{"config/kustomization.yaml": list("../crds/a.yaml"), "crds/a.yaml": configMap})
	out, err := exec.CommandContext(t.Context(), pinned.Tool(t, "kustomize"), "build", filepath.Join(dir, "config")).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "security") {
		t.Fatalf("the command accepts a file above its folder: remove this test and its option: %v\n%s", err, out)
	}
	source, err := tree.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := source.Kustomize("config"); err != nil {
		t.Error(err)
	}
}
