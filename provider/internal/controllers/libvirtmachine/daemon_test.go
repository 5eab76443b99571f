package libvirtmachine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/domainxml"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/fleet"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor/libvirt"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/images"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/libvirtd"
)

// killableDaemon is a real libvirt daemon that is killed, and started again some reconciles later.
type killableDaemon struct {
	*libvirtd.Daemon

	lock sync.Mutex
	// down is the number of reconciles until it is started again.
	down  int
	kills int
}

func newKillableDaemon() (*killableDaemon, error) {
	daemon, err := libvirtd.New()
	if err != nil {
		return nil, err
	}
	return &killableDaemon{Daemon: daemon}, nil
}

// downtime is how many reconciles a daemon misses.
const downtime = 4

func (d *killableDaemon) kill() {
	d.lock.Lock()
	defer d.lock.Unlock()
	if d.down == 0 {
		d.Kill()
		d.down = downtime
		d.kills++
	}
}

// pass is called before each reconcile.
func (d *killableDaemon) pass() error {
	d.lock.Lock()
	defer d.lock.Unlock()
	if d.down == 0 {
		return nil
	}
	if d.down--; d.down == 0 {
		return d.Start()
	}
	return nil
}

// calm starts the daemon if it was killed, and calls do while it can't be killed.
func (d *killableDaemon) calm(do func() error) error {
	d.lock.Lock()
	defer d.lock.Unlock()
	if d.down > 0 {
		d.down = 0
		if err := d.Start(); err != nil {
			return err
		}
	}
	return do()
}

// end stops the daemon, and the guests that a failed test has left.
func (d *killableDaemon) end() error {
	guests, err := d.Guests()
	for _, guest := range guests {
		err = errors.Join(err, syscall.Kill(guest, syscall.SIGKILL))
	}
	d.lock.Lock()
	defer d.lock.Unlock()
	d.Stop()
	return err
}

// daemonHosts are hosts of a real fleet, as one process sees them.
type daemonHosts struct {
	*fleet.Fleet
	process *process
}

// Hypervisor implements Hosts.
func (h daemonHosts) Hypervisor(host string) (hypervisor.Hypervisor, error) {
	connected, err := h.Fleet.Hypervisor(host)
	if err != nil {
		return nil, err
	}
	return &killable{Hypervisor: withoutNetworks{connected}, process: h.process}, nil
}

// Snapshot implements Hosts. Its pool is large enough, because disks here stay empty.
func (h daemonHosts) Snapshot(host string) (fleet.Snapshot, bool) {
	snapshot, known := h.Fleet.Snapshot(host)
	if pool, exists := snapshot.Pools["default"]; exists {
		pool.CapacityBytes, pool.AvailableBytes = 1<<40, 1<<40
		snapshot.Pools = maps.Clone(snapshot.Pools)
		snapshot.Pools["default"] = pool
	}
	snapshot.Facts.Features = append(slices.Clone(snapshot.Facts.Features), infrav1.HostFeatureBIOS)
	return snapshot, known
}

// Refresh implements Hosts.
func (h daemonHosts) Refresh(ctx context.Context, host, uuid string) error {
	return run(h.process, "libvirt: refresh", func() error { return h.Fleet.Refresh(ctx, host, uuid) })
}

// withoutNetworks defines domains without interfaces, because the daemon isn't root and creates no networks. It answers
// for a DHCP server while the domain runs.
type withoutNetworks struct{ hypervisor.Hypervisor }

var interfaceXML = regexp.MustCompile(`(?s)<interface .*?</interface>`)

func (h withoutNetworks) DefineDomain(ctx context.Context, definition hypervisor.Definition) error {
	definition.XML = interfaceXML.ReplaceAllString(definition.XML, "")
	return h.Hypervisor.DefineDomain(ctx, definition)
}

func (h withoutNetworks) Addresses(ctx context.Context, uuid string, _ hypervisor.AddressSource) ([]hypervisor.InterfaceAddress, error) {
	domain, err := h.Domain(ctx, uuid)
	if err != nil || domain.State != hypervisor.StateRunning {
		return nil, err
	}
	return []hypervisor.InterfaceAddress{{MAC: domainxml.MACAddress(uuid, 0), Address: netip.MustParseAddr("192.0.2.7")}}, nil
}

// imageFolder serves a folder with an image for QEMU.
func imageFolder(t *testing.T) (url, sum string) {
	t.Helper()
	folder := t.TempDir()
	for _, arguments := range [][]string{
		{"qemu-img", "create", "-f", "qcow2", "image.qcow2", "1G"},
		{"qemu-io", "-c", "write -P 7 0 9M", "image.qcow2"},
	} {
		command := exec.CommandContext(t.Context(), arguments[0], arguments[1:]...)
		command.Dir = folder
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", arguments, err, out)
		}
	}
	content, err := os.ReadFile(filepath.Join(folder, "image.qcow2"))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.FileServer(http.Dir(folder)))
	t.Cleanup(server.Close)
	return server.URL + "/image.qcow2", checksum(content)
}

// daemonWorld is a world whose host is a real daemon.
type daemonWorld struct {
	*world
	*manager
	daemon *killableDaemon
	life   int
}

// newDaemonWorld creates a machine's world, in which the daemon isn't killed yet.
func newDaemonWorld(t *testing.T, daemon *killableDaemon, life int, url, sum string) *daemonWorld {
	t.Helper()
	w := newWorld(t, func(infra *infrav1.LibvirtMachine) {
		lives[life].change(infra)
		infra.Spec.Image.URL, infra.Spec.Image.Checksum = url, sum
		infra.Spec.RootDisk.Size, infra.Spec.Memory = resource.MustParse("3Gi"), resource.MustParse("64Mi")
		infra.Spec.CPU.Mode, infra.Spec.Firmware.Type = infrav1.CPUModeMaximum, infrav1.FirmwareBIOS
		infra.Spec.GuestAgent = ptr.To(false) // its folder is too deep for the agent's socket
	}, "a")
	w.silent = true
	w.keepConsoleLogs(daemon.ConsoleFolder())
	o := &daemonWorld{world: w, manager: w.newManager(0), daemon: daemon, life: life}
	sessions := fleet.New(fleet.Libvirt, fleet.Options{MinBackoff: 20 * time.Millisecond, MaxBackoff: 200 * time.Millisecond, SettleTime: 5 * time.Millisecond})
	sessions.Ensure("a", fleet.Target{URI: daemon.URI(), Pools: []string{"default"}})
	seen := daemonHosts{Fleet: sessions, process: o.process}
	o.Hosts = seen
	o.Images = images.New(seen.Hypervisor, sessions.Pools, images.Options{Sources: testSources, FirstRetry: 20 * time.Millisecond, LastRetry: 200 * time.Millisecond, CleanUpTimeout: time.Second})
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { _ = sessions.Start(ctx) })
	group.Go(func() { _ = o.Images.Start(ctx) })
	t.Cleanup(func() {
		cancel()
		group.Wait()
	})
	w.everyReconcile = func() {
		w.Expect(daemon.pass()).To(Succeed())
		time.Sleep(5 * time.Millisecond)
	}
	return o
}

// onHost lists the objects on the host and the claims, in the format of inventory.
func (o *daemonWorld) onHost() (machine, image []string) {
	var volumes []hypervisor.Volume
	var domains []hypervisor.Domain
	o.Expect(o.daemon.calm(func() error {
		connection, err := libvirt.Connect(context.Background(), o.daemon.URI(), libvirt.Credentials{})
		if err != nil {
			return err
		}
		defer func() { _ = connection.Close() }()
		var volumesErr, domainsErr error
		volumes, volumesErr = connection.PoolVolumes(context.Background(), "default")
		domains, domainsErr = connection.ListDomains(context.Background())
		return errors.Join(volumesErr, domainsErr)
	})).To(Succeed())
	for _, volume := range volumes {
		if strings.HasPrefix(volume.Name, "caplv-image-") {
			image = append(image, volume.Name)
			continue
		}
		machine = append(machine, "a: volume uuid"+ownerHash.ReplaceAllString(volume.Name[36:], "-"))
	}
	for _, domain := range domains {
		machine = append(machine, fmt.Sprintf("a: domain %s", domain.State))
	}
	for _, claim := range o.claims() {
		machine = append(machine, "claim "+claim.Name)
	}
	slices.Sort(machine)
	return withoutCopyID(machine), image
}

// runLife runs a machine's whole life: at its end the host has had one guest, and has no objects left.
func (o *daemonWorld) runLife() {
	o.t.Helper()
	o.until(o.manager, o.isProvisioned)
	id := o.uuid()
	provisioned, image := o.onHost()
	o.Expect(provisioned).To(Equal(lives[o.life].provisioned))
	o.Expect(image).To(HaveLen(2), "the image and its marker")
	guest, err := o.daemon.Guests()
	o.Expect(err).ToNot(HaveOccurred())
	o.Expect(guest).To(HaveLen(1))
	o.Expect(os.ReadDir(o.daemon.ConsoleFolder())).To(HaveLen(1))
	said := o.output()

	o.joinNode()
	if o.infra().Spec.BootstrapFormat == infrav1.BootstrapFormatIgnition {
		o.until(o.manager, o.hasCondition(infrav1.SeedRemovedCondition, infrav1.SeedRemovedReason))
		provisioned, _ = o.onHost()
		o.Expect(provisioned).To(Equal(lives[o.life].node))
	} else { // a guest without an operating system doesn't release it
		o.until(o.manager, o.hasCondition(infrav1.SeedRemovedCondition, infrav1.SeedInUseReason))
	}
	o.Expect(o.isProvisioned()).To(BeTrue())
	o.Expect(o.uuid()).To(Equal(id))
	o.Expect(o.daemon.Guests()).To(Equal(guest), "the guest continues to run")
	said += o.output()

	o.delete()
	o.until(o.manager, o.isDeleted)
	provisioned, _ = o.onHost()
	o.Expect(provisioned).To(BeEmpty())
	o.Expect(os.ReadDir(o.daemon.ConsoleFolder())).To(BeEmpty())
	o.Expect(o.daemon.Guests()).To(BeEmpty())
	o.Expect(said + o.output()).ToNot(ContainSubstring(secret))
}

// removeImages deletes the images of the daemon's pool for the next life.
func (d *killableDaemon) removeImages() error {
	files, err := filepath.Glob(filepath.Join(d.PoolFolder(), "*"))
	if err != nil {
		return err
	}
	connection, err := libvirt.Connect(context.Background(), d.URI(), libvirt.Credentials{})
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }()
	var errs []error
	for _, file := range files {
		errs = append(errs, connection.DeleteVolume(context.Background(), hypervisor.VolumeRef{Pool: "default", Name: filepath.Base(file)}))
	}
	return errors.Join(errs...)
}
