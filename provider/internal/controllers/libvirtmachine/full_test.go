package libvirtmachine

import (
	"testing"

	. "github.com/onsi/gomega"

	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/fake"
)

// TestFullHost: a machine whose host is full has the reason in a condition, for each kind of resource. The machine that
// replaces it goes to another host, or to the same one if there is room again.
func TestFullHost(t *testing.T) {
	for _, tc := range []struct {
		name      string
		change    func(*infrav1.LibvirtMachine)
		operation fake.Operation
		skip      int
		condition string
		what      string
	}{
		{name: "the image", operation: fake.UploadVolume, condition: infrav1.ImageReadyCondition, what: "downloading "},
		{name: "the root disk", operation: fake.CreateVolume, skip: 2, condition: infrav1.DisksReadyCondition, what: "the root disk: "},
		{name: "a copy of the image", operation: fake.CloneVolume, condition: infrav1.DisksReadyCondition, what: "the root disk: ",
			change: func(infra *infrav1.LibvirtMachine) { infra.Spec.RootDisk.Clone = infrav1.CloneFull }},
		{name: "its memory", operation: fake.StartDomain, condition: infrav1.InstanceReadyCondition, what: "starting the domain"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, tc.change, "a", "b")
			replacement := w.infra()
			replace := func(m *manager) {
				w.delete()
				w.until(m, w.isDeleted)
				next := replacement.DeepCopy()
				next.UID, next.ResourceVersion = next.UID+"-next", ""
				w.Expect(w.api.Create(t.Context(), next)).To(Succeed())
				w.until(m, w.isProvisioned)
			}
			w.hosts["a"].Inject(fake.Fault{Operation: tc.operation, Skip: tc.skip, Times: -1, Effect: fake.Fail, Reason: hypervisor.ErrNoSpace})
			m := w.until(w.newManager(0), w.hasCondition(tc.condition, infrav1.NoRoomReason))
			w.Expect(conditions.GetMessage(w.infra(), tc.condition)).To(HavePrefix("host a has no room: " + tc.what))
			refreshed := 0
			for _, call := range w.hosts["a"].Calls() {
				if call.Operation == fake.RefreshPool {
					refreshed++
				}
			}
			w.Expect(refreshed).To(BeNumerically(">", 0), "its pools are refreshed")
			replace(m)
			w.Expect(w.infra().Spec.HostName).To(Equal("b"))

			// Another manager doesn't know the failure, and finds room at the second try.
			w.delete()
			w.until(m, w.isDeleted)
			first := replacement.DeepCopy()
			first.ResourceVersion = ""
			w.Expect(w.api.Create(t.Context(), first)).To(Succeed())
			m = w.until(w.newManager(0), w.hasCondition(tc.condition, infrav1.NoRoomReason))
			w.hosts["a"].ClearFaults()
			w.until(m, w.isProvisioned)
			replace(m)
			w.Expect(w.infra().Spec.HostName).To(Equal("a"))
		})
	}
}
