package libvirtmachine

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/images"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/fake"
)

// TestRunPolicy: a guest that was shut off or has crashed is started again, unless runPolicy is Manual or the Machine
// is being deleted.
func TestRunPolicy(t *testing.T) {
	for _, tc := range []struct {
		name   string
		policy infrav1.RunPolicy
		state  hypervisor.DomainState
		change func(w *world)
		starts bool
	}{
		{name: "default, shut off", state: hypervisor.StateShutOff, starts: true},
		{name: "Always, crashed", policy: infrav1.RunAlways, state: hypervisor.StateCrashed, starts: true},
		{name: "Always, paused by a user", policy: infrav1.RunAlways, state: hypervisor.StatePaused},
		{name: "Manual, shut off", policy: infrav1.RunManual, state: hypervisor.StateShutOff},
		{name: "the Machine is being deleted", state: hypervisor.StateShutOff, change: func(w *world) {
			change(w, &clusterv1.Machine{}, key.Name, func(m *clusterv1.Machine) { m.Finalizers = []string{"example.com/drain"} })
			w.Expect(w.api.Delete(t.Context(), &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}})).To(Succeed())
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, func(m *infrav1.LibvirtMachine) { m.Spec.RunPolicy = tc.policy }, "a")
			m := w.until(w.newManager(0), w.isProvisioned)
			w.joinNode()
			if tc.change != nil {
				tc.change(w)
			}
			w.hosts["a"].SetState(w.uuid(), tc.state)
			w.hosts["a"].ForgetCalls()
			for range 5 {
				_, err := m.reconcile()
				w.Expect(err).ToNot(HaveOccurred())
			}
			want := tc.state
			if tc.starts {
				want = hypervisor.StateRunning
			}
			w.Expect(w.hosts["a"].State(w.uuid())).To(Equal(want))
			w.Expect(conditions.IsTrue(w.infra(), infrav1.InstanceReadyCondition)).To(Equal(tc.starts))
			w.Expect(conditions.IsTrue(w.infra(), infrav1.SeedRemovedCondition)).To(BeTrue(), "the secrets are deleted in any case")
			if tc.starts {
				w.Expect(w.output()).To(ContainSubstring("Normal StartedAgain The domain was in the state " + string(tc.state)))
			}
			if tc.policy == infrav1.RunManual {
				w.Expect(conditions.GetMessage(w.infra(), infrav1.InstanceReadyCondition)).To(ContainSubstring("spec.runPolicy is Manual"))
				infra := w.infra()
				infra.Spec.RunPolicy = infrav1.RunAlways
				w.Expect(w.api.Update(t.Context(), infra)).To(Succeed())
				w.until(m, func() bool { return w.hosts["a"].State(w.uuid()) == hypervisor.StateRunning })
			}
		})
	}
}

// TestCrashLoop: a guest that stops soon after each start is started after increasing delays, before and after it is
// provisioned. A condition and an event report it.
func TestCrashLoop(t *testing.T) {
	for name, provisioned := range map[string]bool{"provisioned": true, "never had an address": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil, "a")
			w.silent = !provisioned
			is := w.isProvisioned
			if !provisioned {
				is = w.hasCondition(infrav1.InstanceReadyCondition, infrav1.InstanceRunningReason)
			}
			m := w.until(w.newManager(0), is)
			w.hosts["a"].ForgetCalls()
			for range 20 {
				if w.hosts["a"].State(w.uuid()) == hypervisor.StateRunning {
					w.hosts["a"].SetState(w.uuid(), hypervisor.StateShutOff)
				}
				_, err := m.reconcile()
				w.Expect(err).ToNot(HaveOccurred())
			}
			began := 0
			for _, call := range w.hosts["a"].Calls() {
				if call.Operation == fake.StartDomain {
					began++
				}
			}
			w.Expect(began).To(Equal(1), "at once, and then after a delay")
			w.Expect(conditions.GetReason(w.infra(), infrav1.InstanceReadyCondition)).To(Equal(infrav1.CrashLoopBackOffReason))
			w.Expect(conditions.GetMessage(w.infra(), infrav1.InstanceReadyCondition)).To(ContainSubstring("has stopped 2 times soon after it was started"))
			w.Expect(w.output()).To(ContainSubstring("Warning " + infrav1.CrashLoopBackOffReason))
			result, err := m.reconcile()
			w.Expect(err).ToNot(HaveOccurred())
			w.Expect(result.RequeueAfter).To(And(BeNumerically(">", 0), BeNumerically("<=", firstBackOff)))
		})
	}
}

func TestStarts(t *testing.T) {
	g := NewWithT(t)
	s := &scope{Reconciler: &Reconciler{Images: &images.Store{}}, infra: &infrav1.LibvirtMachine{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "1"}}}
	now := time.Now()
	wait := func(after time.Duration) (time.Duration, int) {
		at, stops := s.nextStart(now.Add(after))
		return at.Sub(now), stops
	}
	at, stops := wait(0)
	g.Expect(at).To(BeZero())
	g.Expect(stops).To(BeZero())
	for i, want := range []time.Duration{0, 10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second, 5 * time.Minute, 5 * time.Minute} {
		s.recordStart(now)
		at, stops := wait(0)
		g.Expect(at).To(Equal(want), "%d", i)
		g.Expect(stops).To(Equal(i + 1))
	}
	at, stops = wait(steadyAfter)
	g.Expect(at).To(Equal(steadyAfter), "at once after a long run")
	g.Expect(stops).To(BeZero())
	s.infra.UID = "2"
	_, stops = s.nextStart(now)
	g.Expect(stops).To(BeZero(), "another machine with the same name")
	s.infra.UID = "1"
	s.forget(key)
	_, stops = wait(0)
	g.Expect(stops).To(BeZero())
}
