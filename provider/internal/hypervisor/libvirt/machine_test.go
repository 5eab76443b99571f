package libvirt

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/resource"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/domainxml"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/seed"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/libvirtd"
)

// TestMachine creates a machine from its spec on libvirt and QEMU, with base volume, overlay, seed and domain, and
// deletes it.
func TestMachine(t *testing.T) {
	const uuid = "5c4f1ab6-7c5e-4a55-8f0e-2a3c6a1f0b11"
	for _, firmware := range []infrav1.FirmwareType{infrav1.FirmwareBIOS, infrav1.FirmwareUEFI} {
		t.Run(string(firmware), func(t *testing.T) {
			d := theDaemon(t)
			t.Cleanup(func() { d.empty(t) })
			g := NewWithT(t)
			ctx, cancel := context.WithTimeout(t.Context(), daemonTimeout)
			defer cancel()
			connection, err := d.connect(ctx)
			g.Expect(err).ToNot(HaveOccurred())
			defer func() { _ = connection.Close() }()
			facts, err := connection.Facts(ctx)
			g.Expect(err).ToNot(HaveOccurred())
			if firmware == infrav1.FirmwareUEFI && !slices.Contains(facts.Features, infrav1.HostFeatureUEFI) {
				libvirtd.Without(t, "UEFI firmware")
			}

			ref := func(name string) hypervisor.VolumeRef {
				return hypervisor.VolumeRef{Pool: "default", Name: uuid + "-" + name}
			}
			base, err := connection.CreateVolume(ctx, hypervisor.VolumeSpec{VolumeRef: ref("base"), Format: hypervisor.FormatQCOW2, CapacityBytes: 1 << 20})
			g.Expect(err).ToNot(HaveOccurred())
			_, err = connection.CreateVolume(ctx, hypervisor.VolumeSpec{
				VolumeRef: ref("root"), Format: hypervisor.FormatQCOW2, CapacityBytes: 1 << 30,
				Backing: &hypervisor.Backing{Path: base.Path, Format: base.Format},
			})
			g.Expect(err).ToNot(HaveOccurred())
			_, err = connection.CreateVolume(ctx, hypervisor.VolumeSpec{VolumeRef: ref("data"), Format: hypervisor.FormatRaw, CapacityBytes: 1 << 20})
			g.Expect(err).ToNot(HaveOccurred())
			image, err := seed.Seed{InstanceID: uuid, Hostname: "m-1", UserData: []byte("#cloud-config\n")}.ISO()
			g.Expect(err).ToNot(HaveOccurred())
			size := int64(len(image))
			_, err = connection.CreateVolume(ctx, hypervisor.VolumeSpec{VolumeRef: ref("seed"), Format: hypervisor.FormatRaw, CapacityBytes: size})
			g.Expect(err).ToNot(HaveOccurred())
			g.Expect(connection.UploadVolume(ctx, ref("seed"), bytes.NewReader(image), size)).To(Succeed())
			g.Expect(os.ReadFile(filepath.Join(d.PoolFolder(), ref("seed").Name))).To(Equal(image), "the upload is complete")

			seedRef := ref("seed")
			definition, err := domainxml.Machine{
				UUID: uuid, Name: "default-m-1", Owner: hypervisor.Owner{Cluster: "c", Namespace: "default", Name: "m-1"}, Emulated: true,
				Spec: &infrav1.LibvirtMachineSpec{
					CPUs: 2, Memory: resource.MustParse("256Mi"),
					CPU:             infrav1.CPUSpec{Mode: infrav1.CPUModeMaximum, Architecture: infrav1.ArchitectureAmd64},
					Firmware:        infrav1.FirmwareSpec{Type: firmware},
					ExtraDisks:      []infrav1.ExtraDiskSpec{{Name: "data"}},
					BootstrapFormat: infrav1.BootstrapFormatCloudConfig,
				},
				RootDisk:   domainxml.Disk{VolumeRef: ref("root"), Format: hypervisor.FormatQCOW2},
				ExtraDisks: map[string]domainxml.Disk{"data": {VolumeRef: ref("data"), Format: hypervisor.FormatRaw}},
				Seed:       &seedRef,
			}.Definition()
			g.Expect(err).ToNot(HaveOccurred())
			g.Expect(connection.DefineDomain(ctx, definition)).To(Succeed())
			g.Expect(connection.DefineDomain(ctx, definition)).To(Succeed(), "again, after libvirt's additions")
			g.Expect(connection.StartDomain(ctx, uuid)).To(Succeed())
			domain, err := connection.Domain(ctx, uuid)
			g.Expect(err).ToNot(HaveOccurred())
			g.Expect(domain).To(Equal(hypervisor.Domain{
				UUID: uuid, Name: "default-m-1", State: hypervisor.StateRunning, CPUs: 2, MemoryBytes: 256 << 20,
				Owner: &hypervisor.Owner{Cluster: "c", Namespace: "default", Name: "m-1"},
				Disks: []hypervisor.VolumeRef{ref("root"), ref("data"), ref("seed")},
				Files: []string{base.Path},
			}))

			// A load balancer's disk is written while its guest runs, in place.
			file := filepath.Join(d.PoolFolder(), seedRef.Name)
			before, err := os.Stat(file)
			g.Expect(err).ToNot(HaveOccurred())
			changed := append(bytes.Clone(image[:len(image)-4]), "next"...)
			g.Expect(connection.UploadVolume(ctx, seedRef, bytes.NewReader(changed), size)).To(Succeed())
			g.Expect(os.ReadFile(file)).To(Equal(changed))
			after, err := os.Stat(file)
			g.Expect(err).ToNot(HaveOccurred())
			g.Expect(os.SameFile(before, after)).To(BeTrue(), "QEMU has this file open")

			// The guest has no operating system that would release the disk.
			g.Expect(connection.DetachDisk(ctx, uuid, seedRef)).To(MatchError(hypervisor.ErrBusy))
			g.Expect(connection.DetachDisk(ctx, uuid, seedRef)).To(MatchError(hypervisor.ErrBusy), "again")
			g.Expect(connection.StopDomain(ctx, uuid)).To(Succeed())
			domain, err = connection.Domain(ctx, uuid)
			g.Expect(err).ToNot(HaveOccurred())
			g.Expect(domain.Disks).To(Equal([]hypervisor.VolumeRef{ref("root"), ref("data")}), "the definition has no seed")
			g.Expect(connection.DeleteVolume(ctx, seedRef)).To(Succeed())
			g.Expect(connection.UndefineDomain(ctx, uuid)).To(Succeed())
		})
	}
}
