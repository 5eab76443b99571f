package hypervisor_test

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

const aUUID = "5c4f1ab6-7c5e-4a55-8f0e-2a3c6a1f0b11"

func TestReadDomainXML(t *testing.T) {
	tests := map[string]struct {
		xml     string
		want    hypervisor.Domain
		failure string
	}{
		"all elements": {
			xml: `<domain type='kvm'><name>m</name><uuid>5C4F1AB6-7c5e-4a55-8f0e-2a3c6a1f0b11</uuid>
<metadata><o:owner xmlns:o='` + hypervisor.OwnerNamespace + `' cluster='c' namespace='n' name='m'/></metadata>
<memory unit='GiB'>2</memory><vcpu placement='static'>3</vcpu>
<devices><disk type='volume' device='disk'><source pool='p' volume='v'/></disk><disk type='file'><source file='/x'/>
<backingStore type='file'><source file='/y'/><backingStore type='block'><source dev='/dev/z'/><backingStore/></backingStore></backingStore></disk>
<disk type='file'><source file='/a'/><backingStore type='file'><source file='/y'/></backingStore></disk>
<interface type='network'><mac address='52:54:00:AB:cd:01'/></interface><interface type='user'/><interface type='bridge'><mac address='52:54:00:ab:cd:02'/></interface></devices></domain>`,
			want: hypervisor.Domain{
				UUID: aUUID, Name: "m", State: hypervisor.StateUnknown, CPUs: 3, MemoryBytes: 2 << 30,
				Owner: &hypervisor.Owner{Cluster: "c", Namespace: "n", Name: "m"}, Disks: []hypervisor.VolumeRef{{Pool: "p", Name: "v"}},
				DiskFiles: []string{"/x", "/a"}, Files: []string{"/a", "/dev/z", "/x", "/y"},
				MACs: []string{"52:54:00:ab:cd:01", "52:54:00:ab:cd:02"},
			},
		},
		"of others": {
			xml:  `<domain><name>m</name><uuid>` + aUUID + `</uuid><memory>1024</memory><vcpu>1</vcpu></domain>`,
			want: hypervisor.Domain{UUID: aUUID, Name: "m", State: hypervisor.StateUnknown, CPUs: 1, MemoryBytes: 1 << 20},
		},
		"CPUs and devices of the host": {
			xml: `<domain><name>m</name><uuid>` + aUUID + `</uuid><memory>1024</memory><vcpu cpuset='0-3'>3</vcpu>
<cputune><vcpupin vcpu='0' cpuset='9'/><vcpupin vcpu='1' cpuset='4-5,9'/><emulatorpin cpuset='0-3'/></cputune><devices>
<disk type='nvme'><source type='pci' managed='yes' namespace='1'><address domain='0x0000' bus='0x01' slot='0x00' function='0x0'/></source><address type='pci' bus='0x07' slot='0x01'/></disk>
<disk type='volume'><source pool='p' volume='v'/><address type='drive' controller='0' bus='0' target='0' unit='1'/></disk>
<interface type='hostdev'><mac address='52:54:00:ab:cd:01'/><source><address type='pci' domain='0x0000' bus='0xaf' slot='0x10' function='0x7'/></source></interface>
<interface type='network'><source network='default'/><address type='pci' domain='0' bus='1' slot='1' function='0'/></interface>
<hostdev mode='subsystem' type='pci' managed='yes'><source><address domain='0x0001' bus='0x3b' slot='0x00' function='0x0'/></source><address type='pci' domain='0' bus='6' slot='0' function='0'/></hostdev>
<hostdev mode='subsystem' type='usb'><source><address bus='1' device='2'/></source></hostdev>
<hostdev mode='subsystem' type='scsi'><source><adapter name='scsi_host0'/><address bus='0' target='0' unit='0'/></source></hostdev>
<hostdev mode='subsystem' type='mdev' model='vfio-pci'><source><address uuid='` + aUUID + `'/></source></hostdev></devices></domain>`,
			want: hypervisor.Domain{UUID: aUUID, Name: "m", State: hypervisor.StateUnknown, CPUs: 3, MemoryBytes: 1 << 20,
				Disks: []hypervisor.VolumeRef{{Pool: "p", Name: "v"}}, MACs: []string{"52:54:00:ab:cd:01"}, PinnedCPUs: []int{4, 5, 9},
				HostDevices: []string{"0000:01:00.0", "0000:af:10.7", "0001:3b:00.0"}},
		},
		"an invalid CPU": {xml: `<domain><memory>1</memory><cputune><vcpupin cpuset='x'/></cputune></domain>`, failure: `a virtual CPU is pinned to "x"`},
		"an invalid address of a device": {
			xml:     `<domain><memory>1</memory><devices><hostdev type='pci'><source><address bus='0x100'/></source></hostdev></devices></domain>`,
			failure: "the address of a PCI device"},
		"broken owner": {
			xml:  `<domain><name>m</name><metadata><owner xmlns="` + hypervisor.OwnerNamespace + `"/></metadata><memory unit="MB">1</memory></domain>`,
			want: hypervisor.Domain{Name: "m", State: hypervisor.StateUnknown, MemoryBytes: 1e6},
		},
		"not XML":         {xml: "<domain", failure: "reading a domain's XML"},
		"another element": {xml: "<network/>", failure: "expected element type <domain>"},
		"unknown unit":    {xml: `<domain><memory unit="stone">1</memory></domain>`, failure: `unknown unit "stone"`},
		"too much":        {xml: `<domain><memory unit="TiB">9223372036854775807</memory></domain>`, failure: "out of range"},
		"less than none":  {xml: `<domain><memory>-1</memory></domain>`, failure: "out of range"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			got, err := hypervisor.ReadDomainXML(test.xml)
			if test.failure != "" {
				g.Expect(err).To(MatchError(ContainSubstring(test.failure)))
				return
			}
			g.Expect(err).ToNot(HaveOccurred())
			g.Expect(got).To(Equal(test.want))
		})
	}
}

func TestDefinitionCheck(t *testing.T) {
	xml := `<domain><name>m</name><uuid>` + aUUID + `</uuid><memory>1</memory></domain>`
	for name, test := range map[string]struct {
		definition hypervisor.Definition
		failure    string
	}{
		"fits":         {definition: hypervisor.Definition{UUID: aUUID, Name: "m", XML: xml}},
		"another name": {definition: hypervisor.Definition{UUID: aUUID, Name: "x", XML: xml}, failure: `defines domain "m"`},
		"another UUID": {definition: hypervisor.Definition{UUID: "x", Name: "m", XML: xml}, failure: `defines domain "m"`},
		"neither":      {definition: hypervisor.Definition{XML: "<domain><memory>1</memory></domain>"}, failure: "defines domain"},
		"not XML":      {definition: hypervisor.Definition{UUID: aUUID, Name: "m", XML: "m"}, failure: "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			err := test.definition.Check()
			if test.failure == "" {
				NewWithT(t).Expect(err).ToNot(HaveOccurred())
				return
			}
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring(test.failure)))
		})
	}
}

func FuzzReadDomainXML(f *testing.F) {
	f.Add(`<domain><memory>1</memory><cputune><vcpupin cpuset='1-2,4'/></cputune><devices><hostdev type='pci'><source><address bus='0x3b'/></source></hostdev></devices></domain>`)
	f.Add(`<domain><name>m</name><memory unit="KiB">1</memory><devices><disk><source pool="p" volume="v"/></disk></devices></domain>`)
	f.Fuzz(func(t *testing.T, text string) {
		domain, err := hypervisor.ReadDomainXML(text)
		for _, cpu := range domain.PinnedCPUs {
			if cpu < 0 || cpu > 9999 {
				t.Fatalf("%q has the CPU %d", text, cpu)
			}
		}
		if err == nil && domain.MemoryBytes < 0 {
			t.Fatalf("%q has %d bytes of memory", text, domain.MemoryBytes)
		}
	})
}
