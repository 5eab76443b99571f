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

// setHealth sets the conditions of a MachineHealthCheck on a Machine.
func setHealth(machine *clusterv1.Machine, healthy bool) {
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

func (m *management) reportHealth(name string, healthy bool) {
	machine := m.machine(name)
	setHealth(machine, healthy)
	m.Expect(m.api.Update(context.Background(), machine)).To(Succeed())
}

// withStatusOfMachines lets a process write the status of Machines, which the API server in memory stores with the rest
// of the object.
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

// TestRecoveredMachines: a health check marks a machine for replacement while the pool is paused. The mark is removed
// when the machine is healthy again. Otherwise the pool would replace the machine as soon as it is unhealthy again,
// although the health check may wait.
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
			m.actAsOthers()
		}
	}
	before := m.names()
	pause(true)
	m.reportHealth("workers-2", false)
	look()
	m.reportHealth("workers-2", true)
	unhealthy := m.machine("workers-2")
	m.Expect(conditions.IsFalse(unhealthy, clusterv1.MachineOwnerRemediatedCondition)).To(BeTrue(), "a MachineHealthCheck doesn't remove it")
	look()
	pause(false)
	look()
	recovered := m.machine("workers-2")
	m.Expect(conditions.Has(recovered, clusterv1.MachineOwnerRemediatedCondition)).To(BeFalse())
	m.Expect(v1beta1conditions.Has(recovered, clusterv1.MachineOwnerRemediatedV1Beta1Condition)).To(BeFalse())
	m.Expect(machineChanged().Update(event.UpdateEvent{ObjectOld: recovered, ObjectNew: unhealthy})).To(BeTrue())

	// It is unhealthy again, and the health check hasn't marked it for replacement yet.
	conditions.Set(recovered, metav1.Condition{Type: clusterv1.MachineHealthCheckSucceededCondition, Status: metav1.ConditionFalse, Reason: "x"})
	m.Expect(m.api.Update(t.Context(), recovered)).To(Succeed())
	look()
	m.Expect(m.names()).To(Equal(before))
	m.reportHealth("workers-2", false)
	look()
	m.Expect(m.names()).To(ConsistOf("workers-1", "workers-3", "workers-4"))
}

// TestUnhealthyInExternallyScaledPool: replacements for a health check aren't scaling, also if the controller is
// killed after any of its writes. Deletions by a user are.
func TestUnhealthyInExternallyScaledPool(t *testing.T) {
	runAll := func(t *testing.T, killAt int) []string {
		m := newManagement(t)
		owner := &clusterv1.MachinePool{}
		m.Expect(m.api.Get(t.Context(), poolKey, owner)).To(Succeed())
		owner.Annotations = map[string]string{clusterv1.ReplicasManagedByAnnotation: "external-autoscaler"}
		m.Expect(m.api.Update(t.Context(), owner)).To(Succeed())
		m.until(m.process(0), 3, ready(3))
		m.reportHealth("workers-1", false)
		m.reportHealth("workers-3", false)
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
	calls := runAll(t, 0)
	t.Logf("%d writes: %v", len(calls), calls)
	for killAt := 1; killAt <= len(calls); killAt++ {
		runAll(t, killAt)
	}
}
