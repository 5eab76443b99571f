package test

import (
	"context"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// poolLife: the workers of a MachinePool of the flavor machinepool are spread, scaled after their nodes were drained,
// and rolled out. An unhealthy or deleted machine is replaced, unless an external autoscaler scales the pool.
func poolLife(ctx context.Context, g *WithT, w *world) {
	p := &pool{cluster: w.newCluster(ctx, g, "pool"), key: client.ObjectKey{Namespace: "pool", Name: "pool-mp-0"}}
	p.make(ctx, g, 3, "--flavor=machinepool")
	first := p.available(ctx, g, 3)
	var hosts []string
	for _, m := range first {
		hosts = append(hosts, m.infra.Spec.HostName)
	}
	g.Expect(hosts).To(ConsistOf("host-a1", "host-a2", "host-b1"))
	chosen := first[1:]
	for _, m := range chosen {
		patch(ctx, g, p.client, client.ObjectKeyFromObject(&m.machine), &clusterv1.Machine{}, func(o *clusterv1.Machine) {
			metav1.SetMetaDataAnnotation(&o.ObjectMeta, clusterv1.DeleteMachineAnnotation, "")
		})
	}
	leaves := p.occupied(ctx, g, chosen[0])
	p.wants(ctx, g, 1)
	leaves()
	one := p.available(ctx, g, 1)
	g.Expect(names(one)).To(Equal(names(first[:1])), "the chosen ones are deleted first")
	two := p.scale(ctx, g, 2)
	g.Expect(names(two)).To(ContainElements(names(one)))
	for _, name := range names(two) {
		if name != one[0].machine.Name {
			g.Expect(names(first)).ToNot(ContainElement(name), "a machine's name is used once")
		}
	}
	patch(ctx, g, p.client, p.key, &infrav1.LibvirtMachinePool{}, func(o *infrav1.LibvirtMachinePool) {
		o.Spec.Template.Spec.Memory = resource.MustParse("288Mi")
	})
	p.replaced(ctx, g, two, "288Mi")
	p.heals(ctx, g)
	p.isScaledExternally(ctx, g)
	p.delete(ctx, g)
}

// pool is a MachinePool of a cluster.
type pool struct {
	*cluster
	key client.ObjectKey
}

func (p *pool) wants(ctx context.Context, g *WithT, count int32) {
	patch(ctx, g, p.client, p.key, &clusterv1.MachinePool{}, func(o *clusterv1.MachinePool) { o.Spec.Replicas = &count })
}

func (p *pool) scale(ctx context.Context, g *WithT, count int32) []machine {
	p.wants(ctx, g, count)
	return p.available(ctx, g, int(count))
}

// nodes returns a client of the pool's cluster.
func (p *pool) nodes(g *WithT) client.Client {
	nodes, is := p.player.Client(p.cluster.key)
	g.Expect(is).To(BeTrue())
	return nodes
}

// occupied runs a pod on a machine's node that terminates slowly. The returned function waits until the node is being
// drained, checks that the machine keeps running as long as the pod, and ends the pod, as a kubelet would.
func (p *pool) occupied(ctx context.Context, g *WithT, m machine) (leaves func()) {
	nodes := p.nodes(g)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "default"}}
	g.Expect(nodes.Create(ctx, account)).To(Succeed(), "a simulated cluster doesn't create it")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "busy"}, Spec: corev1.PodSpec{
		NodeName: m.machine.Name, Containers: []corev1.Container{{Name: "busy", Image: "busy"}}}}
	g.Expect(nodes.Create(ctx, pod)).To(Succeed())
	return func() {
		eventually(g, func(g Gomega) {
			g.Expect(nodes.Get(ctx, client.ObjectKeyFromObject(pod), pod)).To(Succeed())
			g.Expect(pod.DeletionTimestamp.IsZero()).To(BeFalse(), "the pod is evicted")
			var object clusterv1.Machine
			g.Expect(p.client.Get(ctx, client.ObjectKeyFromObject(&m.machine), &object)).To(Succeed())
			g.Expect(object.Status.Conditions).To(ContainElement(And(
				isCondition(clusterv1.MachineDeletingCondition, "True"), HaveField("Reason", clusterv1.MachineDeletingDrainingNodeReason))))
		})
		var infra infrav1.LibvirtMachine
		g.Expect(p.client.Get(ctx, client.ObjectKeyFromObject(&m.infra), &infra)).To(Succeed())
		g.Expect(infra.DeletionTimestamp.IsZero()).To(BeTrue())
		g.Expect(p.domainsOf(g, m)).To(HaveLen(1))
		g.Expect(nodes.Delete(ctx, pod, client.GracePeriodSeconds(0))).To(Succeed())
	}
}

// replaced waits until the old machines are replaced by as many with other memory.
func (p *pool) replaced(ctx context.Context, g *WithT, old []machine, memory string) {
	eventually(g, func(g Gomega) {
		for _, m := range p.availableNow(ctx, g, len(old)) {
			g.Expect(m.infra.Spec.Memory.String()).To(Equal(memory))
			g.Expect(names(old)).ToNot(ContainElement(m.machine.Name))
		}
	})
}

// heals: of two machines the one whose node isn't Ready is replaced through its Machine, by a MachineHealthCheck, and
// then a deleted one.
func (p *pool) heals(ctx context.Context, g *WithT) {
	check := &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: p.key.Namespace, Name: p.key.Name}}
	check.Spec.ClusterName = p.cluster.key.Name
	check.Spec.Selector.MatchLabels = map[string]string{clusterv1.MachinePoolNameLabel: p.key.Name}
	check.Spec.Checks.UnhealthyNodeConditions = []clusterv1.UnhealthyNodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionFalse, TimeoutSeconds: ptr.To[int32](0)}}
	g.Expect(p.client.Create(ctx, check)).To(Succeed())
	p.replaces(ctx, g, func(sick machine) {
		nodes := p.nodes(g)
		var node corev1.Node
		g.Expect(nodes.Get(ctx, client.ObjectKey{Name: sick.machine.Name}, &node)).To(Succeed())
		before := node.DeepCopy()
		for i := range node.Status.Conditions {
			if node.Status.Conditions[i].Type == corev1.NodeReady {
				node.Status.Conditions[i].Status = corev1.ConditionFalse
			}
		}
		g.Expect(nodes.Status().Patch(ctx, &node, client.MergeFrom(before))).To(Succeed())
	})
	p.replaces(ctx, g, func(unwanted machine) { g.Expect(p.client.Delete(ctx, &unwanted.machine)).To(Succeed()) })
}

// replaces checks that the one of two machines to which hit is applied is replaced.
func (p *pool) replaces(ctx context.Context, g *WithT, hit func(machine)) {
	machines := p.available(ctx, g, 2)
	hit(machines[0])
	eventually(g, func(g Gomega) {
		g.Expect(names(p.availableNow(ctx, g, 2))).To(And(
			ContainElement(machines[1].machine.Name), Not(ContainElement(machines[0].machine.Name))))
	})
}

// isScaledExternally: with the annotation replicas-managed-by a deleted machine isn't replaced, and the
// MachinePool's replicas are decreased.
func (p *pool) isScaledExternally(ctx context.Context, g *WithT) {
	machines := p.available(ctx, g, 2)
	patch(ctx, g, p.client, p.key, &clusterv1.MachinePool{}, func(o *clusterv1.MachinePool) {
		metav1.SetMetaDataAnnotation(&o.ObjectMeta, clusterv1.ReplicasManagedByAnnotation, "external-autoscaler")
	})
	g.Expect(p.client.Delete(ctx, &machines[0].machine)).To(Succeed())
	g.Expect(names(p.available(ctx, g, 1))).To(Equal(names(machines[1:])))
	var object clusterv1.MachinePool
	g.Expect(p.client.Get(ctx, p.key, &object)).To(Succeed())
	g.Expect(object.Spec.Replicas).To(HaveValue(BeEquivalentTo(1)))
}

// available waits until the MachinePool has its machines, each of them complete and with its node, and until hosts have
// no other domains.
func (p *pool) available(ctx context.Context, g *WithT, count int) (machines []machine) {
	eventually(g, func(g Gomega) { machines = p.availableNow(ctx, g, count) })
	return machines
}

func (p *pool) availableNow(ctx context.Context, g Gomega, count int) []machine {
	var object clusterv1.MachinePool
	g.Expect(p.client.Get(ctx, p.key, &object)).To(Succeed())
	g.Expect(object.Status.Replicas).To(HaveValue(BeEquivalentTo(count)))
	g.Expect(object.Status.AvailableReplicas).To(HaveValue(BeEquivalentTo(count)))
	machines := p.machines(ctx, g, client.MatchingLabels{clusterv1.MachinePoolNameLabel: p.key.Name})
	g.Expect(machines).To(HaveLen(count))
	var ids, nodes []string
	for _, m := range machines {
		ids = append(ids, m.infra.Spec.ProviderID)
	}
	for _, ref := range object.Status.NodeRefs {
		nodes = append(nodes, ref.Name)
	}
	g.Expect(object.Spec.ProviderIDList).To(ConsistOf(ids))
	g.Expect(nodes).To(ConsistOf(names(machines)))
	p.exactly(ctx, g)
	return machines
}

func names(machines []machine) (names []string) {
	for _, m := range machines {
		names = append(names, m.machine.Name)
	}
	return names
}
