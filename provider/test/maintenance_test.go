package test

import (
	"context"
	"sync"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterctl-release/clusterctl-release/internal/testbed"
	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// maintainedHosts are hosts for maintenance, which only the namespace of the scene may use.
var maintainedHosts = []testbed.HostSpec{
	{Name: "host-m1", FailureDomain: "m", Namespace: "maintenance"}, {Name: "host-m2", FailureDomain: "m", Namespace: "maintenance"},
}

// hostMaintained: a cordoned host gets no new machines. An evacuated host gets none either, and its machines are
// replaced on other hosts, one by one, by Cluster API's MachineHealthChecks. After the maintenance it is used again.
func hostMaintained(ctx context.Context, g *WithT, w *world) {
	const one, other = "host-m1", "host-m2"
	c := w.newCluster(ctx, g, "maintenance")
	infra := &infrav1.LibvirtCluster{ObjectMeta: metav1.ObjectMeta{Namespace: c.key.Namespace, Name: c.key.Name}}
	infra.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: c.endpoint.String(), Port: 6443}
	infra.Spec.HostSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"failure-domain": "m"}}
	g.Expect(c.client.Create(ctx, infra)).To(Succeed()) // before the template's, which has no selector
	c.failureDomains = []string{"m"}

	w.maintain(ctx, g, one, &infrav1.HostMaintenance{Mode: infrav1.MaintenanceCordon, Reason: "not unpacked"})
	c.make(ctx, g, 0)
	g.Expect(hostsOf(c.machines(ctx, g, nil))).To(HaveEach(other))
	w.maintain(ctx, g, one, nil)
	w.maintain(ctx, g, other, &infrav1.HostMaintenance{Mode: infrav1.MaintenanceCordon})
	d := &deployment{cluster: c, key: client.ObjectKey{Namespace: c.key.Namespace, Name: c.key.Name + "-md-0"}}
	d.scale(ctx, g, 2)
	old := d.available(ctx, g, 2)
	g.Expect(hostsOf(old)).To(HaveEach(one))
	w.maintain(ctx, g, other, nil)
	d.check(ctx, g)

	seen := d.observe(ctx, g, old)
	w.maintain(ctx, g, one, &infrav1.HostMaintenance{Mode: infrav1.MaintenanceEvacuate, Reason: "new disks"})
	eventually(g, func(g Gomega) {
		host := w.host(ctx, g, one)
		g.Expect(host.Status.Conditions).To(ContainElement(And(isCondition(infrav1.EvacuatedCondition, "False"),
			HaveField("Reason", infrav1.EvacuatingReason), HaveField("Message", HavePrefix("1 of 2 machines are gone\nreplacing Machine maintenance/")))))
		g.Expect(host.Status.Evacuation).To(HaveValue(HaveField("Current", HaveValue(HaveField("Name", BeElementOf(names(old)))))))
	})
	eventually(g, func(g Gomega) {
		g.Expect(w.host(ctx, g, one).Status.Conditions).To(ContainElement(And(
			isCondition(infrav1.EvacuatedCondition, "True"), HaveField("Message", "All of 2 machines are gone"))))
	})
	g.Expect(hostsOf(d.available(ctx, g, 2))).To(HaveEach(other))
	g.Expect(c.domains(g, one)).To(BeEmpty())
	seen.mutex.Lock()
	g.Expect(seen.gone).To(Equal(2), "replaced machines")
	g.Expect(seen.mostLeaving).To(Equal(1), "maximum of machines being deleted at once")
	g.Expect(seen.fewestReady).To(Equal(1), "minimum of Ready machines")
	seen.mutex.Unlock()

	w.maintain(ctx, g, one, nil)
	eventually(g, func(g Gomega) {
		host := w.host(ctx, g, one)
		g.Expect(host.Status.Evacuation).To(BeNil())
		g.Expect(host.Status.Conditions).ToNot(ContainElement(HaveField("Type", infrav1.EvacuatedCondition)))
	})
	d.scale(ctx, g, 3)
	g.Expect(hostsOf(d.available(ctx, g, 3))).To(ConsistOf(one, other, other))
	c.delete(ctx, g)
}

// maintain changes the maintenance of a host, and waits until its Ready condition reports it.
func (w *world) maintain(ctx context.Context, g *WithT, name string, maintenance *infrav1.HostMaintenance) {
	patch(ctx, g, w.Client, client.ObjectKey{Name: name}, &infrav1.LibvirtHost{}, func(o *infrav1.LibvirtHost) { o.Spec.Maintenance = maintenance })
	want := isCondition(infrav1.ReadyCondition, "True")
	if maintenance != nil {
		want = And(isCondition(infrav1.ReadyCondition, "False"), HaveField("Reason", infrav1.InMaintenanceReason), HaveField("Message", ContainSubstring(maintenance.Reason)))
	}
	eventually(g, func(g Gomega) { g.Expect(w.host(ctx, g, name).Status.Conditions).To(ContainElement(want)) })
}

func (w *world) host(ctx context.Context, g Gomega, name string) *infrav1.LibvirtHost {
	var host infrav1.LibvirtHost
	g.Expect(w.Client.Get(ctx, client.ObjectKey{Name: name}, &host)).To(Succeed())
	return &host
}

func hostsOf(machines []machine) (hosts []string) {
	for _, m := range machines {
		hosts = append(hosts, m.infra.Spec.HostName)
	}
	return hosts
}

// check creates a MachineHealthCheck of the deployment's machines, and waits until it has found them.
func (d *deployment) check(ctx context.Context, g *WithT) {
	object := &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: d.key.Namespace, Name: d.key.Name}}
	object.Spec.ClusterName = d.cluster.key.Name
	object.Spec.Selector.MatchLabels = map[string]string{clusterv1.MachineDeploymentNameLabel: d.key.Name}
	object.Spec.Checks.NodeStartupTimeoutSeconds = ptr.To[int32](0)
	object.Spec.Remediation.TriggerIf.UnhealthyLessThanOrEqualTo = ptr.To(intstr.FromString("100%"))
	g.Expect(d.client.Create(ctx, object)).To(Succeed())
	eventually(g, func(g Gomega) {
		g.Expect(d.client.Get(ctx, d.key, object)).To(Succeed())
		g.Expect(object.Status.CurrentHealthy).To(HaveValue(BeEquivalentTo(2)))
	})
}

// replacement records the replacement of a deployment's machines, from every event of the API server.
type replacement struct {
	mutex          sync.Mutex
	first          map[types.UID]bool
	leaving, ready map[types.UID]bool
	// gone is the number of deleted machines among the first ones, mostLeaving the maximum of machines being deleted
	// at once, and fewestReady the minimum of Ready ones.
	gone, mostLeaving, fewestReady int
}

// observe watches the machines of the deployment until the context ends.
func (d *deployment) observe(ctx context.Context, g *WithT, machines []machine) *replacement {
	r := &replacement{first: map[types.UID]bool{}, leaving: map[types.UID]bool{}, ready: map[types.UID]bool{}, fewestReady: len(machines)}
	for _, m := range machines {
		g.Expect(conditions.IsTrue(&m.machine, clusterv1.MachineReadyCondition)).To(BeTrue(), m.machine.Name)
		r.first[m.machine.UID], r.ready[m.machine.UID] = true, true
	}
	c, err := client.NewWithWatch(d.ControlPlane.Config, client.Options{Scheme: d.Client.Scheme()})
	g.Expect(err).ToNot(HaveOccurred())
	news, err := c.Watch(ctx, &clusterv1.MachineList{}, client.InNamespace(d.key.Namespace), client.MatchingLabels{clusterv1.MachineDeploymentNameLabel: d.key.Name})
	g.Expect(err).ToNot(HaveOccurred())
	go func() {
		for event := range news.ResultChan() {
			if m, is := event.Object.(*clusterv1.Machine); is {
				r.see(event.Type, m)
			}
		}
	}()
	return r
}

func (r *replacement) see(what watch.EventType, m *clusterv1.Machine) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	_, marked := m.Annotations[clusterv1.RemediateMachineAnnotation]
	delete(r.leaving, m.UID)
	delete(r.ready, m.UID)
	switch {
	case what == watch.Deleted && r.first[m.UID]:
		r.gone++
	case what == watch.Deleted:
	case marked || !m.DeletionTimestamp.IsZero():
		r.leaving[m.UID] = true
	case conditions.IsTrue(m, clusterv1.MachineReadyCondition):
		r.ready[m.UID] = true
	}
	r.mostLeaving, r.fewestReady = max(r.mostLeaving, len(r.leaving)), min(r.fewestReady, len(r.ready))
}
