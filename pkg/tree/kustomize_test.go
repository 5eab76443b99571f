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
		name  string
		files map[string]string
		is    error
		says  []string
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
		{name: "a file beside the tree", is: tree.ErrOutside, says: outside, files: map[string]string{
			"tree/config/kustomization.yaml": list("../../outside/a.yaml"), "outside/a.yaml": configMap,
		}},
		{name: "a file by its absolute path", is: tree.ErrOutside, says: outside, files: map[string]string{
			"tree/config/kustomization.yaml": list("/etc/hostname"),
		}},
		{name: "a base beside the tree", is: tree.ErrOutside, says: outside, files: map[string]string{
			"tree/config/kustomization.yaml": list("../../outside"),
			"outside/kustomization.yaml":     list("a.yaml"), "outside/a.yaml": configMap,
		}},
		{name: "a link to a file outside", is: tree.ErrOutside, says: []string{"tree/config/a.yaml", "symbolic link to", "outside/a.yaml", "put a copy"}, files: map[string]string{
			"tree/config/kustomization.yaml": list("a.yaml"), "tree/config/a.yaml": treetest.LinkTo + "../../outside/a.yaml", "outside/a.yaml": configMap,
		}},
		{name: "a base that is a link out", is: tree.ErrOutside, says: []string{"tree/config/base", "symbolic link to", "put a copy"}, files: map[string]string{
			"tree/config/kustomization.yaml": list("base"), "tree/config/base": treetest.LinkTo + "../../outside",
			"outside/kustomization.yaml": list("a.yaml"), "outside/a.yaml": configMap,
		}},
		{name: "a kustomization that is a link out", is: tree.ErrOutside, says: []string{"tree/config/kustomization.yaml", "put a copy"}, files: map[string]string{
			"tree/config/kustomization.yaml": treetest.LinkTo + "../../outside/k.yaml", "tree/config/a.yaml": configMap, "outside/k.yaml": list("a.yaml"),
		}},
		{name: "a patch that is a link out", is: tree.ErrOutside, says: []string{"tree/config/patch.yaml", "symbolic link to", "put a copy"}, files: map[string]string{
			"tree/config/kustomization.yaml": list("a.yaml") + "patches:\n- path: patch.yaml\n", "tree/config/a.yaml": configMap,
			"tree/config/patch.yaml": treetest.LinkTo + "../../outside/patch.yaml", "outside/patch.yaml": configMap + "data: {a: b}\n",
		}},
		{name: "a generator's file that is a link out", is: tree.ErrOutside, says: []string{"tree/config/key", "put a copy"}, files: map[string]string{
			"tree/config/kustomization.yaml": "configMapGenerator:\n- name: a\n  files: [key]\n",
			"tree/config/key":                treetest.LinkTo + "../../outside/key", "outside/key": "secret",
		}},
		{name: "a folder that is a link out", is: tree.ErrOutside, says: []string{"tree/config", "put a copy"}, files: map[string]string{
			"tree/config": treetest.LinkTo + "../outside", "outside/kustomization.yaml": list("a.yaml"), "outside/a.yaml": configMap,
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			result, err := open(t, tc.files).Kustomize("config")
			if tc.is != nil {
				requireError(t, err, tc.is, tc.says...)
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
		name   string
		files  map[string]string
		folder string
		is     error
		says   []string
	}{
		{name: "no such folder", folder: "config/default", is: fs.ErrNotExist, says: []string{"tree/config/default: the folder does not exist", "fix the path in clusterctl-release.yaml"}},
		{name: "a file", files: map[string]string{"tree/config/kustomization.yaml": list("a.yaml")}, folder: "config/kustomization.yaml",
			says: []string{"tree/config/kustomization.yaml is a file", "name the folder of a kustomization"}},
		{name: "above the tree", folder: "..", is: tree.ErrOutside},
		{name: "no kustomization", files: map[string]string{"tree/config/a.yaml": configMap}, folder: "config",
			says: []string{"kustomize build", "tree/config", "unable to find one of 'kustomization.yaml'"}},
		{name: "invalid kustomization", files: map[string]string{"tree/config/kustomization.yaml": "resources: [a.yaml\n"}, folder: "config",
			says: []string{"tree/config", "invalid Kustomization", "line 1"}},
		{name: "unknown field", files: map[string]string{"tree/config/kustomization.yaml": "resource: [a.yaml]\n"}, folder: "config",
			says: []string{"tree/config", `unknown field "resource"`}},
		{name: "invalid resource", files: map[string]string{"tree/config/kustomization.yaml": list("a.yaml"), "tree/config/a.yaml": "a: b\nc: [d\n"}, folder: "config",
			says: []string{"tree/config", "a.yaml", "yaml: line"}},
		{name: "invalid resource of a base", files: map[string]string{
			"tree/config/kustomization.yaml": list("../base"), "tree/base/kustomization.yaml": list("a.yaml"), "tree/base/a.yaml": "a: [\n",
		}, folder: "config", says: []string{"tree/config", "base", "a.yaml"}},
		{name: "missing resource", files: map[string]string{"tree/config/kustomization.yaml": list("missing.yaml")}, folder: "config",
			says: []string{"tree/config", "missing.yaml", "no such file or directory", "config/missing.yaml does not exist", "config/kustomization.yaml names: is it generated?"}},
		{name: "missing resources that make may generate", files: map[string]string{
			"tree/config/kustomization.yaml": list("../base") + "patches:\n- path: patch.yaml\n", "tree/base/kustomization.yaml": list("crd.yaml"),
			"tree/Makefile": "generate: manifests\nmanifests: ## CRDs\n\tcontroller-gen\n",
		}, folder: "config", says: []string{"base/crd.yaml does not exist (and 1 more files)", "base/kustomization.yaml names", "does `make manifests` create it?"}},
		{name: "the same object twice", files: map[string]string{
			"tree/config/kustomization.yaml": list("a.yaml", "b.yaml"), "tree/config/a.yaml": configMap, "tree/config/b.yaml": configMap,
		}, folder: "config", says: []string{"tree/config", "ConfigMap"}},
		{name: "a circle", files: map[string]string{
			"tree/config/kustomization.yaml": list("../base"), "tree/base/kustomization.yaml": list("../config"),
		}, folder: "config", says: []string{"cycle detected"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := open(t, tc.files).Kustomize(tc.folder)
			requireError(t, err, tc.is, tc.says...)
			if strings.Contains(err.Error(), "goroutine") || strings.Contains(err.Error(), ".go:") {
				t.Errorf("the error has a stack: %v", err)
			}
			var failed *tree.KustomizeError
			if errors.As(err, &failed) && failed.Hint != failed.Missing {
				t.Errorf("a hint on a network for what needs none: %s", failed.Hint)
			}
		})
	}
}

// TestKustomizeRemote: bases that can't be fetched are named with the files that list them. Port 1
// of this host is closed, so no test leaves it.
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
				t.Fatalf("want a KustomizeError: %v", err)
			}
			requireError(t, err, nil, "tree/config", "not in the tree", "put copies of them into the tree",
				base+" (in "+filepath.Join(source.Root(), "base", "kustomization.yaml")+")")
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}
}

// TestDeprecations: kustomize prints its warnings nowhere, and they are counted.
func TestDeprecations(t *testing.T) {
	source := open(t, map[string]string{
		"tree/config/kustomization.yaml": "bases: [../base]\ncommonLabels: {a: b}\n",
		"tree/base/kustomization.yaml":   list("a.yaml") + "commonLabels: {c: d}\n", "tree/base/a.yaml": configMap,
	})
	if line := source.Deprecations(); line != "" {
		t.Errorf("before anything is built: %q", line)
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
		t.Errorf("printed %q, %v", printed, err)
	}
	if got, want := source.Deprecations(), "kustomize warned 3 times about deprecated fields: bases, commonLabels"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// builtAlike are trees with one feature of kustomize's each.
var builtAlike = map[string]map[string]string{
	"legacy order": {
		"kustomization.yaml": list("objects.yaml"),
	},
	"order of the file": {
		"kustomization.yaml": list("objects.yaml") + "sortOptions:\n  order: fifo\n",
	},
	"an order of one's own": {
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

// TestKustomizeLikeTheCommand holds the results against those of the kustomize command.
func TestKustomizeLikeTheCommand(t *testing.T) {
	kustomize := pinned.Tool(t, "kustomize")
	for name, files := range builtAlike {
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
				t.Errorf("built\n%s\nand the command gives\n%s", got, want)
			}
		})
	}
}

// TestKustomizeBeyondTheCommand: a tree that the command refuses for its folders' bounds.
func TestKustomizeBeyondTheCommand(t *testing.T) {
	dir := treetest.New(t, map[string]string{"config/kustomization.yaml": list("../crds/a.yaml"), "crds/a.yaml": configMap})
	out, err := exec.CommandContext(t.Context(), pinned.Tool(t, "kustomize"), "build", filepath.Join(dir, "config")).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "security") {
		t.Fatalf("the command takes a file above its folder: drop this test and the option that it is for: %v\n%s", err, out)
	}
	source, err := tree.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := source.Kustomize("config"); err != nil {
		t.Error(err)
	}
}
