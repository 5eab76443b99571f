package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/clusterctl-release/clusterctl-release/internal/treetest"
)

// managerYAML is the demo tree's Deployment; NAME stands for the name of the first container.
const managerYAML = `apiVersion: apps/v1
kind: Deployment
metadata: {name: controller-manager, namespace: system}
spec:
  selector: {matchLabels: {control-plane: controller-manager}}
  template:
    metadata: {labels: {control-plane: controller-manager}}
    spec:
      containers:
      - {name: NAME, image: "controller:latest"}
      - {name: proxy, image: "registry.example.com/proxy:v1"}
`

// config returns a release file with one provider; entry has the other fields of the provider.
func config(entry string) string {
	return "apiVersion: clusterctl-release/v1alpha1\nkind: ReleaseConfig\nproviders:\n- name: demo\n  type: InfrastructureProvider\n" + entry
}

const demoImages = "  images: [{name: controller, newName: registry.example.com/demo/controller}]\n"

// badTrees are changes to the demo tree that a build must refuse, with parts of the error.
var badTrees = []struct {
	name   string
	files  map[string]string
	remove string
	want   []string
}{
	{name: "no release file", remove: "clusterctl-release.yaml", want: []string{"no release file at clusterctl-release.yaml", "clusterctl release init", "--config"}},
	{name: "release file: empty", files: map[string]string{"clusterctl-release.yaml": ""}, want: []string{"clusterctl-release.yaml: the file is empty", "clusterctl release init"}},
	{name: "release file: no YAML", files: map[string]string{"clusterctl-release.yaml": config("  kustomize: [\n")}, want: []string{"clusterctl-release.yaml: line "}},
	{name: "release file: unknown field", files: map[string]string{"clusterctl-release.yaml": config("  kustomize: config/default\n  template: []\n")},
		want: []string{"clusterctl-release.yaml:7:3: providers[0].template: the field does not exist"}},
	{name: "release file: wrong type", files: map[string]string{"clusterctl-release.yaml": config("  kustomize: config/default\n  templates: templates/*.yaml\n")},
		want: []string{"clusterctl-release.yaml:7:14: providers[0].templates: is of type string and should be of type array"}},
	{name: "release file: unknown provider type", files: map[string]string{"clusterctl-release.yaml": strings.Replace(config("  kustomize: config/default\n"), "InfrastructureProvider", "Infrastructure", 1)},
		want: []string{"clusterctl-release.yaml:5:9: providers[0].type: ", "InfrastructureProvider"}},
	{name: "release file: path out of the tree", files: map[string]string{"clusterctl-release.yaml": config("  kustomize: ../config\n")},
		want: []string{"clusterctl-release.yaml:6:14: providers[0].kustomize: ", "is outside of the tree"}},

	{name: "no such folder", remove: "config/default", want: []string{"infrastructure-demo: config/default: the folder does not exist; fix the path in clusterctl-release.yaml"}},
	{name: "no kustomization", remove: "config/default/kustomization.yaml", want: []string{"config/default", "kustomization.yaml"}},
	{name: "kustomize error", files: map[string]string{"config/default/kustomization.yaml": "resources: [../manager, missing.yaml]\n"}, want: []string{"kustomize build config/default: ", "missing.yaml"}},
	{name: "a remote base", files: map[string]string{"config/rbac/kustomization.yaml": "resources: ['https://127.0.0.1:1/rbac.yaml']\n"},
		want: []string{"kustomize build config/default: ", "https://127.0.0.1:1/rbac.yaml (in config/rbac/kustomization.yaml)", "put copies of them into the tree"}},
	{name: "invalid YAML in a resource", files: map[string]string{"config/manager/manager.yaml": "kind: [\n"}, want: []string{"kustomize build config/default: ", "manager.yaml", "yaml: line"}},
	{name: "invalid YAML in a template", files: map[string]string{"templates/cluster-template-topology.yaml": "a: b\n---\nc: [\n"}, want: []string{"infrastructure-demo: templates/cluster-template-topology.yaml: document 2 isn't YAML: line"}},
	{name: "invalid YAML in the metadata", files: map[string]string{"metadata.yaml": "releaseSeries: [\n"}, want: []string{"infrastructure-demo: metadata.yaml"}},
	{name: "an invalid variable", files: map[string]string{"templates/cluster-template-topology.yaml": "a: b\nc: ${D E}\n"}, want: []string{"templates/cluster-template-topology.yaml:2:", "$${...}"}},
	{name: "two Namespaces", files: map[string]string{"config/manager/namespace.yaml": "{apiVersion: v1, kind: Namespace, metadata: {name: system}}\n---\n{apiVersion: v1, kind: Namespace, metadata: {name: other}}\n",
		"config/default/kustomization.yaml": "resources: [../manager]\n"},
		want: []string{"infrastructure-demo (config/default): the kustomization has 2 Namespaces (other, system)", "remove the others from the kustomization"}},
	{name: "no Deployment", files: map[string]string{"config/manager/kustomization.yaml": "resources: [namespace.yaml]\n"},
		want: []string{"infrastructure-demo (config/default): the kustomization has no Deployment", `"manager"`, "does the kustomization list the manager's folder?"}},
	{name: "no manager container", files: map[string]string{"config/manager/manager.yaml": strings.Replace(managerYAML, "NAME", "main", 1)},
		want: []string{`no Deployment has a container called "manager"`, "main in Deployment demo-system/demo-controller-manager, proxy in Deployment", "rename the one"}},
	{name: "an image that is not canonical", files: map[string]string{"clusterctl-release.yaml": config("  kustomize: config/default\n")},
		want: []string{"Deployment", "container manager", `image "controller:latest"`, "under images in clusterctl-release.yaml", "--image controller=REFERENCE"}},
	{name: "a missing image", files: map[string]string{"clusterctl-release.yaml": config("  kustomize: config/default\n  images: [{name: controller, newName: registry.example.com/demo}, {name: registry.example.com/x}]\n")},
		want: []string{"images in clusterctl-release.yaml", `no container has the image "registry.example.com/x"`, "the images are: controller"}},
	{name: "no metadata", remove: "metadata.yaml", want: []string{"infrastructure-demo: metadata.yaml", "clusterctl release metadata add --version v0.1.0 --contract v1beta2"}},
	{name: "no series", files: map[string]string{"metadata.yaml": "apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3\nkind: Metadata\nreleaseSeries:\n- {major: 0, minor: 9, contract: v1beta2}\n"},
		want: []string{"infrastructure-demo: metadata.yaml", "0.1", "clusterctl release metadata add --version v0.1.0"}},
	{name: "a template's name", files: map[string]string{"clusterctl-release.yaml": config("  kustomize: config/default\n" + demoImages + "  templates: [{path: config/manager/manager.yaml}]\n")},
		want: []string{"infrastructure-demo: config/manager/manager.yaml: ", `"manager.yaml" isn't a name for a cluster template`, "'as' in clusterctl-release.yaml"}},
	{name: "a template's name in 'as'", files: map[string]string{"clusterctl-release.yaml": config("  kustomize: config/default\n  templates:\n  - path: templates/cluster-template.yaml\n    as: template.yaml\n")},
		want: []string{"clusterctl-release.yaml:9:9: providers[0].templates[0].as: ", `"template.yaml" isn't a name for a cluster template`}},
	{name: "no template", remove: "templates/clusterclass-demo.yaml", want: []string{"infrastructure-demo: templates/clusterclass-demo.yaml: ", "no file matches", "remove the entry"}},
	{name: "a template that is a link out of the tree", remove: "templates/clusterclass-demo.yaml",
		files: map[string]string{"templates/clusterclass-demo.yaml": treetest.LinkTo + "/etc/hostname"},
		want:  []string{"infrastructure-demo: templates/clusterclass-demo.yaml: leads out of the tree", "symbolic link to /etc/hostname", "put a copy of the file into the tree"}},
	{name: "a resource that is a link out of the tree", remove: "config/rbac/role.yaml",
		files: map[string]string{"config/rbac/role.yaml": treetest.LinkTo + "/etc/hostname"},
		want:  []string{"kustomize build config/default: ", "config/rbac/role.yaml: leads out of the tree", "put a copy into the tree"}},
	{name: "one of two providers is broken", files: map[string]string{"clusterctl-release.yaml": config("  kustomize: config/default\n"+demoImages) +
		"- {name: second, type: BootstrapProvider, kustomize: second}\n"}, want: []string{"bootstrap-second: second: the folder does not exist"}},
}

func TestBadTrees(t *testing.T) {
	t.Setenv("NO_PROXY", "127.0.0.1")
	for _, tc := range badTrees {
		t.Run(tc.name, func(t *testing.T) {
			dir := inDemo(t)
			if tc.remove != "" {
				if err := os.RemoveAll(tc.remove); err != nil {
					t.Fatal(err)
				}
			}
			treetest.Write(t, dir, tc.files)
			requireFailure(t, execute(t, "build", "--version", "v0.1.0"), exitFailed, tc.want...)
			if created := listing(t, "out"); created != nil {
				t.Errorf("a failed build created %v", created)
			}
			// The output of an earlier build stays unchanged.
			treetest.Write(t, dir, map[string]string{"before/infrastructure-demo/v0.1.0/metadata.yaml": "before"})
			before := listing(t, "before")
			requireFailure(t, execute(t, "build", "--version", "v0.1.0", "--output", "before"), exitFailed)
			if after := listing(t, "before"); !reflect.DeepEqual(before, after) {
				t.Errorf("a failed build changed the output of an earlier one from %v to %v", before, after)
			}
		})
	}
}

// TestUnusablePaths checks the errors of all commands for paths that can't be read or written.
func TestUnusablePaths(t *testing.T) {
	dir := inDemo(t)
	succeed(t, "build", "--version", "v0.1.0")
	treetest.Write(t, dir, map[string]string{"file": "", "empty/.keep": "", "half/infrastructure-demo/v0.1.0/metadata.yaml": "x"})
	before := listing(t, ".")
	for _, tc := range []struct {
		line   string
		status int
		want   []string
	}{
		{"build --version v0.1.0 --config missing/clusterctl-release.yaml", exitFailed, []string{"no release file at missing/clusterctl-release.yaml"}},
		{"build --version v0.1.0 --config config", exitFailed, []string{"config", "directory"}},
		{"build --version v0.1.0 --output file/out", exitFailed, []string{"infrastructure-demo v0.1.0", "a part of the path is a file"}},
		{"build --version v0.1.0 --output file", exitFailed, []string{"infrastructure-demo v0.1.0", "file"}},
		{"init", exitFailed, []string{"clusterctl-release.yaml already exists", "--force"}},
		{"init missing", exitFailed, []string{"missing"}},
		{"init file", exitFailed, []string{"file"}},
		{"init empty --output new.yaml", exitFailed, []string{"no provider found in empty"}},
		{"init --output file/new.yaml", exitFailed, []string{"file/new.yaml"}},
		{"init --output missing/new.yaml", exitFailed, []string{"missing/new.yaml", "make the folder missing first"}},
		{"check missing", exitFailed, []string{"missing: no such file", "name the folder of a version, <label>/<version>", "the URL of a provider"}},
		{"publish missing --to repository", exitFailed, []string{"missing", "name the folder of a version"}},
		{"publish empty --to repository", exitFailed, []string{"no release in ", "/empty: expected folders <provider label>/<version>"}},
		{"publish out/release half --to repository", exitUsage, []string{"half: infrastructure-demo v0.1.0 is named before, with other bytes"}},
		{"publish out/release --to file", exitFailed, []string{"file"}},
		{"publish out/release --to file/repository", exitFailed, []string{"file"}},
		{"publish out/release --to file --plan", exitFailed, []string{"file"}},
		{"fetch missing --output copy", exitFailed, []string{"missing"}},
		{"fetch empty --output copy", exitFailed, []string{"no release in ", "/empty: "}},
		{"fetch out/release --output file", exitFailed, []string{"file"}},
		{"metadata show --file missing.yaml", exitFailed, []string{"missing.yaml"}},
		{"metadata check --file missing.yaml", exitFailed, []string{"missing.yaml"}},
		{"metadata add --version v0.2.0 --contract v1beta2 --file missing/metadata.yaml", exitFailed, []string{"missing/metadata.yaml"}},
	} {
		t.Run(tc.line, func(t *testing.T) {
			requireFailure(t, execute(t, strings.Fields(tc.line)...), tc.status, tc.want...)
			if after := listing(t, "."); !reflect.DeepEqual(before, after) {
				t.Errorf("a failed command changed the folder: %v", after)
			}
			for _, path := range []string{"repository", "copy", "missing", filepath.Join("file", "out")} {
				if _, err := os.Lstat(path); err == nil {
					t.Errorf("a failed command created %s", path)
				}
			}
		})
	}
}
