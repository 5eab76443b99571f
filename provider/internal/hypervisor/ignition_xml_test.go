package hypervisor_test

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

func TestRemoveIgnitionXML(t *testing.T) {
	const ours = `<entry name='opt/com.coreos/config' file='/var/lib/libvirt/images/x-seed'/>`
	const flatcars = `<entry name='opt/org.flatcar-linux/config' file='/var/lib/libvirt/images/x-seed'/>`
	for name, tc := range map[string]struct{ xml, want string }{
		"the only entry": {
			xml:  "<domain type='kvm'>\n  <sysinfo type='fwcfg'>\n    " + ours + "\n  </sysinfo>\n  <os><type machine='pc-q35-6.2'>hvm</type></os>\n</domain>",
			want: "<domain type='kvm'>\n  \n  <os><type machine='pc-q35-6.2'>hvm</type></os>\n</domain>",
		},
		"others stay": {
			xml: "<domain><sysinfo type='smbios'><system><entry name='serial'>1</entry></system></sysinfo><sysinfo type='fwcfg'>" +
				"<entry name='opt/x'>1</entry>" + ours + "</sysinfo></domain>",
			want: "<domain><sysinfo type='smbios'><system><entry name='serial'>1</entry></system></sysinfo><sysinfo type='fwcfg'>" +
				"<entry name='opt/x'>1</entry></sysinfo></domain>",
		},
		"both entries": {
			xml:  "<domain><sysinfo type='fwcfg'>" + ours + flatcars + "</sysinfo></domain>",
			want: "<domain></domain>",
		},
		"without one": {
			xml:  "<domain><metadata><sysinfo>" + ours + "</sysinfo></metadata></domain>",
			want: "<domain><metadata><sysinfo>" + ours + "</sysinfo></metadata></domain>",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			got, err := hypervisor.RemoveIgnitionXML(tc.xml)
			g.Expect(err).ToNot(HaveOccurred())
			g.Expect(got).To(Equal(tc.want))
			g.Expect(hypervisor.RemoveIgnitionXML(got)).To(Equal(got), "again")
		})
	}
	_, err := hypervisor.RemoveIgnitionXML("<domain>")
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring("reading a domain's XML")))
}
