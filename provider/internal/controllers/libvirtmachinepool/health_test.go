package libvirtmachinepool

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	v1beta1conditions "sigs.k8s.io/cluster-api/util/conditions/deprecated/v1beta1"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// said puts what a MachineHealthCheck says into a Machine.
func said(machine *clusterv1.Machine, healthy bool) {
	status := map[bool]metav1.ConditionStatus{true: metav1.ConditionTrue, false: metav1.ConditionFalse}[healthy]
	conditions.Set(machine, metav1.Condition{Type: clusterv1.MachineHealthCheckSucceededCondition, Status: status, Reason: "x"})
	if healthy {
		v1beta1conditions.MarkTrue(machine, clusterv1.MachineHealthCheckSucceededV1Beta1Condition)
		return
	}
	v1beta1conditions.MarkFalse(machine, clusterv1.MachineHealthCheckSucceededV1Beta1Condition, "x", clusterv1.ConditionSeverityWarning, "")
	conditions.Set(machine, metav1.Condition{Type: clusterv1.MachineOwnerRemediatedCondition, Status: metav1.ConditionFalse, Reason: "x"})
	v1beta1conditions.MarkFalse(machine, clusterv1.MachineOwnerRemediatedV1Beta1Condition, "x", clusterv1.ConditionSeverityWarning, "")
}

func (m *management) machine(name string) *clusterv1.Machine {
	machine := &clusterv1.Machine{}
	m.Expect(m.api.Get(context.Background(), client.ObjectKey{Namespace: poolKey.Namespace, Name: name}, machine)).To(Succeed())
	return machine
}

func (m *management) say(name string, healthy bool) {
	machine := m.machine(name)
	said(machine, healthy)
	m.Expect(m.api.Update(context.Background(), machine)).To(Succeed())
}

// withStatusOfMachines lets a process write the status of Machines, which the API server in memory keeps with the rest.
func (p *process) withStatusOfMachines() *process {
	p.Client = interceptor.NewClient(p.Client.(client.WithWatch), interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			if _, is := object.(*clusterv1.Machine); is {
				return c.Patch(ctx, object, patch)
			}
			return c.SubResource(sub).Patch(ctx, object, patch, options...)
		}})
	return p
}

func ready(replicas int) func(*infrav1.LibvirtMachinePool) bool {
	return func(infra *infrav1.LibvirtMachinePool) bool {
		return conditions.IsTrue(infra, infrav1.ReadyCondition) && ptr.Deref(infra.Status.Replicas, -1) == int32(replicas) && len(infra.Spec.ProviderIDList) == replicas
	}
}

func (m *management) names() (names []string) {
	for _, machine := range m.machines() {
		names = append(names, machine.Name)
	}
	return names
}

// TestRecoveredMachines: that a health check wanted a machine to be replaced while the pool was paused is
// forgotten when it is healthy again. It would be replaced otherwise as soon as it is unhealthy once more,
// although the health check may have a reason to wait.
func TestRecoveredMachines(t *testing.T) {
	m := newManagement(t)
	p := m.until(m.process(0).withStatusOfMachines(), 3, ready(3))
	pause := func(paused bool) {
		infra := &infrav1.LibvirtMachinePool{}
		m.Expect(m.api.Get(t.Context(), poolKey, infra)).To(Succeed())
		delete(infra.Annotations, clusterv1.PausedAnnotation)
		if paused {
			infra.Annotations[clusterv1.PausedAnnotation] = ""
		}
		m.Expect(m.api.Update(t.Context(), infra)).To(Succeed())
	}
	look := func() {
		for range 5 {
			_, err := p.Reconcile(t.Context(), ctrl.Request{NamespacedName: poolKey})
			m.Expect(err).ToNot(HaveOccurred())
			m.others()
		}
	}
	before := m.names()
	pause(true)
	m.say("workers-2", false)
	look()
	m.say("workers-2", true)
	unhealthy := m.machine("workers-2")
	m.Expect(conditions.IsFalse(unhealthy, clusterv1.MachineOwnerRemediatedCondition)).To(BeTrue(), "a MachineHealthCheck doesn't take it back")
	look()
	pause(false)
	look()
	recovered := m.machine("workers-2")
	m.Expect(conditions.Has(recovered, clusterv1.MachineOwnerRemediatedCondition)).To(BeFalse())
	m.Expect(v1beta1conditions.Has(recovered, clusterv1.MachineOwnerRemediatedV1Beta1Condition)).To(BeFalse())
	m.Expect(machineChanged().Update(event.UpdateEvent{ObjectOld: recovered, ObjectNew: unhealthy})).To(BeTrue())

	// It is unhealthy once more, and the health check doesn't want it to be replaced so far.
	conditions.Set(recovered, metav1.Condition{Type: clusterv1.MachineHealthCheckSucceededCondition, Status: metav1.ConditionFalse, Reason: "x"})
	m.Expect(m.api.Update(t.Context(), recovered)).To(Succeed())
	look()
	m.Expect(m.names()).To(Equal(before))
	m.say("workers-2", false)
	look()
	m.Expect(m.names()).To(ConsistOf("workers-1", "workers-3", "workers-4"))
}

// TestUnhealthyInAPoolScaledBySomebodyElse: that a health check has machines replaced isn't scaling, also
// when the controller is killed after any of its writes. What somebody deletes still is.
func TestUnhealthyInAPoolScaledBySomebodyElse(t *testing.T) {
	whole := func(t *testing.T, killAt int) []string {
		m := newManagement(t)
		owner := &clusterv1.MachinePool{}
		m.Expect(m.api.Get(t.Context(), poolKey, owner)).To(Succeed())
		owner.Annotations = map[string]string{clusterv1.ReplicasManagedByAnnotation: "external-autoscaler"}
		m.Expect(m.api.Update(t.Context(), owner)).To(Succeed())
		m.until(m.process(0), 3, ready(3))
		m.say("workers-1", false)
		m.say("workers-3", false)
		first := m.process(killAt)
		p := m.until(first, 5, func(infra *infrav1.LibvirtMachinePool) bool {
			return ready(3)(infra) && m.made == 5 && len(m.machines()) == 3
		})
		m.Expect(m.names()).To(And(HaveLen(3), ContainElement("workers-2"), Not(ContainElements("workers-1")), Not(ContainElements("workers-3"))))
		m.Expect(m.api.Get(t.Context(), poolKey, owner)).To(Succeed())
		m.Expect(owner.Spec.Replicas).To(HaveValue(BeEquivalentTo(3)))

		m.Expect(m.api.Delete(t.Context(), m.machine("workers-2"))).To(Succeed())
		m.until(p, 3, ready(2))
		m.Expect(m.api.Get(t.Context(), poolKey, owner)).To(Succeed())
		m.Expect(owner.Spec.Replicas).To(HaveValue(BeEquivalentTo(2)))
		m.Expect(m.made).To(Equal(5))
		return first.calls
	}
	calls := whole(t, 0)
	t.Logf("%d writes: %v", len(calls), calls)
	for killAt := 1; killAt <= len(calls); killAt++ {
		whole(t, killAt)
	}
}
