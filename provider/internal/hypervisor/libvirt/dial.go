package libvirt

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hosturi"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// Credentials are from the Secret of a LibvirtClusterIdentity.
type Credentials struct {
	// CACert, Cert and Key are for qemu+tls, in PEM: ca.crt, tls.crt and tls.key. Only CACert is trusted.
	CACert, Cert, Key []byte
	// PrivateKey and KnownHosts are for qemu+ssh: ssh-privatekey and known_hosts. Only keys of KnownHosts are trusted.
	PrivateKey, KnownHosts []byte
}

const (
	systemSocket = "/run/libvirt/libvirt-sock"
	dialLimit    = 20 * time.Second
)

// dialer returns the function that connects to a host. Errors are about the credentials and never have a key.
func dialer(uri hosturi.URI, credentials Credentials) (func(context.Context) (net.Conn, error), error) {
	var dial func(context.Context) (net.Conn, error)
	switch uri.Transport {
	case hosturi.Unix:
		socket, err := localSocket(uri)
		if err != nil {
			return nil, err
		}
		dial = func(ctx context.Context) (net.Conn, error) { return (&net.Dialer{}).DialContext(ctx, "unix", socket) }
	case hosturi.TLS:
		config, err := tlsConfig(uri, credentials)
		if err != nil {
			return nil, err
		}
		dial = func(ctx context.Context) (net.Conn, error) { return dialTLS(ctx, uri, config) }
	case hosturi.SSH:
		config, err := sshConfig(uri, credentials)
		if err != nil {
			return nil, err
		}
		dial = (&sharedSSH{uri: uri, config: config}).dial
	default:
		return nil, fmt.Errorf("there is no transport %q", uri.Transport)
	}
	return func(ctx context.Context) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, dialLimit)
		defer cancel()
		conn, err := dial(ctx)
		if err != nil && ctx.Err() != nil {
			return nil, fmt.Errorf("%w: %w", ctx.Err(), err)
		}
		return conn, err
	}, nil
}

func address(uri hosturi.URI) string {
	return net.JoinHostPort(uri.Host, strconv.Itoa(int(uri.Port)))
}

func localSocket(uri hosturi.URI) (string, error) {
	switch {
	case uri.Socket != "":
		return uri.Socket, nil
	case uri.Path != "/session":
		return systemSocket, nil
	case os.Getenv("XDG_RUNTIME_DIR") == "":
		return "", errors.New("the daemon's socket isn't known: give it by ?socket=/path, or set XDG_RUNTIME_DIR")
	}
	return filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "libvirt", "libvirt-sock"), nil
}

func tlsConfig(uri hosturi.URI, credentials Credentials) (*tls.Config, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(credentials.CACert) {
		return nil, errors.New("ca.crt has no certificate in PEM")
	}
	certificate, err := tls.X509KeyPair(credentials.Cert, credentials.Key)
	if err != nil {
		return nil, fmt.Errorf("tls.crt and tls.key: %w", err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, ServerName: uri.Host, RootCAs: pool, Certificates: []tls.Certificate{certificate}}, nil
}

// dialTLS connects and waits for the byte with which the daemon accepts the client.
func dialTLS(ctx context.Context, uri hosturi.URI, config *tls.Config) (net.Conn, error) {
	raw, err := (&net.Dialer{}).DialContext(ctx, "tcp", address(uri))
	if err != nil {
		return nil, err
	}
	// The end of the context closes the connection.
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	defer stop()
	conn := tls.Client(raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, denied(uri, "the TLS handshake", err)
	}
	status := make([]byte, 1)
	if _, err := conn.Read(status); err != nil {
		_ = raw.Close()
		if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
			err = errRefused // the daemon says why in its own log only
		}
		return nil, denied(uri, "waiting for the daemon to accept the client's certificate", err)
	}
	if status[0] != 1 {
		_ = raw.Close()
		return nil, denied(uri, "the answer to the client's certificate", errRefused)
	}
	return conn, nil
}

// errRefused means that a daemon has closed the connection after the client's certificate.
var errRefused = errors.New("the daemon refuses the client's certificate: check that its CA in /etc/pki/CA/cacert.pem has signed tls.crt of the " +
	"identity's Secret, that the certificate is valid now, and that tls_allowed_dn_list in its configuration allows the certificate's name")

// denied distinguishes refused credentials from failures of the network.
func denied(uri hosturi.URI, doing string, err error) error {
	var verification *tls.CertificateVerificationError
	// A refusal by the other side is an OpError of this name, around a type that isn't exported.
	var refusal *net.OpError
	isRefusal := errors.As(err, &refusal) && refusal.Op == "remote error"
	if isRefusal {
		err = fmt.Errorf("%w (%w)", errRefused, err)
	}
	if errors.As(err, &verification) || errors.Is(err, errRefused) {
		return &hypervisor.Error{Operation: "connecting to", Object: uri.String(), Reason: hypervisor.ErrDenied, Cause: fmt.Errorf("%s: %w", doing, err)}
	}
	return fmt.Errorf("%s: %w", doing, err)
}
