package libvirtmachine

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/fleet"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor/libvirt"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/images"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/libvirtd"
)

// realHost is a host with a real libvirt daemon, without a fleet.
type realHost struct{ connection hypervisor.Hypervisor }

// Hypervisor implements Hosts.
func (h realHost) Hypervisor(string) (hypervisor.Hypervisor, error) { return h.connection, nil }

// Refresh implements Hosts. The snapshot is always new.
func (h realHost) Refresh(context.Context, string, string) error { return nil }

// RefreshPool implements Hosts.
func (h realHost) RefreshPool(_, pool string) {
	_ = h.connection.RefreshPool(context.Background(), pool)
}

// Snapshot implements Hosts. It returns the current state.
func (h realHost) Snapshot(string) (fleet.Snapshot, bool) {
	ctx := context.Background()
	snapshot := fleet.Snapshot{Pools: map[string]fleet.Pool{}, Domains: map[string]hypervisor.Domain{}}
	if snapshot.Facts, snapshot.Err = h.connection.Facts(ctx); snapshot.Err != nil {
		return snapshot, true
	}
	snapshot.Facts.CPUs = 64 // more than this machine may have: guests here are idle
	snapshot.Facts.Features = append(snapshot.Facts.Features, infrav1.HostFeatureBIOS)
	pool := fleet.Pool{Volumes: map[string]hypervisor.Volume{}}
	if pool.Pool, snapshot.Err = h.connection.Pool(ctx, "default"); snapshot.Err != nil {
		return snapshot, true
	}
	pool.CapacityBytes, pool.AvailableBytes = 1<<40, 1<<40 // more than this machine may have: disks here stay empty
	volumes, err := h.connection.PoolVolumes(ctx, "default")
	if err != nil {
		return fleet.Snapshot{Err: err}, true
	}
	for _, volume := range volumes {
		pool.Volumes[volume.Name] = volume
	}
	snapshot.Pools["default"] = pool
	domains, err := h.connection.ListDomains(ctx)
	for _, domain := range domains {
		snapshot.Domains[domain.UUID] = domain
	}
	snapshot.Reachable, snapshot.Err = err == nil, err
	return snapshot, true
}

// newRealWorld returns a world whose host a is a real daemon, and a manager that uses it.
func newRealWorld(t *testing.T, daemon *libvirtd.Daemon, change func(*infrav1.LibvirtMachine)) (*world, *manager, hypervisor.Hypervisor) {
	t.Helper()
	url, sum := imageFolder(t)
	w := newWorld(t, func(infra *infrav1.LibvirtMachine) {
		if change != nil {
			change(infra)
		}
		infra.Spec.Image.URL, infra.Spec.Image.Checksum = url, sum
		infra.Spec.RootDisk.Size, infra.Spec.Memory = resource.MustParse("3Gi"), resource.MustParse("256Mi")
		infra.Spec.CPU.Mode, infra.Spec.Firmware.Type = infrav1.CPUModeMaximum, infrav1.FirmwareBIOS
		infra.Spec.Interfaces = nil           // the daemon isn't root and creates no networks
		infra.Spec.GuestAgent = ptr.To(false) // its folder is too deep for the agent's socket
	}, "a")
	w.silent = true
	w.keepConsoleLogs(daemon.ConsoleFolder())
	connection, err := libvirt.Connect(t.Context(), daemon.URI(), libvirt.Credentials{})
	w.Expect(err).ToNot(HaveOccurred())
	t.Cleanup(func() { _ = connection.Close() })
	m := w.newManager(0)
	m.Hosts = realHost{connection}
	m.Scheduler.Hosts = m.Hosts
	m.Images = images.New(m.Hosts.Hypervisor, func(string) []string { return []string{"default"} }, images.Options{Sources: testSources})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Images.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		w.Expect(<-ended).To(Succeed())
	})
	return w, m, connection
}

// TestOnARealHost creates machines with a real libvirt and QEMU, and deletes them. The guests have no operating system
// and no addresses. Machines with an operating system are tested with the testbed.
func TestOnARealHost(t *testing.T) {
	libvirtd.Need(t)
	daemon, err := libvirtd.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(daemon.Stop)
	for _, life := range lives {
		t.Run(life.name, func(t *testing.T) {
			w, m, connection := newRealWorld(t, daemon, life.change)
			w.until(m, w.hasCondition(infrav1.InstanceReadyCondition, infrav1.InstanceRunningReason))
			w.Expect(conditions.GetReason(w.infra(), infrav1.AddressesReadyCondition)).To(Equal(infrav1.NoAddressSourceReason))
			domain, err := connection.Domain(t.Context(), w.uuid())
			w.Expect(err).ToNot(HaveOccurred())
			w.Expect(domain.ConsoleLog).To(Equal(filepath.Join(daemon.ConsoleFolder(), domain.Name+"-console.log")))
			w.Expect(domain.ConsoleLog).To(BeAnExistingFile())
			root, err := connection.Volume(t.Context(), domain.Disks[0])
			w.Expect(err).ToNot(HaveOccurred())
			w.Expect(root.CapacityBytes).To(BeEquivalentTo(3 << 30))
			full := w.infra().Spec.RootDisk.Clone == infrav1.CloneFull
			w.Expect(root.BackingPath == "").To(Equal(full), "%+v", root)
			seed, err := os.ReadFile(filepath.Join(daemon.PoolFolder(), w.volumeName("seed")))
			w.Expect(err).ToNot(HaveOccurred())
			w.Expect(string(seed)).To(ContainSubstring(secret))
			w.Expect(w.output()).ToNot(ContainSubstring(secret))

			// The Ignition configuration can be removed from a running guest. A guest without an operating
			// system doesn't release a NoCloud disk.
			s := &scope{Reconciler: m.Reconciler, infra: w.infra(), machine: &clusterv1.Machine{Spec: clusterv1.MachineSpec{ClusterName: "blue"}}, uuid: w.uuid(), domain: &domain,
				host: &infrav1.LibvirtHost{Spec: infrav1.LibvirtHostSpec{StoragePools: infrav1.HostStoragePools{Disks: []string{"default"}}}}, connection: connection}
			s.machine.Status.NodeRef.Name = "node"
			_, err = s.removeSeed(t.Context())
			w.Expect(err).ToNot(HaveOccurred())
			if s.infra.Spec.BootstrapFormat == infrav1.BootstrapFormatIgnition {
				w.Expect(conditions.GetReason(s.infra, infrav1.SeedRemovedCondition)).To(Equal(infrav1.SeedRemovedReason))
				w.Expect(filepath.Join(daemon.PoolFolder(), w.volumeName("seed"))).ToNot(BeAnExistingFile())
			} else {
				w.Expect(conditions.GetReason(s.infra, infrav1.SeedRemovedCondition)).To(Equal(infrav1.SeedInUseReason))
			}

			w.updateOnARealHost(m, connection)
			w.delete()
			w.until(m, w.isDeleted)
			left, err := connection.PoolVolumes(t.Context(), "default")
			w.Expect(err).ToNot(HaveOccurred())
			w.Expect(left).To(HaveLen(2), "the image and its marker")
			for _, volume := range left {
				w.Expect(strings.HasPrefix(volume.Name, "caplv-image-")).To(BeTrue(), volume.Name)
			}
			w.Expect(connection.ListDomains(t.Context())).To(BeEmpty())
			w.Expect(os.ReadDir(daemon.ConsoleFolder())).To(BeEmpty())
		})
	}
}
