package libvirt

import (
	"net"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hosturi"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// TestInterfacesOfAHost checks that the daemon reports exactly the kernel's interfaces.
func TestInterfacesOfAHost(t *testing.T) {
	d := theDaemon(t)
	g := NewWithT(t)
	connection, err := d.connect(t.Context())
	g.Expect(err).ToNot(HaveOccurred())
	defer func() { _ = connection.Close() }()
	interfaces, err := net.Interfaces()
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(interfaces).ToNot(BeEmpty())
	for _, one := range interfaces {
		g.Expect(connection.HasInterface(t.Context(), one.Name)).To(BeTrue(), one.Name)
		g.Expect(connection.HasInterface(t.Context(), one.Name+"-none")).To(BeFalse(), one.Name)
	}
	g.Expect(connection.HasInterface(t.Context(), "no-such.one")).To(BeFalse())
}

// TestUnlistedInterfaces checks that libvirt's test driver, which lists no interfaces, gives an error and not false.
func TestUnlistedInterfaces(t *testing.T) {
	d := theDaemon(t)
	g := NewWithT(t)
	uri, err := hosturi.Parse("test:///default?socket=" + d.URI().Socket)
	g.Expect(err).ToNot(HaveOccurred())
	connection, err := Connect(t.Context(), uri, Credentials{})
	g.Expect(err).ToNot(HaveOccurred())
	defer func() { _ = connection.Close() }()
	_, err = connection.HasInterface(t.Context(), "br0")
	g.Expect(err).To(MatchError(hypervisor.ErrUnsupported))
}

func TestDeviceNames(t *testing.T) {
	for _, tc := range []struct {
		name, device string
		want         bool
	}{
		{"lo", "net_lo_00_00_00_00_00_00", true},
		{"br0", "net_br0", true},
		{"br0", "net_br0_52_54_00_00_00_01", true},
		{"br-ex.100", "net_br_ex_100_52_54_00_00_00_01", true},
		{"br0", "net_br0_lan_52_54_00_00_00_01", false},
		{"br0", "net_br01_52_54_00_00_00_01", false},
		{"r0", "net_br0_52_54_00_00_00_01", false},
		{"b.0", "net_bx0", false},
	} {
		t.Run(tc.name+" "+tc.device, func(t *testing.T) {
			NewWithT(t).Expect(deviceNames(tc.name).MatchString(tc.device)).To(Equal(tc.want))
		})
	}
}
