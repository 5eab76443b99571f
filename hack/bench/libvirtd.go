package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"
)

// libvirtd is a daemon with libvirt's test driver, which simulates a hypervisor, behind a socket that adds what the
// driver lacks.
//
// The socket forwards libvirt's protocol, counts calls, and makes only these changes: it accepts and discards uploads
// to volumes, which the driver does not support; the driver's machine has x86_64 instead of i686, and more memory and
// storage; domains of the type qemu get the type test.
type libvirtd struct {
	folder, socket string
	command        *exec.Cmd
	listener       net.Listener
	calls          *callCounter
	// slow is the delay of each answer.
	slow atomic.Int64
	// kept is a connection that stays open.
	kept *golibvirt.Libvirt
}

// callCounter counts calls by their number in libvirt's protocol.
type callCounter struct {
	lock  sync.Mutex
	calls map[uint32]int
}

func (c *callCounter) add(procedure uint32) {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.calls[procedure]++
}

// take returns the counts, and resets them.
func (c *callCounter) take() map[uint32]int {
	c.lock.Lock()
	defer c.lock.Unlock()
	calls := c.calls
	c.calls = map[uint32]int{}
	return calls
}

// startLibvirtd starts a daemon, not as root, because libvirt would then use the machine's own folders.
func startLibvirtd(number int, calls *callCounter) (_ *libvirtd, err error) {
	folder, err := os.MkdirTemp("/tmp", "caplvbench") // the path of a socket has to be short
	if err != nil {
		return nil, err
	}
	d := &libvirtd{folder: folder, socket: filepath.Join(folder, fmt.Sprintf("host-%d", number)), calls: calls}
	defer func() {
		if err != nil {
			d.stop()
		}
	}()
	var credential *syscall.Credential
	if os.Getuid() == 0 {
		if credential, err = nobody(); err != nil {
			return nil, err
		}
		if err := os.Chown(folder, int(credential.Uid), int(credential.Gid)); err != nil {
			return nil, err
		}
	}
	d.command = exec.CommandContext(context.Background(), "libvirtd", "--timeout", "0")
	d.command.Env = []string{"PATH=" + os.Getenv("PATH") + ":/usr/sbin", "HOME=" + folder}
	for _, name := range []string{"XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME"} {
		d.command.Env = append(d.command.Env, name+"="+filepath.Join(folder, name))
	}
	d.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Credential: credential}
	if err := d.command.Start(); err != nil {
		d.command = nil
		return nil, fmt.Errorf("starting libvirtd, which hack/tools/libvirt installs: %w", err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		conn, err := net.Dial("unix", d.behind())
		if err == nil {
			_ = conn.Close()
			break
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("waiting for libvirtd: %w", err)
		}
	}
	if d.listener, err = net.Listen("unix", d.socket); err != nil {
		return nil, err
	}
	go d.serve()
	return d, nil
}

func nobody() (*syscall.Credential, error) {
	who, err := user.Lookup("nobody")
	if err != nil {
		return nil, err
	}
	uid, err := strconv.ParseUint(who.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(who.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, err
}

// behind is the daemon's own socket.
func (d *libvirtd) behind() string {
	return filepath.Join(d.folder, "XDG_RUNTIME_DIR", "libvirt", "libvirt-sock")
}

func (d *libvirtd) stop() {
	if d.kept != nil {
		_ = d.kept.Disconnect()
	}
	if d.listener != nil {
		_ = d.listener.Close()
	}
	if d.command != nil {
		_ = d.command.Process.Signal(syscall.SIGTERM)
		_ = d.command.Wait()
	}
	_ = os.RemoveAll(d.folder)
}

func (d *libvirtd) serve() {
	for {
		client, err := d.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("unix", d.behind())
		if err != nil {
			_ = client.Close()
			continue
		}
		l := &line{client: client, server: server, calls: d.calls, slow: &d.slow, uploads: map[uint32]bool{}}
		go l.pass(client, l.fromClient)
		go l.pass(server, l.fromServer)
	}
}

// The protocol: https://libvirt.org/kbase/internals/rpc.html. Numbers are those of remote_protocol.x.
const (
	remoteProgram = 0x20008086
	headerBytes   = 28

	callPacket, replyPacket, streamPacket = 0, 1, 3
	statusOK                              = 0

	procNodeGetInfo        = 6
	procGetCapabilities    = 7
	procStoragePoolGetInfo = 87
	procStorageVolUpload   = 208
	procDefineXMLFlags     = 350

	// memoryKiB and storageBytes are the sizes that the host reports.
	memoryKiB    = 1 << 30
	storageBytes = 1 << 45
)

// line is one connection.
type line struct {
	client, server net.Conn
	calls          *callCounter
	slow           *atomic.Int64
	toClient       sync.Mutex
	// uploads are the serial numbers of uploads that the socket accepts. Only fromClient uses it.
	uploads map[uint32]bool
}

func (l *line) pass(from io.Reader, handle func(packet []byte) error) {
	defer func() { _ = errors.Join(l.client.Close(), l.server.Close()) }()
	var length [4]byte
	for {
		if _, err := io.ReadFull(from, length[:]); err != nil {
			return
		}
		size := binary.BigEndian.Uint32(length[:])
		if size < headerBytes || size > 64<<20 {
			return
		}
		packet := make([]byte, size)
		copy(packet, length[:])
		if _, err := io.ReadFull(from, packet[4:]); err != nil {
			return
		}
		if err := handle(packet); err != nil {
			return
		}
	}
}

func word(packet []byte, number int) uint32 { return binary.BigEndian.Uint32(packet[4*number:]) }

func isRemote(packet []byte, kind uint32) bool {
	return word(packet, 1) == remoteProgram && word(packet, 4) == kind
}

func (l *line) fromClient(packet []byte) error {
	procedure, serial := word(packet, 3), word(packet, 5)
	switch {
	case isRemote(packet, callPacket):
		l.calls.add(procedure)
		if procedure == procStorageVolUpload {
			l.uploads[serial] = true
			return l.answer(packet, replyPacket)
		}
		if procedure == procDefineXMLFlags {
			packet = bytes.Replace(packet, []byte(`<domain type="qemu">`), []byte(`<domain type="test">`), 1)
		}
	case isRemote(packet, streamPacket) && l.uploads[serial]:
		if word(packet, 6) != statusOK {
			return nil // content
		}
		delete(l.uploads, serial)
		return l.answer(packet, streamPacket)
	}
	_, err := l.server.Write(packet)
	return err
}

// answer sends a successful answer to the client.
func (l *line) answer(to []byte, kind uint32) error {
	packet := bytes.Clone(to[:headerBytes])
	binary.BigEndian.PutUint32(packet, headerBytes)
	binary.BigEndian.PutUint32(packet[16:], kind)
	binary.BigEndian.PutUint32(packet[24:], statusOK)
	return l.send(packet)
}

func (l *line) send(packet []byte) error {
	l.toClient.Lock()
	defer l.toClient.Unlock()
	_, err := l.client.Write(packet)
	return err
}

func (l *line) fromServer(packet []byte) error {
	if isRemote(packet, replyPacket) && word(packet, 6) == statusOK {
		content := packet[headerBytes:]
		switch word(packet, 3) {
		case procGetCapabilities:
			packet = bytes.Replace(packet, []byte("      <arch>i686<"), []byte("    <arch>x86_64<"), 1)
		case procNodeGetInfo:
			binary.BigEndian.PutUint64(content[4*32:], memoryKiB) // after the model, of 32 characters
		case procStoragePoolGetInfo:
			binary.BigEndian.PutUint64(content[4:], storageBytes)  // the capacity
			binary.BigEndian.PutUint64(content[20:], storageBytes) // the free space
		}
	}
	if delay := time.Duration(l.slow.Load()); delay > 0 {
		time.AfterFunc(delay, func() { _ = l.send(packet) })
		return nil
	}
	return l.send(packet)
}
