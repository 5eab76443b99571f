package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"time"
)

// apiServerPort is the default port of API servers.
const apiServerPort = "6443"

// playAPIServer starts a TLS server with the parts of an API server that a load balancer needs: it is ready. It answers
// other requests with its name.
func playAPIServer(name string) error {
	certificate, err := selfSigned()
	if err != nil {
		return fmt.Errorf("creating a certificate: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", ":"+apiServerPort)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: apiServer(name), ReadHeaderTimeout: time.Minute, TLSConfig: &tls.Config{
		Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12,
	}}
	go func() { fmt.Println("testbed guest: serving:", server.ServeTLS(listener, "", "")) }()
	return nil
}

func apiServer(name string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/readyz", func(response http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(response, "ok") })
	mux.HandleFunc("/", func(response http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(response, name) })
	return mux
}

// selfSigned returns an untrusted certificate, valid at any time, because the clock of a guest may be wrong.
func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().AddDate(1, 0, 0)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}
