package libvirt

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/crypto/ssh"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hosturi"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// authority issues certificates for 127.0.0.1.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pem         []byte
}

func newAuthority(g Gomega) *authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	g.Expect(err).ToNot(HaveOccurred())
	a := &authority{key: key}
	a.certificate = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, a.certificate, a.certificate, key.Public(), key)
	g.Expect(err).ToNot(HaveOccurred())
	a.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return a
}

func (a *authority) issue(g Gomega, address string) (cert, key []byte) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	g.Expect(err).ToNot(HaveOccurred())
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.ParseIP(address)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.certificate, private.Public(), a.key)
	g.Expect(err).ToNot(HaveOccurred())
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	g.Expect(err).ToNot(HaveOccurred())
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})
}

// listen serves connections until the test ends, and returns the address.
func listen(t *testing.T, serve func(net.Conn)) netip.AddrPort {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = conn.Close() })
			go serve(conn)
		}
	}()
	return netip.MustParseAddrPort(listener.Addr().String())
}

// Actions of a TLS server after it has the client's certificate, other than sending a byte.
const (
	silent  = -1
	hangsUp = -2
)

func TestTLS(t *testing.T) {
	g := NewWithT(t)
	ours, other := newAuthority(g), newAuthority(g)
	clientCert, clientKey := ours.issue(g, "127.0.0.1")
	good := Credentials{CACert: ours.pem, Cert: clientCert, Key: clientKey}
	foreign := good
	foreign.Cert, foreign.Key = other.issue(g, "127.0.0.1")
	believer := good
	believer.CACert = other.pem

	tests := map[string]struct {
		credentials Credentials
		// name is the address in the server's certificate. status is the first byte that the server sends, if it
		// neither is silent nor hangs up.
		name   string
		status int
		want   error
		text   string
	}{
		"accepted":                {good, "127.0.0.1", 1, nil, ""},
		"refused by the daemon":   {good, "127.0.0.1", 0, hypervisor.ErrDenied, "the daemon refuses the client's certificate"},
		"refused without a reply": {good, "127.0.0.1", hangsUp, hypervisor.ErrDenied, "the daemon refuses the client's certificate"},
		"no answer":               {good, "127.0.0.1", silent, hypervisor.ErrTimeout, ""},
		"client of another CA":    {foreign, "127.0.0.1", 1, hypervisor.ErrDenied, "the daemon refuses the client's certificate"},
		"server of another CA":    {believer, "127.0.0.1", 1, hypervisor.ErrDenied, "certificate signed by unknown authority"},
		"server of another name":  {good, "127.0.0.2", 1, hypervisor.ErrDenied, "127.0.0.2"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			cert, key := ours.issue(g, test.name)
			pair, err := tls.X509KeyPair(cert, key)
			g.Expect(err).ToNot(HaveOccurred())
			clients := x509.NewCertPool()
			clients.AppendCertsFromPEM(ours.pem)
			server := &hostile{}
			at := listen(t, func(raw net.Conn) {
				conn := tls.Server(raw, &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair},
					ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients})
				if conn.Handshake() != nil {
					_ = raw.Close()
					return
				}
				switch test.status {
				case hangsUp:
					_ = conn.Close()
				case silent:
				default:
					_, _ = conn.Write([]byte{byte(test.status)})
					server.serve(conn)
				}
			})
			uri := hosturi.URI{Driver: hosturi.QEMU, Transport: hosturi.TLS, Host: "127.0.0.1", Port: at.Port(), Path: "/system"}
			ctx := t.Context()
			if test.status == silent {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, 300*time.Millisecond)
				defer cancel()
			}
			expectConnection(ctx, g, uri, test.credentials, test.want, test.text)
		})
	}
}

// expectConnection connects, or expects an error with a reason and a text that names the host.
func expectConnection(ctx context.Context, g Gomega, uri hosturi.URI, credentials Credentials, want error, text string) {
	connection, err := Connect(ctx, uri, credentials)
	if want != nil {
		g.Expect(err).To(MatchError(want))
		g.Expect(err).To(MatchError(And(ContainSubstring(address(uri)), ContainSubstring(text), Not(ContainSubstring("EOF")))))
		g.Expect(err).ToNot(MatchError(ContainSubstring("PRIVATE")))
		return
	}
	g.Expect(err).ToNot(HaveOccurred())
	defer func() { _ = connection.Close() }()
	g.Expect(connection.ListDomains(ctx)).To(BeEmpty())
}

func newSSHKey(g Gomega) (ssh.Signer, []byte) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	g.Expect(err).ToNot(HaveOccurred())
	signer, err := ssh.NewSignerFromKey(private)
	g.Expect(err).ToNot(HaveOccurred())
	block, err := ssh.MarshalPrivateKey(private, "")
	g.Expect(err).ToNot(HaveOccurred())
	return signer, pem.EncodeToMemory(block)
}

// listenSSH starts an SSH server for one user, in front of a daemon that works. It calls count for each connection that
// begins or ends.
func listenSSH(t *testing.T, hostKey, user ssh.Signer, count func(begins bool)) netip.AddrPort {
	t.Helper()
	config := &ssh.ServerConfig{PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		if string(key.Marshal()) != string(user.PublicKey().Marshal()) {
			return nil, fmt.Errorf("unknown key")
		}
		return &ssh.Permissions{}, nil
	}}
	config.AddHostKey(hostKey)
	server := &hostile{}
	return listen(t, func(raw net.Conn) {
		connection, channels, requests, err := ssh.NewServerConn(raw, config)
		if err != nil {
			_ = raw.Close()
			return
		}
		count(true)
		defer func() {
			_ = connection.Close()
			count(false)
		}()
		go ssh.DiscardRequests(requests)
		for channel := range channels {
			if channel.ChannelType() != "direct-streamlocal@openssh.com" {
				_ = channel.Reject(ssh.UnknownChannelType, "")
				continue
			}
			accepted, more, err := channel.Accept()
			if err != nil {
				return
			}
			go ssh.DiscardRequests(more)
			go server.serve(stream{accepted})
		}
	})
}

// TestOneSSHConnection checks that all connections to a daemon share one SSH connection, which ends with the last of
// them.
func TestOneSSHConnection(t *testing.T) {
	g := NewWithT(t)
	hostKey, _ := newSSHKey(g)
	user, userKey := newSSHKey(g)
	var begun, ended atomic.Int32
	at := listenSSH(t, hostKey, user, func(begins bool) {
		if begins {
			begun.Add(1)
		} else {
			ended.Add(1)
		}
	})
	uri := hosturi.URI{Driver: hosturi.QEMU, Transport: hosturi.SSH, Host: "127.0.0.1", Port: at.Port(), User: "caplv", Path: "/system"}
	connection, err := Connect(t.Context(), uri, Credentials{PrivateKey: userKey, KnownHosts: fmt.Appendf(nil, "[127.0.0.1]:%d %s", at.Port(), ssh.MarshalAuthorizedKey(hostKey.PublicKey()))})
	g.Expect(err).ToNot(HaveOccurred())
	for range 3 { // one for storage, and one for each transfer
		_, err = connection.Volume(t.Context(), hypervisor.VolumeRef{Pool: "default", Name: "v"})
		g.Expect(err).ToNot(HaveOccurred())
		own, err := connection.(*host).another(t.Context())
		g.Expect(err).ToNot(HaveOccurred())
		own.close()
	}
	g.Expect(connection.ListDomains(t.Context())).To(BeEmpty(), "the end of a transfer ends no other connection")
	g.Expect(begun.Load()).To(BeEquivalentTo(1))
	g.Expect(connection.Close()).To(Succeed())
	g.Eventually(ended.Load).WithTimeout(time.Minute).Should(BeEquivalentTo(1))
}

func TestSSH(t *testing.T) {
	g := NewWithT(t)
	hostKey, _ := newSSHKey(g)
	otherHostKey, _ := newSSHKey(g)
	user, userKey := newSSHKey(g)
	_, strangerKey := newSSHKey(g)

	at := listenSSH(t, hostKey, user, func(bool) {})
	mute := listen(t, func(net.Conn) {})
	known := func(port uint16, key ssh.Signer, prefix string) []byte {
		return fmt.Appendf(nil, "# hosts\n%s[127.0.0.1]:%d %s", prefix, port, ssh.MarshalAuthorizedKey(key.PublicKey()))
	}

	for name, test := range map[string]struct {
		port        uint16
		credentials Credentials
		want        error
	}{
		"accepted":         {at.Port(), Credentials{PrivateKey: userKey, KnownHosts: known(at.Port(), hostKey, "")}, nil},
		"another host key": {at.Port(), Credentials{PrivateKey: userKey, KnownHosts: known(at.Port(), otherHostKey, "")}, hypervisor.ErrDenied},
		"revoked host key": {at.Port(), Credentials{PrivateKey: userKey, KnownHosts: append(known(at.Port(), hostKey, ""), known(at.Port(), hostKey, "@revoked ")...)}, hypervisor.ErrInvalid},
		"no host key":      {at.Port(), Credentials{PrivateKey: userKey, KnownHosts: known(1, hostKey, "")}, hypervisor.ErrInvalid},
		"a stranger":       {at.Port(), Credentials{PrivateKey: strangerKey, KnownHosts: known(at.Port(), hostKey, "")}, hypervisor.ErrDenied},
		"no key":           {at.Port(), Credentials{PrivateKey: []byte("PRIVATE"), KnownHosts: known(at.Port(), hostKey, "")}, hypervisor.ErrInvalid},
		"silence":          {mute.Port(), Credentials{PrivateKey: userKey, KnownHosts: known(mute.Port(), hostKey, "")}, hypervisor.ErrTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			if name == "silence" {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, 300*time.Millisecond)
				defer cancel()
			}
			uri := hosturi.URI{Driver: hosturi.QEMU, Transport: hosturi.SSH, Host: "127.0.0.1", Port: test.port, User: "caplv", Path: "/system"}
			expectConnection(ctx, NewWithT(t), uri, test.credentials, test.want, "")
		})
	}
}

// stream makes a net.Conn of an SSH channel, as far as these tests need it.
type stream struct{ io.ReadWriteCloser }

func (stream) LocalAddr() net.Addr              { return nil }
func (stream) RemoteAddr() net.Addr             { return nil }
func (stream) SetDeadline(time.Time) error      { return nil }
func (stream) SetReadDeadline(time.Time) error  { return nil }
func (stream) SetWriteDeadline(time.Time) error { return nil }

func TestHashedHostName(t *testing.T) {
	g := NewWithT(t)
	const entry = "|1|qEdjzwFRPvXyOzvMqvWRAvwl3ZU=|+WHmGAkO3SrQGGbng8jAbraBd3I=" // by ssh-keygen -H
	g.Expect(isHash(entry, "host.example.com")).To(BeTrue())
	g.Expect(isHash(entry, "other.example.com")).To(BeFalse())
	for _, broken := range []string{"", "host", "|1|x", "|2|c2FsdA==|c2FsdA==", "|1|*|c2FsdA==", "|1|c2FsdA==|*"} {
		g.Expect(isHash(broken, "host.example.com")).To(BeFalse(), broken)
	}
}

func TestUnreachable(t *testing.T) {
	uri := hosturi.URI{Driver: hosturi.QEMU, Transport: hosturi.Unix, Path: "/system", Socket: "/nonexistent/socket"}
	_, err := Connect(t.Context(), uri, Credentials{})
	NewWithT(t).Expect(err).To(MatchError(hypervisor.ErrUnreachable))
}
