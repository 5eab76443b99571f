package hypervisortest

import (
	"path"
	"strings"
	"testing"

	"github.com/onsi/gomega"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// sizeOfADomain checks that another size changes only the definition, and nothing else in it.
func sizeOfADomain(t *testing.T, f Fixture) {
	g := gomega.NewWithT(t)
	ctx, host := f.connected(t)
	owner := &hypervisor.Owner{Cluster: "c", Namespace: "default", Name: "m-1"}
	root := hypervisor.VolumeRef{Pool: f.Pool, Name: "root"}
	g.Expect(host.CreateVolume(ctx, hypervisor.VolumeSpec{VolumeRef: root, Format: hypervisor.FormatRaw, CapacityBytes: 1 << 20})).Error().ToNot(gomega.HaveOccurred())
	g.Expect(host.DefineDomain(ctx, f.Define(uuid1, "m-1", owner, root))).To(gomega.Succeed())
	before, err := host.Domain(ctx, uuid1)
	g.Expect(err).ToNot(gomega.HaveOccurred())
	g.Expect(host.ShutdownDomain(ctx, uuid1)).To(gomega.Succeed(), "an inactive domain")

	expect := func(state hypervisor.DomainState, cpus int32, memory int64) {
		t.Helper()
		now, err := host.Domain(ctx, uuid1)
		g.Expect(err).ToNot(gomega.HaveOccurred())
		before.State, before.CPUs, before.MemoryBytes = state, cpus, memory
		g.Expect(now).To(gomega.Equal(before))
	}
	g.Expect(host.ResizeDomain(ctx, uuid1, hypervisor.Size{CPUs: 2, MemoryBytes: 48 << 20})).To(gomega.Succeed())
	g.Expect(host.ResizeDomain(ctx, uuid1, hypervisor.Size{CPUs: 2, MemoryBytes: 48 << 20})).To(gomega.Succeed(), "again")
	expect(hypervisor.StateShutOff, 2, 48<<20)
	g.Expect(host.StartDomain(ctx, uuid1)).To(gomega.Succeed())
	expect(hypervisor.StateRunning, 2, 48<<20)
	g.Expect(host.ResizeDomain(ctx, uuid1, hypervisor.Size{CPUs: 1, MemoryBytes: 32 << 20})).To(gomega.Succeed(), "while it runs")
	expect(hypervisor.StateRunning, 2, 48<<20)
	g.Expect(host.StopDomain(ctx, uuid1)).To(gomega.Succeed())
	expect(hypervisor.StateShutOff, 1, 32<<20)
	g.Expect(host.ResizeDomain(ctx, uuid1, hypervisor.Size{})).To(failsWith(hypervisor.ErrInvalid))

	// The guest's part is in the tests of the implementations.
	g.Expect(host.StartDomain(ctx, uuid1)).To(gomega.Succeed())
	expect(hypervisor.StateRunning, 1, 32<<20)
	g.Expect(host.ShutdownDomain(ctx, uuid1)).To(gomega.Succeed())
	g.Expect(host.StopDomain(ctx, uuid1)).To(gomega.Succeed())
	g.Expect(host.UndefineDomain(ctx, uuid1)).To(gomega.Succeed())
	g.Expect(host.DeleteVolume(ctx, root)).To(gomega.Succeed())
}

// ignitionOfADomain checks that the configuration is removed from the definition, also of an active domain, and that
// nothing else changes.
func ignitionOfADomain(t *testing.T, f Fixture) {
	g := gomega.NewWithT(t)
	ctx, host := f.connected(t)
	definition := f.Define(uuid1, "m-1", &hypervisor.Owner{Cluster: "c", Namespace: "default", Name: "m-1"})
	definition.XML = strings.Replace(definition.XML, "</domain>",
		`<sysinfo type="fwcfg"><entry name="opt/com.coreos/config" file="/dev/null"/></sysinfo></domain>`, 1)
	g.Expect(host.DefineDomain(ctx, definition)).To(gomega.Succeed())
	before, err := host.Domain(ctx, uuid1)
	g.Expect(err).ToNot(gomega.HaveOccurred())
	g.Expect(host.RemoveIgnition(ctx, uuid1)).To(gomega.Succeed())
	g.Expect(host.RemoveIgnition(ctx, uuid1)).To(gomega.Succeed(), "again")
	g.Expect(host.StartDomain(ctx, uuid1)).To(gomega.Succeed())
	g.Expect(host.RemoveIgnition(ctx, uuid1)).To(gomega.Succeed(), "while it runs")
	after, err := host.Domain(ctx, uuid1)
	g.Expect(err).ToNot(gomega.HaveOccurred())
	before.State = hypervisor.StateRunning
	g.Expect(after).To(gomega.Equal(before))
	g.Expect(host.StopDomain(ctx, uuid1)).To(gomega.Succeed())
	g.Expect(host.UndefineDomain(ctx, uuid1)).To(gomega.Succeed())
}

// consoleLogOfADomain checks that a domain keeps its file over starts and changes of its definition, until it is
// removed.
func consoleLogOfADomain(t *testing.T, f Fixture) {
	g := gomega.NewWithT(t)
	ctx, host := f.connected(t)
	file := path.Join(f.Folder, hypervisor.ConsoleLogName("m-1"))
	logging := func(file string) hypervisor.Definition {
		definition := f.Define(uuid1, "m-1", nil)
		definition.XML = strings.Replace(definition.XML, "</devices>", "<console type='pty'><log file='"+file+"' append='on'/></console></devices>", 1)
		return definition
	}
	g.Expect(host.DefineDomain(ctx, logging(file))).To(gomega.Succeed())
	g.Expect(host.RemoveConsoleLog(ctx, uuid1)).To(gomega.Succeed(), "before it was started")
	expect := func() {
		t.Helper()
		domain, err := host.Domain(ctx, uuid1)
		g.Expect(err).ToNot(gomega.HaveOccurred())
		g.Expect(domain.ConsoleLog).To(gomega.Equal(file))
	}
	expect()
	g.Expect(host.StartDomain(ctx, uuid1)).To(gomega.Succeed())
	expect()
	g.Expect(host.RemoveConsoleLog(ctx, uuid1)).To(failsWith(hypervisor.ErrBusy))
	g.Expect(host.ResizeDomain(ctx, uuid1, hypervisor.Size{CPUs: 2, MemoryBytes: 48 << 20})).To(gomega.Succeed())
	g.Expect(host.RemoveIgnition(ctx, uuid1)).To(gomega.Succeed())
	g.Expect(host.StopDomain(ctx, uuid1)).To(gomega.Succeed())
	expect()
	g.Expect(host.StartDomain(ctx, uuid1)).To(gomega.Succeed())
	expect()
	g.Expect(host.StopDomain(ctx, uuid1)).To(gomega.Succeed())
	g.Expect(f.HasConsoleLog(file)).To(gomega.BeTrue())
	g.Expect(host.RemoveConsoleLog(ctx, uuid1)).To(gomega.Succeed())
	g.Expect(host.RemoveConsoleLog(ctx, uuid1)).To(gomega.Succeed(), "again")
	g.Expect(f.HasConsoleLog(file)).To(gomega.BeFalse())
	expect()

	another := path.Join(f.Folder, hypervisor.ConsoleLogName("m-2"))
	g.Expect(host.DefineDomain(ctx, logging(another))).To(gomega.Succeed())
	g.Expect(host.StartDomain(ctx, uuid1)).To(gomega.Succeed())
	g.Expect(host.StopDomain(ctx, uuid1)).To(gomega.Succeed())
	g.Expect(host.RemoveConsoleLog(ctx, uuid1)).To(gomega.Succeed())
	g.Expect(f.HasConsoleLog(another)).To(gomega.BeTrue(), "a file that doesn't have the name of the domain")

	g.Expect(host.DefineDomain(ctx, f.Define(uuid1, "m-1", nil))).To(gomega.Succeed())
	g.Expect(host.Domain(ctx, uuid1)).To(gomega.HaveField("ConsoleLog", gomega.BeEmpty()))
	g.Expect(host.RemoveConsoleLog(ctx, uuid1)).To(gomega.Succeed(), "without one")
	g.Expect(host.ListDomains(ctx)).To(gomega.HaveLen(1))
	g.Expect(host.UndefineDomain(ctx, uuid1)).To(gomega.Succeed())
}
