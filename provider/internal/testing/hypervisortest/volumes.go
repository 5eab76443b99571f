package hypervisortest

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"sync"
	"testing"

	"github.com/onsi/gomega"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// emptyReader has no content.
type emptyReader struct{}

// Read implements io.Reader.
func (emptyReader) Read([]byte) (int, error) { return 0, io.EOF }

func pools(t *testing.T, f Fixture) {
	g := gomega.NewWithT(t)
	ctx, host := f.connected(t)
	pools, err := host.Pools(ctx)
	g.Expect(err).ToNot(gomega.HaveOccurred())
	pool, err := host.Pool(ctx, f.Pool)
	g.Expect(err).ToNot(gomega.HaveOccurred())
	g.Expect(pools).To(gomega.ContainElement(gomega.HaveField("Folder", pool.Folder)))
	g.Expect(pool.Type).To(gomega.Equal("dir"))
	var names []string
	for _, one := range pools {
		names = append(names, one.Name)
		if one.Name == pool.Name {
			g.Expect(one.Active).To(gomega.BeTrue())
			g.Expect(one.CapacityBytes).To(gomega.Equal(pool.CapacityBytes))
		}
	}
	g.Expect(names).To(gomega.ContainElement(f.Pool))
	g.Expect(slices.IsSorted(names)).To(gomega.BeTrue())
}

func volumes(t *testing.T, f Fixture) {
	g := gomega.NewWithT(t)
	ctx, host := f.connected(t)
	named := func(name string) hypervisor.VolumeRef { return hypervisor.VolumeRef{Pool: f.Pool, Name: name} }

	g.Expect(host.PoolVolumes(ctx, f.Pool)).To(gomega.BeEmpty())

	base, err := host.CreateVolume(ctx, hypervisor.VolumeSpec{VolumeRef: named("base.raw"), Format: hypervisor.FormatRaw, CapacityBytes: 3 << 20})
	g.Expect(err).ToNot(gomega.HaveOccurred())
	g.Expect(base.VolumeRef).To(gomega.Equal(named("base.raw")))
	pool, err := host.Pool(ctx, f.Pool)
	g.Expect(err).ToNot(gomega.HaveOccurred())
	g.Expect(base.Path).To(gomega.Equal(pool.Folder + "/base.raw"))
	g.Expect(base.Format).To(gomega.Equal(hypervisor.FormatRaw))
	g.Expect(base.CapacityBytes).To(gomega.BeEquivalentTo(3 << 20))
	g.Expect(base.BackingPath).To(gomega.BeEmpty())
	g.Expect(host.CreateVolume(ctx, hypervisor.VolumeSpec{VolumeRef: named("base.raw"), Format: hypervisor.FormatQCOW2, CapacityBytes: 1 << 30})).Error().To(failsWith(hypervisor.ErrAlreadyExists))
	g.Expect(host.Volume(ctx, named("base.raw"))).To(gomega.Equal(base), "a refused creation changes nothing")

	overlay, err := host.CreateVolume(ctx, hypervisor.VolumeSpec{
		VolumeRef: named("a-overlay"), Format: hypervisor.FormatQCOW2, CapacityBytes: 8 << 20,
		Backing: &hypervisor.Backing{Path: base.Path, Format: hypervisor.FormatRaw},
	})
	g.Expect(err).ToNot(gomega.HaveOccurred())
	g.Expect(overlay.BackingPath).To(gomega.Equal(base.Path))
	g.Expect(overlay.CapacityBytes).To(gomega.BeEquivalentTo(8 << 20))

	for _, format := range []hypervisor.VolumeFormat{hypervisor.FormatQCOW2, hypervisor.FormatRaw} {
		spec := hypervisor.VolumeSpec{VolumeRef: named("clone"), Format: format, CapacityBytes: 1 << 20}
		g.Expect(host.DeleteVolume(ctx, spec.VolumeRef)).To(gomega.Or(gomega.Succeed(), failsWith(hypervisor.ErrNotFound)))
		clone, err := host.CloneVolume(ctx, spec, named("base.raw"))
		g.Expect(err).ToNot(gomega.HaveOccurred())
		g.Expect(clone.Format).To(gomega.Equal(format), "a clone has the format that was asked for")
		g.Expect(clone.BackingPath).To(gomega.BeEmpty())
		g.Expect(clone.CapacityBytes).To(gomega.BeEquivalentTo(3<<20), "a clone is at least as large as its source")
		g.Expect(host.CloneVolume(ctx, spec, named("base.raw"))).Error().To(failsWith(hypervisor.ErrAlreadyExists))
	}

	g.Expect(host.ResizeVolume(ctx, named("clone"), 4<<20)).To(gomega.Succeed())
	g.Expect(host.ResizeVolume(ctx, named("clone"), 2<<20)).To(failsWith(hypervisor.ErrInvalid))
	g.Expect(host.Volume(ctx, named("clone"))).To(gomega.HaveField("CapacityBytes", gomega.BeEquivalentTo(4<<20)))

	var names []string
	all, err := host.PoolVolumes(ctx, f.Pool)
	g.Expect(err).ToNot(gomega.HaveOccurred())
	for _, volume := range all {
		names = append(names, volume.Name)
	}
	g.Expect(names).To(gomega.Equal([]string{"a-overlay", "base.raw", "clone"}))
	for _, name := range names {
		g.Expect(host.DeleteVolume(ctx, named(name))).To(gomega.Succeed())
		g.Expect(host.DeleteVolume(ctx, named(name))).To(failsWith(hypervisor.ErrNotFound))
	}

	for name, spec := range map[string]hypervisor.VolumeSpec{
		"no name":                {VolumeRef: named(""), Format: hypervisor.FormatRaw, CapacityBytes: 1},
		"a path":                 {VolumeRef: named("../../etc/x"), Format: hypervisor.FormatRaw, CapacityBytes: 1},
		"no format":              {VolumeRef: named("v"), CapacityBytes: 1},
		"no capacity":            {VolumeRef: named("v"), Format: hypervisor.FormatRaw},
		"raw overlay":            {VolumeRef: named("v"), Format: hypervisor.FormatRaw, CapacityBytes: 1, Backing: &hypervisor.Backing{Path: "/x", Format: hypervisor.FormatRaw}},
		"backing without format": {VolumeRef: named("v"), Format: hypervisor.FormatQCOW2, CapacityBytes: 1, Backing: &hypervisor.Backing{Path: "/x"}},
	} {
		g.Expect(host.CreateVolume(ctx, spec)).Error().To(failsWith(hypervisor.ErrInvalid), name)
	}
}

func uploads(t *testing.T, f Fixture) {
	g := gomega.NewWithT(t)
	ctx, host := f.connected(t)
	const size = 5<<20 + 123 // more than one packet
	ref := hypervisor.VolumeRef{Pool: f.Pool, Name: "uploaded"}
	content := bytes.Repeat([]byte("0123456789abcde\n"), size/16+1)[:size]
	g.Expect(host.CreateVolume(ctx, hypervisor.VolumeSpec{VolumeRef: ref, Format: hypervisor.FormatRaw, CapacityBytes: size})).Error().ToNot(gomega.HaveOccurred())

	g.Expect(host.UploadVolume(ctx, ref, bytes.NewReader(content), size)).To(gomega.Succeed())
	err := host.UploadVolume(ctx, ref, bytes.NewReader(content[:size-1]), size)
	g.Expect(err).To(failsWith(hypervisor.ErrInvalid))
	g.Expect(err).To(gomega.MatchError(io.ErrUnexpectedEOF))
	g.Expect(host.UploadVolume(ctx, ref, bytes.NewReader(content), size-1)).To(failsWith(hypervisor.ErrInvalid))
	g.Expect(host.UploadVolume(ctx, ref, bytes.NewReader(append(content, 0)), size+1)).To(failsWith(hypervisor.ErrInvalid), "larger than the volume")
	broken := errors.New("the source is broken")
	err = host.UploadVolume(ctx, ref, io.MultiReader(bytes.NewReader(content[:size/2]), failingReader{broken}), size)
	g.Expect(err).To(failsWith(hypervisor.ErrOther))
	g.Expect(err).To(gomega.MatchError(broken))

	err = host.UploadVolume(ctx, ref, io.MultiReader(bytes.NewReader(content[:size/2]), failingReader{broken}), hypervisor.UnknownSize)
	g.Expect(err).To(failsWith(hypervisor.ErrOther))
	g.Expect(err).To(gomega.MatchError(broken))

	g.Expect(host.UploadVolume(ctx, ref, bytes.NewReader(content), size)).To(gomega.Succeed(), "after all of these")
	g.Expect(host.Volume(ctx, ref)).To(gomega.HaveField("AllocatedBytes", gomega.BeNumerically(">=", size)))
	g.Expect(host.DeleteVolume(ctx, ref)).To(gomega.Succeed())

	small := hypervisor.VolumeSpec{VolumeRef: ref, Format: hypervisor.FormatRaw, CapacityBytes: 1}
	g.Expect(host.CreateVolume(ctx, small)).Error().ToNot(gomega.HaveOccurred())
	g.Expect(host.UploadVolume(ctx, ref, bytes.NewReader(content), hypervisor.UnknownSize)).To(gomega.Succeed())
	g.Expect(host.Volume(ctx, ref)).To(gomega.HaveField("CapacityBytes", gomega.BeEquivalentTo(size)), "a raw volume grows with its content")
	small.Name = "copied"
	g.Expect(host.CloneVolume(ctx, small, ref)).To(gomega.HaveField("CapacityBytes", gomega.BeEquivalentTo(size)))
	g.Expect(host.DeleteVolume(ctx, ref)).To(gomega.Succeed())
	g.Expect(host.DeleteVolume(ctx, small.VolumeRef)).To(gomega.Succeed())
}

type failingReader struct{ err error }

// Read implements io.Reader.
func (r failingReader) Read([]byte) (int, error) { return 0, r.err }

func oneCreatorWins(t *testing.T, f Fixture) {
	g := gomega.NewWithT(t)
	ctx, host := f.connected(t)
	ref := hypervisor.VolumeRef{Pool: f.Pool, Name: "lock"}
	const creators = 8
	results := make(chan error, creators)
	var all sync.WaitGroup
	for range creators {
		all.Go(func() {
			_, err := host.CreateVolume(ctx, hypervisor.VolumeSpec{VolumeRef: ref, Format: hypervisor.FormatRaw, CapacityBytes: 1 << 20})
			results <- err
		})
	}
	all.Wait()
	close(results)
	won := 0
	for err := range results {
		if err == nil {
			won++
			continue
		}
		g.Expect(err).To(failsWith(hypervisor.ErrAlreadyExists))
	}
	g.Expect(won).To(gomega.Equal(1))
	g.Expect(host.DeleteVolume(ctx, ref)).To(gomega.Succeed())
}

// filesOfOthers checks that files of others in a pool, and their space, are visible after the pool is refreshed.
func filesOfOthers(t *testing.T, f Fixture) {
	g := gomega.NewWithT(t)
	ctx, host := f.connected(t)
	ref := hypervisor.VolumeRef{Pool: f.Pool, Name: "by-hand.img"}
	g.Expect(host.RefreshPool(ctx, f.Pool)).To(gomega.Succeed())
	before, err := host.Pool(ctx, f.Pool)
	g.Expect(err).ToNot(gomega.HaveOccurred())
	content := bytes.Repeat([]byte("guest"), 1<<20)
	g.Expect(f.PutFile(ref.Name, content)).To(gomega.Succeed())

	g.Expect(host.Pool(ctx, f.Pool)).To(gomega.Equal(before))
	g.Expect(host.PoolVolumes(ctx, f.Pool)).To(gomega.BeEmpty())
	g.Expect(host.Volume(ctx, ref)).Error().To(failsWith(hypervisor.ErrNotFound))

	g.Expect(host.RefreshPool(ctx, f.Pool)).To(gomega.Succeed())
	volume, err := host.Volume(ctx, ref)
	g.Expect(err).ToNot(gomega.HaveOccurred())
	g.Expect(volume.CapacityBytes).To(gomega.BeEquivalentTo(len(content)))
	g.Expect(volume.Format).To(gomega.Equal(hypervisor.FormatRaw))
	g.Expect(host.PoolVolumes(ctx, f.Pool)).To(gomega.Equal([]hypervisor.Volume{volume}))
	g.Expect(host.Pool(ctx, f.Pool)).To(gomega.HaveField("AvailableBytes", gomega.BeNumerically("<", before.AvailableBytes)))
	g.Expect(host.DeleteVolume(ctx, ref)).To(gomega.Succeed())
	g.Expect(host.PoolVolumes(ctx, f.Pool)).To(gomega.BeEmpty())
}
