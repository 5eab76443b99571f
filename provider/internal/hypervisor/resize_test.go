package hypervisor_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

func TestResizeDomainXML(t *testing.T) {
	size := hypervisor.Size{CPUs: 4, MemoryBytes: 8<<30 + 1}
	tests := map[string]struct {
		xml, want string
		size      hypervisor.Size
		failure   string
	}{
		"as libvirt writes it": {
			xml: `<domain type='kvm' id='3'>
  <name>m</name> <!-- <memory>1</memory> -->
  <metadata><o:memory xmlns:o='urn:x'>1</o:memory></metadata>
  <memory unit='KiB' dumpCore='off'>4194304</memory>
  <currentMemory unit='KiB'>2097152</currentMemory>
  <vcpu placement='static' cpuset='1-4,&lt;' current='1'>2</vcpu>
  <os><type arch='x86_64' machine='pc-q35-7.2'>hvm</type><nvram>/var/x_VARS.fd</nvram></os>
  <devices><memory model='dimm'><target><size>1</size></target></memory></devices>
</domain>`,
			size: size,
			want: `<domain type='kvm' id='3'>
  <name>m</name> <!-- <memory>1</memory> -->
  <metadata><o:memory xmlns:o='urn:x'>1</o:memory></metadata>
  <memory dumpCore="off" unit="KiB">8388609</memory>
  <currentMemory unit="KiB">8388609</currentMemory>
  <vcpu placement="static" cpuset="1-4,&lt;">4</vcpu>
  <os><type arch='x86_64' machine='pc-q35-7.2'>hvm</type><nvram>/var/x_VARS.fd</nvram></os>
  <devices><memory model='dimm'><target><size>1</size></target></memory></devices>
</domain>`,
		},
		"the minimum": {
			xml: `<domain><vcpu>1</vcpu><memory unit='GiB'>1</memory></domain>`, size: size,
			want: `<domain><vcpu>4</vcpu><memory unit="KiB">8388609</memory></domain>`,
		},
		"empty elements":  {xml: `<domain><vcpu/><memory/></domain>`, size: size, want: `<domain><vcpu>4</vcpu><memory unit="KiB">8388609</memory></domain>`},
		"no memory":       {xml: `<domain><vcpu>1</vcpu></domain>`, size: size, failure: "it has no memory"},
		"no CPUs":         {xml: `<domain><memory>1</memory></domain>`, size: size, failure: "it has no vcpu"},
		"twice":           {xml: `<domain><vcpu>1</vcpu><vcpu>2</vcpu><memory>1</memory></domain>`, size: size, failure: "vcpu twice"},
		"hotplugged CPUs": {xml: `<domain><vcpu>1</vcpu><vcpus/><memory>1</memory></domain>`, size: size, failure: "individual states"},
		"pinned CPUs": {xml: `<domain><vcpu>1</vcpu><cputune><vcpupin vcpu='0' cpuset='3'/></cputune><memory>1</memory></domain>`,
			size: size, failure: "its virtual CPUs are pinned"},
		"pinned CPUs, other memory": {xml: `<domain><vcpu>4</vcpu><cputune><vcpupin vcpu='0' cpuset='3'/></cputune><memory>1</memory></domain>`, size: size,
			want: `<domain><vcpu>4</vcpu><cputune><vcpupin vcpu='0' cpuset='3'/></cputune><memory unit="KiB">8388609</memory></domain>`},
		"another element": {xml: `<network/>`, size: size, failure: "expected element type <domain>"},
		"not XML":         {xml: `<domain><vcpu>`, size: size, failure: "reading a domain's XML"},
		"a size of zero":  {xml: `<domain><vcpu>1</vcpu><memory>1</memory></domain>`, failure: "0 CPUs and 0 bytes"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			got, err := hypervisor.ResizeDomainXML(test.xml, test.size)
			if test.failure != "" {
				g.Expect(err).To(MatchError(ContainSubstring(test.failure)))
				return
			}
			g.Expect(err).ToNot(HaveOccurred())
			g.Expect(got).To(Equal(test.want))
		})
	}
}

// FuzzResizeDomainXML checks that a resized domain has the new size and is otherwise unchanged.
func FuzzResizeDomainXML(f *testing.F) {
	f.Add(`<domain><name>m</name><memory unit="KiB">1</memory><vcpu current='1'>2</vcpu><devices><disk><source pool="p" volume="v"/></disk></devices></domain>`)
	f.Fuzz(func(t *testing.T, text string) {
		before, err := hypervisor.ReadDomainXML(text)
		if err != nil {
			return
		}
		resized, err := hypervisor.ResizeDomainXML(text, hypervisor.Size{CPUs: 3, MemoryBytes: 3 << 20})
		if err != nil {
			return
		}
		g := NewWithT(t)
		after, err := hypervisor.ReadDomainXML(resized)
		g.Expect(err).ToNot(HaveOccurred(), strings.ToValidUTF8(resized, "?"))
		before.CPUs, before.MemoryBytes = 3, 3<<20
		g.Expect(after).To(Equal(before))
	})
}
