package libvirt

import (
	"bytes"
	"context"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// TestTransfersStayOnTheHypervisor checks that nothing is written if the separate connection of a transfer leads to
// another hypervisor than the shared one.
func TestTransfersStayOnTheHypervisor(t *testing.T) {
	g := NewWithT(t)
	d := theDaemon(t)
	defer d.empty(t)
	ctx, cancel := context.WithTimeout(t.Context(), daemonTimeout)
	defer cancel()
	connection, err := d.connect(ctx)
	g.Expect(err).ToNot(HaveOccurred())
	defer func() { _ = connection.Close() }()
	spec := hypervisor.VolumeSpec{VolumeRef: hypervisor.VolumeRef{Pool: "default", Name: "v"}, Format: hypervisor.FormatRaw, CapacityBytes: 1 << 20}
	_, err = connection.CreateVolume(ctx, spec)
	g.Expect(err).ToNot(HaveOccurred())
	_, err = connection.Facts(ctx)
	g.Expect(err).ToNot(HaveOccurred())
	upload := func() error {
		return connection.UploadVolume(ctx, spec.VolumeRef, bytes.NewReader(make([]byte, 10)), 10)
	}
	g.Expect(upload()).To(Succeed())

	connection.(*host).uuid.Store("11111111-1111-4111-8111-111111111111") // as if the name led to another hypervisor before
	g.Expect(upload()).To(And(MatchError(hypervisor.ErrUnreachable), MatchError(ContainSubstring("another hypervisor answers"))))
	clone := spec
	clone.Name = "clone"
	_, err = connection.CloneVolume(ctx, clone, spec.VolumeRef)
	g.Expect(err).To(MatchError(hypervisor.ErrUnreachable))
}
