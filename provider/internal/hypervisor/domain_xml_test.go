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
		"all of it": {
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
				Files: []string{"/a", "/dev/z", "/x", "/y"},
				MACs:  []string{"52:54:00:ab:cd:01", "52:54:00:ab:cd:02"},
			},
		},
		"of others": {
			xml:  `<domain><name>m</name><uuid>` + aUUID + `</uuid><memory>1024</memory><vcpu>1</vcpu></domain>`,
			want: hypervisor.Domain{UUID: aUUID, Name: "m", State: hypervisor.StateUnknown, CPUs: 1, MemoryBytes: 1 << 20},
		},
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
	f.Add(`<domain><name>m</name><memory unit="KiB">1</memory><devices><disk><source pool="p" volume="v"/></disk></devices></domain>`)
	f.Fuzz(func(t *testing.T, text string) {
		domain, err := hypervisor.ReadDomainXML(text)
		if err == nil && domain.MemoryBytes < 0 {
			t.Fatalf("%q has %d bytes of memory", text, domain.MemoryBytes)
		}
	})
}
