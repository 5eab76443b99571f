package libvirtmachine

import (
	"testing"

	. "github.com/onsi/gomega"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// The tests in this file are what somebody tries who may do everything in their own namespace, against those who
// use the same hosts.

const uuidOfVictim = "22222222-2222-4222-8222-222222222222"

// bindTo binds a machine by hand, with a UUID of its own.
func bindTo(host string) func(*infrav1.LibvirtMachine) {
	return func(infra *infrav1.LibvirtMachine) {
		infra.Spec.HostName, infra.Spec.ProviderID = host, infrav1.ProviderIDPrefix+uuidOfOthers
	}
}

// makeVolume makes a volume on a host, with something in it.
func (w *world) makeVolume(host, name string) hypervisor.VolumeRef {
	w.t.Helper()
	ref := hypervisor.VolumeRef{Pool: "default", Name: name}
	w.onHost(host, func(connection hypervisor.Hypervisor) error {
		_, err := connection.CreateVolume(w.t.Context(), hypervisor.VolumeSpec{VolumeRef: ref, Format: hypervisor.FormatQCOW2, CapacityBytes: 1 << 20})
		return err
	})
	return ref
}

// TestVolumesOfOthersAreNoImages: what is on a disk of somebody else's doesn't get onto one's own.
func TestVolumesOfOthersAreNoImages(t *testing.T) {
	domain := func(disk string) func(*world) {
		return func(w *world) {
			w.onHost("a", func(connection hypervisor.Hypervisor) error {
				return connection.DefineDomain(w.t.Context(), hypervisor.Definition{UUID: uuidOfVictim, Name: "victim", XML: "<domain><name>victim</name><uuid>" +
					uuidOfVictim + "</uuid><memory>1</memory><devices><disk>" + disk + "</disk></devices></domain>"})
			})
		}
	}
	for name, tc := range map[string]struct {
		volume  string
		prepare func(*world)
	}{
		"a seed":                     {volume: uuidOfVictim + "-seed"},
		"a root disk":                {volume: uuidOfVictim + "-root"},
		"a copy of an image":         {volume: uuidOfVictim + "-root.0123456789ab"},
		"an image of others' URL":    {volume: "caplv-image-sha256-0.qcow2.0123456789ab"},
		"a disk of a domain":         {volume: "windows", prepare: domain("<source pool='default' volume='windows'/>")},
		"a disk of a domain, a file": {volume: "windows", prepare: domain("<source file='/fake/default/windows'/>")},
	} {
		for _, clone := range []infrav1.CloneMethod{infrav1.CloneOverlay, infrav1.CloneFull} {
			t.Run(name+", "+string(clone), func(t *testing.T) {
				image := func(infra *infrav1.LibvirtMachine) {
					infra.Spec.Image = infrav1.ImageSpec{Volume: tc.volume, Format: infrav1.ImageFormatQCOW2}
					infra.Spec.RootDisk.Clone = clone
				}
				w := newWorld(t, image, "a")
				w.makeVolume("a", tc.volume)
				if tc.prepare != nil {
					tc.prepare(w)
				}
				before := w.left()
				m := w.newManager(0)
				w.Expect(w.message(m, infrav1.HostBoundCondition, infrav1.NoHostFitsReason)).To(ContainSubstring("a: lacks image volume " + tc.volume))
				change(w, &infrav1.LibvirtMachine{}, key.Name, bindTo("a"))
				w.Expect(w.message(m, infrav1.ImageReadyCondition, infrav1.ImageVolumeNotFoundReason)).To(Equal(
					"The host a has no image default/" + tc.volume + ": there is no such volume, or it is the disk of a domain or made by the provider"))
				w.Expect(w.left()).To(Equal(before))
			})
		}
	}
}
