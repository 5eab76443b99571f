package move_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clusterctl-release/clusterctl-release/pkg/move"
)

// blockedDump is a dump of a Cluster with a machine of the libvirt provider during the transfer of an
// image to the host.
const blockedDump = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: clusters.cluster.x-k8s.io, labels: {clusterctl.cluster.x-k8s.io: ""}}
spec:
  group: cluster.x-k8s.io
  names: {kind: Cluster, plural: clusters}
  scope: Namespaced
  versions: [{name: v1beta2, storage: true}]
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: libvirtmachines.infrastructure.cluster.x-k8s.io, labels: {clusterctl.cluster.x-k8s.io: ""}}
spec:
  group: infrastructure.cluster.x-k8s.io
  names: {kind: LibvirtMachine, plural: libvirtmachines}
  scope: Namespaced
  versions: [{name: v1alpha1, storage: true}]
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: blue, namespace: team, uid: c1}
status:
  initialization: {infrastructureProvisioned: true, controlPlaneInitialized: true}
  conditions: [{type: ControlPlaneInitialized, status: "True"}]
---
apiVersion: infrastructure.cluster.x-k8s.io/v1alpha1
kind: LibvirtMachine
metadata:
  name: blue-1
  namespace: team
  uid: m1
  annotations: {ANNOTATIONS}
  ownerReferences: [{apiVersion: cluster.x-k8s.io/v1beta2, kind: Cluster, name: blue, uid: c1}]
`

// TestPlanOfABlockedMove checks that the plan shows the object that blocks the move, and that the move isn't
// blocked after the transfer.
func TestPlanOfABlockedMove(t *testing.T) {
	for annotations, stops := range map[string]int{`clusterctl.cluster.x-k8s.io/block-move: ""`: 1, "": 0} {
		file := filepath.Join(t.TempDir(), "dump.yaml")
		if err := os.WriteFile(file, []byte(strings.ReplaceAll(blockedDump, "ANNOTATIONS", annotations)), 0o600); err != nil {
			t.Fatal(err)
		}
		world, err := move.Dump(t.Context(), false, file)
		if err != nil {
			t.Fatal(err)
		}
		plan := move.Discover(t.Context(), world, "team").Plan()
		if len(plan.Problems) > 0 || len(plan.Groups) != 2 {
			t.Errorf("with the annotations %q the plan has the problems %v and the groups %v", annotations, plan.Problems, plan.Groups)
		}
		if len(plan.Stops) != stops {
			t.Fatalf("with the annotations %q the plan has the stops %+v", annotations, plan.Stops)
		}
		for _, stop := range plan.Stops {
			if stop.Object.Name != "blue-1" || !strings.Contains(stop.Why, "block-move blocks the move") {
				t.Errorf("the stop is %+v", stop)
			}
		}
	}
}
