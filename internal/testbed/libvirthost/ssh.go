package libvirthost

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

const (
	sshPort = "22"
	// daemonSocket is the path of libvirtd's socket.
	daemonSocket = "/run/libvirt/libvirt-sock"
	// streamLocal requests a channel to a socket on the server, as `ssh -L` does (OpenSSH's PROTOCOL, 2.4).
	streamLocal = "direct-streamlocal@openssh.com"
)

var errUnknownKey = errors.New("the key isn't an authorized one")

// sshServer allows one key to connect to the socket of a host's libvirtd, and nothing else.
type sshServer struct {
	listener net.Listener
	hostKey  ssh.Signer
	// target is the path of the daemon's socket in the sandbox.
	target string

	mutex       sync.Mutex
	authorized  ssh.PublicKey
	connections map[net.Conn]bool
}

func (s *sshServer) lets(key ssh.PublicKey) bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return bytes.Equal(key.Marshal(), s.authorized.Marshal())
}

// Authorize replaces the authorized key of a host with an SSH server.
func (h *Host) Authorize(key ssh.PublicKey) {
	h.ssh.mutex.Lock()
	defer h.ssh.mutex.Unlock()
	h.ssh.authorized = key
}

// startSSH starts the server on the host's own address.
func (h *Host) startSSH(ctx context.Context) error {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return fmt.Errorf("creating the key of the SSH server: %w", err)
	}
	server := &sshServer{target: h.path("run", "libvirt-sock"), authorized: h.options.AuthorizedKey, connections: map[net.Conn]bool{}}
	if server.hostKey, err = ssh.NewSignerFromSigner(key); err != nil {
		return fmt.Errorf("creating the key of the SSH server: %w", err)
	}
	config := &ssh.ServerConfig{PublicKeyCallback: func(_ ssh.ConnMetadata, shown ssh.PublicKey) (*ssh.Permissions, error) {
		if server.lets(shown) {
			return &ssh.Permissions{}, nil
		}
		return nil, errUnknownKey
	}}
	config.AddHostKey(server.hostKey)
	if server.listener, err = h.Namespace.Listen(ctx, net.JoinHostPort(h.Namespace.Address.String(), sshPort)); err != nil {
		return err
	}
	h.ssh = server
	go server.serve(config)
	return nil
}

// KnownHosts returns the line of a known_hosts file for the host's SSH server, or "" without one.
func (h *Host) KnownHosts() string {
	if h.ssh == nil {
		return ""
	}
	return knownhosts.Line([]string{h.Namespace.Address.String()}, h.ssh.hostKey.PublicKey()) + "\n"
}

func (s *sshServer) serve(config *ssh.ServerConfig) {
	for {
		raw, err := s.listener.Accept()
		if err != nil {
			return // the listener is closed
		}
		s.mutex.Lock()
		s.connections[raw] = true
		s.mutex.Unlock()
		go func() {
			s.connection(raw, config)
			_ = raw.Close()
			s.mutex.Lock()
			delete(s.connections, raw)
			s.mutex.Unlock()
		}()
	}
}

func (s *sshServer) connection(raw net.Conn, config *ssh.ServerConfig) {
	_, channels, requests, err := ssh.NewServerConn(raw, config)
	if err != nil {
		return // the protocol sends the client an error
	}
	go ssh.DiscardRequests(requests)
	for asked := range channels {
		go s.channel(asked)
	}
}

// channel connects a client to the daemon until one of them closes.
func (s *sshServer) channel(asked ssh.NewChannel) {
	var wanted struct {
		Path, Reserved string
		Number         uint32
	}
	if asked.ChannelType() != streamLocal {
		_ = asked.Reject(ssh.UnknownChannelType, "the testbed's hosts have only libvirtd's socket, and no "+asked.ChannelType())
		return
	}
	if err := ssh.Unmarshal(asked.ExtraData(), &wanted); err != nil || wanted.Path != daemonSocket {
		_ = asked.Reject(ssh.ConnectionFailed, fmt.Sprintf("the testbed's hosts have only %s, and no %q", daemonSocket, wanted.Path))
		return
	}
	daemon, err := net.Dial("unix", s.target)
	if err != nil {
		_ = asked.Reject(ssh.ConnectionFailed, err.Error())
		return
	}
	defer func() { _ = daemon.Close() }()
	client, requests, err := asked.Accept()
	if err != nil {
		return
	}
	defer func() { _ = client.Close() }()
	go ssh.DiscardRequests(requests)
	ended := make(chan struct{}, 2)
	for _, way := range []struct {
		to   io.Writer
		from io.Reader
	}{{daemon, client}, {client, daemon}} {
		go func() {
			_, _ = io.Copy(way.to, way.from)
			ended <- struct{}{}
		}()
	}
	<-ended
}

// stop ends the server and all its connections.
func (s *sshServer) stop() {
	_ = s.listener.Close()
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for raw := range s.connections {
		_ = raw.Close()
	}
}
