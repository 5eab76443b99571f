package libvirt

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // the format of hashed names in known_hosts
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hosturi"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

var errHostKey = errors.New("the host's key isn't one of known_hosts")

func sshConfig(uri hosturi.URI, credentials Credentials) (*ssh.ClientConfig, error) {
	if uri.Path == "/session" && uri.Socket == "" {
		return nil, errors.New("the socket of a session daemon on another host isn't known: give it by ?socket=/path")
	}
	signer, err := ssh.ParsePrivateKey(credentials.PrivateKey)
	if err != nil {
		// The library's error describes the format and doesn't quote the key.
		return nil, fmt.Errorf("ssh-privatekey: %w", err)
	}
	keys, err := hostKeys(credentials.KnownHosts, uri)
	if err != nil {
		return nil, err
	}
	var algorithms []string
	for _, key := range keys {
		algorithms = append(algorithms, algorithmsOf(key.Type())...)
	}
	return &ssh.ClientConfig{
		User: uri.User, Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)},
		HostKeyAlgorithms: algorithms, // so that the server shows a known key
		HostKeyCallback: func(_ string, _ net.Addr, shown ssh.PublicKey) error {
			if slices.ContainsFunc(keys, func(key ssh.PublicKey) bool { return bytes.Equal(key.Marshal(), shown.Marshal()) }) {
				return nil
			}
			return errHostKey
		},
	}, nil
}

func algorithmsOf(keyType string) []string {
	if keyType == ssh.KeyAlgoRSA {
		return []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}
	}
	return []string{keyType}
}

// hostKeys returns the keys of a host in a known_hosts file (sshd(8), SSH_KNOWN_HOSTS FILE FORMAT). Names are plain or
// hashed. Patterns and authorities would match more than one host.
func hostKeys(knownHosts []byte, uri hosturi.URI) ([]ssh.PublicKey, error) {
	name := strings.ToLower(uri.Host)
	if uri.Port != 22 {
		name = fmt.Sprintf("[%s]:%d", name, uri.Port)
	}
	var keys []ssh.PublicKey
	revoked := map[string]bool{}
	for rest := knownHosts; ; {
		marker, hosts, key, _, next, err := ssh.ParseKnownHosts(rest)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("known_hosts: %w", err)
		}
		rest = next
		if !slices.ContainsFunc(hosts, func(host string) bool { return strings.ToLower(host) == name || isHash(host, name) }) {
			continue
		}
		switch marker {
		case "":
			keys = append(keys, key)
		case "revoked":
			revoked[string(key.Marshal())] = true
		}
	}
	keys = slices.DeleteFunc(keys, func(key ssh.PublicKey) bool { return revoked[string(key.Marshal())] })
	if len(keys) == 0 {
		return nil, fmt.Errorf("known_hosts has no key for %s", name)
	}
	return keys, nil
}

// isHash reports whether an entry is the hash of a name: |1|salt|hash.
func isHash(entry, name string) bool {
	parts := strings.Split(entry, "|")
	if len(parts) != 4 || parts[0] != "" || parts[1] != "1" {
		return false
	}
	salt, err := base64.StdEncoding.DecodeString(parts[2])
	if err != nil {
		return false
	}
	want, err := base64.StdEncoding.DecodeString(parts[3])
	if err != nil {
		return false
	}
	mac := hmac.New(sha1.New, salt)
	mac.Write([]byte(name))
	return hmac.Equal(mac.Sum(nil), want)
}

// sharedSSH is the SSH connection of all connections to a daemon: servers limit new connections (MaxStartups of
// sshd_config(5)), and each needs a key exchange. It is closed with the last of them.
type sharedSSH struct {
	uri    hosturi.URI
	config *ssh.ClientConfig

	lock    sync.Mutex
	client  *ssh.Client
	tunnels int
}

// dial connects to the daemon's socket.
func (s *sharedSSH) dial(ctx context.Context) (net.Conn, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	socket := s.uri.Socket
	if socket == "" {
		socket = systemSocket
	}
	if s.client != nil {
		conn, err := s.client.DialContext(ctx, "unix", socket)
		if err == nil {
			s.tunnels++
			return &tunnel{Conn: conn, shared: s, client: s.client}, nil
		}
		if refused := (*ssh.OpenChannelError)(nil); errors.As(err, &refused) || ctx.Err() != nil {
			return nil, fmt.Errorf("opening %s on the host: %w", socket, err)
		}
		// It may be lost without an error so far.
		_ = s.client.Close()
		s.client, s.tunnels = nil, 0
	}
	client, err := connectSSH(ctx, s.uri, s.config)
	if err != nil {
		return nil, err
	}
	conn, err := client.DialContext(ctx, "unix", socket)
	if err != nil {
		_ = client.Close()
		return nil, fmt.Errorf("opening %s on the host: %w", socket, err)
	}
	s.client, s.tunnels = client, 1
	return &tunnel{Conn: conn, shared: s, client: client}, nil
}

// connectSSH connects to the host's SSH server.
func connectSSH(ctx context.Context, uri hosturi.URI, config *ssh.ClientConfig) (*ssh.Client, error) {
	raw, err := (&net.Dialer{}).DialContext(ctx, "tcp", address(uri))
	if err != nil {
		return nil, err
	}
	// The end of the context closes the connection.
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	defer stop()
	known := false
	checked := *config
	checked.HostKeyCallback = func(name string, remote net.Addr, key ssh.PublicKey) error {
		err := config.HostKeyCallback(name, remote, key)
		known = err == nil
		return err
	}
	transport, channels, requests, err := ssh.NewClientConn(raw, address(uri), &checked)
	if err != nil {
		_ = raw.Close()
		var network net.Error
		cutOff := errors.Is(err, io.EOF) || errors.As(err, &network) || ctx.Err() != nil
		// After the host's key was accepted, a failure means that the user wasn't.
		if errors.Is(err, errHostKey) || known && !cutOff {
			return nil, &hypervisor.Error{Operation: "connecting with SSH to", Object: address(uri), Reason: hypervisor.ErrDenied, Cause: err}
		}
		return nil, err
	}
	return ssh.NewClient(transport, channels, requests), nil
}

// tunnel is a connection through SSH. Closing the last one closes the SSH connection.
type tunnel struct {
	net.Conn
	shared *sharedSSH
	client *ssh.Client
	once   sync.Once
}

func (t *tunnel) Close() error {
	err := t.Conn.Close()
	t.once.Do(func() {
		t.shared.lock.Lock()
		defer t.shared.lock.Unlock()
		if t.client != t.shared.client {
			return // another connection has replaced it
		}
		if t.shared.tunnels--; t.shared.tunnels == 0 {
			err = errors.Join(err, t.client.Close())
			t.shared.client = nil
		}
	})
	return err
}
