package libvirtmachinepool

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	ctrl "sigs.k8s.io/controller-runtime"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// TestWatchFilter: a manager with a watch filter doesn't change pools of other managers, whichever watch triggers the
// reconcile. The machines of its pools have the label too: Cluster API's manager with the same filter, and the
// controller of LibvirtMachines, ignore other ones.
func TestWatchFilter(t *testing.T) {
	for name, tt := range map[string]struct {
		label    string
		machines int
	}{"of another manager": {label: "green"}, "of none": {}, "of this one": {label: "blue", machines: 3}} {
		t.Run(name, func(t *testing.T) {
			m := newManagement(t)
			infra := &infrav1.LibvirtMachinePool{}
			m.Expect(m.api.Get(t.Context(), poolKey, infra)).To(Succeed())
			if tt.label != "" {
				infra.Labels = map[string]string{clusterv1.WatchLabel: tt.label}
			}
			m.Expect(m.api.Update(t.Context(), infra)).To(Succeed())
			p := m.process(0)
			p.WatchFilterValue = "blue"
			for range 20 {
				_, err := p.Reconcile(context.Background(), ctrl.Request{NamespacedName: poolKey})
				m.Expect(err).ToNot(HaveOccurred())
			}
			m.Expect(m.machines()).To(HaveLen(tt.machines))
			if tt.machines == 0 {
				m.Expect(p.calls).To(BeEmpty(), "an object of another manager's pool was written")
			}
			for _, machine := range m.machines() {
				m.Expect(machine.Labels).To(HaveKeyWithValue(clusterv1.WatchLabel, "blue"))
			}
		})
	}
}
