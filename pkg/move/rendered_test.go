package move_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clusterctl-release/clusterctl-release/internal/pinned"
	"github.com/clusterctl-release/clusterctl-release/pkg/move"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/templates"
)

const demoTemplate = `apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: "${CLUSTER_NAME}"}
spec:
  infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: DemoCluster, name: "${CLUSTER_NAME}"}
  controlPlaneRef: {apiGroup: controlplane.cluster.x-k8s.io, kind: KubeadmControlPlane, name: "${CLUSTER_NAME}"}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
kind: DemoCluster
metadata: {name: "${CLUSTER_NAME}"}
spec:
  identityRef: {kind: DemoIdentity, name: key}
  networkRef: {kind: DemoNetwork, name: net}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
kind: DemoIdentity
metadata: {name: key}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
kind: DemoNetwork
metadata: {name: net}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
kind: DemoDisk
metadata: {name: lonely}
---
apiVersion: v1
kind: Secret
metadata: {name: "${CLUSTER_NAME}-ca"}
---
apiVersion: v1
kind: Secret
metadata: {name: cloud}
---
apiVersion: controlplane.cluster.x-k8s.io/v1beta2
kind: KubeadmControlPlane
metadata: {name: "${CLUSTER_NAME}"}
spec:
  machineTemplate: {spec: {infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: DemoMachineTemplate, name: plane}}}
  version: "${KUBERNETES_VERSION}"
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
kind: DemoMachineTemplate
metadata: {name: plane}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachinePool
metadata: {name: pool}
spec:
  clusterName: "${CLUSTER_NAME}"
  template:
    spec:
      clusterName: "${CLUSTER_NAME}"
      bootstrap: {configRef: {apiGroup: bootstrap.cluster.x-k8s.io, kind: KubeadmConfig, name: pool}}
      infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: DemoMachinePool, name: pool}
---
apiVersion: bootstrap.cluster.x-k8s.io/v1beta2
kind: KubeadmConfig
metadata: {name: pool}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
kind: DemoMachinePool
metadata: {name: pool}
---
apiVersion: addons.cluster.x-k8s.io/v1beta2
kind: ClusterResourceSet
metadata: {name: addons}
spec:
  clusterSelector: {matchLabels: {a: b}}
  resources: [{kind: ConfigMap, name: cni}, {kind: Secret, name: later}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: cni}
`

// TestRendered checks that objects of a template get the same owners as from controllers.
func TestRendered(t *testing.T) {
	crd := func(kind, scope, label string) string {
		plural := strings.ToLower(kind) + "s"
		return `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ` + plural + `.infrastructure.cluster.x-k8s.io, labels: {` + label + `}}
spec:
  group: infrastructure.cluster.x-k8s.io
  names: {kind: ` + kind + `, plural: ` + plural + `}
  scope: ` + scope + `
  versions: [{name: v1beta1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`
	}
	components := crd("DemoIdentity", "Cluster", "clusterctl.cluster.x-k8s.io/move-hierarchy: ''")
	for _, kind := range []string{"DemoCluster", "DemoNetwork", "DemoDisk", "DemoMachineTemplate", "DemoMachinePool"} {
		components += crd(kind, "Namespaced", "")
	}
	folder := writeFiles(t, map[string]string{
		"infrastructure-demo/v0.1.0/infrastructure-components.yaml": components,
		"infrastructure-demo/v0.1.0/cluster-template.yaml":          demoTemplate,
		"infrastructure-demo/v0.1.0/metadata.yaml":                  "apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3\nkind: Metadata\nreleaseSeries: [{major: 0, minor: 1, contract: v1beta2}]\n",
	})
	releases, err := release.Read(folder)
	if err != nil || len(releases) != 1 {
		t.Fatalf("got %d releases: %v", len(releases), err)
	}
	world, err := move.Rendered(t.Context(), releases[0], "", map[string]string{"CLUSTER_NAME": "demo", "KUBERNETES_VERSION": "v1.36.3"})
	if err != nil {
		t.Fatal(err)
	}
	plan := move.Discover(t.Context(), world, "default").Plan()
	const nothing = "it has no link to a Cluster, a ClusterResourceSet or another move hierarchy: no owner, and no label to move it"
	want := []string{
		"1 Cluster default/demo", "1 ClusterResourceSet default/addons", "1 DemoIdentity key",
		"2 ConfigMap default/cni", "2 DemoCluster default/demo", "2 DemoMachineTemplate default/plane", "2 KubeadmControlPlane default/demo",
		"2 MachinePool default/pool", "2 Secret default/demo-ca",
		"3 DemoMachinePool default/pool", "3 DemoNetwork default/net", "3 KubeadmConfig default/pool",
		"left DemoDisk default/lonely: " + nothing,
	}
	if diff := cmp.Diff(want, summary(plan)); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
	if len(plan.Apart) != 1 || plan.Apart[0].Object.Name != "cloud" {
		t.Errorf("got %v apart, want the Secret cloud", plan.Apart)
	}
	if len(plan.Stops) > 0 || plan.Incomplete {
		t.Errorf("stops %v, problems %v; want none, because the objects are in no cluster", plan.Stops, plan.Problems)
	}
	if want := "DemoCluster default/demo refers to DemoNetwork default/net: the plan assumes that its provider's controller makes it the owner"; len(plan.Assumptions) != 1 || plan.Assumptions[0] != want {
		t.Errorf("got the assumptions %q, want %q", plan.Assumptions, want)
	}
}

// TestCorpus plans the move of every flavor of real providers. Each has a plan unless clusterctl refuses to
// render it.
func TestCorpus(t *testing.T) {
	root := filepath.Join(pinned.Corpus(t), "released")
	if _, err := os.Stat(root); err != nil {
		t.Fatal(err)
	}
	releases, err := release.Read(root)
	if err != nil {
		t.Fatal(err)
	}
	planned, refused := 0, 0
	for _, r := range releases {
		for _, f := range templates.Flavors(r) {
			variables, err := templates.Variables(f)
			if err != nil {
				continue
			}
			flavor, err := release.Flavor(f.Name)
			if err != nil {
				t.Fatal(err)
			}
			world, err := move.Rendered(t.Context(), r, flavor, templates.Guess(variables))
			if err != nil {
				t.Logf("%s of %s: %v", f.Name, r, err)
				refused++
				continue
			}
			planned++
			plan := move.Discover(t.Context(), world, "default").Plan()
			for _, l := range plan.LeftBehind {
				t.Logf("%s of %s: left behind %s: %s", f.Name, r, l.Object, l.Why)
			}
			if plan.Created() == 0 {
				t.Logf("%s of %s: nothing is moved", f.Name, r)
			}
		}
	}
	t.Logf("%d flavors planned, %d refused", planned, refused)
	if planned < 90 {
		t.Errorf("%d flavors planned, %d refused; want at least 90 planned", planned, refused)
	}
}
