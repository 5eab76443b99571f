package libvirtmachinepool

import (
	"context"
	"errors"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

var (
	errKilled = errors.New("the process was killed")
	poolKey   = client.ObjectKey{Namespace: "team", Name: "workers"}
)

// management is an API server in memory with a pool, and the parts of Cluster API that a pool needs.
type management struct {
	*WithT
	api  client.WithWatch
	made int
}

func newManagement(t *testing.T) *management {
	t.Helper()
	m := &management{WithT: NewWithT(t)}
	scheme := runtime.NewScheme()
	m.Expect(clusterv1.AddToScheme(scheme)).To(Succeed())
	m.Expect(infrav1.AddToScheme(scheme)).To(Succeed())
	meta := metav1.ObjectMeta{Namespace: poolKey.Namespace, Name: poolKey.Name, UID: "1"}
	owner := &clusterv1.MachinePool{ObjectMeta: meta, Spec: clusterv1.MachinePoolSpec{ClusterName: "blue", Replicas: ptr.To[int32](3),
		Template: clusterv1.MachineTemplateSpec{Spec: clusterv1.MachineSpec{Bootstrap: clusterv1.Bootstrap{DataSecretName: ptr.To("data")}}}}}
	infra := &infrav1.LibvirtMachinePool{ObjectMeta: meta}
	infra.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "MachinePool", Name: poolKey.Name, UID: "1"}}
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: poolKey.Namespace, Name: "blue"},
		Status: clusterv1.ClusterStatus{Initialization: clusterv1.ClusterInitializationStatus{InfrastructureProvisioned: ptr.To(true)}}}
	m.api = fake.NewClientBuilder().WithScheme(scheme).WithObjects(owner, infra, cluster).WithStatusSubresource(&infrav1.LibvirtMachinePool{}).
		WithInterceptorFuncs(interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			if _, is := object.(*infrav1.LibvirtMachine); is {
				m.made++
			}
			return c.Create(ctx, object, options...)
		}}).Build()
	return m
}

// actAsOthers acts as Cluster API and the controller of LibvirtMachines.
func (m *management) actAsOthers() {
	ctx := context.Background()
	for _, infra := range m.machines() {
		machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: infra.Namespace, Name: infra.Name, UID: "m", Labels: infra.Labels, Finalizers: []string{"test/core"}},
			Spec: clusterv1.MachineSpec{InfrastructureRef: clusterv1.ContractVersionedObjectReference{Kind: "LibvirtMachine", Name: infra.Name}}}
		conditions.Set(machine, metav1.Condition{Type: clusterv1.MachineAvailableCondition, Status: metav1.ConditionTrue, Reason: "x"})
		if m.api.Create(ctx, machine) != nil {
			m.Expect(m.api.Get(ctx, client.ObjectKeyFromObject(machine), machine)).To(Succeed())
		}
		if !machine.DeletionTimestamp.IsZero() {
			m.Expect(m.api.Delete(ctx, &infra)).To(Succeed())
			machine.Finalizers = nil
			m.Expect(m.api.Update(ctx, machine)).To(Succeed())
			continue
		}
		infra.Spec.HostName, infra.Spec.ProviderID = "host", infrav1.ProviderIDPrefix+infra.Name
		infra.Status.Initialization.Provisioned = ptr.To(true)
		conditions.Set(&infra, metav1.Condition{Type: infrav1.ReadyCondition, Status: metav1.ConditionTrue, Reason: "x"})
		m.Expect(m.api.Update(ctx, &infra)).To(Succeed())
	}
}

func (m *management) machines() []infrav1.LibvirtMachine {
	list := &infrav1.LibvirtMachineList{}
	m.Expect(m.api.List(context.Background(), list)).To(Succeed())
	return list.Items
}

// process is a manager that may be killed after any of its writes. The last write is executed, its answer is lost, and
// no further call is made.
type process struct {
	*Reconciler
	calls  []string
	killAt int
}

func (m *management) process(killAt int) *process {
	p := &process{killAt: killAt}
	write := func(what string, do func() error) error {
		if p.isDead() {
			return errKilled
		}
		p.calls = append(p.calls, what)
		if err := do(); !p.isDead() {
			return err
		}
		return errKilled
	}
	c := interceptor.NewClient(m.api, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			return write("create", func() error { return c.Create(ctx, o, options...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
			return write("delete", func() error { return c.Delete(ctx, o, options...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
			return write("patch", func() error { return c.Patch(ctx, o, patch, options...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, of string, o client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			return write("patch "+of, func() error { return c.SubResource(of).Patch(ctx, o, patch, options...) })
		},
	})
	p.Reconciler = &Reconciler{Client: c, APIReader: c, recorder: events.NewFakeRecorder(10000)}
	return p
}

func (p *process) isDead() bool { return p.killAt > 0 && len(p.calls) >= p.killAt }

// until reconciles until the condition is true. A killed process is replaced by one that isn't killed.
func (m *management) until(p *process, most int, is func(*infrav1.LibvirtMachinePool) bool) *process {
	for range 200 {
		infra := &infrav1.LibvirtMachinePool{}
		err := m.api.Get(context.Background(), poolKey, infra)
		m.Expect(client.IgnoreNotFound(err)).To(Succeed())
		if is(infra) {
			return p
		}
		_, err = p.Reconcile(context.Background(), ctrl.Request{NamespacedName: poolKey})
		if p.isDead() {
			p = m.process(0)
		} else {
			m.Expect(err).ToNot(HaveOccurred())
		}
		m.Expect(len(m.machines())).To(BeNumerically("<=", most))
		m.actAsOthers()
	}
	m.Expect("the condition isn't met").To(BeEmpty())
	return nil
}

// TestKilledAfterEachWrite kills the controller after each of its writes, one by one. Another controller continues, the
// end is always the same, and no machine is created twice.
func TestKilledAfterEachWrite(t *testing.T) {
	ready := func(replicas int) func(*infrav1.LibvirtMachinePool) bool {
		return func(infra *infrav1.LibvirtMachinePool) bool {
			return conditions.IsTrue(infra, infrav1.ReadyCondition) && ptr.Deref(infra.Status.Replicas, -1) == int32(replicas) && len(infra.Spec.ProviderIDList) == replicas
		}
	}
	runAll := func(t *testing.T, killAt int) []string {
		m, ctx := newManagement(t), context.Background()
		first := m.process(killAt)
		p := m.until(first, 3, ready(3))
		infra := &infrav1.LibvirtMachinePool{}
		m.Expect(m.api.Get(ctx, poolKey, infra)).To(Succeed())
		infra.Spec.Template.Spec.CPUs = 7
		m.Expect(m.api.Update(ctx, infra)).To(Succeed())
		p = m.until(p, 4, func(infra *infrav1.LibvirtMachinePool) bool {
			// This API server counts no generations: the status may be of the previous spec.
			for _, machine := range m.machines() {
				if machine.Spec.CPUs != 7 {
					return false
				}
			}
			return len(m.machines()) == 3 && conditions.IsTrue(infra, infrav1.UpToDateCondition) && ready(3)(infra)
		})
		owner := &clusterv1.MachinePool{}
		m.Expect(m.api.Get(ctx, poolKey, owner)).To(Succeed())
		owner.Spec.Replicas = ptr.To[int32](1)
		m.Expect(m.api.Update(ctx, owner)).To(Succeed())
		p = m.until(p, 3, ready(1))
		m.Expect(m.api.Get(ctx, poolKey, infra)).To(Succeed())
		m.Expect(m.api.Delete(ctx, infra)).To(Succeed())
		m.until(p, 1, func(infra *infrav1.LibvirtMachinePool) bool { return infra.Name == "" })
		m.Expect(m.machines()).To(BeEmpty())
		m.Expect(m.made).To(Equal(6), "number of created machines")
		return first.calls
	}
	calls := runAll(t, 0)
	t.Logf("%d writes: %v", len(calls), calls)
	for killAt := 1; killAt <= len(calls); killAt++ {
		t.Run(fmt.Sprintf("%d %s", killAt, calls[killAt-1]), func(t *testing.T) { runAll(t, killAt) })
	}
}
