package seed_test

import (
	"encoding/base64"
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/seed"
)

// TestIgnition checks the files for systemd-networkd and NetworkManager, and that the rest of the configuration stays.
func TestIgnition(t *testing.T) {
	interfaces := []seed.Interface{
		{MAC: "52:54:00:00:00:01", Addresses: []netip.Prefix{netip.MustParsePrefix("198.51.100.7/24"), netip.MustParsePrefix("2001:db8::7/64")},
			Gateways:    []netip.Addr{netip.MustParseAddr("198.51.100.254"), netip.MustParseAddr("fe80::1")},
			Nameservers: []netip.Addr{netip.MustParseAddr("192.0.2.53"), netip.MustParseAddr("2001:db8::53"), netip.MustParseAddr("192.0.2.54")}},
		{MAC: "52:54:00:00:00:02", Addresses: []netip.Prefix{netip.MustParsePrefix("2001:db8:1::7/128")},
			Gateways: []netip.Addr{netip.MustParseAddr("2001:db8::1")}, Metric: 1025},
		{MAC: "52:54:00:00:00:03", Metric: 1026},
	}
	want := map[string]string{
		"/etc/systemd/network/10-caplv-0.network": "[Match]\nMACAddress=52:54:00:00:00:01\nType=ether\n\n[Network]\nAddress=198.51.100.7/24\nAddress=2001:db8::7/64\n" +
			"DNS=192.0.2.53\nDNS=2001:db8::53\nDNS=192.0.2.54\n\n[Route]\nDestination=0.0.0.0/0\nGateway=198.51.100.254\n\n[Route]\nDestination=::/0\nGateway=fe80::1\n",
		"/etc/systemd/network/10-caplv-1.network": "[Match]\nMACAddress=52:54:00:00:00:02\nType=ether\n\n[Network]\nAddress=2001:db8:1::7/128\n\n" +
			"[Route]\nDestination=::/0\nGateway=2001:db8::1\nMetric=1025\nGatewayOnLink=yes\n",
		"/etc/systemd/network/10-caplv-2.network": "[Match]\nMACAddress=52:54:00:00:00:03\nType=ether\n\n[Network]\nDHCP=ipv4\n",
		"/etc/NetworkManager/system-connections/caplv-0.nmconnection": "[connection]\nid=caplv-0\ntype=ethernet\n\n[ethernet]\nmac-address=52:54:00:00:00:01\n\n" +
			"[ipv4]\nmethod=manual\naddress1=198.51.100.7/24\ngateway=198.51.100.254\ndns=192.0.2.53;192.0.2.54;\n\n" +
			"[ipv6]\nmethod=manual\naddress1=2001:db8::7/64\ngateway=fe80::1\ndns=2001:db8::53;\n",
		"/etc/NetworkManager/system-connections/caplv-1.nmconnection": "[connection]\nid=caplv-1\ntype=ethernet\n\n[ethernet]\nmac-address=52:54:00:00:00:02\n\n" +
			"[ipv4]\nmethod=disabled\n\n[ipv6]\nmethod=manual\naddress1=2001:db8:1::7/128\ngateway=2001:db8::1\nroute-metric=1025\n",
		"/etc/NetworkManager/system-connections/caplv-2.nmconnection": "[connection]\nid=caplv-2\ntype=ethernet\n\n[ethernet]\nmac-address=52:54:00:00:00:03\n\n" +
			"[ipv4]\nmethod=auto\n\n[ipv6]\nmethod=auto\n",
	}
	for version, filesystem := range map[string]string{"2.3.0": "root", "3.4.0": ""} {
		t.Run(version, func(t *testing.T) {
			g := NewWithT(t)
			head := `{"ignition":{"version":"` + version + `"},"passwd":{"users":[{"name":"core"}]},"storage":{"disks":[{"device":"/dev/vdb"}],"files":[`
			out, err := seed.Ignition([]byte(head+`{"path":"/etc/a","mode":420}]}}`), interfaces)
			g.Expect(err).ToNot(HaveOccurred())
			var read struct {
				Storage struct {
					Files []struct {
						Filesystem, Path string
						Mode             int
						Contents         struct{ Source string }
					}
				}
			}
			g.Expect(json.Unmarshal(out, &read)).To(Succeed())
			got := map[string]string{}
			for _, file := range read.Storage.Files[1:] {
				content, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(file.Contents.Source, "data:;base64,"))
				g.Expect(err).ToNot(HaveOccurred())
				got[file.Path] = string(content)
				g.Expect(file.Filesystem).To(Equal(filesystem), file.Path)
				mode := 0o644
				if strings.HasSuffix(file.Path, ".nmconnection") {
					mode = 0o600 // required by NetworkManager
				}
				g.Expect(file.Mode).To(Equal(mode), file.Path)
			}
			g.Expect(got).To(Equal(want))

			var all map[string]any
			g.Expect(json.Unmarshal(out, &all)).To(Succeed())
			all["storage"].(map[string]any)["files"] = all["storage"].(map[string]any)["files"].([]any)[:1]
			rest, err := json.Marshal(all)
			g.Expect(err).ToNot(HaveOccurred())
			g.Expect(rest).To(MatchJSON(head + `{"path":"/etc/a","mode":420}]}}`))
		})
	}
}

func TestIgnitionWithoutStorage(t *testing.T) {
	g := NewWithT(t)
	out, err := seed.Ignition([]byte(`{"ignition":{"version":"3.0.0"}}`), []seed.Interface{{MAC: "52:54:00:00:00:01"}})
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(string(out)).To(ContainSubstring(`"storage":{"files":[{"path":"/etc/systemd/network/10-caplv-0.network","mode":420`))
	same := []byte("{ }")
	g.Expect(seed.Ignition(same, nil)).To(Equal(same), "byte for byte")
}

func TestIgnitionRefuses(t *testing.T) {
	nic := []seed.Interface{{MAC: "52:54:00:00:00:01"}}
	for name, tc := range map[string]struct {
		config     string
		interfaces []seed.Interface
		says       string
	}{
		"cloud-config":    {"#cloud-config\npassword: hunter2", nic, "it isn't one in JSON"},
		"not an object":   {`["hunter2"]`, nic, "it isn't one in JSON"},
		"no files":        {`{"ignition":{"version":"3.0.0"},"storage":{"files":"hunter2"}}`, nic, "it isn't one in JSON"},
		"no version":      {`{}`, nic, `its version is ""`},
		"version 1":       {`{"ignition":{"version":"1.0"}}`, nic, `its version is "1.0"`},
		"bad MAC address": {`{"ignition":{"version":"3.0.0"}}`, []seed.Interface{{MAC: "x"}}, `"x" isn't a MAC address`},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, err := seed.Ignition([]byte(tc.config), tc.interfaces)
			g.Expect(err).To(MatchError(And(ContainSubstring(tc.says), Not(ContainSubstring("hunter2")))))
		})
	}
}
