package evacuation

import (
	"context"
	"errors"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/index"
)

// newResident returns a machine that can be replaced, with changes.
func newResident(name string, changes ...func(*resident)) resident {
	m := resident{infra: &infrav1.LibvirtMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}},
		machine: &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, Labels: map[string]string{}, Annotations: map[string]string{}}},
		cluster: &clusterv1.Cluster{}, check: &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: "check"}},
		owner: &metav1.OwnerReference{Kind: "MachineSet", Name: "set"}, others: 2, wanted: 2}
	for _, change := range changes {
		change(&m)
	}
	return m
}

func controlPlane(m *resident) { m.machine.Labels[clusterv1.MachineControlPlaneLabel] = "" }
func standalone(m *resident)   { m.owner = nil }
func unchecked(m *resident)    { m.check = nil }
func bare(m *resident)         { m.machine = nil }
func balancer(m *resident) {
	m.machine, m.infra.Labels = nil, map[string]string{infrav1.LoadBalancerLabel: "blue"}
}
func pausedCluster(m *resident) {
	m.cluster.Spec.Paused = ptr.To(true)
}
func pausedCheck(m *resident) {
	m.check.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
}
func degraded(m *resident) { m.others = 1 }
func skipped(m *resident)  { m.machine.Annotations[clusterv1.MachineSkipRemediationAnnotation] = "" }
func marked(m *resident)   { m.machine.Annotations[clusterv1.RemediateMachineAnnotation] = "" }
func external(m *resident) {
	m.owner, m.check.Spec.Remediation.TemplateRef = nil, clusterv1.MachineHealthCheckRemediationTemplateReference{APIVersion: "a/v1", Kind: "K", Name: "n"}
}
func deleted(m *resident) {
	now := metav1.Now()
	m.infra.DeletionTimestamp = &now
}

func TestChoose(t *testing.T) {
	for _, tc := range []struct {
		name             string
		residents        []resident
		next             string
		waiting, blocked []string
	}{
		{name: "the first by name", residents: []resident{newResident("a"), newResident("b")}, next: "team/a"},
		{name: "a worker before a control plane", residents: []resident{newResident("a"), newResident("c", controlPlane)}, next: "team/a"},
		{name: "a leaving one first", residents: []resident{newResident("a"), newResident("b", marked)}, next: "team/b"},
		{name: "two leaving ones", residents: []resident{newResident("a"), newResident("b", marked), newResident("c", marked)}, next: "team/b",
			waiting: []string{"team/c: it is being deleted"}},
		{name: "none while one is deleted by a user", residents: []resident{newResident("a"), newResident("b", bare, deleted)},
			waiting: []string{"team/b: it is being deleted"}},
		{name: "blocked for good", next: "team/z",
			residents: []resident{newResident("a", bare), newResident("b", unchecked), newResident("c", standalone), newResident("d", skipped), newResident("e", marked, unchecked), newResident("z")},
			blocked: []string{"team/a: it has no Machine", "team/b: no MachineHealthCheck has its Machine as a target",
				"team/c: its Machine has no owner that would replace it: delete it by hand",
				"team/d: its Machine has the annotation cluster.x-k8s.io/skip-remediation", "team/e: no MachineHealthCheck has its Machine as a target"}},
		{name: "its LibvirtCluster replaces a load balancer", residents: []resident{newResident("a", balancer), newResident("b")}, next: "team/b",
			waiting: []string{"team/a: its LibvirtCluster replaces it as soon as another host is Ready"}},
		{name: "external remediation replaces a machine without an owner", residents: []resident{newResident("a", external)}, next: "team/a"},
		{name: "waiting", next: "team/z", residents: []resident{newResident("a", pausedCluster), newResident("b", pausedCheck), newResident("c", degraded), newResident("z")},
			waiting: []string{"team/a: it or its Cluster is paused", "team/b: MachineHealthCheck check is paused",
				"team/c: MachineSet set has 1 other Ready machines and needs 2"}},
		{name: "a control plane waits for workers that wait", residents: []resident{newResident("a", degraded), newResident("z", controlPlane)},
			waiting: []string{"team/a: MachineSet set has 1 other Ready machines and needs 2"}},
		{name: "a control plane doesn't wait for workers that are blocked", residents: []resident{newResident("a", unchecked), newResident("z", controlPlane)}, next: "team/z",
			blocked: []string{"team/a: no MachineHealthCheck has its Machine as a target"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := NewWithT(t)
			p := choose(tc.residents)
			next := ""
			if p.next != nil {
				next = p.next.name()
			}
			g.Expect(next).To(Equal(tc.next))
			g.Expect(p.waiting).To(Equal(tc.waiting))
			g.Expect(p.blocked).To(Equal(tc.blocked))
		})
	}
}

var errKilled = errors.New("the manager was killed")

// TestKilled kills the manager before or after each of its writes, and continues with another manager. At most one
// machine is marked at any time, also by a manager with an old cache, and the last machine is marked in the end.
func TestKilled(t *testing.T) {
	for _, done := range []bool{false, true} {
		for at := range 12 {
			t.Run(fmt.Sprintf("%d %t", at, done), func(t *testing.T) {
				g := NewWithT(t)
				api := newAPI(g)
				writes := 0
				kill := func(write func() error) error {
					writes++
					if writes-1 != at {
						return write()
					}
					if done {
						if err := write(); err != nil {
							return err
						}
					}
					return errKilled
				}
				c := interceptor.NewClient(api, interceptor.Funcs{
					Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
						return kill(func() error { return c.Patch(ctx, object, patch, options...) })
					},
					SubResourcePatch: func(ctx context.Context, c client.Client, of string, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
						return kill(func() error { return c.SubResource(of).Patch(ctx, object, patch, options...) })
					},
				})
				r := &Reconciler{Client: c, recorder: events.NewFakeRecorder(100)}
				left := 3
				for range 30 {
					_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "host"}})
					if err != nil {
						g.Expect(err).To(MatchError(errKilled))
					}
					on := markedMachines(g, api)
					g.Expect(len(on)).To(BeNumerically("<=", 1))
					if len(on) == 1 {
						actAsControllers(g, api, &on[0])
						left--
					}
				}
				g.Expect(left).To(BeZero())
				host := &infrav1.LibvirtHost{}
				g.Expect(api.Get(t.Context(), client.ObjectKey{Name: "host"}, host)).To(Succeed())
				g.Expect(conditions.GetMessage(host, infrav1.EvacuatedCondition)).To(Equal("All of 3 machines are gone"))
			})
		}
	}
}

// newAPI returns an API server with a host to be evacuated and three machines of a MachineSet.
func newAPI(g *WithT) client.WithWatch {
	scheme := runtime.NewScheme()
	g.Expect(clusterv1.AddToScheme(scheme)).To(Succeed())
	g.Expect(infrav1.AddToScheme(scheme)).To(Succeed())
	objects := []client.Object{
		&infrav1.LibvirtHost{ObjectMeta: metav1.ObjectMeta{Name: "host"}, Spec: infrav1.LibvirtHostSpec{Maintenance: &infrav1.HostMaintenance{Mode: infrav1.MaintenanceEvacuate}}},
		&clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "blue"}},
		&clusterv1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "set"}, Spec: clusterv1.MachineSetSpec{Replicas: ptr.To[int32](3)}},
		&clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "check"}, Spec: clusterv1.MachineHealthCheckSpec{ClusterName: "blue"}},
	}
	for _, name := range []string{"a", "b", "c"} {
		objects = append(objects, readyMachine(name), &infrav1.LibvirtMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: name, UID: types.UID(name)}}},
			Spec: infrav1.LibvirtMachineSpec{HostName: "host"}})
	}
	return clientfake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithIndex(&infrav1.LibvirtMachine{}, index.MachineHost, index.HostOf).WithIndex(&clusterv1.Machine{}, index.MachineOwner, index.OwnerOf).
		WithStatusSubresource(&infrav1.LibvirtHost{}).Build()
}

func readyMachine(name string) *clusterv1.Machine {
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(name), Labels: map[string]string{clusterv1.ClusterNameLabel: "blue"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineSet", Name: "set", UID: "set", Controller: ptr.To(true)}}},
		Spec: clusterv1.MachineSpec{ClusterName: "blue"}}
	conditions.Set(machine, metav1.Condition{Type: clusterv1.MachineReadyCondition, Status: metav1.ConditionTrue, Reason: clusterv1.MachineReadyReason})
	return machine
}

func markedMachines(g *WithT, api client.Client) []clusterv1.Machine {
	list := &clusterv1.MachineList{}
	g.Expect(api.List(context.Background(), list)).To(Succeed())
	var on []clusterv1.Machine
	for _, machine := range list.Items {
		if machine.Annotations[clusterv1.RemediateMachineAnnotation] != "" {
			on = append(on, machine)
		}
	}
	return on
}

// actAsControllers acts as Cluster API and the other controllers for a marked machine.
func actAsControllers(g *WithT, api client.Client, machine *clusterv1.Machine) {
	ctx := context.Background()
	g.Expect(api.Delete(ctx, &infrav1.LibvirtMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: machine.Name}})).To(Succeed())
	g.Expect(api.Delete(ctx, machine)).To(Succeed())
	g.Expect(api.Create(ctx, readyMachine("new-"+machine.Name))).To(Succeed())
}

const untilCheckActs = "waiting for MachineHealthCheck check to mark it as unhealthy, because of its annotation cluster.x-k8s.io/remediate-machine"

// TestWaitsForDeletion: a machine that can't be deleted blocks the others, and the condition has its name and the
// reason.
func TestWaitsForDeletion(t *testing.T) {
	const first = "0 of 3 machines are gone\nreplacing Machine team/a: it is being deleted"
	for name, tc := range map[string]struct {
		change func(*clusterv1.Cluster, *clusterv1.Machine, *infrav1.LibvirtMachine)
		says   string
	}{
		"no reason": {change: func(*clusterv1.Cluster, *clusterv1.Machine, *infrav1.LibvirtMachine) {}, says: ""},
		"a paused Cluster": {says: ", and its Cluster is paused", change: func(cluster *clusterv1.Cluster, _ *clusterv1.Machine, _ *infrav1.LibvirtMachine) {
			cluster.Spec.Paused = ptr.To(true)
		}},
		"a paused Machine": {says: ", and its Machine is paused", change: func(_ *clusterv1.Cluster, machine *clusterv1.Machine, _ *infrav1.LibvirtMachine) {
			machine.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
		}},
		"a paused LibvirtMachine": {says: ", and its LibvirtMachine is paused", change: func(_ *clusterv1.Cluster, _ *clusterv1.Machine, infra *infrav1.LibvirtMachine) {
			infra.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
		}},
		"a drain": {says: ": Drain not completed yet: * Pod web: cannot evict; Waiting for host host", change: func(_ *clusterv1.Cluster, machine *clusterv1.Machine, infra *infrav1.LibvirtMachine) {
			conditions.Set(machine, metav1.Condition{Type: clusterv1.MachineDeletingCondition, Status: metav1.ConditionTrue,
				Reason: clusterv1.MachineDeletingDrainingNodeReason, Message: "Drain not completed yet:\n* Pod web: cannot evict"})
			conditions.Set(infra, metav1.Condition{Type: infrav1.ReadyCondition, Status: metav1.ConditionFalse, Reason: infrav1.DeletingReason, Message: "Waiting for host host"})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			api := newAPI(g)
			r := &Reconciler{Client: api, recorder: events.NewFakeRecorder(100)}
			cluster, machine, infra := &clusterv1.Cluster{}, &clusterv1.Machine{}, &infrav1.LibvirtMachine{}
			g.Expect(api.Get(t.Context(), client.ObjectKey{Namespace: "team", Name: "blue"}, cluster)).To(Succeed())
			g.Expect(api.Get(t.Context(), client.ObjectKey{Namespace: "team", Name: "a"}, machine)).To(Succeed())
			g.Expect(api.Get(t.Context(), client.ObjectKey{Namespace: "team", Name: "a"}, infra)).To(Succeed())
			tc.change(cluster, machine, infra)
			machine.Finalizers = []string{"test/kept"}
			for _, object := range []client.Object{cluster, machine, infra} {
				g.Expect(api.Update(t.Context(), object)).To(Succeed())
			}
			g.Expect(api.Delete(t.Context(), machine)).To(Succeed())
			for range 5 {
				_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "host"}})
				g.Expect(err).ToNot(HaveOccurred())
			}
			host := &infrav1.LibvirtHost{}
			g.Expect(api.Get(t.Context(), client.ObjectKey{Name: "host"}, host)).To(Succeed())
			g.Expect(conditions.GetMessage(host, infrav1.EvacuatedCondition)).To(Or(Equal(first+tc.says), HavePrefix(first+tc.says+"\nwaiting: team/b: ")))
		})
	}
}

// TestWaitsForReplacement: the next machine isn't replaced before the owner of the last one has a Ready replacement.
func TestWaitsForReplacement(t *testing.T) {
	g := NewWithT(t)
	api := newAPI(g)
	r := &Reconciler{Client: api, recorder: events.NewFakeRecorder(100)}
	message := func() string {
		for range 5 {
			_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "host"}})
			g.Expect(err).ToNot(HaveOccurred())
		}
		host := &infrav1.LibvirtHost{}
		g.Expect(api.Get(t.Context(), client.ObjectKey{Name: "host"}, host)).To(Succeed())
		return conditions.GetMessage(host, infrav1.EvacuatedCondition)
	}
	g.Expect(message()).To(Equal("0 of 3 machines are gone\nreplacing Machine team/a: " + untilCheckActs))
	actAsControllers(g, api, &markedMachines(g, api)[0])
	fresh := readyMachine("new-a")
	g.Expect(api.Delete(t.Context(), fresh)).To(Succeed())
	g.Expect(message()).To(HavePrefix("1 of 3 machines are gone\nreplacing Machine team/a: it is gone, and MachineSet set has 2 of 3 machines Ready"))
	g.Expect(markedMachines(g, api)).To(BeEmpty())
	fresh = readyMachine("new-a")
	fresh.Status.Conditions[0].Status = metav1.ConditionFalse
	g.Expect(api.Create(t.Context(), fresh)).To(Succeed())
	g.Expect(message()).To(ContainSubstring("2 of 3 machines Ready"))
	g.Expect(markedMachines(g, api)).To(BeEmpty())
	fresh.Status.Conditions[0].Status = metav1.ConditionTrue
	g.Expect(api.Update(t.Context(), fresh)).To(Succeed())
	g.Expect(message()).To(Equal("1 of 3 machines are gone\nreplacing Machine team/b: " + untilCheckActs))

	// The MachineHealthCheck is deleted: the marked machine stays.
	check := &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "check"}}
	g.Expect(api.Delete(t.Context(), check)).To(Succeed())
	g.Expect(message()).To(HavePrefix("1 of 3 machines are gone\ncan't be replaced: team/b: no MachineHealthCheck"))
	g.Expect(markedMachines(g, api)).To(BeEmpty())
}
