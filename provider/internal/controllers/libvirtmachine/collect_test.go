package libvirtmachine

import (
	"context"
	"fmt"
	"slices"
	"testing"

	. "github.com/onsi/gomega"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/images"
)

// TestUnusedImageDeletedDuringCreation deletes all unused images before each call of a machine's life, one call after
// the other, as a manager without knowledge of the machine does. The machine is created nevertheless, and the backing
// file of its disk exists.
func TestUnusedImageDeletedDuringCreation(t *testing.T) {
	life := func(t *testing.T, at int) (calls []string, deleted int) {
		t.Helper()
		w := newWorld(t, nil, "a")
		connected, err := w.hosts["a"].Connect(t.Context())
		w.Expect(err).ToNot(HaveOccurred())
		store := images.New(func(string) (hypervisor.Hypervisor, error) { return connected, nil }, nil, images.Options{})
		m := w.newManager(0)
		m.before = func(_ string, number int) {
			if number != at {
				return
			}
			volumes, err := connected.PoolVolumes(context.Background(), "default")
			w.Expect(err).ToNot(HaveOccurred())
			collected, err := store.Collect(context.Background(), images.Collection{Host: "a", Pools: []string{"default"}, Volumes: volumes})
			w.Expect(err).ToNot(HaveOccurred())
			deleted = len(collected.Images)
		}
		w.until(m.world.managers[0], w.isProvisioned)
		root, err := connected.Volume(t.Context(), hypervisor.VolumeRef{Pool: "default", Name: w.volumeName("root")})
		w.Expect(err).ToNot(HaveOccurred())
		left, _ := w.hosts["a"].Left()
		w.Expect(slices.ContainsFunc(left, func(ref hypervisor.VolumeRef) bool { return "/fake/"+ref.String() == root.BackingPath })).To(BeTrue(), "%v", left)
		return m.calls(), deleted
	}
	calls, _ := life(t, -1)
	all := 0
	for at := range calls {
		t.Run(fmt.Sprintf("%d %s", at, calls[at]), func(t *testing.T) {
			_, deleted := life(t, at)
			all += deleted
		})
	}
	NewWithT(t).Expect(all).To(BeNumerically(">", 2), "before the domain used them")
}

// TestImageDeletedAfterDiskCreation: an overlay of an image that lost its marker while the overlay was created isn't
// used, and the condition has the reason.
func TestImageDeletedAfterDiskCreation(t *testing.T) {
	w := newWorld(t, nil, "a")
	m := w.newManager(0)
	connected, err := w.hosts["a"].Connect(t.Context())
	w.Expect(err).ToNot(HaveOccurred())
	done := ""
	m.after = func(call string, _ int) {
		if call != "libvirt: create volume" || done != "" {
			return
		}
		left, _ := w.hosts["a"].Left()
		if !slices.ContainsFunc(left, func(ref hypervisor.VolumeRef) bool { return ref.Name == w.volumeName("root") }) {
			return
		}
		done = "once"
		for _, ref := range left {
			if volume, err := connected.Volume(context.Background(), ref); err == nil && volume.Pool == "default" && volume.BackingPath != "" && ref.Name != w.volumeName("root") {
				w.Expect(connected.DeleteVolume(context.Background(), ref)).To(Succeed(), "the marker")
			}
		}
	}
	w.Expect(w.message(m, infrav1.ImageReadyCondition, infrav1.ImageTransferringReason)).ToNot(BeEmpty())
	w.until(m, func() bool { return done != "" })
	w.Expect(w.message(m, infrav1.ImageReadyCondition, infrav1.ImageTransferringReason)).To(ContainSubstring("The unused image was deleted from the host"))
	w.until(m, w.isProvisioned)
}
