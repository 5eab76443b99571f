package api

import (
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor/libvirt"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/libvirtd"
)

// TestHostOfARealDaemon: the built manager reports the state of a libvirtd that is killed and started again. Other
// tests of the controller use fake hosts, in its package and in provider/internal/testing/world.
func TestHostOfARealDaemon(t *testing.T) {
	t.Parallel()
	w, g := theWorld(t), NewWithT(t)
	libvirtd.Need(t)
	daemon, err := libvirtd.New()
	g.Expect(err).ToNot(HaveOccurred())
	t.Cleanup(daemon.Stop)

	// The daemon has no libvirt network, and lo is the only network interface that always exists.
	host := &infrav1.LibvirtHost{ObjectMeta: metav1.ObjectMeta{Name: unique("real")}, Spec: infrav1.LibvirtHostSpec{
		URI: daemon.URI().String(), Networks: []infrav1.HostNetwork{{Name: "lan", Bridge: "lo"}}}}
	g.Expect(w.client.Create(t.Context(), host)).To(Succeed())
	eventually := func(conditionType string, status metav1.ConditionStatus, reason string) {
		t.Helper()
		g.Eventually(func(g Gomega) {
			g.Expect(w.client.Get(t.Context(), client.ObjectKeyFromObject(host), host)).To(Succeed())
			condition := conditions.Get(host, conditionType)
			g.Expect(condition).ToNot(BeNil())
			g.Expect([]any{condition.Status, condition.Reason}).To(Equal([]any{status, reason}), condition.Message)
		}).WithTimeout(2 * soon).Should(Succeed())
	}
	eventually(infrav1.ReadyCondition, metav1.ConditionTrue, infrav1.ReadyReason)
	connection, err := libvirt.Connect(t.Context(), daemon.URI(), libvirt.Credentials{})
	g.Expect(err).ToNot(HaveOccurred())
	facts, err := connection.Facts(t.Context())
	g.Expect(err).ToNot(HaveOccurred())
	g.Eventually(func(g Gomega) { // conditions are written before the rest
		g.Expect(w.client.Get(t.Context(), client.ObjectKeyFromObject(host), host)).To(Succeed())
		g.Expect(host.Status.LibvirtVersion).To(Equal(facts.LibvirtVersion))
		g.Expect(host.Status.Capacity.CPUs).To(HaveValue(Equal(facts.CPUs)))
		g.Expect(host.Status.Capacity.Memory.Value()).To(Equal(facts.MemoryBytes))
	}).WithTimeout(soon).Should(Succeed())
	g.Expect(connection.Close()).To(Succeed())

	daemon.Kill()
	eventually(infrav1.ReachableCondition, metav1.ConditionFalse, infrav1.ConnectionFailedReason)
	eventually(infrav1.PoolsReadyCondition, metav1.ConditionUnknown, infrav1.HostUnreachableReason)
	g.Expect(daemon.Start()).To(Succeed())
	eventually(infrav1.ReadyCondition, metav1.ConditionTrue, infrav1.ReadyReason)

	g.Expect(w.client.Delete(t.Context(), host)).To(Succeed())
	g.Eventually(func() bool {
		return apierrors.IsNotFound(w.client.Get(t.Context(), client.ObjectKeyFromObject(host), host))
	}).WithTimeout(soon).Should(BeTrue())
}
