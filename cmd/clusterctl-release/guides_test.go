package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/clusterctl-release/clusterctl-release/internal/treetest"
)

const (
	ignoreOut   = "echo /out/ > .gitignore; git add .; git commit -qm ignore\n"
	built       = ignoreOut + "clusterctl release build --version v0.1.0"
	noFile      = "git rm -q clusterctl-release.yaml; git commit -qm begin"
	cleanDebian = "`make clean-machine` runs it on a Debian"
	needsDocker = "it asks for a password; the registry of the test needs none"
)

// guides are the pages about the tool.
var guides = []guide{
	{path: "README.md", commands: 6, start: noFile, fails: map[string][]int{"clusterctl release build": {exitFailed}}, elsewhere: map[string]string{
		"clusterctl --config out/repository": "it reads the output of `make release`; TestClusterctl reads the demo provider the same way",
		"make build":                         "it builds the program and installs it for all users; buildProgram builds it for the tests",
		"make release":                       "it builds and tests all of this repository",
		"make testbed-up":                    "it needs root and minutes; the test of hack/testbed does it",
	}},
	{path: "docs/tutorials/release.md", commands: 10, start: noFile},
	{path: "docs/how-to/check.md", commands: 5, start: ignoreOut + "clusterctl release build --version v0.1.0 --output out/first; clusterctl release publish out/first --to ~/repository; clusterctl release build --version v0.1.1"},
	{path: "docs/how-to/publish.md", commands: 3, start: built},
	{path: "docs/how-to/publish-github.md", commands: 12, start: ignoreOut},
	{path: "docs/how-to/publish-gitlab.md", commands: 6, start: built},
	{path: "docs/how-to/publish-oci.md", commands: 4, start: built, elsewhere: map[string]string{
		"kubectl create namespace": "a cluster",
		"kubectl apply":            "a cluster with the operator: TestOCIForOperator of pkg/publish reads by the operator's code",
	}},
	{path: "docs/how-to/pipelines.md", commands: 8, start: ignoreOut, jobs: true, prepare: job, elsewhere: map[string]string{
		"git clone":             "it clones the released tool; hack/dist tests hack/install",
		`"$CI_BUILDS_DIR/tool/`: "it installs the released tool; hack/dist tests hack/install",
	}},
	{path: "docs/how-to/packages.md", elsewhere: map[string]string{
		"sha256sum": cleanDebian, "field()": cleanDebian, "tar": cleanDebian, "sudo apt-get": cleanDebian, "kubectl krew": cleanDebian,
		"docker login": "TestPush of internal/image pushes to a registry",
	}},
	{path: "docs/how-to/air-gapped.md", commands: 4, prepare: upstream, elsewhere: map[string]string{
		"docker login":    needsDocker,
		"clusterctl init": "it waits until pods of a cluster run: TestMirror has what clusterctl reads from a mirror",
	}},
	{path: "docs/how-to/several-providers.md", commands: 3, start: hooks},
	{path: "docs/how-to/release-branches.md", commands: 12, start: ignoreOut +
		"git tag v0.1.0; clusterctl release build --output out/first; clusterctl release publish out/first --to ~/repository"},
	{path: "docs/how-to/overrides.md", commands: 10, start: built, fails: map[string][]int{"clusterctl release publish out/dev": {exitFine, exitFailed}}},
	{path: "docs/how-to/clusterclass.md", commands: 11, start: ignoreOut},
	{path: "docs/how-to/move.md", commands: 12, start: ignoreOut, prepare: managementCluster, fails: map[string][]int{
		"clusterctl release move-plan --live": {exitFindings, exitFindings}, "clusterctl release move-plan dump": {exitFindings},
	}},
}

// job returns the variables of a job on GitHub and of one on GitLab.
func job(*testing.T, string, http.Handler) []string {
	return []string{
		"GITHUB_SERVER_URL=https://github.com", "GITHUB_REPOSITORY=OWNER/REPO", "GITHUB_REF_NAME=v0.1.0",
		"CI_API_V4_URL=https://gitlab.example.com/api/v4", "CI_PROJECT_ID=42", "CI_PROJECT_NAME=demo", "CI_COMMIT_TAG=v0.1.0",
	}
}

// managementCluster starts an API server with a Cluster, and returns the variable with its kubeconfig.
func managementCluster(t *testing.T, _ string, _ http.Handler) []string {
	admin := envtest.User{Name: "admin", Groups: []string{"system:masters"}}
	return []string{"KUBECONFIG=" + startManagement(t).kubeconfig(t, admin)}
}

// hooks adds a runtime extension to the demo tree.
const hooks = ignoreOut + `mkdir hooks
cat > hooks/kustomization.yaml <<END
namespace: hooks-system
resources: [manager.yaml]
END
cat > hooks/manager.yaml <<END
apiVersion: v1
kind: Namespace
metadata: {name: hooks-system}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: manager, namespace: hooks-system}
spec:
  selector: {matchLabels: {app: hooks}}
  template:
    metadata: {labels: {app: hooks}}
    spec: {containers: [{name: manager, image: hooks:latest}]}
END`

// seriesFile is the metadata of a provider with one series.
const seriesFile = "apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3\nkind: Metadata\nreleaseSeries: [{major: %s, contract: v1beta2}]\n"

// upstream writes the releases that air-gapped.md mirrors, their images in a registry, and a configuration with the
// URLs.
func upstream(t *testing.T, dir string, images http.Handler) []string {
	t.Helper()
	server := httptest.NewServer(images)
	t.Cleanup(server.Close)
	var config strings.Builder
	config.WriteString("cert-manager: {version: v1.2.3, url: " + filepath.Join(dir, "source", "cert-manager", "v1.2.3", "cert-manager.yaml") + "}\nproviders:\n")
	manifest := func(label, version string) string {
		pushRandom(t, strings.TrimPrefix(server.URL, "http://")+"/"+label+"/controller:"+version)
		return fmt.Sprintf(`apiVersion: v1
kind: Namespace
metadata: {name: %[1]s-system}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: manager, namespace: %[1]s-system}
spec: {template: {spec: {containers: [{name: manager, args: [--v=2], image: "images.example.com/%[1]s/controller:%[2]s"}]}}}
`, label, version)
	}
	files := map[string]string{"source/cert-manager/v1.2.3/cert-manager.yaml": manifest("cert-manager", "v1.2.3")}
	for _, provider := range []struct{ name, kind, label, file, version string }{
		{"cluster-api", "CoreProvider", "cluster-api", "core-components.yaml", "v1.14.2"},
		{"kubeadm", "BootstrapProvider", "bootstrap-kubeadm", "bootstrap-components.yaml", "v1.14.2"},
		{"kubeadm", "ControlPlaneProvider", "control-plane-kubeadm", "control-plane-components.yaml", "v1.14.2"},
		{"libvirt", "InfrastructureProvider", "infrastructure-libvirt", "infrastructure-components.yaml", "v0.1.0"},
	} {
		folder := "source/" + provider.label + "/" + provider.version + "/"
		files[folder+provider.file] = manifest(provider.label, provider.version)
		files[folder+"metadata.yaml"] = fmt.Sprintf(seriesFile, strings.Replace(strings.TrimPrefix(provider.version[:strings.LastIndex(provider.version, ".")], "v"), ".", ", minor: ", 1))
		fmt.Fprintf(&config, "- {name: %s, type: %s, url: %s}\n", provider.name, provider.kind, filepath.Join(dir, folder, provider.file))
	}
	files["clusterctl.yaml"] = config.String()
	treetest.Write(t, dir, files)
	return nil
}

// pushRandom pushes an image for two platforms to a registry.
func pushRandom(t *testing.T, reference string) {
	t.Helper()
	index, err := random.Index(2048, 2, 2)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(reference)
	if err == nil {
		err = remote.WriteIndex(ref, index)
	}
	if err != nil {
		t.Fatal(err)
	}
}
