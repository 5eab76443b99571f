package test

import (
	"context"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// deploymentLife: the workers of a MachineDeployment are spread, scaled, paused and rolled out. The cluster stays.
func deploymentLife(ctx context.Context, g *WithT, w *world) {
	w.createDemo(ctx, g)
	d := &deployment{cluster: w.demo, key: client.ObjectKey{Namespace: "demo", Name: "demo-md-0"}}
	d.isSpread(ctx, g)
	d.scale(ctx, g, 4)
	d.scale(ctx, g, 2)
	d.isPaused(ctx, g)
	d.isRolledOut(ctx, g)
	eventually(g, func(g Gomega) { w.demoClaimed(ctx, g) })
}

// deployment is a MachineDeployment of a cluster.
type deployment struct {
	*cluster
	key client.ObjectKey
}

func (d *deployment) workers(ctx context.Context, g Gomega) []machine {
	return d.machines(ctx, g, client.MatchingLabels{clusterv1.MachineDeploymentNameLabel: d.key.Name})
}

func (d *deployment) isSpread(ctx context.Context, g *WithT) {
	var hosts, domains []string
	for _, m := range d.available(ctx, g, 3) {
		hosts = append(hosts, m.infra.Spec.HostName)
		domains = append(domains, m.machine.Status.FailureDomain)
	}
	// One machine on each host, also while other clusters share the hosts: spreading takes precedence over free
	// resources.
	g.Expect(hosts).To(ConsistOf("host-a1", "host-a2", "host-b1"))
	g.Expect(domains).To(ConsistOf("a", "a", "b"))
	eventually(g, func(g Gomega) { d.exactly(ctx, g) })
}

// available waits until the MachineDeployment has its machines, each of them complete and available.
func (d *deployment) available(ctx context.Context, g *WithT, count int) (machines []machine) {
	eventually(g, func(g Gomega) { machines = d.availableNow(ctx, g, count) })
	return machines
}

func (d *deployment) availableNow(ctx context.Context, g Gomega, count int) []machine {
	var object clusterv1.MachineDeployment
	g.Expect(d.client.Get(ctx, d.key, &object)).To(Succeed())
	g.Expect(object.Status.ObservedGeneration).To(Equal(object.Generation))
	g.Expect(object.Status.UpToDateReplicas).To(HaveValue(BeEquivalentTo(count)))
	g.Expect(object.Status.AvailableReplicas).To(HaveValue(BeEquivalentTo(count)))
	g.Expect(object.Status.Replicas).To(HaveValue(BeEquivalentTo(count)))
	machines := d.workers(ctx, g)
	g.Expect(machines).To(HaveLen(count))
	return machines
}

func (d *deployment) scale(ctx context.Context, g *WithT, count int32) {
	patch(ctx, g, d.client, d.key, &clusterv1.MachineDeployment{}, func(o *clusterv1.MachineDeployment) { o.Spec.Replicas = &count })
	d.available(ctx, g, int(count))
	eventually(g, func(g Gomega) { d.exactly(ctx, g) })
}

// isPaused: while the Cluster is paused no domain is created for a LibvirtMachine and none is deleted, and this
// continues when it is resumed.
func (d *deployment) isPaused(ctx context.Context, g *WithT) {
	setPaused := func(is bool) {
		patch(ctx, g, d.client, d.cluster.key, &clusterv1.Cluster{}, func(c *clusterv1.Cluster) { c.Spec.Paused = &is })
		eventually(g, func(g Gomega) {
			want := map[bool]string{true: "True", false: "False"}[is]
			var machines infrav1.LibvirtMachineList
			g.Expect(d.client.List(ctx, &machines, client.InNamespace(d.key.Namespace))).To(Succeed())
			for _, m := range machines.Items {
				g.Expect(m.Status.Conditions).To(ContainElement(isCondition(infrav1.PausedCondition, want)), m.Name)
			}
		})
	}
	setPaused(true)
	doomed := d.workers(ctx, g)[0]
	g.Expect(d.client.Delete(ctx, &doomed.infra)).To(Succeed())
	g.Consistently(func(g Gomega) { g.Expect(d.domainsOf(g, doomed)).To(ConsistOf(doomed.infra.Spec.ProviderID)) }).
		WithTimeout(5 * time.Second).WithPolling(500 * time.Millisecond).Should(Succeed())
	g.Expect(d.client.Get(ctx, client.ObjectKeyFromObject(&doomed.infra), &infrav1.LibvirtMachine{})).To(Succeed())

	setPaused(false)
	eventually(g, func(g Gomega) {
		g.Expect(d.client.Get(ctx, client.ObjectKeyFromObject(&doomed.infra), &infrav1.LibvirtMachine{})).To(MatchError(apierrors.IsNotFound, "not found"))
		g.Expect(d.domainsOf(g, doomed)).To(BeEmpty())
	})
	// Its Machine stays without infrastructure: the owner decides about the replacement, which is the user here.
	g.Expect(client.IgnoreNotFound(d.client.Delete(ctx, &doomed.machine))).To(Succeed())
	d.available(ctx, g, 2)
}

// isRolledOut: a MachineDeployment with another template replaces its machines.
func (d *deployment) isRolledOut(ctx context.Context, g *WithT) {
	old := d.available(ctx, g, 2)
	var template infrav1.LibvirtMachineTemplate
	g.Expect(d.client.Get(ctx, d.key, &template)).To(Succeed())
	next := &infrav1.LibvirtMachineTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: d.key.Namespace, Name: d.key.Name + "-next"}, Spec: template.Spec}
	next.Spec.Template.Spec.Memory = resource.MustParse("288Mi")
	g.Expect(d.client.Create(ctx, next)).To(Succeed())
	patch(ctx, g, d.client, d.key, &clusterv1.MachineDeployment{}, func(o *clusterv1.MachineDeployment) {
		o.Spec.Template.Spec.InfrastructureRef.Name = next.Name
	})
	d.replaced(ctx, g, old, "288Mi")
}

// replaced waits until the old machines are replaced by as many with other memory.
func (d *deployment) replaced(ctx context.Context, g *WithT, old []machine, memory string) {
	eventually(g, func(g Gomega) {
		for _, m := range d.availableNow(ctx, g, len(old)) {
			g.Expect(m.infra.Spec.Memory.String()).To(Equal(memory))
		}
	})
	for _, m := range old {
		eventually(g, func(g Gomega) { g.Expect(d.domainsOf(g, m)).To(BeEmpty()) })
	}
	eventually(g, func(g Gomega) { d.exactly(ctx, g) })
}
