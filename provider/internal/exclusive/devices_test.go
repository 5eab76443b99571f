package exclusive_test

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/exclusive"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

func gpu(address string, group *int) hypervisor.PCIDevice {
	return hypervisor.PCIDevice{Address: address, VendorID: "10de", ProductID: "20b5", IOMMUGroup: group, Driver: "nvidia"}
}

func TestLentOf(t *testing.T) {
	all := []infrav1.LentDevices{{VendorID: "10de", ProductID: "20b5"}}
	neighbor := func(driver string, bridge bool) hypervisor.PCIDevice {
		return hypervisor.PCIDevice{Address: "0000:3b:00.1", VendorID: "10de", ProductID: "0001", IOMMUGroup: ptr.To(1), Driver: driver, Bridge: bridge}
	}
	one := gpu("0000:3b:00.0", ptr.To(1))
	for _, tc := range []struct {
		name    string
		lends   []infrav1.LentDevices
		devices []hypervisor.PCIDevice
		// want are the problems by address.
		want map[string]string
	}{
		{name: "nothing lent", devices: []hypervisor.PCIDevice{one}},
		{name: "another model", lends: []infrav1.LentDevices{{VendorID: "10de", ProductID: "20b6"}}, devices: []hypervisor.PCIDevice{one}},
		{name: "alone in its group", lends: all, devices: []hypervisor.PCIDevice{one, gpu("0000:af:00.0", ptr.To(2))},
			want: map[string]string{"0000:3b:00.0": "", "0000:af:00.0": ""}},
		{name: "only some", lends: []infrav1.LentDevices{{VendorID: "10de", ProductID: "20b5", Addresses: []string{"0000:af:00.0"}}},
			devices: []hypervisor.PCIDevice{one, gpu("0000:af:00.0", ptr.To(2))}, want: map[string]string{"0000:af:00.0": ""}},
		{name: "no IOMMU", lends: all, devices: []hypervisor.PCIDevice{gpu("0000:3b:00.0", nil)},
			want: map[string]string{"0000:3b:00.0": "has no IOMMU group: enable the IOMMU of the host"}},
		{name: "the host uses another device of the group", lends: all, devices: []hypervisor.PCIDevice{one, neighbor("snd_hda_intel", false)},
			want: map[string]string{"0000:3b:00.0": "shares an IOMMU group with 0000:3b:00.1, which the host's driver snd_hda_intel uses"}},
		{name: "the host doesn't use the other device of the group", lends: all, devices: []hypervisor.PCIDevice{one, neighbor("vfio-pci", false)},
			want: map[string]string{"0000:3b:00.0": ""}},
		{name: "a bridge in the group", lends: all, devices: []hypervisor.PCIDevice{one, neighbor("pcieport", true)},
			want: map[string]string{"0000:3b:00.0": ""}},
		{name: "two lent devices in one group", lends: all, devices: []hypervisor.PCIDevice{one, gpu("0000:3b:00.1", ptr.To(1))}, want: map[string]string{
			"0000:3b:00.0": "shares an IOMMU group with 0000:3b:00.1, which spec.hostDevices has too: keep one of them",
			"0000:3b:00.1": "shares an IOMMU group with 0000:3b:00.0, which spec.hostDevices has too: keep one of them"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := map[string]string{}
			for _, device := range exclusive.LentOf(&infrav1.LibvirtHostSpec{HostDevices: tc.lends}, tc.devices) {
				got[device.Address] = device.Problem
			}
			if tc.want == nil {
				tc.want = map[string]string{}
			}
			NewWithT(t).Expect(got).To(Equal(tc.want))
		})
	}
}
