package libvirtmachine

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// TestLateCopyIsRemoved: a copy that the host lists only after the domain was started is deleted before the machine is
// provisioned. The copy that the domain uses stays.
func TestLateCopyIsRemoved(t *testing.T) {
	const full = 1
	w := newWorld(t, lives[full].change, "a")
	m := w.newManager(0)
	copied := false
	m.after = func(call string, _ int) {
		if call != "libvirt: start" || copied {
			return
		}
		copied = true
		connection, err := w.hosts["a"].Connect(context.Background())
		w.Expect(err).ToNot(HaveOccurred())
		defer func() { _ = connection.Close() }()
		_, err = connection.CreateVolume(context.Background(), hypervisor.VolumeSpec{Format: hypervisor.FormatQCOW2, CapacityBytes: 1 << 30,
			VolumeRef: hypervisor.VolumeRef{Pool: "default", Name: w.volumeName("root.0123456789ab")}})
		w.Expect(err).ToNot(HaveOccurred())
	}
	w.until(m, w.isProvisioned)
	w.Expect(copied).To(BeTrue())
	w.Expect(withoutCopyID(w.inventory())).To(Equal(lives[full].provisioned))
}

// TestCopiesOfRawImages: a full copy isn't raw, so that a guest can't write the first bytes of a volume. libvirt opens
// the files in these bytes when it refreshes the pool.
func TestCopiesOfRawImages(t *testing.T) {
	w := newWorld(t, func(infra *infrav1.LibvirtMachine) {
		infra.Spec.Image = infrav1.ImageSpec{Volume: "golden", Format: infrav1.ImageFormatRaw}
		infra.Spec.RootDisk.Clone = infrav1.CloneFull
	}, "a")
	w.golden()
	w.until(w.newManager(0), w.isProvisioned)
	connection, err := w.hosts["a"].Connect(t.Context())
	w.Expect(err).ToNot(HaveOccurred())
	domain, err := connection.Domain(t.Context(), w.uuid())
	w.Expect(err).ToNot(HaveOccurred())
	disk, err := connection.Volume(t.Context(), domain.Disks[0])
	w.Expect(err).ToNot(HaveOccurred())
	w.Expect(disk.Name).To(HavePrefix(w.volumeName("root.")))
	w.Expect(disk.Format).To(Equal(hypervisor.FormatQCOW2))
	xml, _ := w.hosts["a"].DomainXML(w.uuid())
	w.Expect(xml).To(MatchRegexp(`<driver name="qemu" type="qcow2"[^>]*></driver>\s*<source pool="default" volume="` + disk.Name))
}
