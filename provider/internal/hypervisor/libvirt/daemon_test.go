package libvirt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"
	. "github.com/onsi/gomega"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hosturi"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor/hypervisortest"
)

const daemonTimeout = 60 * time.Second

// daemon is a libvirtd of the tests' own, with its own folders. It doesn't run as root, because
// libvirt would then use the machine's own folders.
type daemon struct {
	folder string
	stop   func()
}

var (
	testDaemon *daemon
	errDaemon  error
)

// TestMain starts one libvirtd for all tests that want one.
func TestMain(m *testing.M) {
	if len(missingPrograms()) == 0 {
		testDaemon, errDaemon = startDaemon()
	}
	status := m.Run()
	if testDaemon != nil {
		testDaemon.stop()
	}
	os.Exit(status)
}

func missingPrograms() []string {
	var missing []string
	for _, program := range []string{"libvirtd", "qemu-system-x86_64", "qemu-img"} {
		if _, err := exec.LookPath(program); err != nil {
			missing = append(missing, program)
		}
	}
	return missing
}

// theDaemon returns the tests' libvirtd, or ends the test when there is none.
func theDaemon(t *testing.T) *daemon {
	t.Helper()
	if missing := missingPrograms(); len(missing) > 0 {
		without(t, strings.Join(missing, ", "))
	}
	if errDaemon != nil {
		t.Fatalf("starting libvirtd: %v", errDaemon)
	}
	return testDaemon
}

// without ends a test that lacks something: it is skipped, and fails in CI where it could have been
// installed.
func without(t *testing.T, missing string) {
	t.Helper()
	message := fmt.Sprintf("there is no %s: run hack/tools/libvirt, which installs Debian's packages", missing)
	if _, err := exec.LookPath("apt-get"); os.Getenv("CI") != "" && os.Getuid() == 0 && err == nil {
		t.Fatal(message)
	}
	t.Skip(message)
}

func startDaemon() (_ *daemon, err error) {
	// Not the tests' own temporary folder: the path of a socket has to be short.
	folder, err := os.MkdirTemp("/tmp", "caplv")
	if err != nil {
		return nil, err
	}
	d := &daemon{folder: folder, stop: func() { _ = os.RemoveAll(folder) }}
	defer func() {
		if err != nil {
			d.stop()
		}
	}()
	command := exec.CommandContext(context.Background(), "libvirtd")
	command.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + folder, "XDG_RUNTIME_DIR=" + filepath.Join(folder, "run"),
		"XDG_CONFIG_HOME=" + filepath.Join(folder, "config"), "XDG_CACHE_HOME=" + filepath.Join(folder, "cache"),
		"XDG_DATA_HOME=" + filepath.Join(folder, "data"),
	}
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	folders := []string{folder}
	for _, name := range []string{"run", "config", "cache", "data", "pool"} {
		folders = append(folders, filepath.Join(folder, name))
		if err := os.Mkdir(filepath.Join(folder, name), 0o700); err != nil {
			return nil, err
		}
	}
	if os.Getuid() == 0 {
		nobody, err := credential("nobody")
		if err != nil {
			return nil, err
		}
		command.SysProcAttr.Credential = nobody
		for _, folder := range folders {
			if err := os.Chown(folder, int(nobody.Uid), int(nobody.Gid)); err != nil {
				return nil, err
			}
		}
	}
	log, err := os.Create(filepath.Join(folder, "log"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	command.Stdout, command.Stderr = log, log
	if err := command.Start(); err != nil {
		return nil, err
	}
	d.stop = func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		_ = command.Wait()
		_ = os.RemoveAll(folder)
	}
	return d, d.prepare()
}

func credential(name string) (*syscall.Credential, error) {
	found, err := user.Lookup(name)
	if err != nil {
		return nil, err
	}
	uid, err := strconv.ParseUint(found.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(found.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

func (d *daemon) uri() hosturi.URI {
	return hosturi.URI{
		Driver: hosturi.QEMU, Transport: hosturi.Unix, Path: "/session",
		Socket: filepath.Join(d.folder, "run", "libvirt", "libvirt-sock"),
	}
}

func (d *daemon) connect(ctx context.Context) (hypervisor.Hypervisor, error) {
	return Connect(ctx, d.uri(), Credentials{})
}

// prepare waits for the daemon and makes its storage pool.
func (d *daemon) prepare() error {
	ctx, cancel := context.WithTimeout(context.Background(), daemonTimeout)
	defer cancel()
	for {
		connection, err := d.connect(ctx)
		if err != nil {
			select {
			case <-ctx.Done():
				log, logErr := os.ReadFile(filepath.Join(d.folder, "log"))
				return errors.Join(err, logErr, errors.New(string(log)))
			case <-time.After(50 * time.Millisecond):
				continue
			}
		}
		defer func() { _ = connection.Close() }()
		return connection.(*host).run(ctx, "making the pool", "", func(client *golibvirt.Libvirt) error {
			xml := fmt.Sprintf("<pool type='dir'><name>default</name><target><path>%s</path></target></pool>", filepath.Join(d.folder, "pool"))
			_, err := client.StoragePoolCreateXML(xml, 0)
			return err
		})
	}
}

// empty removes all domains and volumes.
func (d *daemon) empty(t *testing.T) {
	t.Helper()
	g := NewWithT(t)
	ctx, cancel := context.WithTimeout(context.Background(), daemonTimeout)
	defer cancel()
	connection, err := d.connect(ctx)
	g.Expect(err).ToNot(HaveOccurred())
	defer func() { _ = connection.Close() }()
	domains, err := connection.ListDomains(ctx)
	g.Expect(err).ToNot(HaveOccurred())
	for _, domain := range domains {
		g.Expect(connection.StopDomain(ctx, domain.UUID)).To(Succeed())
		g.Expect(connection.UndefineDomain(ctx, domain.UUID)).To(Succeed())
	}
	volumes, err := connection.PoolVolumes(ctx, "default")
	g.Expect(err).ToNot(HaveOccurred())
	for _, volume := range volumes {
		g.Expect(connection.DeleteVolume(ctx, volume.VolumeRef)).To(Succeed())
	}
}

// define writes a domain without an operating system, emulated.
func define(uuid, name string, owner *hypervisor.Owner, disks ...hypervisor.VolumeRef) hypervisor.Definition {
	metadata := ""
	if owner != nil {
		var err error
		if metadata, err = owner.Metadata(); err != nil {
			panic(err)
		}
	}
	devices := ""
	for i, disk := range disks {
		devices += fmt.Sprintf("<disk type='volume' device='disk'><driver name='qemu' type='raw'/><source pool='%s' volume='%s'/><target dev='vd%c' bus='virtio'/></disk>",
			disk.Pool, disk.Name, 'a'+i)
	}
	return hypervisor.Definition{UUID: uuid, Name: name, XML: fmt.Sprintf("<domain type='qemu'><name>%s</name><uuid>%s</uuid><metadata>%s</metadata>"+
		"<memory unit='MiB'>32</memory><vcpu>1</vcpu><os><type arch='x86_64' machine='q35'>hvm</type></os><features><acpi/></features>"+
		"<devices>%s<channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel></devices></domain>", name, uuid, metadata, devices)}
}

func TestContract(t *testing.T) {
	d := theDaemon(t)
	hypervisortest.Contract(t, func(t *testing.T) hypervisortest.Fixture {
		t.Helper()
		t.Cleanup(func() { d.empty(t) })
		return hypervisortest.Fixture{Connect: d.connect, Pool: "default", Define: define}
	})
}
