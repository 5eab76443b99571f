package authority_test

import (
	"crypto/tls"
	"crypto/x509"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/cluster-api/util/certs"

	"github.com/clusterctl-release/clusterctl-release/internal/testbed/authority"
)

// TestIssue checks that a certificate has the requested names and subject and is signed by the authority.
func TestIssue(t *testing.T) {
	g := NewWithT(t)
	ca, err := authority.New("mine")
	g.Expect(err).ToNot(HaveOccurred())
	other, err := authority.New("other")
	g.Expect(err).ToNot(HaveOccurred())
	certPEM, keyPEM, err := ca.Issue(authority.Request{CommonName: "admin", Organizations: []string{"system:masters"}, Names: []string{"10.88.0.1", "host"}})
	g.Expect(err).ToNot(HaveOccurred())
	_, err = tls.X509KeyPair(certPEM, keyPEM)
	g.Expect(err).ToNot(HaveOccurred())
	parsed, err := cert.ParseCertsPEM(certPEM)
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(parsed).To(HaveLen(1))
	g.Expect(parsed[0].Subject.CommonName).To(Equal("admin"))
	g.Expect(parsed[0].Subject.Organization).To(ConsistOf("system:masters"))

	for name, good := range map[string]bool{"10.88.0.1": true, "host": true, "10.88.0.2": false, "another": false} {
		for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
			_, err := parsed[0].Verify(x509.VerifyOptions{DNSName: name, Roots: pool(g, ca), KeyUsages: []x509.ExtKeyUsage{usage}})
			if good {
				g.Expect(err).ToNot(HaveOccurred(), name)
			} else {
				g.Expect(err).To(HaveOccurred(), name)
			}
		}
	}
	_, err = parsed[0].Verify(x509.VerifyOptions{Roots: pool(g, other)})
	g.Expect(err).To(BeAssignableToTypeOf(x509.UnknownAuthorityError{}))
}

func pool(g *WithT, ca *authority.Authority) *x509.CertPool {
	roots := x509.NewCertPool()
	g.Expect(roots.AppendCertsFromPEM(ca.PEM())).To(BeTrue())
	return roots
}

// TestLoad checks that Cluster API's authorities can be loaded, and that invalid ones are refused.
func TestLoad(t *testing.T) {
	g := NewWithT(t)
	key, err := certs.NewPrivateKey()
	g.Expect(err).ToNot(HaveOccurred())
	root, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "kubernetes"}, key)
	g.Expect(err).ToNot(HaveOccurred())
	certPEM, keyPEM := certs.EncodeCertPEM(root), certs.EncodePrivateKeyPEM(key)

	ca, err := authority.Load(certPEM, keyPEM)
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(ca.PEM()).To(Equal(certPEM))
	issued, _, err := ca.Issue(authority.Request{CommonName: "one", Names: []string{"one"}})
	g.Expect(err).ToNot(HaveOccurred())
	parsed, err := cert.ParseCertsPEM(issued)
	g.Expect(err).ToNot(HaveOccurred())
	_, err = parsed[0].Verify(x509.VerifyOptions{DNSName: "one", Roots: pool(g, ca)})
	g.Expect(err).ToNot(HaveOccurred())

	_, otherKey, err := ca.Issue(authority.Request{CommonName: "other"})
	g.Expect(err).ToNot(HaveOccurred())
	public, err := cert.EncodeCertificates(root)
	g.Expect(err).ToNot(HaveOccurred())
	for _, test := range []struct {
		name      string
		cert, key []byte
		want      string
	}{
		{"no certificate", nil, keyPEM, "an authority's certificate"},
		{"a key for a certificate", keyPEM, keyPEM, "an authority's certificate"},
		{"no key", certPEM, nil, "an authority's key"},
		{"a certificate for a key", certPEM, public, "an authority's key"},
		{"another's key", certPEM, otherKey, "doesn't belong to the certificate"},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			_, err := authority.Load(test.cert, test.key)
			g.Expect(err).To(MatchError(ContainSubstring(test.want)))
		})
	}
}
