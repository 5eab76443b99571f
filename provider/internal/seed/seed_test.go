package seed_test

import (
	"bytes"
	"flag"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/kdomanski/iso9660"
	. "github.com/onsi/gomega"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/seed"
)

var update = flag.Bool("update", false, "write the golden files")

const uuid = "5c4f1ab6-7c5e-4a55-8f0e-2a3c6a1f0b11"

var (
	dhcp  = seed.Interface{MAC: "52:54:00:00:00:01"}
	fixed = seed.Interface{
		MAC:         "52-54-00-00-00-0A",
		Addresses:   []netip.Prefix{netip.MustParsePrefix("192.0.2.7/24"), netip.MustParsePrefix("2001:db8::7/64")},
		Gateways:    []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")},
		Nameservers: []netip.Addr{netip.MustParseAddr("192.0.2.53"), netip.MustParseAddr("2001:db8::53")},
	}
	// later has gateways outside of its networks and a higher metric.
	later = seed.Interface{
		MAC:       "52:54:00:00:00:0b",
		Addresses: []netip.Prefix{netip.MustParsePrefix("198.51.100.7/32"), netip.MustParsePrefix("2001:db8:1::7/128")},
		Gateways:  []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("fe80::1")},
		Metric:    1026,
	}
)

// read reads an image with another library than the writer's.
func read(image []byte) (label string, files map[string]string, err error) {
	opened, err := iso9660.OpenImage(bytes.NewReader(image))
	if err != nil {
		return "", nil, err
	}
	if label, err = opened.Label(); err != nil {
		return "", nil, err
	}
	root, err := opened.RootDir()
	if err != nil {
		return "", nil, err
	}
	children, err := root.GetChildren()
	if err != nil {
		return "", nil, err
	}
	files = map[string]string{}
	for _, child := range children {
		content, err := io.ReadAll(child.Reader())
		if err != nil {
			return "", nil, err
		}
		if child.Mode().Perm() != 0o400 {
			return "", nil, &os.PathError{Op: "mode", Path: child.Name(), Err: os.ErrPermission}
		}
		files[child.Name()] = string(content)
	}
	return strings.TrimRight(label, " "), files, nil
}

func TestISO(t *testing.T) {
	tests := map[string]seed.Seed{
		"without interfaces": {InstanceID: uuid, Hostname: "m-1", UserData: []byte("#cloud-config\n")},
		"one sector":         {InstanceID: uuid, Hostname: "m-1", UserData: bytes.Repeat([]byte("x"), 2048)},
		"a byte more":        {InstanceID: uuid, Hostname: "m-1", UserData: bytes.Repeat([]byte("x"), 2049)},
		"with interfaces":    {InstanceID: uuid, Hostname: "m-1", UserData: []byte("#cloud-config\n"), Interfaces: []seed.Interface{dhcp, fixed, later}},
		"YAML in names":      {InstanceID: "a: b\n# c", Hostname: "no", UserData: []byte{0, 0xff}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			image, err := test.ISO()
			g.Expect(err).ToNot(HaveOccurred())
			g.Expect(test.ISO()).To(Equal(image), "the same seed gives the same bytes")
			g.Expect(len(image) % 2048).To(BeZero())

			label, files, err := read(image)
			g.Expect(err).ToNot(HaveOccurred())
			g.Expect(label).To(Equal("cidata"))
			g.Expect(files).To(HaveKeyWithValue("user-data", string(test.UserData)))
			if len(test.Interfaces) == 0 {
				g.Expect(files).To(HaveLen(2))
			} else {
				g.Expect(files).To(HaveLen(3))
				golden(t, "network-config.yaml", files["network-config"])
			}
			switch name {
			case "YAML in names":
				g.Expect(files["meta-data"]).To(Equal("instance-id: |-\n  a: b\n  # c\nlocal-hostname: \"no\"\n"))
			default:
				g.Expect(files["meta-data"]).To(Equal("instance-id: " + uuid + "\nlocal-hostname: m-1\n"))
			}
		})
	}
}

func TestPlaceInMetaData(t *testing.T) {
	g := NewWithT(t)
	image, err := seed.Seed{InstanceID: "1", Hostname: "m-1", UserData: []byte("#cloud-config\n"), AvailabilityZone: "rack-1", Host: "host-1"}.ISO()
	g.Expect(err).ToNot(HaveOccurred())
	_, files, err := read(image)
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(files["meta-data"]).To(Equal("availability-zone: rack-1\ninstance-id: \"1\"\nlibvirt-host: host-1\nlocal-hostname: m-1\n"))
}

func golden(t *testing.T, name, content string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	NewWithT(t).Expect(content).To(Equal(string(want)), "run with -update if the change is intended")
}

func TestISORefuses(t *testing.T) {
	with := func(nic seed.Interface) seed.Seed {
		return seed.Seed{InstanceID: uuid, Hostname: "m", UserData: []byte("x"), Interfaces: []seed.Interface{dhcp, nic}}
	}
	const mac = "52:54:00:00:00:02"
	tests := map[string]struct {
		seed    seed.Seed
		failure string
	}{
		"no instance ID":     {seed.Seed{Hostname: "m", UserData: []byte("x")}, "the instance ID or the host name is missing"},
		"no host name":       {seed.Seed{InstanceID: uuid, UserData: []byte("x")}, "the instance ID or the host name is missing"},
		"no user data":       {seed.Seed{InstanceID: uuid, Hostname: "m"}, "the bootstrap data is empty"},
		"too large":          {seed.Seed{InstanceID: uuid, Hostname: "m", UserData: make([]byte, 16<<20)}, "at most 16777216 are allowed"},
		"no MAC address":     {with(seed.Interface{}), `interface 1: "" isn't a MAC address`},
		"long MAC address":   {with(seed.Interface{MAC: "02:00:5e:10:00:00:00:01"}), "isn't a MAC address"},
		"same MAC address":   {with(dhcp), "an earlier one has the MAC address 52:54:00:00:00:01 too"},
		"gateway and DHCP":   {with(seed.Interface{MAC: mac, Gateways: fixed.Gateways}), "interface 1 (52:54:00:00:00:02): it has a gateway and no address"},
		"empty address":      {with(seed.Interface{MAC: mac, Addresses: make([]netip.Prefix, 1)}), "an address or the length of its network is missing"},
		"empty gateway":      {with(seed.Interface{MAC: mac, Addresses: fixed.Addresses, Gateways: make([]netip.Addr, 1)}), "a gateway is missing"},
		"gateways, same way": {with(seed.Interface{MAC: mac, Addresses: fixed.Addresses, Gateways: fixed.Nameservers[:1:1]}), ""},
		"two gateways": {with(seed.Interface{MAC: mac, Addresses: fixed.Addresses, Gateways: []netip.Addr{
			fixed.Gateways[0], fixed.Nameservers[0]}}), "two of one address family"},
		"empty DNS server": {with(seed.Interface{MAC: mac, Nameservers: make([]netip.Addr, 1)}), "the address of a DNS server is missing"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := test.seed.ISO()
			if test.failure == "" {
				NewWithT(t).Expect(err).ToNot(HaveOccurred())
				return
			}
			NewWithT(t).Expect(err).To(MatchError(And(HavePrefix("writing the seed: "), ContainSubstring(test.failure))))
		})
	}
}

func FuzzISO(f *testing.F) {
	f.Add(uuid, "m-1", []byte("#cloud-config\n"))
	f.Add("\x00", "\xff: |\n", bytes.Repeat([]byte{0}, 5000))
	f.Fuzz(func(t *testing.T, instanceID, hostname string, userData []byte) {
		image, err := seed.Seed{InstanceID: instanceID, Hostname: hostname, UserData: userData, Interfaces: []seed.Interface{fixed}}.ISO()
		if err != nil {
			// Kubernetes doesn't allow names that YAML can't express.
			writable := !strings.ContainsFunc(instanceID+hostname, func(r rune) bool { return !unicode.IsPrint(r) })
			if instanceID != "" && hostname != "" && writable && len(userData) > 0 && len(userData) < 1<<20 {
				t.Fatal(err)
			}
			return
		}
		label, files, err := read(image)
		if err != nil {
			t.Fatal(err)
		}
		if label != "cidata" || len(files) != 3 || files["user-data"] != string(userData) {
			t.Fatalf("label %q, %d files, user-data %q", label, len(files), files["user-data"])
		}
	})
}
