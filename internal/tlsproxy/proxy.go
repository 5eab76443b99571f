// Package tlsproxy is a proxy for tests that answers https requests to any host itself: programs with fixed hosts get
// it in HTTPS_PROXY, and its authority in SSL_CERT_FILE.
package tlsproxy

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"
)

// Proxy is a proxy that runs until its test is done.
type Proxy struct {
	hosts     map[string]http.Handler
	authority *x509.Certificate
	key       *ecdsa.PrivateKey
	url       string
	file      string
	inner     chan net.Conn

	mu       sync.Mutex
	requests []string
}

// Start starts a proxy for these hosts; others are refused.
func Start(tb testing.TB, hosts map[string]http.Handler) *Proxy {
	tb.Helper()
	p := &Proxy{hosts: hosts, inner: make(chan net.Conn)}
	if err := p.makeAuthority(tb.TempDir()); err != nil {
		tb.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p.url = "http://" + listener.Addr().String()
	outer := &http.Server{Handler: http.HandlerFunc(p.connect), ReadHeaderTimeout: time.Minute}
	inner := &http.Server{Handler: http.HandlerFunc(p.answer), ReadHeaderTimeout: time.Minute}
	var running sync.WaitGroup
	running.Go(func() { _ = outer.Serve(listener) }) // it ends with an error, that it was closed
	running.Go(func() { _ = inner.Serve(tls.NewListener(connections{p.inner, listener.Addr()}, p.config())) })
	tb.Cleanup(func() {
		_ = outer.Close()
		close(p.inner)
		_ = inner.Close()
		running.Wait()
	})
	return p
}

// Environ returns the variables with which a program uses only the proxy.
func (p *Proxy) Environ() []string {
	return []string{
		"HTTPS_PROXY=" + p.url, "https_proxy=" + p.url, "HTTP_PROXY=", "http_proxy=", "NO_PROXY=", "no_proxy=",
		"SSL_CERT_FILE=" + p.file, "SSL_CERT_DIR=" + filepath.Dir(p.file),
	}
}

// Requests returns the requests, e.g. "GET api.github.com/repos/o/r".
func (p *Proxy) Requests() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.requests)
}

// makeAuthority creates the certificate that signs those of the hosts.
func (p *Proxy) makeAuthority(dir string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "proxy of a test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return err
	}
	p.key = key
	if p.authority, err = x509.ParseCertificate(der); err != nil {
		return err
	}
	p.file = filepath.Join(dir, "authority.pem")
	return os.WriteFile(p.file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600)
}

// config creates a certificate for any requested host.
func (p *Proxy) config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		template := &x509.Certificate{
			SerialNumber: big.NewInt(time.Now().UnixNano()), DNSNames: []string{hello.ServerName},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		}
		der, err := x509.CreateCertificate(rand.Reader, template, p.authority, &p.key.PublicKey, p.key)
		return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: p.key}, err
	}}
}

// connect takes a tunnel over.
func (p *Proxy) connect(w http.ResponseWriter, r *http.Request) {
	hijacker, ok := w.(http.Hijacker)
	if r.Method != http.MethodConnect || !ok {
		http.Error(w, "this proxy is for https", http.StatusBadRequest)
		return
	}
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil || p.hosts[host] == nil {
		http.Error(w, "there is no host "+r.Host, http.StatusBadGateway)
		return
	}
	conn, buffered, err := hijacker.Hijack()
	if err != nil {
		return
	}
	defer func() { _ = recover() }() // the test is done and the channel closed
	if _, err := fmt.Fprint(conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err == nil {
		p.inner <- tunnel{conn, buffered.Reader}
	}
}

func (p *Proxy) answer(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.requests = append(p.requests, r.Method+" "+r.Host+r.URL.Path)
	p.mu.Unlock()
	if handler := p.hosts[r.Host]; handler != nil {
		handler.ServeHTTP(w, r)
		return
	}
	http.Error(w, "there is no host "+r.Host, http.StatusNotFound)
}

// tunnel is a connection of which some bytes may have been read already.
type tunnel struct {
	net.Conn
	reader *bufio.Reader
}

// Read implements net.Conn.
func (t tunnel) Read(b []byte) (int, error) { return t.reader.Read(b) }

// connections is a listener for connections that come by a channel.
type connections struct {
	from    chan net.Conn
	address net.Addr
}

// Accept implements net.Listener.
func (c connections) Accept() (net.Conn, error) {
	conn, ok := <-c.from
	if !ok {
		return nil, errors.New("closed")
	}
	return conn, nil
}

// Close implements net.Listener.
func (connections) Close() error { return nil }

// Addr implements net.Listener.
func (c connections) Addr() net.Addr { return c.address }
