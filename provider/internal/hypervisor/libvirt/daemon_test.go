package libvirt

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"go.uber.org/goleak"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/hypervisortest"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/libvirtd"
)

const daemonTimeout = 3 * time.Minute

// daemon is the libvirtd of these tests.
type daemon struct{ *libvirtd.Daemon }

var (
	testDaemon *libvirtd.Daemon
	errDaemon  error
)

// TestMain starts one libvirtd for all tests that need it, and fails when a test has left a goroutine behind.
func TestMain(m *testing.M) {
	if libvirtd.Installed() {
		testDaemon, errDaemon = libvirtd.New()
	}
	// The library never ends an aborted upload: it waits for itself.
	broken := goleak.IgnoreAnyFunction("github.com/digitalocean/go-libvirt.(*Libvirt).requestStream")
	sending := goleak.IgnoreAnyFunction("github.com/digitalocean/go-libvirt.(*Libvirt).requestStream.func2")
	goleak.VerifyTestMain(m, broken, sending, goleak.Cleanup(func(status int) {
		if testDaemon != nil {
			testDaemon.Stop()
		}
		os.Exit(status)
	}))
}

// theDaemon returns the tests' libvirtd, or fails the test if it couldn't be started.
func theDaemon(t *testing.T) daemon {
	t.Helper()
	libvirtd.Need(t)
	if errDaemon != nil {
		t.Fatalf("starting libvirtd: %v", errDaemon)
	}
	return daemon{testDaemon}
}

func (d daemon) connect(ctx context.Context) (hypervisor.Hypervisor, error) {
	return Connect(ctx, d.URI(), Credentials{})
}

// empty removes all domains and volumes.
func (d daemon) empty(t *testing.T) {
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

// define returns an emulated domain without an operating system.
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
		wire := &wire{}
		connectWithLimit := func(ctx context.Context, limit time.Duration) (hypervisor.Hypervisor, error) {
			dial, err := dialer(d.URI(), Credentials{})
			if err != nil {
				return nil, err
			}
			return connect(ctx, wire.through(dial), d.URI().ConnectURI(), limit)
		}
		return hypervisortest.Fixture{Pool: "default", Folder: d.ConsoleFolder(), Define: define, Freeze: wire.freeze, ConnectWithLimit: connectWithLimit,
			Connect: func(ctx context.Context) (hypervisor.Hypervisor, error) {
				return connectWithLimit(ctx, callLimit)
			},
			HasConsoleLog: func(path string) bool {
				_, err := os.Stat(path)
				return err == nil
			},
			PutFile: func(name string, content []byte) error {
				return os.WriteFile(filepath.Join(d.PoolFolder(), name), content, 0o644)
			}}
	})
}
