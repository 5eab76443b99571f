package hypervisortest

import (
	"strings"
	"testing"

	"github.com/onsi/gomega"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// disksThatGrow checks that disks of an active domain can grow and can't shrink, in every format and as overlays, and
// that the domain keeps running.
func disksThatGrow(t *testing.T, f Fixture) {
	g := gomega.NewWithT(t)
	ctx, host := f.connected(t)
	named := func(name string) hypervisor.VolumeRef { return hypervisor.VolumeRef{Pool: f.Pool, Name: name} }
	image, err := host.CreateVolume(ctx, hypervisor.VolumeSpec{VolumeRef: named("image"), Format: hypervisor.FormatQCOW2, CapacityBytes: 1 << 20})
	g.Expect(err).ToNot(gomega.HaveOccurred())
	refs := []hypervisor.VolumeRef{named("raw"), named("qcow2"), named("overlay")}
	for i, spec := range []hypervisor.VolumeSpec{
		{Format: hypervisor.FormatRaw}, {Format: hypervisor.FormatQCOW2}, {Format: hypervisor.FormatQCOW2, Backing: &hypervisor.Backing{Path: image.Path, Format: hypervisor.FormatQCOW2}},
	} {
		spec.VolumeRef, spec.CapacityBytes = refs[i], 1<<20
		g.Expect(host.CreateVolume(ctx, spec)).Error().ToNot(gomega.HaveOccurred())
	}
	definition := f.Define(uuid1, "m-1", nil, refs...)
	// Define gives all disks the raw format, which only the first one has here.
	first, rest, _ := strings.Cut(definition.XML, "</disk>")
	definition.XML = first + "</disk>" + strings.ReplaceAll(rest, "type='raw'", "type='qcow2'")
	g.Expect(host.DefineDomain(ctx, definition)).To(gomega.Succeed())
	g.Expect(host.GrowDisk(ctx, uuid1, refs[0], 2<<20)).To(failsWith(hypervisor.ErrBusy), "it isn't active")
	g.Expect(host.StartDomain(ctx, uuid1)).To(gomega.Succeed())
	before, err := host.Domain(ctx, uuid1)
	g.Expect(err).ToNot(gomega.HaveOccurred())
	for _, ref := range refs {
		for range 2 { // the second call changes nothing
			g.Expect(host.GrowDisk(ctx, uuid1, ref, 3<<20)).To(gomega.Succeed(), ref.Name)
			g.Expect(host.Volume(ctx, ref)).To(gomega.HaveField("CapacityBytes", gomega.BeEquivalentTo(3<<20)), ref.Name)
		}
		g.Expect(host.GrowDisk(ctx, uuid1, ref, 2<<20)).To(failsWith(hypervisor.ErrInvalid), ref.Name)
	}
	g.Expect(host.GrowDisk(ctx, uuid1, named("image"), 3<<20)).To(failsWith(hypervisor.ErrInvalid), "it isn't a disk of the domain's")
	g.Expect(host.Domain(ctx, uuid1)).To(gomega.Equal(before))
	g.Expect(host.StopDomain(ctx, uuid1)).To(gomega.Succeed())
	g.Expect(host.UndefineDomain(ctx, uuid1)).To(gomega.Succeed())
	for _, ref := range append(refs, named("image")) {
		g.Expect(host.DeleteVolume(ctx, ref)).To(gomega.Succeed())
	}
}
