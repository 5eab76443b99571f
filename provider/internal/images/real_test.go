package images

import (
	"bytes"
	"crypto/sha512"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor/libvirt"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/libvirtd"
)

// realHost starts libvirt and returns it with a connection and a store that transfers images to it.
func realHost(t *testing.T) (*libvirtd.Daemon, hypervisor.Hypervisor, *fixture) {
	t.Helper()
	libvirtd.Need(t)
	daemon, err := libvirtd.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(daemon.Stop)
	f := newFixture(t, newHosts(), Options{})
	host, err := libvirt.Connect(t.Context(), daemon.URI(), libvirt.Credentials{})
	f.Expect(err).ToNot(HaveOccurred())
	t.Cleanup(func() { _ = host.Close() })
	f.hosts = func(string) (hypervisor.Hypervisor, error) { return host, nil }
	return daemon, host, f
}

// emptyDisk returns a qcow2 image of 16 MiB from qemu-img.
func emptyDisk(t *testing.T) []byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), "image.qcow2")
	out, err := exec.CommandContext(t.Context(), "qemu-img", "create", "-f", "qcow2", file, "16M").CombinedOutput()
	NewWithT(t).Expect(err).ToNot(HaveOccurred(), string(out))
	content, err := os.ReadFile(file)
	NewWithT(t).Expect(err).ToNot(HaveOccurred())
	return content
}

// TestCompressedImagesOnARealHost checks that libvirt accepts an upload of unknown size and stores all of it.
func TestCompressedImagesOnARealHost(t *testing.T) {
	_, host, f := realHost(t)
	disk := emptyDisk(t)
	for name, tc := range map[string]struct {
		served, content []byte
		format          infrav1.ImageFormat
		capacity        int64
	}{
		"gzip":    {served: gzipped(t, disk), content: disk, capacity: 16 << 20},
		"zstd":    {served: zstandard(t, disk), content: disk, capacity: 16 << 20},
		"xz, raw": {served: sample(t, "image.raw.xz"), content: rawImage(), format: infrav1.ImageFormatRaw, capacity: int64(len(rawImage()))},
	} {
		wish := wishFor(serve(t, serving(tc.served)).URL, tc.served)
		wish.Format = tc.format
		image := f.eventually(wish, machine(1))
		stored, err := os.ReadFile(image.Path)
		f.Expect(err).ToNot(HaveOccurred())
		f.Expect(bytes.Equal(stored, tc.content)).To(BeTrue(), "%s: %d bytes of %d", name, len(stored), len(tc.content))
		volume, err := host.Volume(t.Context(), image.VolumeRef)
		f.Expect(err).ToNot(HaveOccurred())
		f.Expect([]int64{image.CapacityBytes, volume.CapacityBytes}).To(HaveEach(tc.capacity), name)
	}
}

// TestImageOfOneNamespaceOnARealHost checks that libvirt accepts the longest names of volumes, and that such an image
// is deleted when it is unused.
func TestImageOfOneNamespaceOnARealHost(t *testing.T) {
	_, host, f := realHost(t)
	served := gzipped(t, emptyDisk(t))
	url, ca := serveTLS(t, guarded("Bearer "+hush, served))
	wish := wishFor(url, nil)
	wish.Checksum = fmt.Sprintf("sha512:%x", sha512.Sum512(served))
	wish.Access = access("team", map[string]string{"ca.crt": string(ca), "token": hush})
	f.Expect(f.eventually(wish, machine(1)).CapacityBytes).To(BeEquivalentTo(16 << 20))
	others := wish
	others.Access = nil
	_, err := look(t.Context(), host, others)
	f.Expect(err).To(MatchError(errMissing))
	now, err := readUsage(t.Context(), host)
	f.Expect(err).ToNot(HaveOccurred())
	collection := Collection{Host: "one", Pools: []string{"default"}, Volumes: now.volumes, Wanted: []Wish{wish}}
	f.Expect(f.Collect(t.Context(), collection)).To(BeZero(), "a machine waits for the image")
	collection.Wanted = []Wish{others}
	f.Expect(f.Collect(t.Context(), collection)).To(HaveField("Images", ConsistOf(wish.marker()[len(namePrefix):])))
	f.Expect(host.PoolVolumes(t.Context(), "default")).To(BeEmpty())
}

// TestCollectOnARealHost checks that libvirt creates overlays of an image in another pool, reports the backing chains
// of domains' disks, and refuses an overlay of a deleted image.
func TestCollectOnARealHost(t *testing.T) {
	const uuid = "11111111-1111-4111-8111-111111111111"
	daemon, host, f := realHost(t)
	g := f.WithT
	g.Expect(daemon.AddPool("fast")).To(Succeed())
	content := emptyDisk(t)
	wish := wishFor(serve(t, serving(content)).URL, content)
	image := f.eventually(wish, machine(1))
	collect := func() Collected {
		now, err := readUsage(t.Context(), host)
		g.Expect(err).ToNot(HaveOccurred())
		// The snapshot has only the image. The rest must be read from the host itself.
		collected, err := f.Collect(t.Context(), Collection{Host: "one", Pools: []string{"default"}, Volumes: now.volumes[:2]})
		g.Expect(err).ToNot(HaveOccurred())
		return collected
	}
	overlay := hypervisor.VolumeSpec{VolumeRef: hypervisor.VolumeRef{Pool: "fast", Name: "root"}, Format: hypervisor.FormatQCOW2, CapacityBytes: 32 << 20,
		Backing: &hypervisor.Backing{Path: image.Path, Format: image.Format}}
	root, err := host.CreateVolume(t.Context(), overlay)
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(root.BackingPath).To(Equal(image.Path), "in another pool")
	g.Expect(Confirm(t.Context(), host, wish, image)).To(BeTrue())
	g.Expect(collect()).To(BeZero())

	// A copy of the overlay that isn't a volume of libvirt, and a foreign domain that uses it.
	diskFile := filepath.Join(daemon.PoolFolder(), "theirs")
	command := fmt.Sprintf("cp --preserve=ownership %s %s", root.Path, diskFile)
	out, err := exec.CommandContext(t.Context(), "sh", "-c", command).CombinedOutput()
	g.Expect(err).ToNot(HaveOccurred(), string(out))
	g.Expect(host.DeleteVolume(t.Context(), root.VolumeRef)).To(Succeed())
	g.Expect(host.DefineDomain(t.Context(), hypervisor.Definition{UUID: uuid, Name: "d", XML: "<domain type='qemu'><name>d</name><uuid>" + uuid +
		"</uuid><memory unit='MiB'>32</memory><vcpu>1</vcpu><os><type arch='x86_64' machine='q35'>hvm</type></os><devices><disk type='file' device='disk'>" +
		"<driver name='qemu' type='qcow2'/><source file='" + diskFile + "'/><target dev='vda' bus='virtio'/></disk></devices></domain>"})).To(Succeed())
	g.Expect(host.StartDomain(t.Context(), uuid)).To(Succeed())
	domain, err := host.Domain(t.Context(), uuid)
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(domain.Files).To(ConsistOf(image.Path, diskFile))
	g.Expect(collect()).To(BeZero())
	g.Expect(host.StopDomain(t.Context(), uuid)).To(Succeed())
	g.Expect(host.UndefineDomain(t.Context(), uuid)).To(Succeed())

	g.Expect(collect().Images).To(HaveLen(1))
	g.Expect(host.PoolVolumes(t.Context(), "default")).To(BeEmpty())
	_, err = host.CreateVolume(t.Context(), overlay)
	g.Expect(err).To(HaveOccurred(), "an overlay of a deleted image")
	_, err = host.Volume(t.Context(), overlay.VolumeRef)
	g.Expect(err).To(MatchError(hypervisor.ErrNotFound))
}
