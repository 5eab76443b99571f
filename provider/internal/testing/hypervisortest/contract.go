// Package hypervisortest tests implementations of hypervisor.Hypervisor against its contract. The fake and the real one
// pass the same tests, so that tests with the fake are meaningful.
package hypervisortest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/onsi/gomega"
	"github.com/onsi/gomega/types"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// callTimeout ends a test whose host doesn't answer. It doesn't check the speed of hosts.
const callTimeout = 2 * time.Minute

// Fixture is a host for the tests. At the beginning of a test its pool is empty and it has no domains.
type Fixture struct {
	// Connect opens a connection.
	Connect func(ctx context.Context) (hypervisor.Hypervisor, error)
	// ConnectWithLimit opens a connection with a time limit for calls.
	ConnectWithLimit func(ctx context.Context, limit time.Duration) (hypervisor.Hypervisor, error)
	// Freeze delays all answers of the host until thaw is called.
	Freeze func() (thaw func(), err error)
	// Pool is the name of an active storage pool for files.
	Pool string
	// Network is the name of an active network, or empty if the host can't have one.
	Network string
	// Folder is a folder of the host outside of all storage pools.
	Folder string
	// HasConsoleLog reports whether libvirt has created a file for a guest's console.
	HasConsoleLog func(path string) bool
	// PutFile puts a file into the pool, without libvirt.
	PutFile func(name string, content []byte) error
	// Define returns a small domain with these disks and this owner, if any.
	Define func(uuid, name string, owner *hypervisor.Owner, disks ...hypervisor.VolumeRef) hypervisor.Definition
}

// The UUIDs of the tests' domains.
const (
	uuid1   = "11111111-1111-4111-8111-111111111111"
	uuid2   = "22222222-2222-4222-8222-222222222222"
	missing = "99999999-9999-4999-8999-999999999999"
)

// Contract runs the tests, each with a new fixture.
func Contract(t *testing.T, fixture func(t *testing.T) Fixture) {
	t.Helper()
	for _, test := range []struct {
		name string
		run  func(t *testing.T, f Fixture)
	}{
		{"facts of the host", hostFacts},
		{"network interfaces", interfaces},
		{"missing objects", whatIsMissing},
		{"storage pools", pools},
		{"volumes", volumes},
		{"uploads", uploads},
		{"one creator wins", oneCreatorWins},
		{"files of others", filesOfOthers},
		{"life of a domain", lifeOfADomain},
		{"conflicting definitions", definitionsThatClash},
		{"disks of a domain", disksOfADomain},
		{"size of a domain", sizeOfADomain},
		{"Ignition configuration of a domain", ignitionOfADomain},
		{"console log of a domain", consoleLogOfADomain},
		{"definition of an active domain", definitionOfAnActiveDomain},
		{"growing disks", disksThatGrow},
		{"addresses", addresses},
		{"watch", watch},
		{"ends of contexts and connections", ends},
		{"late answers", lateAnswers},
		{"calls after their limit", callsPastTheirLimit},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, fixture(t)) })
	}
}

// connected opens a connection that is closed at the end of the test.
func (f Fixture) connected(t *testing.T) (context.Context, hypervisor.Hypervisor) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	t.Cleanup(cancel)
	host, err := f.Connect(ctx)
	if err != nil {
		t.Fatalf("connecting: %v", err)
	}
	t.Cleanup(func() {
		if err := host.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	return ctx, host
}

// failsWith matches an error of type hypervisor.Error with a reason.
func failsWith(reason error) types.GomegaMatcher {
	return gomega.And(gomega.MatchError(reason), gomega.WithTransform(func(err error) bool {
		var typed *hypervisor.Error
		return errors.As(err, &typed) && typed.Operation != "" && errors.Is(typed.Reason, reason)
	}, gomega.BeTrue()))
}

func hostFacts(t *testing.T, f Fixture) {
	g := gomega.NewWithT(t)
	ctx, host := f.connected(t)

	facts, err := host.Facts(ctx)
	g.Expect(err).ToNot(gomega.HaveOccurred())
	g.Expect(facts.LibvirtVersion).To(gomega.MatchRegexp(`^\d+\.\d+\.\d+$`))
	g.Expect(facts.Architecture).ToNot(gomega.BeElementOf("", "x86_64", "aarch64"))
	g.Expect(facts.CPUs).To(gomega.BeNumerically(">", 0))
	g.Expect(facts.MemoryBytes).To(gomega.BeNumerically(">", 1<<20))
	g.Expect(facts.UUID).To(gomega.MatchRegexp(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`))
	_, another := f.connected(t)
	g.Expect(another.Facts(ctx)).To(gomega.HaveField("UUID", gomega.Equal(facts.UUID)), "the UUID is the same on each connection")

	pool, err := host.Pool(ctx, f.Pool)
	g.Expect(err).ToNot(gomega.HaveOccurred())
	g.Expect(pool.Name).To(gomega.Equal(f.Pool))
	g.Expect(pool.Active).To(gomega.BeTrue())
	g.Expect(pool.CapacityBytes).To(gomega.BeNumerically(">=", pool.AvailableBytes))
	g.Expect(pool.AvailableBytes).To(gomega.BeNumerically(">", 0))

	if f.Network != "" {
		g.Expect(host.Network(ctx, f.Network)).To(gomega.Equal(hypervisor.Network{Name: f.Network, Active: true, LinuxBridge: true}))
	}
}

func interfaces(t *testing.T, f Fixture) {
	g := gomega.NewWithT(t)
	ctx, host := f.connected(t)
	_, err := host.HasInterface(ctx, "lo")
	if errors.Is(err, hypervisor.ErrUnsupported) { // a daemon without udev
		g.Expect(err).To(failsWith(hypervisor.ErrUnsupported))
		g.Expect(host.HasInterface(ctx, "missing")).Error().To(failsWith(hypervisor.ErrUnsupported), "not false")
		return
	}
	g.Expect(host.HasInterface(ctx, "lo")).To(gomega.BeTrue())
	g.Expect(host.HasInterface(ctx, "missing")).To(gomega.BeFalse())
	g.Expect(host.HasInterface(ctx, "l")).To(gomega.BeFalse())
}

func whatIsMissing(t *testing.T, f Fixture) {
	ctx, host := f.connected(t)
	inPool := hypervisor.VolumeRef{Pool: f.Pool, Name: "missing"}
	noPool := hypervisor.VolumeRef{Pool: "missing", Name: "missing"}
	spec := hypervisor.VolumeSpec{VolumeRef: noPool, Format: hypervisor.FormatRaw, CapacityBytes: 1 << 20}
	for name, call := range map[string]func() error{
		"pool":             func() error { _, err := host.Pool(ctx, "missing"); return err },
		"network":          func() error { _, err := host.Network(ctx, "missing"); return err },
		"volume":           func() error { _, err := host.Volume(ctx, inPool); return err },
		"volume, no pool":  func() error { _, err := host.Volume(ctx, noPool); return err },
		"list, no pool":    func() error { _, err := host.PoolVolumes(ctx, "missing"); return err },
		"refresh, no pool": func() error { return host.RefreshPool(ctx, "missing") },
		"create, no pool":  func() error { _, err := host.CreateVolume(ctx, spec); return err },
		"clone, no source": func() error { _, err := host.CloneVolume(ctx, spec, inPool); return err },
		"upload":           func() error { return host.UploadVolume(ctx, inPool, emptyReader{}, 0) },
		"resize":           func() error { return host.ResizeVolume(ctx, inPool, 1<<30) },
		"delete":           func() error { return host.DeleteVolume(ctx, inPool) },
		"domain":           func() error { _, err := host.Domain(ctx, missing); return err },
		"autostart":        func() error { return host.SetAutostart(ctx, missing, true) },
		"start":            func() error { return host.StartDomain(ctx, missing) },
		"shut down":        func() error { return host.ShutdownDomain(ctx, missing) },
		"resize domain": func() error {
			return host.ResizeDomain(ctx, missing, hypervisor.Size{CPUs: 1, MemoryBytes: 1 << 25})
		},
		"Ignition":  func() error { return host.RemoveIgnition(ctx, missing) },
		"stop":      func() error { return host.StopDomain(ctx, missing) },
		"console":   func() error { return host.RemoveConsoleLog(ctx, missing) },
		"undefine":  func() error { return host.UndefineDomain(ctx, missing) },
		"detach":    func() error { return host.DetachDisk(ctx, missing, inPool) },
		"grow":      func() error { return host.GrowDisk(ctx, missing, inPool, 1<<30) },
		"addresses": func() error { _, err := host.Addresses(ctx, missing, hypervisor.SourceLease); return err },
	} {
		t.Run(name, func(t *testing.T) { gomega.NewWithT(t).Expect(call()).To(failsWith(hypervisor.ErrNotFound)) })
	}
}

func ends(t *testing.T, f Fixture) {
	g := gomega.NewWithT(t)
	ctx, host := f.connected(t)

	over, cancel := context.WithCancel(ctx)
	cancel()
	_, err := host.Domain(over, uuid1)
	g.Expect(err).To(failsWith(hypervisor.ErrTimeout))
	g.Expect(err).To(gomega.MatchError(context.Canceled))
	g.Expect(hypervisor.Uncertain(err)).To(gomega.BeTrue())
	g.Expect(host.Facts(ctx)).Error().ToNot(gomega.HaveOccurred(), "a call with an ended context doesn't close the connection")

	watch, err := host.Watch(ctx)
	g.Expect(err).ToNot(gomega.HaveOccurred())
	g.Expect(host.Close()).To(gomega.Succeed())
	g.Expect(host.Close()).To(gomega.Succeed())
	g.Eventually(watch.Changed).WithTimeout(callTimeout).Should(gomega.BeClosed())
	g.Expect(host.Facts(ctx)).Error().To(failsWith(hypervisor.ErrUnreachable))
	g.Expect(host.Watch(ctx)).Error().To(failsWith(hypervisor.ErrUnreachable))

	_, again := f.connected(t)
	g.Expect(again.Facts(ctx)).Error().ToNot(gomega.HaveOccurred())
}
