package libvirtclusteridentity

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"maps"
	"math/big"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/crypto/ssh"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/outcome"
)

var now = time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)

// tlsData returns a self-signed certificate and its key.
func tlsData(t *testing.T) map[string][]byte {
	t.Helper()
	g := NewWithT(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	g.Expect(err).ToNot(HaveOccurred())
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	g.Expect(err).ToNot(HaveOccurred())
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	g.Expect(err).ToNot(HaveOccurred())
	certificatePEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
	return map[string][]byte{"tls.crt": certificatePEM, "ca.crt": certificatePEM,
		"tls.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})}
}

// sshData returns a private key and a known host with its public key. The key has a passphrase if one is given.
func sshData(t *testing.T, passphrase string) map[string][]byte {
	t.Helper()
	g := NewWithT(t)
	_, private, err := ed25519.GenerateKey(rand.Reader)
	g.Expect(err).ToNot(HaveOccurred())
	signer, err := ssh.NewSignerFromKey(private)
	g.Expect(err).ToNot(HaveOccurred())
	block, err := ssh.MarshalPrivateKey(private, "")
	if passphrase != "" {
		block, err = ssh.MarshalPrivateKeyWithPassphrase(private, "", []byte(passphrase))
	}
	g.Expect(err).ToNot(HaveOccurred())
	return map[string][]byte{"ssh-privatekey": pem.EncodeToMemory(block),
		"known_hosts": append([]byte("# ours\n\nhost-1.example.com "), ssh.MarshalAuthorizedKey(signer.PublicKey())...)}
}

func TestCheck(t *testing.T) {
	tlsGood, sshGood := tlsData(t), sshData(t, "")
	with := func(data map[string][]byte, key, value string) map[string][]byte {
		data = maps.Clone(data)
		data[key] = []byte(value)
		return data
	}
	both := maps.Clone(tlsGood)
	maps.Copy(both, sshGood)
	for _, tc := range []struct {
		name string
		data map[string][]byte
		now  time.Time
		want []string // empty for valid credentials
	}{
		{name: "TLS", data: tlsGood},
		{name: "SSH", data: sshGood},
		{name: "both", data: both},
		{name: "nothing", want: []string{"has no credentials: add tls.crt, tls.key and ca.crt for qemu+tls, or ssh-privatekey and known_hosts for qemu+ssh"}},
		{name: "something else", data: map[string][]byte{"password": []byte("hunter2")}, want: []string{"has no credentials"}},
		{name: "keys without values", data: with(with(with(tlsGood, "ca.crt", ""), "tls.key", ""), "tls.crt", ""), want: []string{"has no credentials"}},
		{name: "no authority", data: with(tlsGood, "ca.crt", ""), want: []string{"lacks ca.crt"}},
		{name: "only an authority", data: map[string][]byte{"ca.crt": tlsGood["ca.crt"]}, want: []string{"lacks tls.crt, tls.key"}},
		{name: "not the key of the certificate", data: with(tlsGood, "tls.key", string(tlsData(t)["tls.key"])),
			want: []string{"tls.crt and tls.key aren't a certificate in PEM and its private key"}},
		{name: "key isn't PEM", data: with(tlsGood, "tls.key", "hunter2"), want: []string{"tls.crt and tls.key aren't"}},
		{name: "authority isn't PEM", data: with(tlsGood, "ca.crt", "x"), want: []string{"ca.crt has no certificate in PEM"}},
		{name: "expired", data: tlsGood, now: now.Add(2 * time.Hour), want: []string{"tls.crt has expired on 2026-06-01T01:00:00Z"}},
		{name: "no known hosts", data: with(sshGood, "known_hosts", ""), want: []string{"lacks known_hosts"}},
		{name: "known hosts with comments only", data: with(sshGood, "known_hosts", "# none\n"), want: []string{"known_hosts names no host"}},
		{name: "second known host", data: with(sshGood, "known_hosts", string(sshGood["known_hosts"])+"host-2 ssh-ed25519 hunter2\n"),
			want: []string{"entry 2 of known_hosts can't be read"}},
		{name: "SSH key isn't one", data: with(sshGood, "ssh-privatekey", "hunter2"), want: []string{"ssh-privatekey isn't a private key for SSH"}},
		{name: "SSH key with a passphrase", data: sshData(t, "hunter2"), want: []string{"ssh-privatekey needs a passphrase: use a key without one"}},
		{name: "both bad", data: with(with(both, "ca.crt", ""), "known_hosts", ""), want: []string{"lacks ca.crt", "lacks known_hosts"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := NewWithT(t)
			at := now
			if !tc.now.IsZero() {
				at = tc.now
			}
			err := check(tc.data, at)
			if tc.want == nil {
				g.Expect(err).ToNot(HaveOccurred())
				return
			}
			for _, want := range tc.want {
				g.Expect(err).To(MatchError(ContainSubstring(want)))
			}
			g.Expect(err.Error()).ToNot(ContainSubstring("hunter2"))
			g.Expect(outcome.OneLine(err)).ToNot(ContainSubstring("\n"))
		})
	}
}

// FuzzCheck: errors don't contain values of a Secret.
func FuzzCheck(f *testing.F) {
	f.Add("-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n", "host ssh-ed25519 AAAA")
	f.Add("-----BEGIN OPENSSH PRIVATE KEY-----\nAA==\n-----END OPENSSH PRIVATE KEY-----\n", "@revoked * ssh-rsa AAAA\n")
	f.Fuzz(func(t *testing.T, key, hosts string) {
		const marker = "hunter2hunter2"
		for _, private := range []string{"tls.key", "ssh-privatekey"} {
			data := map[string][]byte{"tls.crt": []byte(key), "ca.crt": []byte(key), "known_hosts": []byte(hosts)}
			data["tls.key"], data["ssh-privatekey"] = []byte(key), []byte(key)
			data[private] = []byte(key + marker)
			if err := check(data, now); err != nil {
				NewWithT(t).Expect(err.Error()).ToNot(ContainSubstring(marker))
			}
		}
	})
}
