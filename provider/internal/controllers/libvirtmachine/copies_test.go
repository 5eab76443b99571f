package libvirtmachine

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// TestLateCopyIsRemoved: a copy that the host knows of only after the domain was started goes before the
// machine is provisioned, and the one that the domain has stays.
func TestLateCopyIsRemoved(t *testing.T) {
	const full = 1
	w := newWorld(t, lives[full].change, "a")
	m := w.newManager(0)
	made := false
	m.after = func(call string, _ int) {
		if call != "libvirt: start" || made {
			return
		}
		made = true
		connection, err := w.hosts["a"].Connect(context.Background())
		w.Expect(err).ToNot(HaveOccurred())
		defer func() { _ = connection.Close() }()
		_, err = connection.CreateVolume(context.Background(), hypervisor.VolumeSpec{Format: hypervisor.FormatQCOW2, CapacityBytes: 1 << 30,
			VolumeRef: hypervisor.VolumeRef{Pool: "default", Name: w.volumeName("root.0123456789ab")}})
		w.Expect(err).ToNot(HaveOccurred())
	}
	w.until(m, w.isProvisioned)
	w.Expect(made).To(BeTrue())
	w.Expect(withoutCopyID(w.left())).To(Equal(lives[full].made))
}
