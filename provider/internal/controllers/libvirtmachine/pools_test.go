package libvirtmachine

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/resource"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/fake"
)

// TestDisksInSeveralPools: each disk is in the pool of its spec, the backing image of an overlay may be in another
// pool, and all volumes are deleted with the machine, also if the host's spec no longer has a pool.
func TestDisksInSeveralPools(t *testing.T) {
	for _, clone := range []infrav1.CloneMethod{infrav1.CloneOverlay, infrav1.CloneFull} {
		t.Run(string(clone), func(t *testing.T) {
			w := newWorld(t, func(infra *infrav1.LibvirtMachine) {
				infra.Spec.RootDisk.Pool, infra.Spec.RootDisk.Clone = "fast", clone
				infra.Spec.ExtraDisks = []infrav1.ExtraDiskSpec{{Name: "data", Size: resource.MustParse("7Gi")}, {Name: "etcd", Size: resource.MustParse("3Gi"), Pool: "fast"}}
			}, "a")
			w.hosts["a"].SetPool(hypervisor.Pool{Name: "fast", Active: true, CapacityBytes: 1 << 40, AvailableBytes: 1 << 40})
			m := w.newManager(0)
			w.Expect(w.message(m, infrav1.HostBoundCondition, infrav1.NoHostFitsReason)).To(ContainSubstring("a: lacks storage pool fast"))
			w.changeHost("a", func(h *infrav1.LibvirtHost) { h.Spec.StoragePools.Disks = []string{"default", "fast"} })
			m = w.until(m, w.isProvisioned)
			connected, err := w.hosts["a"].Connect(t.Context())
			w.Expect(err).ToNot(HaveOccurred())
			volume := func(pool, what string) hypervisor.Volume {
				found, err := connected.Volume(t.Context(), hypervisor.VolumeRef{Pool: pool, Name: w.volumeName(what)})
				w.Expect(err).ToNot(HaveOccurred(), what)
				return found
			}
			root := volume("fast", "root")
			if clone == infrav1.CloneOverlay {
				w.Expect(root.BackingPath).To(HavePrefix("/fake/default/caplv-image-"))
			} else {
				w.Expect(root.BackingPath).To(HavePrefix("/fake/fast/"+w.volumeName("root.")), "the copy, and not the image")
			}
			w.Expect(volume("default", "disk-data").CapacityBytes).To(BeEquivalentTo(7 << 30))
			w.Expect(volume("fast", "disk-etcd").CapacityBytes).To(BeEquivalentTo(3 << 30))

			w.changeHost("a", func(h *infrav1.LibvirtHost) { h.Spec.StoragePools.Disks = []string{"default"} })
			w.delete()
			w.until(m, w.isDeleted)
			w.Expect(w.inventory()).To(BeEmpty())
		})
	}
}

// TestImageThatIsCopiedInByHand: a machine that waits for an image gets a host after an administrator has copied the
// image into the folder of a pool, although libvirt doesn't notice. A bound machine continues.
func TestImageThatIsCopiedInByHand(t *testing.T) {
	const image = "base.img"
	for _, bound := range []bool{false, true} {
		t.Run(fmt.Sprintf("bound %v", bound), func(t *testing.T) {
			w := newWorld(t, func(infra *infrav1.LibvirtMachine) {
				infra.Spec.Image = infrav1.ImageSpec{Volume: image, Format: infrav1.ImageFormatRaw}
			}, "a")
			file := hypervisor.VolumeRef{Pool: "default", Name: image}
			m := w.newManager(0)
			w.until(m, w.hasCondition(infrav1.HostBoundCondition, infrav1.NoHostFitsReason))
			if bound { // and loses the image before its disk is made
				w.hosts["a"].Inject(fake.Fault{Operation: fake.CreateVolume, Times: -1, Effect: fake.Fail, Reason: hypervisor.ErrBusy})
				w.hosts["a"].PutFile(file, []byte("a disk"))
				m = w.until(m, w.hasCondition(infrav1.DisksReadyCondition, infrav1.DiskCreationFailedReason))
				connected, err := w.hosts["a"].Connect(t.Context())
				w.Expect(err).ToNot(HaveOccurred())
				w.Expect(connected.DeleteVolume(t.Context(), file)).To(Succeed())
				m = w.until(m, w.hasCondition(infrav1.ImageReadyCondition, infrav1.ImageVolumeNotFoundReason))
				w.hosts["a"].ClearFaults()
			}
			w.hosts["a"].PutFile(file, []byte("a disk"))
			w.until(m, w.isProvisioned)
		})
	}
}
