package hypervisortest

import (
	"context"
	"testing"

	"github.com/onsi/gomega"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

func lifeOfADomain(t *testing.T, f Fixture) {
	g := gomega.NewWithT(t)
	ctx, host := f.connected(t)
	owner := &hypervisor.Owner{Cluster: "a<&>'\"b", Namespace: "default", Name: "m-1"}

	definition := f.Define(uuid1, "m-1", owner)
	g.Expect(host.DefineDomain(ctx, definition)).To(gomega.Succeed())
	g.Expect(host.DefineDomain(ctx, definition)).To(gomega.Succeed(), "again")
	g.Expect(host.DefineDomain(ctx, f.Define(uuid2, "foreign", nil))).To(gomega.Succeed())
	domain, err := host.Domain(ctx, uuid1)
	g.Expect(err).ToNot(gomega.HaveOccurred())
	g.Expect(domain.UUID).To(gomega.Equal(uuid1))
	g.Expect(domain.Name).To(gomega.Equal("m-1"))
	g.Expect(domain.State).To(gomega.Equal(hypervisor.StateShutOff))
	g.Expect(domain.Owner).To(gomega.Equal(owner))
	g.Expect(domain.CPUs).To(gomega.BeEquivalentTo(1))
	g.Expect(domain.MemoryBytes).To(gomega.BeNumerically(">", 1<<20))

	g.Expect(host.SetAutostart(ctx, uuid1, true)).To(gomega.Succeed())
	g.Expect(host.SetAutostart(ctx, uuid1, false)).To(gomega.Succeed())

	g.Expect(host.StopDomain(ctx, uuid1)).To(gomega.Succeed(), "an inactive domain")
	g.Expect(host.StartDomain(ctx, uuid1)).To(gomega.Succeed())
	g.Expect(host.StartDomain(ctx, uuid1)).To(gomega.Succeed(), "again")
	all, err := host.ListDomains(ctx)
	g.Expect(err).ToNot(gomega.HaveOccurred())
	g.Expect(all).To(gomega.HaveLen(2))
	g.Expect([]string{all[0].UUID, all[1].UUID}).To(gomega.Equal([]string{uuid1, uuid2}))
	g.Expect([]bool{all[0].State.Active(), all[1].State.Active()}).To(gomega.Equal([]bool{true, false}))
	g.Expect(all[0].Owner).To(gomega.Equal(owner))
	g.Expect(all[1].Owner).To(gomega.BeNil())

	g.Expect(host.UndefineDomain(ctx, uuid1)).To(failsWith(hypervisor.ErrBusy))
	domain, err = host.Domain(ctx, uuid1)
	g.Expect(err).ToNot(gomega.HaveOccurred())
	g.Expect(domain.State.Active()).To(gomega.BeTrue())
	g.Expect(host.StopDomain(ctx, uuid1)).To(gomega.Succeed())
	g.Expect(host.StopDomain(ctx, uuid1)).To(gomega.Succeed(), "again")
	g.Expect(host.UndefineDomain(ctx, uuid1)).To(gomega.Succeed())
	g.Expect(host.UndefineDomain(ctx, uuid1)).To(failsWith(hypervisor.ErrNotFound))
	g.Expect(host.UndefineDomain(ctx, uuid2)).To(gomega.Succeed())
	g.Expect(host.ListDomains(ctx)).To(gomega.BeEmpty())
}

func definitionsThatClash(t *testing.T, f Fixture) {
	g := gomega.NewWithT(t)
	ctx, host := f.connected(t)
	g.Expect(host.DefineDomain(ctx, f.Define(uuid1, "m-1", nil))).To(gomega.Succeed())
	g.Expect(host.DefineDomain(ctx, f.Define(uuid2, "m-1", nil))).To(failsWith(hypervisor.ErrAlreadyExists), "the name")
	g.Expect(host.DefineDomain(ctx, f.Define(uuid1, "m-2", nil))).To(failsWith(hypervisor.ErrAlreadyExists), "the UUID")

	mismatch := f.Define(uuid2, "m-2", nil)
	mismatch.Name = "m-3"
	g.Expect(host.DefineDomain(ctx, mismatch)).To(failsWith(hypervisor.ErrInvalid))
	g.Expect(host.DefineDomain(ctx, hypervisor.Definition{UUID: uuid2, Name: "m-2", XML: "<domain"})).To(failsWith(hypervisor.ErrInvalid))

	g.Expect(host.ListDomains(ctx)).To(gomega.HaveLen(1))
	g.Expect(host.UndefineDomain(ctx, uuid1)).To(gomega.Succeed())
}

func disksOfADomain(t *testing.T, f Fixture) {
	g := gomega.NewWithT(t)
	ctx, host := f.connected(t)
	root := hypervisor.VolumeRef{Pool: f.Pool, Name: "root"}
	seed := hypervisor.VolumeRef{Pool: f.Pool, Name: "seed"}
	g.Expect(host.DefineDomain(ctx, f.Define(uuid1, "m-1", nil, root, seed))).To(gomega.Succeed())
	domain, err := host.Domain(ctx, uuid1)
	g.Expect(err).ToNot(gomega.HaveOccurred())
	g.Expect(domain.Disks).To(gomega.Equal([]hypervisor.VolumeRef{root, seed}))

	g.Expect(host.StartDomain(ctx, uuid1)).To(failsWith(hypervisor.ErrInvalid), "without its volumes")
	for _, ref := range domain.Disks {
		g.Expect(host.CreateVolume(ctx, hypervisor.VolumeSpec{VolumeRef: ref, Format: hypervisor.FormatRaw, CapacityBytes: 1 << 20})).Error().ToNot(gomega.HaveOccurred())
	}
	g.Expect(host.StartDomain(ctx, uuid1)).To(gomega.Succeed())
	domain, err = host.Domain(ctx, uuid1)
	g.Expect(err).ToNot(gomega.HaveOccurred())
	g.Expect(domain.Disks).To(gomega.Equal([]hypervisor.VolumeRef{root, seed}), "while it runs")
	g.Expect(host.StopDomain(ctx, uuid1)).To(gomega.Succeed())

	// Detaching from a running domain needs a guest; see the tests of the implementations.
	g.Expect(host.DetachDisk(ctx, uuid1, seed)).To(gomega.Succeed())
	g.Expect(host.DetachDisk(ctx, uuid1, seed)).To(gomega.Succeed(), "again")
	g.Expect(host.Domain(ctx, uuid1)).To(gomega.HaveField("Disks", gomega.Equal([]hypervisor.VolumeRef{root})))
	g.Expect(host.DeleteVolume(ctx, seed)).To(gomega.Succeed())

	g.Expect(host.StartDomain(ctx, uuid1)).To(gomega.Succeed())
	g.Expect(host.DeleteVolume(ctx, root)).To(gomega.Succeed(), "also in use")
	g.Expect(host.StopDomain(ctx, uuid1)).To(gomega.Succeed())
	g.Expect(host.UndefineDomain(ctx, uuid1)).To(gomega.Succeed())
}

func addresses(t *testing.T, f Fixture) {
	g := gomega.NewWithT(t)
	ctx, host := f.connected(t)
	g.Expect(host.DefineDomain(ctx, f.Define(uuid1, "m-1", nil))).To(gomega.Succeed())
	for _, active := range []bool{false, true} {
		if active {
			g.Expect(host.StartDomain(ctx, uuid1)).To(gomega.Succeed())
		}
		found, err := host.Addresses(ctx, uuid1, hypervisor.SourceLease)
		g.Expect(err).ToNot(gomega.HaveOccurred(), "active: %v", active)
		g.Expect(found).To(gomega.BeEmpty())
		g.Expect(host.Addresses(ctx, uuid1, hypervisor.SourceAgent)).Error().To(failsWith(hypervisor.ErrUnsupported), "active: %v", active)
	}
	g.Expect(host.StopDomain(ctx, uuid1)).To(gomega.Succeed())
	g.Expect(host.UndefineDomain(ctx, uuid1)).To(gomega.Succeed())
}

func watch(t *testing.T, f Fixture) {
	g := gomega.NewWithT(t)
	ctx, host := f.connected(t)
	_, another := f.connected(t)
	g.Expect(another.DefineDomain(ctx, f.Define(uuid1, "m-1", nil))).To(gomega.Succeed())

	watching, stop := context.WithCancel(ctx)
	defer stop()
	watch, err := host.Watch(watching)
	g.Expect(err).ToNot(gomega.HaveOccurred())
	g.Expect(watch.Domains).To(gomega.HaveLen(1))
	g.Expect(watch.Domains[0].UUID).To(gomega.Equal(uuid1))

	for _, change := range []struct {
		uuid string
		make func() error
	}{
		{uuid2, func() error { return another.DefineDomain(ctx, f.Define(uuid2, "m-2", nil)) }},
		{uuid1, func() error { return another.StartDomain(ctx, uuid1) }},
		{uuid1, func() error { return another.StopDomain(ctx, uuid1) }},
		{uuid2, func() error { return another.UndefineDomain(ctx, uuid2) }},
	} {
		g.Expect(change.make()).To(gomega.Succeed())
		g.Eventually(watch.Changed).WithTimeout(callTimeout).Should(gomega.Receive(gomega.Equal(change.uuid)))
	}
	stop()
	g.Eventually(watch.Changed).WithTimeout(callTimeout).Should(gomega.BeClosed())
	g.Expect(another.UndefineDomain(ctx, uuid1)).To(gomega.Succeed())
	g.Expect(host.ListDomains(ctx)).To(gomega.BeEmpty(), "the end of a watch doesn't close its connection")
}

// definitionOfAnActiveDomain checks that redefining an active domain changes nothing until it has stopped.
func definitionOfAnActiveDomain(t *testing.T, f Fixture) {
	g := gomega.NewWithT(t)
	ctx, host := f.connected(t)
	refs := []hypervisor.VolumeRef{{Pool: f.Pool, Name: "root"}, {Pool: f.Pool, Name: "more"}}
	for _, ref := range refs {
		g.Expect(host.CreateVolume(ctx, hypervisor.VolumeSpec{VolumeRef: ref, Format: hypervisor.FormatRaw, CapacityBytes: 1 << 20})).Error().ToNot(gomega.HaveOccurred())
	}
	owner := &hypervisor.Owner{Cluster: "c", Namespace: "default", Name: "m-1"}
	g.Expect(host.DefineDomain(ctx, f.Define(uuid1, "m-1", nil, refs[0]))).To(gomega.Succeed())
	g.Expect(host.StartDomain(ctx, uuid1)).To(gomega.Succeed())
	before, err := host.Domain(ctx, uuid1)
	g.Expect(err).ToNot(gomega.HaveOccurred())
	g.Expect(host.DefineDomain(ctx, f.Define(uuid1, "m-1", owner, refs...))).To(gomega.Succeed())
	g.Expect(host.Domain(ctx, uuid1)).To(gomega.Equal(before))
	g.Expect(host.StopDomain(ctx, uuid1)).To(gomega.Succeed())
	after, err := host.Domain(ctx, uuid1)
	g.Expect(err).ToNot(gomega.HaveOccurred())
	g.Expect(after.State).To(gomega.Equal(hypervisor.StateShutOff))
	g.Expect(after.Disks).To(gomega.ConsistOf(refs[0], refs[1]))
	g.Expect(after.Owner).To(gomega.Equal(owner))
	g.Expect(host.UndefineDomain(ctx, uuid1)).To(gomega.Succeed())
	for _, ref := range refs {
		g.Expect(host.DeleteVolume(ctx, ref)).To(gomega.Succeed())
	}
}
