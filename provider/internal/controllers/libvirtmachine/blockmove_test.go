package libvirtmachine

import (
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// transfers are the transfers for which a move waits, each with its call and the index of a life with that call.
var transfers = []struct {
	name, call, condition, reason string
	life                          int
}{
	{name: "image", call: "libvirt: upload", condition: infrav1.ImageReadyCondition, reason: infrav1.ImageTransferringReason, life: 0},
	{name: "full copy", call: "libvirt: clone volume", condition: infrav1.DisksReadyCondition, reason: infrav1.DiskCopyingReason, life: 1},
}

func (w *world) isBlocked() bool {
	infra := w.infra()
	if infra == nil {
		return false
	}
	_, blocked := infra.Annotations[clusterctlv1.BlockMoveAnnotation]
	return blocked
}

func (w *world) isNotBlocked() bool { return !w.isBlocked() }

// hold blocks the first call with the name until the test calls goOn or ends.
func (w *world) hold(m *manager, name string) (goOn func()) {
	held := make(chan struct{})
	goOn = sync.OnceFunc(func() { close(held) })
	w.t.Cleanup(goOn)
	m.before = func(call string, _ int) {
		if call == name {
			<-held
		}
	}
	return goOn
}

func (w *world) pause(paused bool) {
	change(w, &clusterv1.Cluster{}, "blue", func(c *clusterv1.Cluster) { c.Spec.Paused = ptr.To(paused) })
}

// TestBlockMove: the annotation exists only during a transfer.
func TestBlockMove(t *testing.T) {
	for _, tc := range transfers {
		begin := func(t *testing.T) (*world, *manager, func()) {
			t.Helper()
			w := newWorld(t, lives[tc.life].change, "a")
			m := w.newManager(0)
			goOn := w.hold(m, tc.call)
			w.until(m, w.hasCondition(tc.condition, tc.reason))
			w.Expect(w.isBlocked()).To(BeTrue(), "the annotation is written before the status")
			return w, m, goOn
		}
		t.Run(tc.name+"/until it ends", func(t *testing.T) {
			w, m, goOn := begin(t)
			goOn()
			w.until(m, w.isProvisioned)
			w.Expect(w.isBlocked()).To(BeFalse())
		})
		t.Run(tc.name+"/paused", func(t *testing.T) {
			w, m, goOn := begin(t)
			w.pause(true)
			for range 5 {
				result, err := m.reconcile()
				w.Expect(err).ToNot(HaveOccurred())
				w.Expect(result.RequeueAfter).To(Equal(moveDelay))
			}
			w.Expect(w.isBlocked()).To(BeTrue(), "the transfer is running")
			goOn()
			w.until(m, w.isNotBlocked)
			w.Expect(w.inventory()).ToNot(ContainElement(ContainSubstring("domain")), "the machine is paused")
			w.pause(false)
			w.until(m, w.isProvisioned)
			w.Expect(w.isBlocked()).To(BeFalse())
		})
		t.Run(tc.name+"/killed and paused", func(t *testing.T) {
			w, m, goOn := begin(t)
			m.kill()
			goOn()
			w.pause(true)
			next := w.newManager(0)
			w.until(next, w.isNotBlocked)
			w.pause(false)
			w.until(next, w.isProvisioned)
			w.Expect(w.isBlocked()).To(BeFalse())
		})
		t.Run(tc.name+"/killed", func(t *testing.T) {
			w, m, goOn := begin(t)
			m.kill()
			goOn()
			w.until(w.newManager(0), w.isProvisioned)
			w.Expect(w.isBlocked()).To(BeFalse())
		})
		t.Run(tc.name+"/deleted", func(t *testing.T) {
			w, m, goOn := begin(t)
			w.delete()
			if tc.life == 0 { // an image without waiting machines doesn't belong to the machine
				_, err := m.reconcile()
				w.Expect(err).ToNot(HaveOccurred())
				w.Expect(w.isBlocked()).To(BeFalse())
			}
			goOn()
			w.until(m, w.isDeleted)
			w.Eventually(w.inventory).WithTimeout(patience).Should(BeEmpty())
		})
	}
}

// TestPausedBeforeAnnotation: a transfer that started without the annotation is cancelled in a paused machine, because
// a move doesn't wait for it.
func TestPausedBeforeAnnotation(t *testing.T) {
	w := newWorld(t, nil, "a")
	m := w.newManager(0)
	goOn := w.hold(m, "libvirt: upload")
	w.until(m, w.isBlocked)
	change(w, &infrav1.LibvirtMachine{}, key.Name, func(infra *infrav1.LibvirtMachine) { delete(infra.Annotations, clusterctlv1.BlockMoveAnnotation) })
	w.pause(true)
	_, err := m.reconcile()
	w.Expect(err).ToNot(HaveOccurred())
	w.Expect(m.Images.UnderWay(key)).To(BeFalse())
	goOn()
	w.pause(false)
	w.until(m, w.isProvisioned)
}
