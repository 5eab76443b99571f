package templates_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clusterctl-release/clusterctl-release/internal/pinned"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/templates"
)

// TestRenderEqualsClusterctl renders every template of the corpus, and compares the output and whether there is an
// error with the real clusterctl.
func TestRenderEqualsClusterctl(t *testing.T) {
	corpus := filepath.Join(pinned.Corpus(t), "released")
	releases, err := release.Read(corpus)
	if err != nil {
		t.Fatal(err)
	}
	clusterctl := pinned.Tool(t, "clusterctl")
	compared := 0
	for _, r := range releases {
		for _, file := range templates.Flavors(r) {
			flavor, err := release.Flavor(file.Name)
			if err != nil {
				t.Fatal(err)
			}
			variables, err := templates.Variables(file)
			if err != nil {
				t.Fatal(err)
			}
			values := templates.Guess(variables)
			got, gotErr := templates.Render(t.Context(), r, flavor, values)
			want, wantErr := generateCluster(t, clusterctl, corpus, r, flavor, values)
			compared++
			switch {
			case (gotErr == nil) != (wantErr == nil):
				t.Errorf("%s %s: error = %v, want clusterctl's %v", r, file.Name, gotErr, wantErr)
			case gotErr == nil && !bytes.Equal(got.YAML, want):
				t.Errorf("%s %s: clusterctl -, got +:\n%s", r, file.Name, cmp.Diff(string(want), string(got.YAML)))
			}
		}
	}
	if compared < 100 {
		t.Errorf("compared %d templates, want at least 100", compared)
	}
}

// generateCluster runs the real clusterctl on a release of the corpus.
func generateCluster(t *testing.T, clusterctl, corpus string, r *release.Release, flavor string, values map[string]string) ([]byte, error) {
	t.Helper()
	home := t.TempDir()
	configuration := filepath.Join(home, "clusterctl.yaml")
	url := filepath.Join(corpus, r.Provider.Label(), r.Version, r.Provider.ComponentsFile())
	text := "providers:\n- name: " + r.Provider.Name + "\n  type: " + string(r.Provider.Type) + "\n  url: " + url + "\n"
	if err := os.WriteFile(configuration, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"generate", "cluster", values[templates.ClusterNameVariable], "--config", configuration,
		"--infrastructure", r.Provider.Name + ":" + r.Version, "--target-namespace", values[templates.NamespaceVariable],
		"--kubernetes-version", values[templates.KubernetesVersionVariable],
		"--control-plane-machine-count", values[templates.ControlPlaneCountVariable], "--worker-machine-count", values[templates.WorkerCountVariable]}
	if flavor != "" {
		args = append(args, "--flavor", flavor)
	}
	cmd := exec.CommandContext(t.Context(), clusterctl, args...)
	cmd.Env = []string{"HOME=" + home, "XDG_CONFIG_HOME=" + home, "PATH=" + os.Getenv("PATH"), "GOPROXY=off"}
	for name, value := range values {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	return cmd.Output()
}
