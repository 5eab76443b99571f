package test

import (
	"context"

	golibvirt "github.com/digitalocean/go-libvirt"
	"github.com/google/uuid"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterctl-release/clusterctl-release/internal/testbed"
	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// keptHosts has one host that no namespace may use until the scene allows its namespace.
var keptHosts = []testbed.HostSpec{{Name: "host-k1", FailureDomain: "k", Namespace: "nobody"}}

// dedicated is the CPU of the host that machines with cpu.dedicated get.
const dedicated = 1

// keptHost: a namespace that may not use a host gets no machine there and no message about it. When it is allowed, its
// machines start there, with disks in two pools. One machine has a dedicated CPU, which no other machine uses, and the
// next one with cpu.dedicated waits for it.
func keptHost(ctx context.Context, g *WithT, w *world) {
	const host = "host-k1"
	g.Expect(w.hosts[host].AddPool("second")).To(Succeed())
	patch(ctx, g, w.Client, client.ObjectKey{Name: host}, &infrav1.LibvirtHost{}, func(o *infrav1.LibvirtHost) {
		o.Spec.DedicatedCPUs = itoa(dedicated)
		o.Spec.StoragePools.Disks = append(o.Spec.StoragePools.Disks, "second")
	})
	c := w.newCluster(ctx, g, "kept")
	c.createBare(ctx, g, "k")
	c.createMachine(ctx, g, "plain", func(spec *infrav1.LibvirtMachineSpec) {
		spec.ExtraDisks = []infrav1.ExtraDiskSpec{{Name: "data", Size: resource.MustParse("64Mi"), Pool: "second"}}
	})
	eventually(g, func(g Gomega) {
		var infra infrav1.LibvirtCluster
		g.Expect(c.client.Get(ctx, c.key, &infra)).To(Succeed())
		g.Expect(infra.Status.Conditions).To(ContainElement(And(isCondition(infrav1.HostsAvailableCondition, "False"),
			HaveField("Reason", infrav1.NamespaceNotAllowedReason), HaveField("Message", Not(ContainSubstring(host))))))
		g.Expect(infra.Status.FailureDomains).To(BeEmpty())
		var plain infrav1.LibvirtMachine
		g.Expect(c.client.Get(ctx, client.ObjectKey{Namespace: c.key.Namespace, Name: "plain"}, &plain)).To(Succeed())
		g.Expect(plain.Status.Conditions).To(ContainElement(And(isCondition(infrav1.ReadyCondition, "False"),
			HaveField("Message", Not(ContainSubstring(host))))))
		g.Expect(plain.Spec.HostName).To(BeEmpty())
	})
	patch(ctx, g, w.Client, client.ObjectKey{Name: host}, &infrav1.LibvirtClusterIdentity{}, func(o *infrav1.LibvirtClusterIdentity) {
		o.Spec.AllowedNamespaces.List = append(o.Spec.AllowedNamespaces.List, c.key.Namespace)
	})
	plain := c.startedOn(ctx, g, "plain", host)
	g.Expect(plain.report.Disks).To(Equal(map[string]int64{"data": 64 << 20}))
	g.Expect(c.domainXML(g, plain.infra)).To(And(ContainSubstring("<source pool='default' volume='"+plain.volume("root")+"'"), ContainSubstring("<source pool='second' volume='"+plain.uuid()+"-")))

	dedicatedCPU := func(spec *infrav1.LibvirtMachineSpec) { spec.CPU.Dedicated = ptr.To(true) }
	c.createMachine(ctx, g, "first", dedicatedCPU)
	first := c.startedOn(ctx, g, "first", host)
	c.createMachine(ctx, g, "second", dedicatedCPU)
	eventually(g, func(g Gomega) {
		var second infrav1.LibvirtMachine
		g.Expect(c.client.Get(ctx, client.ObjectKey{Namespace: c.key.Namespace, Name: "second"}, &second)).To(Succeed())
		g.Expect(second.Status.Conditions).To(ContainElement(And(isCondition(infrav1.HostBoundCondition, "False"),
			HaveField("Reason", infrav1.NoHostFitsReason), HaveField("Message", ContainSubstring("dedicated CPUs: 1 needed, 0 free")))))
	})
	g.Expect(w.cpusOf(g, host, first)).To(HaveEach(Equal([]int{dedicated})))
	g.Expect(w.cpusOf(g, host, plain)).To(HaveEach(And(Not(BeEmpty()), Not(ContainElement(dedicated)))))

	g.Expect(c.client.Delete(ctx, &first.machine)).To(Succeed())
	g.Expect(w.cpusOf(g, host, c.startedOn(ctx, g, "second", host))).To(HaveEach(Equal([]int{dedicated})))
	g.Expect(c.client.Get(ctx, client.ObjectKeyFromObject(&first.infra), &infrav1.LibvirtMachine{})).To(MatchError(apierrors.IsNotFound, "not found"))
	eventually(g, func(g Gomega) { c.exactly(ctx, g) })
	c.delete(ctx, g)
}

// startedOn is started, and checks the host.
func (c *cluster) startedOn(ctx context.Context, g *WithT, name, host string) machine {
	m := c.started(ctx, g, name)
	g.Expect(m.infra.Spec.HostName).To(Equal(host), name)
	return m
}

// cpusOf returns the CPUs of the host that each virtual CPU of a running machine may use, according to libvirt.
func (w *world) cpusOf(g *WithT, host string, m machine) (cpus [][]int) {
	const bytes = 16 // for 128 CPUs
	w.connected(g, host, func(connection *golibvirt.Libvirt) error {
		id, err := uuid.Parse(m.uuid())
		if err != nil {
			return err
		}
		domain, err := connection.DomainLookupByUUID(golibvirt.UUID(id))
		if err != nil {
			return err
		}
		masks, count, err := connection.DomainGetVcpuPinInfo(domain, m.infra.Spec.CPUs, bytes, uint32(golibvirt.DomainAffectLive))
		if err != nil {
			return err
		}
		for virtual := range int(count) {
			var on []int
			for bit := range 8 * bytes {
				if masks[virtual*bytes+bit/8]&(1<<(bit%8)) != 0 {
					on = append(on, bit)
				}
			}
			cpus = append(cpus, on)
		}
		return nil
	})
	g.Expect(cpus).To(HaveLen(int(m.infra.Spec.CPUs)))
	return cpus
}
