package claims

import (
	"net/netip"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
)

func TestReadAddress(t *testing.T) {
	for _, tc := range []struct {
		name, claim, address, gateway string
		prefix                        *int32
		want                          Address
		failure                       string
	}{
		{name: "IPv4", address: "192.0.2.7", prefix: ptr.To[int32](24), gateway: "192.0.2.1",
			want: Address{Prefix: netip.MustParsePrefix("192.0.2.7/24"), Gateway: netip.MustParseAddr("192.0.2.1")}},
		{name: "IPv6, no gateway", address: "2001:db8::7", prefix: ptr.To[int32](64), want: Address{Prefix: netip.MustParsePrefix("2001:db8::7/64")}},
		{name: "IPv6 with a link-local gateway", address: "2001:db8::7", prefix: ptr.To[int32](128), gateway: "fe80::1",
			want: Address{Prefix: netip.MustParsePrefix("2001:db8::7/128"), Gateway: netip.MustParseAddr("fe80::1")}},
		{name: "IPv4 in IPv6", address: "::ffff:192.0.2.7", prefix: ptr.To[int32](24), want: Address{Prefix: netip.MustParsePrefix("192.0.2.7/24")}},
		{name: "of another claim", claim: "b", address: "192.0.2.7", prefix: ptr.To[int32](24), failure: `spec.claimRef.name is "b"`},
		{name: "no address", address: "x", prefix: ptr.To[int32](24), failure: `spec.address "x" isn't the IP address of one machine`},
		{name: "with a zone", address: "fe80::1%eth0", prefix: ptr.To[int32](64), failure: "spec.address"},
		{name: "a multicast address", address: "224.0.0.1", prefix: ptr.To[int32](24), failure: "spec.address"},
		{name: "the unspecified address", address: "0.0.0.0", prefix: ptr.To[int32](24), failure: "spec.address"},
		{name: "no prefix", address: "192.0.2.7", failure: "spec.prefix is missing"},
		{name: "prefix of the other family", address: "192.0.2.7", prefix: ptr.To[int32](64), failure: "spec.prefix is 64, and spec.address 192.0.2.7 has 32 bits"},
		{name: "negative prefix", address: "192.0.2.7", prefix: ptr.To[int32](-1), failure: "spec.prefix is -1"},
		{name: "bad gateway", address: "192.0.2.7", prefix: ptr.To[int32](24), gateway: "gw", failure: `spec.gateway "gw"`},
		{name: "gateway of the other family", address: "192.0.2.7", prefix: ptr.To[int32](24), gateway: "fe80::1", failure: "isn't of the address family"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := NewWithT(t)
			object := &ipamv1.IPAddress{Spec: ipamv1.IPAddressSpec{Address: tc.address, Prefix: tc.prefix, Gateway: tc.gateway}}
			object.Spec.ClaimRef.Name = "a"
			if tc.claim != "" {
				object.Spec.ClaimRef.Name = tc.claim
			}
			got, err := readAddress(object, "a")
			if tc.failure != "" {
				g.Expect(err).To(MatchError(ContainSubstring(tc.failure)))
				return
			}
			g.Expect(err).ToNot(HaveOccurred())
			g.Expect(got).To(Equal(tc.want))
		})
	}
}

// FuzzReadAddress checks that every accepted IPAddress can be configured.
func FuzzReadAddress(f *testing.F) {
	f.Add("192.0.2.7", int32(24), "192.0.2.1")
	f.Add("::ffff:192.0.2.7", int32(120), "fe80::1%eth0")
	f.Fuzz(func(t *testing.T, address string, prefix int32, gateway string) {
		object := &ipamv1.IPAddress{Spec: ipamv1.IPAddressSpec{Address: address, Prefix: &prefix, Gateway: gateway}}
		got, err := readAddress(object, "")
		if err != nil {
			return
		}
		again, err := netip.ParsePrefix(got.String())
		if err != nil || again != got.Prefix {
			t.Fatalf("%s can't be read again: %v", got, err)
		}
		if got.Gateway.IsValid() != (gateway != "") || got.Gateway.IsValid() && got.Gateway.Is4() != got.Addr().Is4() {
			t.Fatalf("%q became the gateway %s of %s", gateway, got.Gateway, got)
		}
	})
}
