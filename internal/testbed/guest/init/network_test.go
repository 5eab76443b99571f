package main

import (
	"net"
	"testing"

	. "github.com/onsi/gomega"
)

var testMAC = net.HardwareAddr{0x52, 0x54, 0, 1, 2, 3}

const dualStack = `version: 2
ethernets:
  id0:
    match: {macaddress: "52:54:00:01:02:03"}
    addresses: [10.90.2.200/24, "fd00:90:2::10/64"]
    routes: [{to: 0.0.0.0/0, via: 10.90.2.1}]
  id1:
    match: {macaddress: "52:54:00:01:02:04"}
    dhcp4: true
`

// only returns a configuration with one interface.
func only(content string) string {
	return "version: 2\nethernets: {id0: {match: {macaddress: '52:54:00:01:02:03'}, " + content + "}}\n"
}

func TestParseNetwork(t *testing.T) {
	const route = "routes: [{to: 0.0.0.0/0, via: 10.90.2.1}]"
	tests := []struct {
		name, content string
		// want has the addresses and the gateway; it is empty for DHCP.
		want []string
		err  string
	}{
		{"addresses of both families", dualStack, []string{"10.90.2.200/24", "fd00:90:2::10/64", "10.90.2.1"}, ""},
		{"DHCP", only("dhcp4: true"), nil, ""},
		{"another interface", "version: 2\nethernets: {id0: {match: {macaddress: '52:54:00:01:02:04'}, dhcp4: true}}\n", nil, "no interface 52:54:00:01:02:03"},
		{"nothing", "", nil, "EOF"},
		{"version 1", "version: 1\n", nil, "version 1"},
		{"no MAC address", "version: 2\nethernets: {id0: {dhcp4: true}}\n", nil, "id0"},
		{"an unsupported field", only("nameservers: {addresses: [192.0.2.53]}"), nil, "field nameservers not found"},
		{"DHCP and addresses", only("dhcp4: true, addresses: [10.90.2.200/24]"), nil, "both DHCP and addresses"},
		{"an address without its network", only("addresses: [10.90.2.200], " + route), nil, "no '/'"},
		{"two addresses of IPv4", only("addresses: [10.90.2.200/24, 10.90.2.201/24], " + route), nil, "10.90.2.201/24 is a second IPv4 address"},
		{"no gateway", only("addresses: [10.90.2.200/24]"), nil, "needs an IPv4 address with a gateway"},
		{"a gateway of another network", only("addresses: [10.90.3.200/24], " + route), nil, "needs an IPv4 address with a gateway"},
		{"a gateway that isn't an address", only("addresses: [10.90.2.200/24], routes: [{to: 0.0.0.0/0, via: there}]"), nil, "there"},
		{"a route on the link", only("addresses: [10.90.2.200/24], routes: [{to: 0.0.0.0/0, via: 10.90.2.1, on-link: true}]"), nil, "field on-link not found"},
		{"a route of IPv6", only("addresses: ['fd00::2/64'], routes: [{to: '::/0', via: 'fd00::1'}]"), nil, "only the default route of IPv4"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			got, err := parseNetwork([]byte(test.content), testMAC)
			if test.err != "" {
				g.Expect(err).To(MatchError(ContainSubstring(test.err)))
				return
			}
			g.Expect(err).ToNot(HaveOccurred())
			if test.want == nil {
				g.Expect(got).To(BeNil())
				return
			}
			var addresses []string
			for _, address := range got.addresses {
				addresses = append(addresses, address.String())
			}
			g.Expect(append(addresses, got.gateway.String())).To(Equal(test.want))
			first, err := got.lease()
			g.Expect(err).ToNot(HaveOccurred())
			g.Expect([]string{first.address.String(), first.mask.String(), first.gateway.String()}).To(Equal([]string{"10.90.2.200", "ffffff00", "10.90.2.1"}))
		})
	}
}

// FuzzParseNetwork checks that every accepted configuration is complete.
func FuzzParseNetwork(f *testing.F) {
	for _, content := range []string{dualStack, only("dhcp4: true"), only("addresses: [10.90.2.200/24]"), "version: 2", "\x00"} {
		f.Add([]byte(content))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		got, err := parseNetwork(content, testMAC)
		if err != nil || got == nil {
			return
		}
		g := NewWithT(t)
		first, err := got.lease()
		g.Expect(err).ToNot(HaveOccurred())
		g.Expect(first.address.To4()).To(HaveLen(4))
		g.Expect(first.gateway.To4()).To(HaveLen(4))
		for _, address := range got.addresses {
			g.Expect(address.IsValid()).To(BeTrue())
		}
	})
}
