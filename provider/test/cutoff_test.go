package test

import (
	"context"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterctl-release/clusterctl-release/internal/testbed"
	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// cutOffHosts are for this scene only, because other scenes would need the host.
var cutOffHosts = []testbed.HostSpec{{Name: "host-c1", FailureDomain: "c", Namespace: "cutoff"}}

// cutOffFor is the minimum time for which the packets of the host are dropped.
const cutOffFor = 3 * time.Minute

// cutOff is a cluster that may use one host that is cut off and one that isn't.
type cutOff struct{ *cluster }

// hostCutOff: packets from and to a host are dropped for minutes. Its objects stay unchanged, the creation and the
// deletion of machines there wait, a machine that fits on another host is created there, and the waiting machines
// continue when packets pass again.
func hostCutOff(ctx context.Context, g *WithT, w *world) {
	c := cutOff{w.newCluster(ctx, g, "cutoff")}
	c.createBare(ctx, g, "b", "c")
	c.createIn(ctx, g, "stays", "c")
	c.createIn(ctx, g, "doomed", "c")
	stays, doomed := c.startedOn(ctx, g, "stays", "host-c1"), c.startedOn(ctx, g, "doomed", "host-c1")

	host := c.hosts["host-c1"].Namespace
	g.Expect(host.Cut()).To(Succeed())
	since := time.Now()
	// The host isn't known to be unreachable yet.
	g.Expect(c.client.Delete(ctx, &doomed.machine)).To(Succeed())
	c.createIn(ctx, g, "requested", "c")
	eventually(g, func(g Gomega) {
		g.Expect(c.reachable(ctx, g, "host-c1")).To(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", infrav1.ConnectionFailedReason)))
	})
	c.createIn(ctx, g, "elsewhere", "")
	elsewhere := c.startedOn(ctx, g, "elsewhere", "host-b1")
	for time.Since(since) < cutOffFor {
		c.waits(ctx, g, stays, doomed)
		time.Sleep(5 * time.Second)
	}
	c.waits(ctx, g, stays, doomed)
	g.Expect(c.reachable(ctx, g, "host-c1")).To(HaveField("Status", metav1.ConditionFalse))
	g.Expect(host.Fix()).To(Succeed())

	requested := c.startedOn(ctx, g, "requested", "host-c1")
	eventually(g, func(g Gomega) {
		g.Expect(c.client.Get(ctx, client.ObjectKeyFromObject(&doomed.infra), &infrav1.LibvirtMachine{})).To(MatchError(apierrors.IsNotFound, "not found"))
		g.Expect(c.client.Get(ctx, client.ObjectKeyFromObject(&doomed.machine), &clusterv1.Machine{})).To(MatchError(apierrors.IsNotFound, "not found"))
		g.Expect(c.reachable(ctx, g, "host-c1")).To(HaveField("Status", metav1.ConditionTrue))
		var after infrav1.LibvirtMachine
		g.Expect(c.client.Get(ctx, client.ObjectKeyFromObject(&stays.infra), &after)).To(Succeed())
		g.Expect(after.Status.Conditions).To(ContainElement(isCondition(infrav1.InstanceReadyCondition, "True")))
		c.exactly(ctx, g)
	})
	// Each guest has started once.
	for _, m := range []machine{stays, requested, elsewhere} {
		c.reportOf(g, m)
	}
	volumes, err := c.hosts["host-c1"].Volumes()
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(volumes).To(And(ContainElement(stays.volume("root")), ContainElement(requested.volume("root")), Not(ContainElement(ContainSubstring(doomed.uuid())))))
	c.delete(ctx, g)
}

// createIn creates a machine in a failure domain, or in any if it is empty.
func (c cutOff) createIn(ctx context.Context, g *WithT, name, failureDomain string) {
	c.createMachineIn(ctx, g, name, failureDomain, func(*infrav1.LibvirtMachineSpec) {})
}

// reachable returns the condition Reachable of a host.
func (c cutOff) reachable(ctx context.Context, g Gomega, name string) metav1.Condition {
	var host infrav1.LibvirtHost
	g.Expect(c.client.Get(ctx, client.ObjectKey{Name: name}, &host)).To(Succeed())
	for _, condition := range host.Status.Conditions {
		if condition.Type == infrav1.ReachableCondition {
			return condition
		}
	}
	return metav1.Condition{}
}

// waits checks that while its host is cut off a machine is neither given up nor created on another host, a requested
// one isn't created, and a deleted one stays, with its domain. The other hosts stay reachable.
func (c cutOff) waits(ctx context.Context, g *WithT, stays, doomed machine) {
	read := func(name string) (infra infrav1.LibvirtMachine) {
		g.Expect(c.client.Get(ctx, client.ObjectKey{Namespace: c.key.Namespace, Name: name}, &infra)).To(Succeed())
		return infra
	}
	now := read("stays")
	g.Expect(now.Spec).To(Equal(stays.infra.Spec))
	g.Expect(now.Status.Initialization.Provisioned).To(HaveValue(BeTrue()))
	g.Expect(now.Status.Addresses).To(Equal(stays.infra.Status.Addresses))
	now = read("doomed")
	g.Expect(now.DeletionTimestamp.IsZero()).To(BeFalse())
	g.Expect(now.Finalizers).To(ContainElement(infrav1.MachineFinalizer))
	now = read("requested")
	g.Expect(ptr.Deref(now.Status.Initialization.Provisioned, false)).To(BeFalse())
	g.Expect(now.Spec.HostName).To(BeElementOf("", "host-c1"))
	for _, m := range []machine{stays, doomed} {
		g.Expect(c.domainsOf(g, m)).To(Equal([]string{m.infra.Spec.ProviderID}))
	}
	for _, spec := range testbed.DefaultHosts {
		g.Expect(c.reachable(ctx, g, spec.Name)).To(HaveField("Status", metav1.ConditionTrue), spec.Name)
	}
}
