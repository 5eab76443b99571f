package libvirtmachinepool

import (
	"context"
	"fmt"
	"maps"
	"slices"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

const walkFinalizer = "test/user"

// actAsOthers takes steps of Cluster API, the controller of LibvirtMachines, a kubelet, or a user. With faults
// disabled, it takes all outstanding steps and none of a user.
func (w *walk) actAsOthers() {
	machines := slices.Sorted(maps.Keys(w.judge.infras)) // all LibvirtMachines
	switch {
	case !w.troubled:
		for _, name := range machines {
			w.next(w.judge.infras[name].DeepCopy())
		}
		w.dangling()
	case len(machines) == 0 || w.random.IntN(3) == 0:
		w.dangling()
	case w.random.IntN(30) == 0:
		w.user(w.judge.infras[machines[w.random.IntN(len(machines))]].DeepCopy())
	default:
		w.next(w.judge.infras[machines[w.random.IntN(len(machines))]].DeepCopy())
	}
}

// machineOf returns the Machine with a name, or nil.
func (w *walk) machineOf(name string) *clusterv1.Machine {
	return w.judge.machines[name].DeepCopy()
}

func (w *walk) update(object client.Object) {
	w.Expect(w.write(object, false, func() error { return w.api.Update(context.Background(), object) })).To(Succeed())
}

func (w *walk) remove(object client.Object) {
	w.Expect(w.write(object, false, func() error { return w.api.Delete(context.Background(), object) })).To(Succeed())
}

// next takes the next step for a LibvirtMachine and its Machine: from creation to a healthy node, and back.
func (w *walk) next(infra *infrav1.LibvirtMachine) {
	machine := w.machineOf(infra.Name)
	switch {
	case !infra.DeletionTimestamp.IsZero():
		infra.Finalizers = nil
		w.update(infra)
	case len(infra.Finalizers) == 0:
		infra.Finalizers = []string{walkFinalizer}
		w.update(infra)
	case machine == nil:
		machine = &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: infra.Namespace, Name: infra.Name, Labels: infra.Labels, Finalizers: []string{walkFinalizer},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "MachinePool", Name: poolKey.Name, UID: w.judge.pool.UID, Controller: ptr.To(true)}}},
			Spec: clusterv1.MachineSpec{InfrastructureRef: clusterv1.ContractVersionedObjectReference{Kind: "LibvirtMachine", Name: infra.Name}}}
		w.Expect(w.write(machine, false, func() error { return w.api.Create(context.Background(), machine) })).To(Succeed())
	case !machine.DeletionTimestamp.IsZero():
		w.remove(infra)
	case infra.Spec.ProviderID == "":
		infra.Spec.HostName, infra.Spec.ProviderID = "host", infrav1.ProviderIDPrefix+string(infra.UID)
		w.update(infra)
	case !ptr.Deref(infra.Status.Initialization.Provisioned, false):
		infra.Status.Initialization.Provisioned = ptr.To(true)
		conditions.Set(infra, metav1.Condition{Type: infrav1.ReadyCondition, Status: metav1.ConditionTrue, Reason: "x"})
		w.update(infra)
	case conditions.IsFalse(machine, clusterv1.MachineHealthCheckSucceededCondition):
		// An unhealthy machine stays unhealthy until it is replaced.
	case !conditions.IsTrue(machine, clusterv1.MachineAvailableCondition):
		conditions.Set(machine, metav1.Condition{Type: clusterv1.MachineAvailableCondition, Status: metav1.ConditionTrue, Reason: "x"})
		w.update(machine)
	case w.troubled && w.random.IntN(40) == 0: // a node becomes unhealthy
		conditions.Set(machine, metav1.Condition{Type: clusterv1.MachineAvailableCondition, Status: metav1.ConditionFalse, Reason: "x"})
		w.update(machine)
	}
}

// user deletes a machine through one of its objects, chooses it for deletion, or marks it for replacement as a health
// check does.
func (w *walk) user(infra *infrav1.LibvirtMachine) {
	machine := w.machineOf(infra.Name)
	what := w.random.IntN(4)
	w.faults[fmt.Sprintf("user %d", what)]++
	switch {
	case what == 0:
		w.remove(infra)
	case machine == nil:
	case what == 1:
		w.remove(machine)
	case what == 2:
		for _, condition := range []string{clusterv1.MachineHealthCheckSucceededCondition, clusterv1.MachineOwnerRemediatedCondition, clusterv1.MachineAvailableCondition} {
			conditions.Set(machine, metav1.Condition{Type: condition, Status: metav1.ConditionFalse, Reason: "x"})
		}
		w.update(machine)
	default:
		machine.Annotations = map[string]string{clusterv1.DeleteMachineAnnotation: ""}
		w.update(machine)
	}
}

// dangling removes deleted Machines whose LibvirtMachines are deleted.
func (w *walk) dangling() {
	for _, name := range slices.Sorted(maps.Keys(w.judge.machines)) {
		if machine := w.machineOf(name); w.judge.infras[name] == nil && !machine.DeletionTimestamp.IsZero() {
			machine.Finalizers = nil
			w.update(machine)
		}
	}
}
