// Package libvirthost runs libvirt hosts in a sandbox: each has its own libvirtd, with its own folders,
// its own network, a storage pool, and a network for guests with DHCP. They are reached by TLS or SSH.
package libvirthost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
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

// The pool and the network that each host has.
const (
	Pool    = "default"
	Network = "default"
)

// Options say what host to run.
type Options struct {
	// Name of the host, at most 11 characters.
	Name string
	// Dir is a folder for its files. It is made.
	Dir string
	// Network that the host is reached by.
	Network *sandbox.Network
	// Guests are the addresses of the host's guests, at least 16. The host itself has the first. They are
	// routed through Network.
	Guests netip.Prefix
	// CA signs the certificates of the host and of its clients.
	CA *authority.Authority
	// AuthorizedKey may reach libvirtd by SSH. None: there is no SSH server, and the host is reached by TLS.
	AuthorizedKey ssh.PublicKey
}

// Host is a libvirt host.
type Host struct {
	// Namespace of the host's network.
	Namespace *sandbox.Namespace

	options Options
	reports *http.Server
	ssh     *sshServer

	mutex   sync.Mutex
	daemon  *sandbox.Process
	reached []report.Report
	news    chan struct{}
}

// Start starts a host, makes its pool and its network, and waits until it is ready.
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
		return nil, fmt.Errorf("making the pool and the network of the host %s: %w", options.Name, err)
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

// URI is what a LibvirtHost has for the host.
func (h *Host) URI() string {
	if h.ssh != nil {
		return "qemu+ssh://root@" + h.Namespace.Address.String() + "/system"
	}
	return "qemu+tls://" + h.Namespace.Address.String() + "/system"
}

// Gateway is the host's address in the network of its guests.
func (h *Host) Gateway() netip.Addr {
	return h.options.Guests.Masked().Addr().Next()
}

func (h *Host) path(parts ...string) string {
	return filepath.Join(append([]string{h.options.Dir}, parts...)...)
}

// folders are what libvirt has on a machine, and where a host has them. Programs of other hosts see
// their own.
var folders = map[string]string{
	"etc": "/etc/libvirt", "lib": "/var/lib/libvirt", "cache": "/var/cache/libvirt", "log": "/var/log/libvirt", "run": "/run/libvirt",
	// swtpm keeps an authority for the certificates of TPMs, and logs of its own.
	"swtpm-localca": "/var/lib/swtpm-localca", "swtpm-log": "/var/log/swtpm",
}

// daemonConfiguration has a UUID because all hosts of a testbed are one machine, by whose UUID libvirt would
// call them.
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

// qemuConfiguration does without what a sandbox doesn't have: control groups, security modules, users
// for guests, and the daemon of logs.
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
	// Debian's package has it, and libvirt opens a guest's console log before it would make the folder.
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

// writeNames adds the user of libvirt's guests to those of the machine. The daemon wants one even where
// it is told to use another, and it is there only where Debian's package of the system daemon is.
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
	// libvirtd asks for the address of its own name when it starts and for every guest that it starts,
	// and there is nobody who would answer.
	names := fmt.Sprintf("127.0.0.1 localhost\n%s %s\n", h.Namespace.Address, h.options.Name)
	return os.WriteFile(h.path("hosts"), []byte(names), 0o644)
}

// StartDaemon starts the host's libvirtd, also again after KillDaemon, and waits until it answers.
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

// Connect connects to the host by its socket, past its network.
func (h *Host) Connect() (*golibvirt.Libvirt, error) {
	client := golibvirt.NewWithDialer(dialers.NewLocal(dialers.WithSocket(h.path("run", "libvirt-sock"))))
	return client, client.ConnectToURI(golibvirt.QEMUSystem)
}

// KillDaemon kills the host's libvirtd with signal 9. Its guests run on.
func (h *Host) KillDaemon() {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	// Guests and dnsmasq are in sessions of their own, so the group is the daemon alone.
	h.daemon.Kill()
}

// Stop ends all that the host runs, with its guests, and takes its network away. Its files stay.
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
		// It has a process of its own, for DHCP.
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

// prepare makes the pool and the network, which a daemon that is started again finds again.
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
	// A lease stays until it ends, as nobody gives it back for a guest that was destroyed: it is the
	// shortest that dnsmasq gives, which guests renew.
	//
	// Mode open leaves the machine's packet filters alone, of which there are none in a sandbox.
	network, err := client.NetworkDefineXML(fmt.Sprintf("<network><name>%s</name><forward mode='open'/><bridge name='virbr0' stp='off' delay='0'/>"+
		"<ip address='%s' prefix='%d'><dhcp><range start='%s' end='%s'><lease expiry='%d' unit='seconds'/></range></dhcp></ip></network>", Network, h.Gateway(), h.options.Guests.Bits(), first, last, int(leaseTime.Seconds())))
	if err != nil {
		return err
	}
	return errors.Join(client.NetworkCreate(network), client.NetworkSetAutostart(network, 1))
}

// Static are the first and the last address for guests that DHCP doesn't give: the last quarter of
// those that guests may have.
func (h *Host) Static() (first, last netip.Addr) {
	guests := h.options.Guests.Masked()
	last = lastOf(guests)
	bytes := last.As4()
	for bit := guests.Bits() + 2; bit < 32; bit++ {
		bytes[bit/8] &^= 1 << (7 - bit%8)
	}
	return netip.AddrFrom4(bytes), last
}

// lastOf is the last address of a prefix of IPv4 that a guest may have.
func lastOf(prefix netip.Prefix) netip.Addr {
	bytes := prefix.Masked().Addr().As4()
	for bit := prefix.Bits(); bit < 31; bit++ {
		bytes[bit/8] |= 1 << (7 - bit%8)
	}
	return netip.AddrFrom4(bytes)
}

// listenForReports takes what the host's guests tell.
func (h *Host) listenForReports(ctx context.Context) error {
	listener, err := h.Namespace.Listen(ctx, net.JoinHostPort(h.Gateway().String(), report.Port))
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+report.Path, func(_ http.ResponseWriter, request *http.Request) {
		var got report.Report
		if err := json.NewDecoder(request.Body).Decode(&got); err != nil {
			panic(http.ErrAbortHandler)
		}
		got.From, _, _ = net.SplitHostPort(request.RemoteAddr)
		h.mutex.Lock()
		defer h.mutex.Unlock()
		h.reached = append(h.reached, got)
		close(h.news)
		h.news = make(chan struct{})
	})
	h.reports = &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = h.reports.Serve(listener) }()
	return nil
}

// Reports returns what the host's guests have told, the oldest first, and a channel that is closed
// when there is more.
func (h *Host) Reports() ([]report.Report, <-chan struct{}) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return append([]report.Report(nil), h.reached...), h.news
}
