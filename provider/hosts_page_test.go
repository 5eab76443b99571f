package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hosturi"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor/libvirt"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/libvirtd"
)

// hostsPage is the page about adding hosts.
var hostsPage = filepath.Join("..", "docs", "how-to", "hosts.md")

// blocks returns the code blocks of a language in a page.
func blocks(page, language string) []string {
	var found []string
	for _, match := range regexp.MustCompile("(?s)\n```"+language+"\n(.*?)\n```").FindAllStringSubmatch(page, -1) {
		found = append(found, match[1])
	}
	return found
}

// TestHostsPageCertificates checks that the page's commands create certificates for a daemon and a manager with which
// the manager can connect, and that no other client can.
func TestHostsPageCertificates(t *testing.T) {
	libvirtd.Need(t)
	g := NewWithT(t)
	page, err := os.ReadFile(hostsPage)
	g.Expect(err).ToNot(HaveOccurred())
	scripts := slices.DeleteFunc(blocks(string(page), "sh"), func(text string) bool { return !strings.Contains(text, "openssl req") })
	g.Expect(scripts).To(HaveLen(1))
	const address = "192.0.2.11"
	g.Expect(scripts[0]).To(ContainSubstring("ADDRESS=" + address))
	folder := t.TempDir()
	command := exec.CommandContext(t.Context(), "bash", "-eu", "-c", strings.Replace(scripts[0], address, "127.0.0.1", 1))
	command.Dir = folder
	output, err := command.CombinedOutput()
	g.Expect(err).ToNot(HaveOccurred(), "%s", output)
	read := func(name string) []byte {
		content, err := os.ReadFile(filepath.Join(folder, name))
		g.Expect(err).ToNot(HaveOccurred())
		return content
	}

	daemon, err := libvirtd.New()
	g.Expect(err).ToNot(HaveOccurred())
	t.Cleanup(daemon.Stop)
	allowed := regexp.MustCompile(`tls_allowed_dn_list = \["(.*)"\]`).FindStringSubmatch(string(page))
	g.Expect(allowed).ToNot(BeNil())
	uri, err := daemon.ListenTLS(libvirtd.TLS{
		CA: read("ca.crt"), Cert: read("kvm1.example.com.crt"), Key: read("kvm1.example.com.key"), Allowed: allowed[1:],
	})
	g.Expect(err).ToNot(HaveOccurred())
	manager := libvirt.Credentials{CACert: read("ca.crt"), Cert: read("tls.crt"), Key: read("tls.key")}
	host, err := libvirt.Connect(t.Context(), uri, manager)
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(host.Close()).To(Succeed())
	// The host's certificate has the same authority, but isn't a client's.
	another := manager
	another.Cert, another.Key = read("kvm1.example.com.crt"), read("kvm1.example.com.key")
	_, err = libvirt.Connect(t.Context(), uri, another)
	g.Expect(err).To(MatchError(ContainSubstring("the daemon refuses the client's certificate")))
}

// TestHostsPageObjects checks that the objects of the page are valid and refer to each other.
func TestHostsPageObjects(t *testing.T) {
	g := NewWithT(t)
	page, err := os.ReadFile(hostsPage)
	g.Expect(err).ToNot(HaveOccurred())
	texts := slices.DeleteFunc(blocks(string(page), "yaml"), func(text string) bool { return !strings.Contains(text, "kind: LibvirtClusterIdentity") })
	g.Expect(texts).To(HaveLen(1))
	documents := strings.Split(texts[0], "\n---\n")
	g.Expect(documents).To(HaveLen(2))
	var identity infrav1.LibvirtClusterIdentity
	g.Expect(yaml.UnmarshalStrict([]byte(documents[0]), &identity)).To(Succeed())
	var host infrav1.LibvirtHost
	g.Expect(yaml.UnmarshalStrict([]byte(documents[1]), &host)).To(Succeed())
	g.Expect(host.Spec.IdentityRef.Name).To(Equal(identity.Name))
	uri, err := hosturi.Parse(host.Spec.URI)
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(uri.Transport).To(Equal(hosturi.TLS))
	g.Expect(string(page)).To(ContainSubstring("HOST=" + uri.Host))
	other := regexp.MustCompile(`# or (\S+)`).FindStringSubmatch(documents[1])
	g.Expect(other).ToNot(BeNil())
	uri, err = hosturi.Parse(other[1])
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(uri.Transport).To(Equal(hosturi.SSH))
	secrets := regexp.MustCompile(`create secret generic (\S+) `).FindAllStringSubmatch(string(page), -1)
	g.Expect(secrets).To(HaveLen(2))
	for _, secret := range secrets {
		g.Expect(secret[1]).To(Equal(identity.Spec.SecretRef.Name))
	}
}

// TestHostsPageMessages checks that the code has the messages that the page explains.
func TestHostsPageMessages(t *testing.T) {
	g := NewWithT(t)
	page, err := os.ReadFile(hostsPage)
	g.Expect(err).ToNot(HaveOccurred())
	folders, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}}", "crypto/x509", "golang.org/x/crypto/ssh").Output()
	g.Expect(err).ToNot(HaveOccurred())
	x509, ssh, _ := strings.Cut(strings.TrimSpace(string(folders)), "\n")
	code := sources(g, filepath.Join("internal", "hypervisor", "libvirt")) + sources(g, filepath.Join(x509, "verify.go")) +
		sources(g, filepath.Join(ssh, "client_auth.go")) + syscall.ECONNREFUSED.Error()
	_, section, _ := strings.Cut(string(page), "## When the host is not Ready\n")
	rows := regexp.MustCompile("(?m)^\\| (`.*?) \\|").FindAllStringSubmatch(section, -1)
	g.Expect(len(rows)).To(BeNumerically(">=", 6))
	for _, row := range rows {
		for _, message := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			for part := range strings.SplitSeq(message[1], "...") {
				g.Expect(strings.Contains(code, strings.Trim(part, ", "))).To(BeTrue(), "no source has %q", part)
			}
		}
	}
}
