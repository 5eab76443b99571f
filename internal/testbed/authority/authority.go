// Package authority is a certificate authority for tests: of clusters, of webhooks and of libvirt hosts.
package authority

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// lifetime is the lifetime of all certificates. They begin in the past, because clocks of guests differ.
const lifetime = 10 * 365 * 24 * time.Hour

// Authority signs certificates.
type Authority struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

// New creates an authority with a new key and certificate.
func New(name string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("creating the key of %s: %w", name, err)
	}
	template, err := newTemplate(name)
	if err != nil {
		return nil, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	template.BasicConstraintsValid, template.IsCA = true, true
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("creating the certificate of %s: %w", name, err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &Authority{certificate: certificate, key: key}, nil
}

// Load returns the authority of a certificate and its key in PEM, such as Cluster API's in Secrets.
func Load(certPEM, keyPEM []byte) (*Authority, error) {
	certificates, err := cert.ParseCertsPEM(certPEM)
	if err != nil {
		return nil, fmt.Errorf("reading an authority's certificate: %w", err)
	}
	parsed, err := keyutil.ParsePrivateKeyPEM(keyPEM)
	if err != nil {
		return nil, fmt.Errorf("reading an authority's key: %w", err)
	}
	key, can := parsed.(crypto.Signer)
	if !can {
		return nil, errors.New("reading an authority's key: it can't sign")
	}
	if public, can := key.Public().(interface{ Equal(crypto.PublicKey) bool }); !can || !public.Equal(certificates[0].PublicKey) {
		return nil, errors.New("reading an authority's key: it doesn't belong to the certificate")
	}
	return &Authority{certificate: certificates[0], key: key}, nil
}

// PEM returns the authority's certificate.
func (a *Authority) PEM() []byte {
	return encode(a.certificate.Raw)
}

// Request describes a certificate.
type Request struct {
	// CommonName and Organizations of the subject. Kubernetes uses them as the user and its groups.
	CommonName    string
	Organizations []string
	// Names are the DNS names and the IP addresses of a server.
	Names []string
}

// Issue creates a key and a certificate for servers and clients, both in PEM.
func (a *Authority) Issue(request Request) (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("creating the key of %s: %w", request.CommonName, err)
	}
	template, err := newTemplate(request.CommonName)
	if err != nil {
		return nil, nil, err
	}
	template.Subject.Organization = request.Organizations
	// libvirt requires the second one too.
	template.KeyUsage = x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	for _, name := range request.Names {
		if address := net.ParseIP(name); address != nil {
			template.IPAddresses = append(template.IPAddresses, address)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return nil, nil, fmt.Errorf("creating the certificate of %s: %w", request.CommonName, err)
	}
	keyPEM, err = keyutil.MarshalPrivateKeyToPEM(key)
	return encode(der), keyPEM, err
}

func newTemplate(commonName string) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: commonName},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(lifetime),
	}, nil
}

func encode(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: der})
}
