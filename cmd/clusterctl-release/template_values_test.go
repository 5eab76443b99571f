package main

import (
	"os"
	"strings"
	"testing"
)

// TestSamplesOfCommands checks that commands use sample values for missing ones and print a line with them.
func TestSamplesOfCommands(t *testing.T) {
	own := libvirtRelease(t, strings.NewReplacer("name: libvirt-default\n", "name: ${CLASS}\n", "demo.example.com", "${DOMAIN}"))
	for _, line := range [][]string{
		{"templates", "render", own}, {"templates", "render", own, "--flavor", "topology"}, {"templates", "expand", own, "--flavor", "topology"},
		{"graph", own}, {"graph", own, "--flavor", "topology"}, {"move-plan", own},
	} {
		got := execute(t, line...)
		if got.status != exitFine {
			t.Errorf("%q: status %d: %s", line, got.status, got.stderr)
		}
		if strings.Count(got.stderr, "\n") != 1 || !strings.Contains(got.stderr, "generated values CLUSTER_NAME=demo, ") && !strings.Contains(got.stderr, "generated values CLASS=libvirt-default, CLUSTER_NAME=demo, ") ||
			!strings.Contains(got.stderr, "--set NAME=VALUE, --values FILE or --env") {
			t.Errorf("%q: stderr is %q", line, got.stderr)
		}
	}
	// The class in the variable is rendered, too.
	if got := succeed(t, "templates", "render", own, "--flavor", "topology"); !strings.Contains(got, "kind: ClusterClass") {
		t.Errorf("the class is missing:\n%s", got)
	}
	got := execute(t, "templates", "render", own, "--set", "CLUSTER_NAME=given", "--set", "CONTROL_PLANE_ENDPOINT_IP=192.0.2.77")
	if !strings.Contains(got.stdout, "name: given") || !strings.Contains(got.stdout, "host: 192.0.2.77") || strings.Contains(got.stderr, "CLUSTER_NAME") {
		t.Errorf("with values of --set: %s\n%s", got.stderr, got.stdout)
	}

	t.Chdir(t.TempDir())
	const config = `apiVersion: clusterctl-release/v1alpha1
kind: ReleaseConfig
providers:
- name: libvirt
  type: InfrastructureProvider
  kustomize: config/default
  sampleValues:
  - {name: other, files: [cluster-template-topology.yaml], values: {CONTROL_PLANE_ENDPOINT_IP: 192.0.2.55}}
  - {name: usual, values: {CONTROL_PLANE_ENDPOINT_IP: 192.0.2.66, CLUSTER_NAME: sample}}
`
	if err := os.WriteFile("clusterctl-release.yaml", []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	got = execute(t, "templates", "render", own, "--set", "CLUSTER_NAME=given")
	if !strings.Contains(got.stdout, "name: given") || !strings.Contains(got.stdout, "host: 192.0.2.66") || !strings.Contains(got.stderr, `the sampleValues "usual" of clusterctl-release.yaml for CONTROL_PLANE_ENDPOINT_IP, and generated values`) {
		t.Errorf("with sampleValues: %s\n%s", got.stderr, got.stdout)
	}
}

// TestValuesOfTheEnvironment checks that --env takes values from the environment as clusterctl does, without samples.
func TestValuesOfTheEnvironment(t *testing.T) {
	own := libvirtRelease(t, strings.NewReplacer())
	requireFailure(t, execute(t, "templates", "render", own, "--env", "--set", "LIBVIRT_IMAGE_URL=a"), exitFailed,
		"no values for CLUSTER_NAME, CONTROL_PLANE_ENDPOINT_IP, KUBERNETES_VERSION, LIBVIRT_IMAGE_CHECKSUM: set them with --set NAME=VALUE or --values FILE")
	for name, value := range map[string]string{
		"CLUSTER_NAME": "from-environment", "CONTROL_PLANE_ENDPOINT_IP": "192.0.2.88", "KUBERNETES_VERSION": "v1.35.1", "LIBVIRT_IMAGE_CHECKSUM": "sha256:0",
	} {
		t.Setenv(name, value)
	}
	got := execute(t, "templates", "render", own, "--env", "--set", "LIBVIRT_IMAGE_URL=a", "--set", "KUBERNETES_VERSION=v1.35.2")
	if got.status != exitFine || got.stderr != "" || !strings.Contains(got.stdout, "name: from-environment") || !strings.Contains(got.stdout, "version: v1.35.2") {
		t.Errorf("status %d: %s\n%s", got.status, got.stderr, got.stdout)
	}
	if got := succeed(t, "templates", "render", own); strings.Contains(got, "from-environment") {
		t.Errorf("the environment is read without --env:\n%s", got)
	}
}
