package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clusterctl-release/clusterctl-release/internal/pinned"
)

// libvirtRelease writes a release with the edited templates and CRDs of this repository's provider.
func libvirtRelease(t *testing.T, edit *strings.Replacer) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "infrastructure-libvirt", "v0.1.0")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	var components []string
	for _, pattern := range []string{"metadata.yaml", "templates/cluster*.yaml", "config/crd/bases/*.yaml"} {
		files, err := filepath.Glob(filepath.Join(pinned.Root(t), "provider", pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: no files: %v", pattern, err)
		}
		for _, path := range files {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(pattern, "crd") {
				components = append(components, string(data))
				continue
			}
			if err := os.WriteFile(filepath.Join(dir, filepath.Base(path)), []byte(edit.Replace(string(data))), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "infrastructure-components.yaml"), []byte(strings.Join(components, "\n---\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// expandValues writes the values for the topology flavor of this repository's provider.
func expandValues(t *testing.T) string {
	t.Helper()
	values := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(values, []byte(`CLUSTER_NAME: demo
NAMESPACE: team-a
KUBERNETES_VERSION: v1.36.3
CONTROL_PLANE_MACHINE_COUNT: 3
WORKER_MACHINE_COUNT: 2
CONTROL_PLANE_ENDPOINT_IP: 192.168.122.10
LIBVIRT_IMAGE_URL: https://images.example.com/ubuntu-2404-kube-v1.36.3.qcow2
LIBVIRT_IMAGE_CHECKSUM: sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
`), 0o600); err != nil {
		t.Fatal(err)
	}
	return values
}

func TestTemplatesExpand(t *testing.T) {
	values := expandValues(t)
	own := libvirtRelease(t, strings.NewReplacer())
	want, err := os.ReadFile(filepath.Join(pinned.Root(t), "pkg", "topology", "testdata", "topology.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if got := succeed(t, "templates", "expand", own, "--flavor", "topology", "--values", values); got != string(want) {
		t.Errorf("the objects differ from pkg/topology/testdata/topology.yaml:\n%s", got)
	}

	other := libvirtRelease(t, strings.NewReplacer("nodeStartupTimeoutSeconds: 900", "nodeStartupTimeoutSeconds: 600", "name: md-0", "name: workers"))
	changes := succeed(t, "templates", "expand", own, "--flavor", "topology", "--values", values, "--diff", other)
	for _, line := range []string{
		"~ MachineHealthCheck demo-00000 spec.checks.nodeStartupTimeoutSeconds: 900 -> 600\n",
		"- MachineDeployment demo-md-0-00000\n", "+ MachineDeployment demo-workers-00000\n",
	} {
		if !strings.Contains(changes, line) {
			t.Errorf("the changes lack %q:\n%s", line, changes)
		}
	}
	requireFailure(t, execute(t, "templates", "expand", own, "--values", values), exitFailed, "there is no Cluster with a topology")
}

// TestTemplatesExpandWith expands a flavor that needs the class and kinds of another provider's release.
func TestTemplatesExpandWith(t *testing.T) {
	values := expandValues(t)
	own := libvirtRelease(t, strings.NewReplacer())
	want := succeed(t, "templates", "expand", own, "--flavor", "topology", "--values", values)

	dir := filepath.Join(t.TempDir(), "infrastructure-other", "v0.1.0")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{
		"metadata.yaml": "metadata.yaml", "cluster-template-topology.yaml": "cluster-template-topology.yaml",
		"clusterclass-libvirt-default.yaml": "clusterclass-kept-for-later.yaml",
	} {
		data, err := os.ReadFile(filepath.Join(own, from))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, to), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	line := []string{"templates", "expand", dir, "--flavor", "topology", "--values", values}
	requireFailure(t, execute(t, line...), exitFailed, "clusterclass-libvirt-default.yaml")
	if got := succeed(t, append(line, "--with", own)...); got != want || !strings.Contains(got, "bootstrapFormat: cloud-config") {
		t.Errorf("with the release that has the class and the kinds:\n%s", got)
	}
	// Now the release has the class, but not its kinds.
	if err := os.Rename(filepath.Join(dir, "clusterclass-kept-for-later.yaml"), filepath.Join(dir, "clusterclass-libvirt-default.yaml")); err != nil {
		t.Fatal(err)
	}
	// Without their schemas, templates get no defaults.
	const fallback = "bootstrapFormat: cloud-config"
	if got := succeed(t, line...); strings.Contains(got, fallback) {
		t.Errorf("an unknown kind has defaults:\n%s", got)
	}
	if got := succeed(t, append(line, "--with", own)...); got != want {
		t.Errorf("with the release that has the kinds:\n%s", got)
	}
	requireFailure(t, execute(t, append(line, "--with", "nowhere")...), exitFailed, "--with")
}
