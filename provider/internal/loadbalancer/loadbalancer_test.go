package loadbalancer_test

import (
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/loadbalancer"
)

var update = flag.Bool("update", false, "write the golden files")

func servers(all ...string) []netip.AddrPort {
	var out []netip.AddrPort
	for _, one := range all {
		out = append(out, netip.MustParseAddrPort(one))
	}
	return out
}

// configurations are those with golden files.
var configurations = map[string]loadbalancer.Configuration{
	"none":  {Port: 6443},
	"three": {Port: 443, Servers: servers("192.0.2.30:6443", "192.0.2.4:6443", "192.0.2.12:6443", "192.0.2.4:6443"), VirtualAddress: netip.MustParseAddr("192.0.2.100")},
	"ipv6":  {Port: 6443, Servers: servers("[2001:db8::1]:6443", "192.0.2.4:6443"), Address: netip.MustParsePrefix("2001:db8::9/64"), Gateway: netip.MustParseAddr("2001:db8::fe")},
}

func TestFile(t *testing.T) {
	for name, configuration := range configurations {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			file := filepath.Join("testdata", name+".cfg")
			if *update {
				g.Expect(os.WriteFile(file, []byte(configuration.File()), 0o600)).To(Succeed())
			}
			want, err := os.ReadFile(file)
			g.Expect(err).ToNot(HaveOccurred())
			g.Expect(configuration.File()).To(Equal(string(want)), "run with -update if the change is intended")

			parsed, err := loadbalancer.Parse(configuration.String())
			g.Expect(err).ToNot(HaveOccurred())
			g.Expect(parsed.String()).To(Equal(configuration.String()))
			g.Expect(parsed.File()).To(Equal(configuration.File()), "independent of the order of servers")
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for text, failure := range map[string]string{
		``:                             "EOF",
		`{}`:                           "port 0 is invalid",
		`{"port": 70000}`:              "port 70000 is invalid",
		`{"port": 1, "ports": 2}`:      `unknown field "ports"`,
		`{"port": 1} {}`:               "extra data after it",
		`{"port": 1, "servers": [""]}`: "servers[0]: invalid AddrPort isn't the address and port",
		`{"port": 1, "servers": ["192.0.2.1:0"]}`:                               "servers[0]: 192.0.2.1:0 isn't",
		`{"port": 1, "servers": ["192.0.2.1:6443", "x\nglobal:1"]}`:             "unable to parse IP",
		`{"port": 1, "servers": ["[fe80::1%eth0\n]:6443"]}`:                     "servers[0]",
		`{"port": 1, "servers": ["0.0.0.0:6443"]}`:                              "servers[0]: 0.0.0.0:6443 isn't",
		`{"port": 1, "address": "0.0.0.0/0"}`:                                   "address 0.0.0.0/0 isn't the address of one machine",
		`{"port": 1, "gateway": "192.0.2.1"}`:                                   "or has no address",
		`{"port": 1, "address": "192.0.2.1/24", "virtualAddress": "192.0.2.2"}`: "is set together with address",
		`{"port": 1, "virtualAddress": "224.0.0.1"}`:                            "virtualAddress 224.0.0.1 is invalid",
	} {
		t.Run(text, func(t *testing.T) {
			_, err := loadbalancer.Parse(text)
			NewWithT(t).Expect(err).To(MatchError(And(HavePrefix("reading the configuration of the load balancer: "), ContainSubstring(failure))))
		})
	}
}

// FuzzParse checks that every accepted configuration gives a file with one line for each server and no other text from
// the input, and that it is the same after writing and parsing it again.
func FuzzParse(f *testing.F) {
	for _, configuration := range configurations {
		f.Add(configuration.String())
	}
	f.Fuzz(func(t *testing.T, text string) {
		configuration, err := loadbalancer.Parse(text)
		if err != nil {
			return
		}
		again, err := loadbalancer.Parse(configuration.String())
		if err != nil || again.File() != configuration.File() {
			t.Fatalf("%q becomes %q: %v", text, configuration.String(), err)
		}
		empty := loadbalancer.Configuration{Port: 1}.File()
		lines := strings.Count(configuration.File(), "\n") - strings.Count(empty, "\n")
		if lines > len(configuration.Servers) || lines != strings.Count(configuration.File(), "\n    server ") {
			t.Fatalf("%d lines for %d servers:\n%s", lines, len(configuration.Servers), configuration.File())
		}
	})
}

func TestDiskRefuses(t *testing.T) {
	g := NewWithT(t)
	_, err := loadbalancer.Disk(make([]byte, loadbalancer.AreaOffset+1), "x")
	g.Expect(err).To(MatchError("the seed of a load balancer has 1048577 bytes, and there is room for 1048576"))
	_, err = loadbalancer.Disk(nil, strings.Repeat("x", loadbalancer.AreaSize))
	g.Expect(err).To(MatchError(ContainSubstring("the configuration of HAProxy has")))
	disk, err := loadbalancer.Disk([]byte("seed"), "file")
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(disk).To(HaveLen(loadbalancer.AreaOffset + loadbalancer.AreaSize))
}

func TestUserData(t *testing.T) {
	g := NewWithT(t)
	data, err := loadbalancer.UserData()
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(string(data)).To(HavePrefix("#cloud-config\n"), "cloud-init checks the first line")
	var parsed struct {
		WriteFiles []struct{ Path, Permissions, Content string } `json:"write_files"`
		RunCmd     [][]string                                    `json:"runcmd"`
	}
	g.Expect(yaml.UnmarshalStrict(data, &parsed)).To(Succeed())
	script, err := os.ReadFile("haproxy-configuration.sh")
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(parsed.WriteFiles[0].Content).To(Equal(string(script)))
	g.Expect(parsed.WriteFiles[0].Permissions).To(Equal("0755"))
	g.Expect(parsed.WriteFiles[1].Content).To(ContainSubstring("ExecStart=" + parsed.WriteFiles[0].Path + "\n"))
	g.Expect(parsed.RunCmd).To(ContainElement([]string{"systemctl", "enable", "--now", filepath.Base(parsed.WriteFiles[1].Path)}))
}
