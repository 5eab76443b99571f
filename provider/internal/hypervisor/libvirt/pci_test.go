package libvirt

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

func TestReadPCIDevice(t *testing.T) {
	const id, address = `<product id='0x20b5'>A100</product><vendor id='0x10DE'>NVIDIA</vendor>`, `<domain>0</domain><bus>59</bus><slot>0</slot><function>1</function>`
	for name, tc := range map[string]struct {
		xml, failure string
		want         hypervisor.PCIDevice
	}{
		"a GPU": {
			xml: `<device><name>pci_0000_3b_00_1</name><driver><name>nvidia</name></driver><capability type='pci'><class>0x030200</class>` + address + id +
				`<iommuGroup number='42'><address domain='0x0000' bus='0x3b' slot='0x00' function='0x1'/></iommuGroup></capability></device>`,
			want: hypervisor.PCIDevice{Address: "0000:3b:00.1", VendorID: "10de", ProductID: "20b5", IOMMUGroup: ptr.To(42), Driver: "nvidia"},
		},
		"a bridge without IOMMU": {
			xml:  `<device><capability type='pci'><class>0x060400</class>` + address + id + `</capability></device>`,
			want: hypervisor.PCIDevice{Address: "0000:3b:00.1", VendorID: "10de", ProductID: "20b5", Bridge: true},
		},
		"not XML":         {xml: "<device", failure: "reading a node device's XML"},
		"another kind":    {xml: `<device><capability type='net'><interface>lo</interface></capability></device>`, failure: "it isn't a PCI device"},
		"no address":      {xml: `<device><capability type='pci'>` + id + `</capability></device>`, failure: "it has no PCI address"},
		"a bad address":   {xml: `<device><capability type='pci'><domain>0</domain><bus>256</bus><slot>0</slot><function>0</function>` + id + `</capability></device>`, failure: "it has no PCI address"},
		"no vendor":       {xml: `<device><capability type='pci'>` + address + `</capability></device>`, failure: `PCI device 0000:3b:00.1: the vendor "" isn't of the form 0x10de`},
		"a short product": {xml: `<device><capability type='pci'>` + address + `<product id='0x1'/><vendor id='0x10de'/></capability></device>`, failure: `the product "0x1"`},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			got, err := readPCIDevice(tc.xml)
			if tc.failure != "" {
				g.Expect(err).To(MatchError(ContainSubstring(tc.failure)))
				return
			}
			g.Expect(err).ToNot(HaveOccurred())
			g.Expect(got).To(Equal(tc.want))
		})
	}
}

func FuzzReadPCIDevice(f *testing.F) {
	f.Add(`<device><capability type='pci'><domain>0</domain><bus>1</bus><slot>0</slot><function>0</function><product id='0x20b5'/><vendor id='0x10de'/></capability></device>`)
	f.Fuzz(func(t *testing.T, text string) {
		device, err := readPCIDevice(text)
		if err == nil && (len(device.VendorID) != 4 || len(device.ProductID) != 4) {
			t.Fatalf("%q is of the model %s:%s", text, device.VendorID, device.ProductID)
		}
	})
}

// TestPCIDevicesOfADaemon checks that all devices that libvirt lists on this machine can be read.
func TestPCIDevicesOfADaemon(t *testing.T) {
	d := theDaemon(t)
	g := NewWithT(t)
	connection, err := d.connect(t.Context())
	g.Expect(err).ToNot(HaveOccurred())
	defer func() { _ = connection.Close() }()
	devices, err := connection.PCIDevices(t.Context())
	g.Expect(err).ToNot(HaveOccurred())
	for _, device := range devices {
		g.Expect(device.Address).To(MatchRegexp(`^[0-9a-f]{4,}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]$`))
	}
	t.Logf("%d PCI devices", len(devices))
}
