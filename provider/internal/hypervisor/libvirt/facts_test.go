package libvirt

import (
	"encoding/xml"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

func TestCapabilities(t *testing.T) {
	tests := map[string]struct {
		xml            string
		virtualization string
		want           []hypervisor.Feature
	}{
		"KVM and huge pages": {
			xml: `<capabilities><host><cpu><arch>x86_64</arch><pages unit='KiB' size='4'/><pages unit='KiB' size='2048'/><pages unit='KiB' size='1048576'/></cpu></host>
<guest><arch name='i686'><domain type='qemu'/></arch></guest><guest><arch name='x86_64'><domain type='kvm'/><domain type='qemu'/></arch></guest></capabilities>`,
			virtualization: "kvm",
			want:           []hypervisor.Feature{hypervisor.FeatureKVM, hypervisor.FeatureHugepages2Mi, hypervisor.FeatureHugepages1Gi},
		},
		"KVM for another architecture": {
			xml: `<capabilities><host><cpu><arch>x86_64</arch></cpu></host><guest><arch name='i686'><domain type='kvm'/></arch></guest>
<guest><arch name='x86_64'><domain type='qemu'/></arch></guest></capabilities>`,
			virtualization: "qemu",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var caps capabilities
			g.Expect(xml.Unmarshal([]byte(test.xml), &caps)).To(Succeed())
			g.Expect(caps.virtualization()).To(Equal(test.virtualization))
			g.Expect(caps.features()).To(Equal(test.want))
		})
	}
}

func TestDomainCapabilities(t *testing.T) {
	const efi = `<enum name='firmware'><value>bios</value><value>efi</value></enum>`
	tests := map[string]struct {
		arch, xml string
		want      []hypervisor.Feature
	}{
		"everything": {
			arch: "x86_64",
			xml: `<domainCapabilities><os supported='yes'>` + efi + `<loader supported='yes'><enum name='secure'><value>yes</value><value>no</value></enum></loader></os>
<devices><tpm supported='yes'><enum name='backendModel'><value>passthrough</value><value>emulator</value></enum></tpm></devices></domainCapabilities>`,
			want: []hypervisor.Feature{hypervisor.FeatureBIOS, hypervisor.FeatureUEFI, hypervisor.FeatureSecureBoot, hypervisor.FeatureTPM},
		},
		"UEFI without secure boot": {
			arch: "aarch64",
			xml: `<domainCapabilities><os supported='yes'>` + efi + `<loader supported='yes'><enum name='secure'><value>no</value></enum></loader></os>
<devices><tpm supported='no'><enum name='backendModel'/></tpm></devices></domainCapabilities>`,
			want: []hypervisor.Feature{hypervisor.FeatureUEFI},
		},
		"a TPM of the host's only": {
			arch: "x86_64",
			xml: `<domainCapabilities><os supported='yes'><enum name='firmware'/></os>
<devices><tpm supported='yes'><enum name='backendModel'><value>passthrough</value></enum></tpm></devices></domainCapabilities>`,
			want: []hypervisor.Feature{hypervisor.FeatureBIOS},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var caps domainCapabilities
			g.Expect(xml.Unmarshal([]byte(test.xml), &caps)).To(Succeed())
			g.Expect(caps.features(test.arch)).To(Equal(test.want))
		})
	}
}

func TestFactsOfADaemon(t *testing.T) {
	d := theDaemon(t)
	g := NewWithT(t)
	connection, err := d.connect(t.Context())
	g.Expect(err).ToNot(HaveOccurred())
	defer func() { _ = connection.Close() }()
	facts, err := connection.Facts(t.Context())
	g.Expect(err).ToNot(HaveOccurred())
	if facts.Architecture == "amd64" {
		g.Expect(facts.Features).To(ContainElement(hypervisor.FeatureBIOS))
	}
}
