package build_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/yamlprocessor"
	utilyaml "sigs.k8s.io/cluster-api/util/yaml"

	"github.com/clusterctl-release/clusterctl-release/internal/pinned"
	"github.com/clusterctl-release/clusterctl-release/pkg/build"
	"github.com/clusterctl-release/clusterctl-release/pkg/discover"
	"github.com/clusterctl-release/clusterctl-release/pkg/metadata"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/tree"
)

// corpusTrees are the source trees of the corpus with their providers.
var corpusTrees = map[string][]string{
	"cluster-api": {"cluster-api", "bootstrap-kubeadm", "control-plane-kubeadm", "infrastructure-docker"},
	"hetzner":     {"infrastructure-hetzner"},
	"metal3":      {"infrastructure-metal3"},
	"rke2":        {"bootstrap-rke2", "control-plane-rke2"},
	"scaleway":    {"infrastructure-scaleway"},
}

// TestCorpusTrees builds every tree of the corpus with the release file that init generates for it. Each provider
// must be found; its components must equal the kustomize binary's output for the same folder, except for the
// intended changes of a build; and the real clusterctl must accept the published release.
func TestCorpusTrees(t *testing.T) {
	corpus := pinned.Corpus(t)
	for name, labels := range corpusTrees {
		t.Run(name, func(t *testing.T) {
			source, err := tree.Open(filepath.Join(corpus, "source", name))
			if err != nil {
				t.Fatal(err)
			}
			before := snapshot(t, source.Root())
			config, result := initAndBuild(t, source)
			if after := snapshot(t, source.Root()); !reflect.DeepEqual(before, after) {
				t.Error("the discovery or the build changed the tree")
			}
			repository := t.TempDir()
			publisher, err := publish.Open(repository, publish.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := publisher.Publish(t.Context(), result.Releases); err != nil {
				t.Fatal(err)
			}
			if len(result.Releases) != len(labels) {
				t.Errorf("found %d providers, want %v", len(result.Releases), labels)
			}
			for i, label := range labels {
				if i >= len(result.Releases) || result.Releases[i].Provider.Label() != label {
					t.Errorf("provider %s was not found", label)
					continue
				}
				components, _ := result.Releases[i].Components()
				compareWithKustomize(t, filepath.Join(source.Root(), config.Providers[i].Kustomize), label, components.Data)
				generateProvider(t, repository, result.Releases[i])
			}
		})
	}
}

// initAndBuild generates a release file for the tree in memory, and builds the first version of the newest series in
// the tree's metadata.yaml.
func initAndBuild(t *testing.T, source *tree.Tree) (*release.Config, *build.Result) {
	t.Helper()
	found, err := discover.Look(t.Context(), source, discover.Watch{Building: func(string) {}, Fetching: func(string) {}})
	if err != nil {
		t.Fatal(err)
	}
	config, err := release.Parse(release.ConfigFile, found.YAML())
	if err != nil {
		t.Fatalf("the generated release file can't be parsed: %v\n%s", err, found.YAML())
	}
	data, err := source.ReadFile(config.MetadataPath(config.Providers[0]))
	if err != nil {
		t.Fatal(err)
	}
	series, err := metadata.Parse(release.MetadataFile, data)
	if err != nil {
		t.Fatal(err)
	}
	options := build.Options{Config: config, Version: fmt.Sprintf("v%d.%d.0", series.Newest().Major, series.Newest().Minor)}
	for _, p := range config.Providers {
		for _, image := range p.Images {
			if image.Name == "controller" { // the scaffold's name, which clusterctl refuses
				options.Images = map[string]string{"controller": "registry.example.com/controller"}
			}
		}
	}
	result, err := build.Build(t.Context(), source, options)
	if err != nil {
		t.Fatal(err)
	}
	again, err := build.Build(t.Context(), source, options)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range result.Releases {
		if differences := r.Differences(again.Releases[i]); len(differences) > 0 {
			t.Errorf("%s: a second build differs from the first: %v", r, differences)
		}
	}
	return config, result
}

// The fields in which a build may differ from kustomize.
var (
	labelAdded     = regexp.MustCompile(`^metadata\.labels(\.cluster\.x-k8s\.io/provider)?$`)
	labelRemoved   = regexp.MustCompile(`(matchLabels|spec\.selector|template\.metadata\.labels)\.cluster\.x-k8s\.io/provider$`)
	serviceLabels  = regexp.MustCompile(`^spec\.selector\.`)
	imageSet       = regexp.MustCompile(`^spec\.template\.spec\.(containers|initContainers)\[\d+\]\.image$`)
	providerLabels = "cluster.x-k8s.io/provider"
)

// compareWithKustomize compares components with the kustomize binary's output, object by object.
func compareWithKustomize(t *testing.T, folder, label string, components []byte) {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), pinned.Tool(t, "kustomize"), "build", folder)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("kustomize build: %v\n%s", err, stderr.String())
	}
	want, got := objectsByKey(t, out), objectsByKey(t, components)
	for key, object := range got {
		if object.GetLabels()[providerLabels] != label {
			t.Errorf("%s: the provider label is %q, want %q", key, object.GetLabels()[providerLabels], label)
		}
		peer, ok := want[key]
		if !ok {
			if object.GetKind() != "Namespace" {
				t.Errorf("kustomize's output does not have %s", key)
			}
			continue
		}
		for path, change := range differences("", peer.Object, object.Object) {
			switch {
			case labelAdded.MatchString(path), labelRemoved.MatchString(path) && change.now == nil, imageSet.MatchString(path):
			case serviceLabels.MatchString(path) && object.GetKind() == "Service" && peer.Object["spec"].(map[string]any)["selector"].(map[string]any)[providerLabels] != nil:
			default:
				t.Errorf("%s: %s = %v, want kustomize's %v", key, path, change.now, change.was)
			}
		}
		delete(want, key)
	}
	for key := range want {
		t.Errorf("the components lack %s", key)
	}
}

// objectsByKey returns the objects of a YAML file by group, version, kind, namespace and name.
func objectsByKey(t *testing.T, data []byte) map[string]unstructured.Unstructured {
	t.Helper()
	objects, err := utilyaml.ToUnstructured(data)
	if err != nil {
		t.Fatal(err)
	}
	byKey := map[string]unstructured.Unstructured{}
	for _, o := range objects {
		byKey[fmt.Sprintf("%s %s/%s", o.GroupVersionKind(), o.GetNamespace(), o.GetName())] = o
	}
	return byKey
}

// change is a value before and after; nil is a missing value.
type change struct{ was, now any }

// differences returns the fields in which two values differ, by path.
func differences(path string, was, now any) map[string]change {
	wasMap, ok1 := was.(map[string]any)
	nowMap, ok2 := now.(map[string]any)
	found := map[string]change{}
	merge := func(others map[string]change) {
		for k, v := range others {
			found[k] = v
		}
	}
	if ok1 && ok2 {
		for key := range union(wasMap, nowMap) {
			merge(differences(strings.TrimPrefix(path+"."+key, "."), wasMap[key], nowMap[key]))
		}
		return found
	}
	wasList, ok1 := was.([]any)
	nowList, ok2 := now.([]any)
	if ok1 && ok2 && len(wasList) == len(nowList) {
		for i := range wasList {
			merge(differences(fmt.Sprintf("%s[%d]", path, i), wasList[i], nowList[i]))
		}
		return found
	}
	if !reflect.DeepEqual(was, now) {
		found[path] = change{was, now}
	}
	return found
}

// union returns the keys of two maps.
func union(a, b map[string]any) map[string]bool {
	keys := map[string]bool{}
	for k := range a {
		keys[k] = true
	}
	for k := range b {
		keys[k] = true
	}
	return keys
}

// generateProvider runs the real clusterctl generate provider on a release of a repository.
func generateProvider(t *testing.T, repository string, r *release.Release) {
	t.Helper()
	components, _ := r.Components()
	variables, err := yamlprocessor.NewSimpleProcessor().GetVariableMap(components.Data)
	if err != nil {
		t.Fatal(err)
	}
	environment := map[string]string{}
	for name, value := range variables {
		if value == nil { // without a default, so a user must set it
			environment[name] = "x"
		}
	}
	out := clusterctl(t, repository, environment, "generate", "provider", "--"+r.Provider.ClusterctlFlag(), r.Provider.Name+":"+r.Version)
	if !bytes.Contains(out, []byte("kind: Deployment")) {
		t.Errorf("the output of clusterctl generate provider for %s has no Deployment", r)
	}
}

// snapshot returns the modes, sizes and times of all files in a folder, by path.
func snapshot(t *testing.T, root string) map[string]string {
	t.Helper()
	entries := map[string]string{}
	err := filepath.Walk(root, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		entries[path] = fmt.Sprint(info.Mode(), info.Size(), info.ModTime().UnixNano())
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return entries
}
