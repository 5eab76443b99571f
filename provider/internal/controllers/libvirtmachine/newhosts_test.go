package libvirtmachine

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// TestMachinesWaitForNewHosts: after the start of a manager, a machine isn't placed on the first reachable host while
// another one is being connected to, and no condition or event is written in the meantime.
func TestMachinesWaitForNewHosts(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(w *world)
		// atOnce is true if the machine doesn't wait.
		atOnce bool
	}{
		"a host that may be better": {change: func(*world) {}},
		"a host of another failure domain": {atOnce: true, change: func(w *world) {
			change(w, &clusterv1.Machine{}, key.Name, func(m *clusterv1.Machine) { m.Spec.FailureDomain = "rack-b" })
		}},
		"a host in maintenance": {atOnce: true, change: func(w *world) {
			w.changeHost("a", func(h *infrav1.LibvirtHost) { h.Spec.Maintenance = &infrav1.HostMaintenance{} })
		}},
		"a host that can't be reached": {atOnce: true, change: func(w *world) { w.connecting.Delete("a"); w.hosts["a"].SetReachable(false) }},
		"a host after the patience":    {atOnce: true, change: func(w *world) { w.patience = time.Nanosecond }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil, "a", "b")
			w.patience = time.Hour
			w.connecting.Store("a", true)
			tc.change(w)
			m := w.newManager(0)
			_, err := m.reconcile() // the finalizer
			w.Expect(err).ToNot(HaveOccurred())
			before := w.infra()
			result, err := m.reconcile()
			w.Expect(err).ToNot(HaveOccurred())
			if tc.atOnce {
				w.until(m, func() bool { return w.infra().Spec.HostName == "b" })
				return
			}
			w.Expect(w.infra()).To(Equal(before))
			w.Expect(result.RequeueAfter).To(And(BeNumerically(">", 0), BeNumerically("<=", time.Hour)))
			w.connecting.Delete("a")
			w.until(m, func() bool { return w.infra().Spec.HostName == "a" })
		})
	}
}
