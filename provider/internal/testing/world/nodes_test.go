package world_test

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/world"
)

// TestNodesWithoutProviderID checks that the provider sets the provider ID of nodes, in the workload cluster and with
// its kubeconfig, so that Cluster API finds the nodes of a control plane, of a MachineDeployment and of a pool.
func TestNodesWithoutProviderID(t *testing.T) {
	t.Parallel()
	s := world.NewScene(t, "rack-a")
	s.Hosts[0].NoProviderIDs.Store(true)
	cluster := s.Cluster("blue")
	s.ControlPlane(cluster)
	s.Template("first")
	deployment := s.MachineDeployment(cluster, "workers", 2, "first")
	machines := running(s, deployment, 2, "first")
	for i := range machines {
		checkMachine(s, &machines[i]) // includes the node's provider ID
	}
	pool, infraPool := s.MachinePool(cluster, "pooled", 1)
	s.PoolSettled(pool, infraPool, 1)
	s.Expect(s.LibvirtMachines()).To(HaveLen(4))
	for _, infra := range s.LibvirtMachines() {
		s.Condition(&infra, infrav1.NodeProviderIDSetCondition, metav1.ConditionTrue)
		s.Condition(&infra, infrav1.SeedRemovedCondition, metav1.ConditionTrue)
	}
	s.Delete(cluster)
	s.NothingLeft()
	s.Expect(s.Log.String()).ToNot(ContainSubstring("is forbidden"), "the manager's role lacks a right")
}
