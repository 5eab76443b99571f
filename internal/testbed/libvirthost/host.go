// Package libvirthost runs libvirt hosts in a sandbox: each has its own libvirtd, folders and network, a storage pool,
// and a network for guests with DHCP. They are reached by TLS or SSH.
package libvirthost

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"
	"github.com/digitalocean/go-libvirt/socket/dialers"
	"github.com/google/uuid"
	"golang.org/x/crypto/ssh"

	"github.com/clusterctl-release/clusterctl-release/internal/testbed/authority"
	"github.com/clusterctl-release/clusterctl-release/internal/testbed/guest/report"
	"github.com/clusterctl-release/clusterctl-release/internal/testbed/sandbox"
)

const startTimeout = time.Minute

// The pool and the network of each host.
const (
	Pool    = "default"
	Network = "default"
)

// Options are the options of Start.
type Options struct {
	// Name of the host, at most 11 characters.
	Name string
	// Dir is the folder for its files. Start creates it.
	Dir string
	// Network is the network of the host.
	Network *sandbox.Network
	// Guests are the addresses for the host and its guests, at least 16. The host itself has the first one. They are
	// routed through Network.
	Guests netip.Prefix
	// CA signs the certificates of the host and of its clients.
	CA *authority.Authority
	// AuthorizedKey is the key for SSH. If it is nil, there is no SSH server, and the host is reached by TLS.
	AuthorizedKey ssh.PublicKey
}

// Host is a libvirt host.
type Host struct {
	// Namespace is the host's network namespace.
	Namespace *sandbox.Namespace

	options Options
	reports *http.Server
	ssh     *sshServer

	mutex   sync.Mutex
	daemon  *sandbox.Process
	reached []report.Report
	news    chan struct{}
}

// Start starts a host, creates its pool and its network, and waits until it is ready.
func Start(ctx context.Context, options Options) (_ *Host, err error) {
	h := &Host{options: options, news: make(chan struct{})}
	if h.Namespace, err = options.Network.Join(options.Name); err != nil {
		return nil, err
	}
	if err := h.writeConfiguration(); err != nil {
		return nil, fmt.Errorf("configuring the host %s: %w", options.Name, err)
	}
	defer func() {
		if err != nil {
			h.Stop()
		}
	}()
	if err := h.StartDaemon(ctx); err != nil {
		return nil, err
	}
	if err := h.prepare(); err != nil {
		return nil, fmt.Errorf("creating the pool and the network of the host %s: %w", options.Name, err)
	}
	if err := options.Network.AddRoute(options.Guests.Masked(), h.Namespace.Address); err != nil {
		return nil, err
	}
	if options.AuthorizedKey != nil {
		if err := h.startSSH(ctx); err != nil {
			return nil, err
		}
	}
	return h, h.listenForReports(ctx)
}

// URI returns the URI of the host for a LibvirtHost.
func (h *Host) URI() string {
	if h.ssh != nil {
		return "qemu+ssh://root@" + h.Namespace.Address.String() + "/system"
	}
	return "qemu+tls://" + h.Namespace.Address.String() + "/system"
}

// Gateway returns the host's address in the network of its guests.
func (h *Host) Gateway() netip.Addr {
	return h.options.Guests.Masked().Addr().Next()
}

func (h *Host) path(parts ...string) string {
	return filepath.Join(append([]string{h.options.Dir}, parts...)...)
}

// folders maps libvirt's folders on a machine to those of a host, which are mounted over them.
var folders = map[string]string{
	"etc": "/etc/libvirt", "lib": "/var/lib/libvirt", "cache": "/var/cache/libvirt", "log": "/var/log/libvirt", "run": "/run/libvirt",
	// swtpm stores an authority for the certificates of TPMs, and logs.
	"swtpm-localca": "/var/lib/swtpm-localca", "swtpm-log": "/var/log/swtpm",
}

// daemonConfiguration has a UUID: all hosts of a testbed are on one machine, whose UUID libvirt would use for each.
const daemonConfiguration = `host_uuid = "%s"
listen_tls = 1
listen_tcp = 0
listen_addr = "%s"
auth_tls = "none"
auth_unix_rw = "none"
auth_unix_ro = "none"
ca_file = "/etc/libvirt/ca.crt"
cert_file = "/etc/libvirt/tls.crt"
key_file = "/etc/libvirt/tls.key"
log_outputs = "3:stderr"
`

// qemuConfiguration disables what a sandbox doesn't have: control groups, security modules, users for guests, and the
// log daemon.
const qemuConfiguration = `user = "root"
group = "root"
swtpm_user = "root"
swtpm_group = "root"
remember_owner = 0
security_driver = "none"
cgroup_controllers = []
namespaces = []
stdio_handler = "file"
`

func (h *Host) writeConfiguration() error {
	for name := range folders {
		if err := os.MkdirAll(h.path(name), 0o755); err != nil {
			return err
		}
	}
	// Debian's package contains the folder, and libvirt opens a guest's console log before it would create it.
	if err := os.MkdirAll(h.path("log", "qemu"), 0o755); err != nil {
		return err
	}
	if err := h.writeNames(); err != nil {
		return err
	}
	cert, key, err := h.options.CA.Issue(authority.Request{CommonName: h.options.Name, Names: []string{h.Namespace.Address.String(), h.options.Name}})
	if err != nil {
		return err
	}
	for name, content := range map[string]string{
		"libvirtd.conf": fmt.Sprintf(daemonConfiguration, uuid.NewString(), h.Namespace.Address), "qemu.conf": qemuConfiguration,
		"ca.crt": string(h.options.CA.PEM()), "tls.crt": string(cert), "tls.key": string(key),
	} {
		if err := os.WriteFile(h.path("etc", name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// writeNames adds the user of libvirt's guests to those of the machine. The daemon requires this user even if its
// configuration has another one, and it exists only with Debian's package of the system daemon.
func (h *Host) writeNames() error {
	for name, line := range map[string]string{
		"passwd": "libvirt-qemu:x:64055:64055::/:/usr/sbin/nologin\n", "group": "libvirt-qemu:x:64055:\n",
	} {
		content, err := os.ReadFile(filepath.Join("/etc", name))
		if err != nil {
			return err
		}
		if !strings.Contains("\n"+string(content), "\nlibvirt-qemu:") {
			content = append(content, line...)
		}
		if err := os.WriteFile(h.path(name), content, 0o644); err != nil {
			return err
		}
	}
	// libvirtd resolves its own name when it starts, and for every guest that it starts, and there is no DNS server.
	names := fmt.Sprintf("127.0.0.1 localhost\n%s %s\n", h.Namespace.Address, h.options.Name)
	return os.WriteFile(h.path("hosts"), []byte(names), 0o644)
}

// StartDaemon starts the host's libvirtd, also after KillDaemon, and waits until it answers.
func (h *Host) StartDaemon(ctx context.Context) error {
	command := sandbox.Command{
		Args:     []string{"libvirtd", "--listen", "--config", "/etc/libvirt/libvirtd.conf", "--pid-file", h.path("libvirtd.pid")},
		Env:      []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + h.options.Dir},
		Hostname: h.options.Name, Network: h.Namespace,
	}
	for _, name := range []string{"passwd", "group", "hosts"} {
		command.Mounts = append(command.Mounts, sandbox.Mount{Source: h.path(name), Target: "/etc/" + name, ReadOnly: true})
	}
	for name, target := range folders {
		command.Mounts = append(command.Mounts, sandbox.Mount{Source: h.path(name), Target: target})
	}
	cmd, err := command.Cmd()
	if err != nil {
		return err
	}
	daemon, err := sandbox.Start("libvirtd of "+h.options.Name, cmd, h.path("libvirtd.log"))
	if err != nil {
		return err
	}
	h.mutex.Lock()
	h.daemon = daemon
	h.mutex.Unlock()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		client, err := h.Connect()
		if err == nil {
			return client.Disconnect()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for libvirtd of %s: %w: %s", h.options.Name, errors.Join(err, ctx.Err()), daemon.Tail())
		case <-daemon.Done():
			return daemon.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Connect connects to the host by its socket, without its network.
func (h *Host) Connect() (*golibvirt.Libvirt, error) {
	client := golibvirt.NewWithDialer(dialers.NewLocal(dialers.WithSocket(h.path("run", "libvirt-sock"))))
	return client, client.ConnectToURI(golibvirt.QEMUSystem)
}

// KillDaemon kills the host's libvirtd with signal 9. Its guests keep running.
func (h *Host) KillDaemon() {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	// Guests and dnsmasq have their own sessions, so the group contains only the daemon.
	h.daemon.Kill()
}

// Stop ends all processes of the host, including its guests, and removes its network. Its files stay.
func (h *Host) Stop() {
	if h.ssh != nil {
		h.ssh.stop()
	}
	if h.reports != nil {
		_ = h.reports.Close()
	}
	if client, err := h.Connect(); err == nil {
		if domains, _, err := client.ConnectListAllDomains(1, golibvirt.ConnectListDomainsActive); err == nil {
			for _, domain := range domains {
				_ = client.DomainDestroy(domain)
			}
		}
		// It has a process for DHCP.
		if network, err := client.NetworkLookupByName(Network); err == nil {
			_ = client.NetworkDestroy(network)
		}
		_ = client.Disconnect()
	}
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.daemon != nil {
		h.daemon.Kill()
	}
	_ = h.Namespace.Remove()
}

// prepare creates the pool and the network, which a restarted daemon loads again.
func (h *Host) prepare() error {
	client, err := h.Connect()
	if err != nil {
		return err
	}
	defer func() { _ = client.Disconnect() }()
	if err := h.addPool(client, Pool); err != nil {
		return err
	}
	static, _ := h.Static()
	first, last := h.Gateway().Next(), static.Prev()
	// The lease of a destroyed guest stays until it ends, because nothing releases it. So leases are the shortest that
	// dnsmasq supports, and guests renew them.
	//
	// Mode open doesn't change the machine's packet filters, which a sandbox doesn't have.
	network, err := client.NetworkDefineXML(fmt.Sprintf("<network><name>%s</name><forward mode='open'/><bridge name='virbr0' stp='off' delay='0'/>"+
		"<ip address='%s' prefix='%d'><dhcp><range start='%s' end='%s'><lease expiry='%d' unit='seconds'/></range></dhcp></ip></network>", Network, h.Gateway(), h.options.Guests.Bits(), first, last, int(leaseTime.Seconds())))
	if err != nil {
		return err
	}
	return errors.Join(client.NetworkCreate(network), client.NetworkSetAutostart(network, 1))
}

// Static returns the first and the last address for guests without DHCP: the last quarter of the addresses for guests.
func (h *Host) Static() (first, last netip.Addr) {
	guests := h.options.Guests.Masked()
	last = lastOf(guests)
	bytes := last.As4()
	for bit := guests.Bits() + 2; bit < 32; bit++ {
		bytes[bit/8] &^= 1 << (7 - bit%8)
	}
	return netip.AddrFrom4(bytes), last
}

// lastOf returns the last usable address of an IPv4 prefix.
func lastOf(prefix netip.Prefix) netip.Addr {
	bytes := prefix.Masked().Addr().As4()
	for bit := prefix.Bits(); bit < 31; bit++ {
		bytes[bit/8] |= 1 << (7 - bit%8)
	}
	return netip.AddrFrom4(bytes)
}
