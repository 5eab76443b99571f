package libvirt

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	golibvirt "github.com/digitalocean/go-libvirt"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	"libvirt.org/go/libvirtxml"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/domainxml"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// TestNetworksOfADomain checks that libvirt accepts and keeps all settings of networks.
func TestNetworksOfADomain(t *testing.T) {
	const uuid = "5c4f1ab6-7c5e-4a55-8f0e-2a3c6a1f0b41"
	d := theDaemon(t)
	t.Cleanup(func() { d.empty(t) })
	g := NewWithT(t)
	ctx, cancel := context.WithTimeout(t.Context(), daemonTimeout)
	defer cancel()
	connection, err := d.connect(ctx)
	g.Expect(err).ToNot(HaveOccurred())
	defer func() { _ = connection.Close() }()
	machine := domainxml.Machine{
		UUID: uuid, Name: "default-m-1", Owner: hypervisor.Owner{Cluster: "c", Namespace: "default", Name: "m-1"}, Emulated: true,
		Spec: &infrav1.LibvirtMachineSpec{
			CPUs: 1, Memory: resource.MustParse("256Mi"),
			CPU:             infrav1.CPUSpec{Mode: infrav1.CPUModeMaximum, Architecture: infrav1.ArchitectureAmd64},
			Firmware:        infrav1.FirmwareSpec{Type: infrav1.FirmwareBIOS},
			BootstrapFormat: infrav1.BootstrapFormatCloudConfig,
			Interfaces:      []infrav1.InterfaceSpec{{Network: "tenant"}, {Network: "switch"}},
		},
		RootDisk: domainxml.Disk{VolumeRef: hypervisor.VolumeRef{Pool: "default", Name: uuid + "-root"}, Format: hypervisor.FormatQCOW2},
		Networks: []infrav1.HostNetwork{
			{Name: "tenant", Bridge: "br0", VLAN: 42, MTU: 9000, Isolated: ptr.To(true), Filter: &infrav1.NetworkFilter{Name: "clean-traffic",
				Parameters: []infrav1.FilterParameter{{Name: "DHCPSERVER", Value: "192.0.2.1"}, {Name: "DHCPSERVER", Value: "192.0.2.2"}}}},
			{Name: "switch", Bridge: "ovsbr0", BridgeType: infrav1.BridgeTypeOpenVSwitch, VLAN: 4094, MTU: 1280},
		},
		Addresses: map[int][]netip.Addr{0: {netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("2001:db8::7"), netip.MustParseAddr("198.51.100.8")}},
	}
	definition, err := machine.Definition()
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(connection.DefineDomain(ctx, definition)).To(Succeed())
	g.Expect(connection.DefineDomain(ctx, definition)).To(Succeed(), "again, after libvirt's additions")

	id, err := domainOf(uuid)
	g.Expect(err).ToNot(HaveOccurred())
	var text string
	g.Expect(run(ctx, &connection.(*host).calls, "reading", uuid, func(client *golibvirt.Libvirt) (err error) {
		text, err = client.DomainGetXMLDesc(id, golibvirt.DomainXMLInactive)
		return err
	})).To(Succeed())
	var domain libvirtxml.Domain
	g.Expect(domain.Unmarshal(text)).To(Succeed())
	g.Expect(domain.Devices.Interfaces).To(HaveLen(2))
	tenant, onSwitch := domain.Devices.Interfaces[0], domain.Devices.Interfaces[1]
	g.Expect(tenant.VLan.Tags).To(Equal([]libvirtxml.DomainInterfaceVLanTag{{ID: 42}}))
	g.Expect(tenant.MTU.Size).To(BeEquivalentTo(9000))
	g.Expect(tenant.PortOptions.Isolated).To(Equal("yes"))
	g.Expect(tenant.VirtualPort).To(BeNil())
	g.Expect(tenant.FilterRef.Filter).To(Equal("clean-traffic"))
	values := map[string][]string{}
	for _, parameter := range tenant.FilterRef.Parameters { // in libvirt's order
		values[parameter.Name] = append(values[parameter.Name], parameter.Value)
	}
	g.Expect(values).To(Equal(map[string][]string{
		"IP": {"198.51.100.7", "198.51.100.8"}, "IPV6": {"2001:db8::7"}, "DHCPSERVER": {"192.0.2.1", "192.0.2.2"}}))
	g.Expect(onSwitch.VirtualPort.Params.OpenVSwitch).ToNot(BeNil())
	g.Expect(onSwitch.VLan.Tags).To(Equal([]libvirtxml.DomainInterfaceVLanTag{{ID: 4094}}))
	g.Expect(onSwitch.MTU.Size).To(BeEquivalentTo(1280))
	g.Expect(onSwitch.PortOptions).To(BeNil())
	g.Expect(onSwitch.FilterRef).To(BeNil())
}

// TestLinuxBridgesOfNetworks checks that networks with a Linux bridge are recognized by their definitions in libvirt.
func TestLinuxBridgesOfNetworks(t *testing.T) {
	d := theDaemon(t)
	g := NewWithT(t)
	connection, err := d.connect(t.Context())
	g.Expect(err).ToNot(HaveOccurred())
	defer func() { _ = connection.Close() }()
	for name, tc := range map[string]struct {
		xml  string
		want bool
	}{
		"nat":     {xml: "<forward mode='nat'/><ip address='192.0.2.1' netmask='255.255.255.0'/>", want: true},
		"bridge":  {xml: "<forward mode='bridge'/><bridge name='br0'/>", want: true},
		"switch":  {xml: "<forward mode='bridge'/><bridge name='ovsbr0'/><virtualport type='openvswitch'/>"},
		"macvtap": {xml: "<forward mode='bridge'><interface dev='eth0'/></forward>"},
		"devices": {xml: "<forward mode='hostdev'><pf dev='eth0'/></forward>"},
	} {
		var network golibvirt.Network
		change := func(act func(client *golibvirt.Libvirt) error) {
			g.Expect(run(t.Context(), &connection.(*host).calls, "changing", name, act)).To(Succeed())
		}
		change(func(client *golibvirt.Libvirt) (err error) {
			network, err = client.NetworkDefineXML(fmt.Sprintf("<network><name>%s</name>%s</network>", name, tc.xml))
			return err
		})
		g.Expect(connection.Network(t.Context(), name)).To(Equal(hypervisor.Network{Name: name, LinuxBridge: tc.want}), name)
		change(func(client *golibvirt.Libvirt) error { return client.NetworkUndefine(network) })
	}
}

// TestFiltersOfAHost looks up a missing network filter on libvirt. In session mode libvirt can't define one, so the
// existing filter is from a daemon in this process.
func TestFiltersOfAHost(t *testing.T) {
	d := theDaemon(t)
	g := NewWithT(t)
	connection, err := d.connect(t.Context())
	g.Expect(err).ToNot(HaveOccurred())
	defer func() { _ = connection.Close() }()
	g.Expect(connection.HasFilter(t.Context(), "tenants")).To(BeFalse())

	server := &hostile{answer: func(procedure, serial uint32) ([]byte, bool) {
		return packet(procedure, typeReply, serial, 0, text("tenants"), make([]byte, 16)), procedure == procFilter
	}}
	g.Expect(server.connected(t, daemonTimeout).HasFilter(t.Context(), "tenants")).To(BeTrue())
}
