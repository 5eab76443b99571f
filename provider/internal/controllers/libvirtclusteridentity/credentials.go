package libvirtclusteridentity

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
	corev1 "k8s.io/api/core/v1"
)

// The keys of a Secret with credentials, as LibvirtClusterIdentity.spec.secretRef documents them.
const (
	caKey         = "ca.crt"
	knownHostsKey = "known_hosts"
)

// check returns the errors of credentials for TLS, SSH or both. They don't contain private keys.
func check(data map[string][]byte, now time.Time) error {
	hasTLS := has(data, corev1.TLSCertKey) || has(data, corev1.TLSPrivateKeyKey) || has(data, caKey)
	hasSSH := has(data, corev1.SSHAuthPrivateKey) || has(data, knownHostsKey)
	if !hasTLS && !hasSSH {
		return fmt.Errorf("has no credentials: add %s, %s and %s for qemu+tls, or %s and %s for qemu+ssh",
			corev1.TLSCertKey, corev1.TLSPrivateKeyKey, caKey, corev1.SSHAuthPrivateKey, knownHostsKey)
	}
	var errs []error
	if hasTLS {
		errs = append(errs, checkTLS(data, now))
	}
	if hasSSH {
		errs = append(errs, checkSSH(data))
	}
	return errors.Join(errs...)
}

func has(data map[string][]byte, key string) bool { return len(data[key]) > 0 }

// lacks returns an error that names the missing keys.
func lacks(data map[string][]byte, keys ...string) error {
	var missing []string
	for _, key := range keys {
		if !has(data, key) {
			missing = append(missing, key)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("lacks %s", strings.Join(missing, ", "))
}

func checkTLS(data map[string][]byte, now time.Time) error {
	if err := lacks(data, corev1.TLSCertKey, corev1.TLSPrivateKeyKey, caKey); err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return fmt.Errorf("%s and %s aren't a certificate in PEM and its private key", corev1.TLSCertKey, corev1.TLSPrivateKeyKey)
	}
	certificate, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		return fmt.Errorf("%s can't be read: %w", corev1.TLSCertKey, err)
	}
	if now.After(certificate.NotAfter) {
		return fmt.Errorf("%s has expired on %s", corev1.TLSCertKey, certificate.NotAfter.UTC().Format(time.RFC3339))
	}
	if !x509.NewCertPool().AppendCertsFromPEM(data[caKey]) {
		return fmt.Errorf("%s has no certificate in PEM", caKey)
	}
	return nil
}

func checkSSH(data map[string][]byte) error {
	if err := lacks(data, corev1.SSHAuthPrivateKey, knownHostsKey); err != nil {
		return err
	}
	if _, err := ssh.ParsePrivateKey(data[corev1.SSHAuthPrivateKey]); err != nil {
		if missing := (*ssh.PassphraseMissingError)(nil); errors.As(err, &missing) {
			return fmt.Errorf("%s needs a passphrase: use a key without one", corev1.SSHAuthPrivateKey)
		}
		return fmt.Errorf("%s isn't a private key for SSH", corev1.SSHAuthPrivateKey)
	}
	return checkKnownHosts(data[knownHostsKey])
}

// checkKnownHosts parses all known hosts.
func checkKnownHosts(rest []byte) error {
	for count := 0; ; count++ {
		var err error
		_, _, _, _, rest, err = ssh.ParseKnownHosts(rest)
		switch {
		case errors.Is(err, io.EOF) && count == 0:
			return fmt.Errorf("%s names no host", knownHostsKey)
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("entry %d of %s can't be read: %w", count+1, knownHostsKey, err)
		}
	}
}
