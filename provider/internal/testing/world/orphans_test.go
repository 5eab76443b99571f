package world_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/world"
)

// TestOrphanIsReported checks that a LibvirtMachine without a finalizer leaves an orphan on its host, which is
// reported, and which a manager without --collect-orphans doesn't delete.
func TestOrphanIsReported(t *testing.T) {
	t.Parallel()
	s := world.NewScene(t, "rack")
	cluster := s.Cluster("blue")
	machine := s.ControlPlane(cluster)
	host := hostObject(s, 0)
	s.Condition(host, infrav1.OrphansFoundCondition, metav1.ConditionFalse)
	marker := func() []string {
		volumes, _ := s.Hosts[0].Left()
		var markers []string
		for _, ref := range volumes {
			if strings.HasPrefix(ref.Name, world.ManagerMarker) {
				markers = append(markers, ref.Pool)
			}
		}
		return markers
	}
	s.Eventually(marker).Should(Equal([]string{"default"}), "this management cluster has a machine on the host")

	infra := &infrav1.LibvirtMachine{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: machine.Name}}
	world.Change(s, cluster, func(c *clusterv1.Cluster) { c.Spec.Paused = ptr.To(true) })
	s.Condition(infra, infrav1.PausedCondition, metav1.ConditionTrue)
	s.Expect(s.Client.Delete(t.Context(), infra)).To(Succeed())
	world.Change(s, infra, func(m *infrav1.LibvirtMachine) { m.Finalizers = nil })
	s.Gone(infra)
	s.AwaitManagers()
	s.Condition(host, infrav1.OrphansFoundCondition, metav1.ConditionFalse)
	world.Change(s, cluster, func(c *clusterv1.Cluster) { c.Spec.Paused = nil })
	condition := s.Condition(host, infrav1.OrphansFoundCondition, metav1.ConditionTrue)
	s.Expect(condition.Message).To(ContainSubstring("of LibvirtMachine " + s.Namespace + "/" + machine.Name))
	s.Expect(host.Status.Orphans).To(ConsistOf(And(
		HaveField("UUID", strings.TrimPrefix(infra.Spec.ProviderID, infrav1.ProviderIDPrefix)),
		HaveField("KeptBecause", "the manager runs without --collect-orphans"))))
	s.Condition(host, infrav1.ReadyCondition, metav1.ConditionTrue)
	s.Eventually(marker).Should(BeEmpty(), "it was the last machine")
	_, domains := s.Hosts[0].Left()
	s.Expect(domains).To(ConsistOf(host.Status.Orphans[0].UUID))
	s.Expect(s.Log.String()).ToNot(ContainSubstring("is forbidden"), "the manager's role lacks a right")
}
