package topology_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	utilyaml "sigs.k8s.io/cluster-api/util/yaml"

	"github.com/clusterctl-release/clusterctl-release/internal/pinned"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/topology"
)

// values are the values of the variables in the topology flavor of this repository's provider.
var values = map[string]string{
	"CLUSTER_NAME": "demo", "NAMESPACE": "team-a", "KUBERNETES_VERSION": "v1.36.3",
	"CONTROL_PLANE_MACHINE_COUNT": "3", "WORKER_MACHINE_COUNT": "2", "CONTROL_PLANE_ENDPOINT_IP": "192.168.122.10",
	"LIBVIRT_IMAGE_URL":      "https://images.example.com/ubuntu-2404-kube-v1.36.3.qcow2",
	"LIBVIRT_IMAGE_CHECKSUM": "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
}

// ownRelease returns a release of this repository's provider: its templates, and its CRDs as components.
func ownRelease(t *testing.T, edit *strings.Replacer) *release.Release {
	t.Helper()
	provider, err := release.ParseLabel("infrastructure-libvirt")
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(pinned.Root(t), "provider")
	var crds []string
	var files []release.File
	for _, pattern := range []string{"config/crd/bases/*.yaml", "templates/cluster*.yaml"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: no files: %v", pattern, err)
		}
		for _, path := range found {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(pattern, "crd") {
				crds = append(crds, string(data))
				continue
			}
			files = append(files, release.File{Name: filepath.Base(path), Data: []byte(edit.Replace(string(data)))})
		}
	}
	files = append(files, release.File{Name: provider.ComponentsFile(), Data: []byte(strings.Join(crds, "\n---\n"))})
	r, err := release.New(provider, "v0.1.0", files)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestExpandFlavor compares the objects of the own topology flavor with a golden file that was reviewed once.
func TestExpandFlavor(t *testing.T) {
	for range 2 { // two runs return the same objects
		objects, err := topology.ExpandFlavor(t.Context(), ownRelease(t, strings.NewReplacer()), "topology", values)
		if err != nil {
			t.Fatal(err)
		}
		got, err := utilyaml.FromUnstructured(objects)
		if err != nil {
			t.Fatal(err)
		}
		golden := filepath.Join("testdata", "topology.yaml")
		if os.Getenv("UPDATE_GOLDEN") != "" {
			if err := os.WriteFile(golden, append(got, '\n'), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if string(want) != string(got)+"\n" {
			t.Errorf("the objects differ from %s (UPDATE_GOLDEN=1 rewrites it):\n%s", golden, got)
		}
	}
}

func TestExpandErrors(t *testing.T) {
	for _, tc := range []struct {
		name, flavor string
		edit         *strings.Replacer
		want         error
		wantText     string
	}{
		{name: "no topology", flavor: "", edit: strings.NewReplacer(), want: topology.ErrUnmanaged},
		{name: "a variable of the wrong type", flavor: "topology", edit: strings.NewReplacer("host: ${CONTROL_PLANE_ENDPOINT_IP}", "host: 5"), want: topology.ErrVariables},
		{name: "a missing worker class", flavor: "topology", edit: strings.NewReplacer("- class: default-worker\n        name: md-0", "- class: other\n        name: md-0"), wantText: "other"},
		{name: "a patch that does not apply", flavor: "topology", edit: strings.NewReplacer("path: /spec/template/spec/controlPlaneEndpoint", "path: /spec/template/spec/a/b/c"), wantText: "failed to apply patches"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := topology.ExpandFlavor(t.Context(), ownRelease(t, tc.edit), tc.flavor, values)
			if err == nil || tc.want != nil && !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.wantText) {
				t.Errorf("error = %v, want %v with the text %q", err, tc.want, tc.wantText)
			}
		})
	}
}
