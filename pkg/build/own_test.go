package build_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/yamlprocessor"

	"github.com/clusterctl-release/clusterctl-release/internal/pinned"
	"github.com/clusterctl-release/clusterctl-release/pkg/build"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/tree"
)

// TestOwnRelease builds and publishes this repository's own provider, and runs the real clusterctl on its components
// and on each flavor of its templates with every set of sample values.
func TestOwnRelease(t *testing.T) {
	root := pinned.Root(t)
	config, err := release.Load(filepath.Join(root, release.ConfigFile))
	if err != nil {
		t.Fatal(err)
	}
	source, err := tree.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	result, err := build.Build(t.Context(), source, build.Options{Config: config, Version: "v0.1.0"})
	if err != nil {
		t.Fatal(err)
	}
	if len(result.Notes) > 0 {
		t.Errorf("the build has notes: %v", result.Notes)
	}
	repository := t.TempDir()
	publisher, err := publish.Open(repository, publish.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := publisher.Publish(t.Context(), result.Releases); err != nil {
		t.Fatal(err)
	}
	r := result.Releases[0]
	t.Run("provider", func(t *testing.T) { compareWithClusterctl(t, repository, r) })
	for _, f := range r.Files {
		flavor, err := release.Flavor(f.Name)
		if err != nil {
			continue
		}
		for _, sample := range config.Providers[0].SampleValues {
			t.Run(f.Name+" "+sample.Name, func(t *testing.T) { generateCluster(t, repository, r, flavor, sample.Values) })
		}
	}
}

// compareWithClusterctl checks that clusterctl changes only labels in the components.
func compareWithClusterctl(t *testing.T, repository string, r *release.Release) {
	out := clusterctl(t, repository, nil, "generate", "provider", "--"+r.Provider.ClusterctlFlag(), r.Provider.Name+":"+r.Version)
	components, _ := r.Components()
	// Variables get their defaults on both sides, by clusterctl's own processor.
	processed, err := yamlprocessor.NewSimpleProcessor().Process(components.Data, func(name string) (string, error) {
		return "", fmt.Errorf("%s is not set", name)
	})
	if err != nil {
		t.Fatalf("the components have a variable that a user must set: %v", err)
	}
	want, got := objectsByKey(t, processed), objectsByKey(t, out)
	for key, object := range got {
		ours, ok := want[key]
		if !ok {
			t.Errorf("clusterctl adds %s", key)
			continue
		}
		if _, ok := object.GetLabels()[clusterctlv1.ClusterctlLabel]; !ok {
			t.Errorf("clusterctl does not label %s: is this its output?", key)
		}
		for path, change := range differences("", pruned(ours), pruned(object)) {
			t.Errorf("clusterctl changes %s in %s from %v to %v", path, key, change.was, change.now)
		}
	}
	if len(want) != len(got) {
		t.Errorf("clusterctl prints %d objects, want %d as in the release", len(got), len(want))
	}
}

// pruned returns an object without its empty fields: clusterctl's conversion through Go types adds some, such as
// "status: {}".
func pruned(o unstructured.Unstructured) map[string]any {
	kept, _ := prune(o.Object).(map[string]any)
	return kept
}

// prune returns a value without its empty fields, or nil if the result is empty.
func prune(value any) any {
	switch v := value.(type) {
	case map[string]any:
		kept := map[string]any{}
		for key, field := range v {
			if field := prune(field); field != nil {
				kept[key] = field
			}
		}
		if len(kept) == 0 {
			return nil
		}
		return kept
	case []any:
		if len(v) == 0 {
			return nil
		}
		kept := make([]any, 0, len(v))
		for _, item := range v {
			kept = append(kept, prune(item))
		}
		return kept
	case string:
		if v == "" { // such as clusterctl's own label
			return nil
		}
	}
	return value
}

// generateCluster renders a flavor with clusterctl, and checks the namespaces and that it has one Cluster.
func generateCluster(t *testing.T, repository string, r *release.Release, flavor string, values map[string]string) {
	args := []string{"generate", "cluster", values["CLUSTER_NAME"], "--infrastructure", r.Provider.Name + ":" + r.Version,
		"--kubernetes-version", values["KUBERNETES_VERSION"], "--target-namespace", values["NAMESPACE"],
		"--control-plane-machine-count", values["CONTROL_PLANE_MACHINE_COUNT"], "--worker-machine-count", values["WORKER_MACHINE_COUNT"]}
	if flavor != "" {
		args = append(args, "--flavor", flavor)
	}
	environment := maps.Clone(values)
	for _, flag := range []string{"CLUSTER_NAME", "NAMESPACE", "KUBERNETES_VERSION", "CONTROL_PLANE_MACHINE_COUNT", "WORKER_MACHINE_COUNT"} {
		delete(environment, flag)
	}
	objects := objectsByKey(t, clusterctl(t, repository, environment, args...))
	clusters := 0
	for key, object := range objects {
		if object.GetNamespace() != values["NAMESPACE"] {
			t.Errorf("%s is not in namespace %s", key, values["NAMESPACE"])
		}
		if object.GetKind() == "Cluster" {
			clusters++
		}
	}
	if clusters != 1 {
		t.Errorf("got %d Clusters, want 1", clusters)
	}
}

// clusterctl runs the real clusterctl on a repository, without the user's configuration, and returns its output.
func clusterctl(t *testing.T, repository string, environment map[string]string, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), pinned.Tool(t, "clusterctl"), append(args, "--config", filepath.Join(repository, "clusterctl.yaml"))...)
	cmd.Env = append(os.Environ(), "XDG_CONFIG_HOME="+t.TempDir(), "HOME="+t.TempDir(), "GOPROXY=off", "KUBECONFIG=")
	for name, value := range environment {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("clusterctl %v: %v\n%s", args, err, stderr.String())
	}
	return out
}
