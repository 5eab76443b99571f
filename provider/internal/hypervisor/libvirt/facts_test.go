package libvirt

import (
	"encoding/xml"
	"testing"

	. "github.com/onsi/gomega"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

func TestCapabilities(t *testing.T) {
	tests := map[string]struct {
		xml            string
		virtualization string
		want           []string
		hugepages      map[infrav1.HugepageSize]int64
		cpus           []int
	}{
		"KVM and huge pages": {
			xml: `<capabilities><host><cpu><arch>x86_64</arch><pages unit='KiB' size='2048'/></cpu><topology><cells num='2'>
<cell id='0'><pages unit='KiB' size='4'>99</pages><pages unit='KiB' size='2048'>3</pages><pages unit='KiB' size='1048576'>0</pages></cell>
<cell id='1'><pages unit='KiB' size='2048'>4</pages><pages unit='KiB' size='1048576'>1</pages></cell></cells></topology></host>
<guest><arch name='i686'><domain type='qemu'/></arch></guest><guest><arch name='x86_64'><domain type='kvm'/><domain type='qemu'/></arch></guest></capabilities>`,
			virtualization: "kvm",
			want:           []string{string(infrav1.HostFeatureHugepagesPrefix + infrav1.Hugepages1Gi), string(infrav1.HostFeatureHugepagesPrefix + infrav1.Hugepages2Mi), infrav1.HostFeatureKVM},
			hugepages:      map[infrav1.HugepageSize]int64{infrav1.Hugepages2Mi: 14 << 20, infrav1.Hugepages1Gi: 1 << 30},
		},
		"huge pages that aren't reserved": {
			xml: `<capabilities><host><cpu><arch>x86_64</arch><pages unit='KiB' size='2048'/></cpu><topology><cells>
<cell><pages unit='KiB' size='2048'>0</pages><pages unit='KiB' size='1048576'>99999999999</pages></cell></cells></topology></host></capabilities>`,
		},
		"KVM for another architecture": {
			xml: `<capabilities><host><cpu><arch>x86_64</arch></cpu></host><guest><arch name='i686'><domain type='kvm'/></arch></guest>
<guest><arch name='x86_64'><domain type='qemu'/></arch></guest></capabilities>`,
			virtualization: "qemu",
		},
		"CPUs of two nodes": {
			xml: `<capabilities><host><cpu><arch>x86_64</arch></cpu><topology><cells num='2'>
<cell id='0'><cpus num='2'><cpu id='0' socket_id='0'/><cpu id='2' socket_id='0'/></cpus></cell>
<cell id='1'><cpus num='2'><cpu id='1' socket_id='1'/><cpu id='3' socket_id='1'/></cpus></cell></cells></topology></host></capabilities>`,
			cpus: []int{0, 1, 2, 3},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var caps capabilities
			g.Expect(xml.Unmarshal([]byte(test.xml), &caps)).To(Succeed())
			g.Expect(caps.virtualization()).To(Equal(test.virtualization))
			g.Expect(caps.features()).To(Equal(test.want))
			g.Expect(caps.cpus()).To(Equal(test.cpus))
			g.Expect(caps.hugepages()).To(Equal(test.hugepages))
		})
	}
}

func TestDomainCapabilities(t *testing.T) {
	const efi = `<enum name='firmware'><value>bios</value><value>efi</value></enum>`
	tests := map[string]struct {
		arch, xml string
		want      []string
	}{
		"everything": {
			arch: "x86_64",
			xml: `<domainCapabilities><os supported='yes'>` + efi + `<loader supported='yes'><enum name='secure'><value>yes</value><value>no</value></enum></loader></os>
<devices><tpm supported='yes'><enum name='backendModel'><value>passthrough</value><value>emulator</value></enum></tpm></devices></domainCapabilities>`,
			want: []string{infrav1.HostFeatureBIOS, infrav1.HostFeatureUEFI, infrav1.HostFeatureSecureBoot, infrav1.HostFeatureTPM},
		},
		"UEFI without secure boot": {
			arch: "aarch64",
			xml: `<domainCapabilities><os supported='yes'>` + efi + `<loader supported='yes'><enum name='secure'><value>no</value></enum></loader></os>
<devices><tpm supported='no'><enum name='backendModel'/></tpm></devices></domainCapabilities>`,
			want: []string{infrav1.HostFeatureUEFI},
		},
		"only a TPM of the host": {
			arch: "x86_64",
			xml: `<domainCapabilities><os supported='yes'><enum name='firmware'/></os>
<devices><tpm supported='yes'><enum name='backendModel'><value>passthrough</value></enum></tpm></devices></domainCapabilities>`,
			want: []string{infrav1.HostFeatureBIOS},
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
		g.Expect(facts.Features).To(ContainElement(infrav1.HostFeatureBIOS))
	}
}
