package libvirtmachine

import (
	"errors"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/resource"

	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/fake"
)

// largerDisks increases only the sizes of the disks in a spec.
func largerDisks(infra *infrav1.LibvirtMachine) {
	infra.Spec.RootDisk.Size = resource.MustParse("30Gi")
	for i := range infra.Spec.ExtraDisks {
		infra.Spec.ExtraDisks[i].Size = resource.MustParse("50Gi")
	}
}

// grow runs an update of a machine's disks alone, and returns the calls. The guest ignores shutdown requests, so that
// an update by restart would fail.
func grow(t *testing.T, life, killAt int) (*world, []string) {
	t.Helper()
	w, m := newWorldWithNode(t, lives[life].change)
	w.hosts["a"].IgnoreShutdown(w.uuid(), true)
	xml, _ := w.hosts["a"].DomainXML(w.uuid())
	before, left := w.domain(), w.inventory()
	w.requestUpdate(largerDisks)
	m.end()
	first := w.newManager(killAt)
	w.until(first, w.isUpdated)
	w.checkUpdated(before, xml, left)
	return w, first.calls()
}

func operations(w *world) map[fake.Operation]int {
	count := map[fake.Operation]int{}
	for _, call := range w.hosts["a"].Calls() {
		count[call.Operation]++
	}
	return count
}

// TestDisksGrowWhileTheGuestRuns: if only disks grow, the domain isn't shut down, stopped or started, also if the
// controller is killed after any of its calls.
func TestDisksGrowWhileTheGuestRuns(t *testing.T) {
	for life := range lives {
		t.Run(lives[life].name, func(t *testing.T) {
			w, calls := grow(t, life, 0)
			w.Expect(operations(w)).To(HaveKeyWithValue(fake.GrowDisk, 1+len(w.infra().Spec.ExtraDisks)))
			for killAt := 0; killAt <= len(calls); killAt++ {
				t.Run(fmt.Sprint(killAt), func(t *testing.T) {
					w, _ := grow(t, life, killAt)
					for _, not := range []fake.Operation{fake.ShutdownDomain, fake.StopDomain, fake.StartDomain, fake.ResizeDomain, fake.ResizeVolume} {
						w.Expect(operations(w)).ToNot(HaveKey(not))
					}
				})
			}
		})
	}
}

// TestDiskThatCanNotGrow: on a host that can't grow disks of running guests, the guest is shut down first. Other
// failures are reported and retried.
func TestDiskThatCanNotGrow(t *testing.T) {
	for _, reason := range []error{hypervisor.ErrUnsupported, hypervisor.ErrBusy, hypervisor.ErrOther} {
		t.Run(reason.Error(), func(t *testing.T) {
			w, m := newWorldWithNode(t, nil)
			w.hosts["a"].Inject(fake.Fault{Operation: fake.GrowDisk, Effect: fake.Fail, Reason: reason})
			w.requestUpdate(largerDisks)
			restarts := 1
			if !errors.Is(reason, hypervisor.ErrUnsupported) {
				restarts = 0
				w.Expect(w.message(m, infrav1.UpdatedInPlaceCondition, infrav1.InPlaceUpdateFailedReason)).To(ContainSubstring("making the disk"))
				w.Expect(conditions.IsFalse(w.infra(), infrav1.UpdatedInPlaceCondition)).To(BeTrue())
			}
			w.until(m, w.isUpdated)
			w.Expect(operations(w)[fake.ShutdownDomain]).To(Equal(restarts))
			w.Expect(operations(w)[fake.StartDomain]).To(Equal(restarts))
			w.Expect(w.domain().State).To(Equal(hypervisor.StateRunning))
		})
	}
}
