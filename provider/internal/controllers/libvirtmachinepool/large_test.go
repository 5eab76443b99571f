package libvirtmachinepool

import (
	"context"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// large is a pool of many machines, with a clock.
type large struct {
	*management
	*process
	clock time.Time
	lists int
}

func newLarge(t *testing.T, replicas int32) *large {
	t.Helper()
	l := &large{management: newManagement(t), clock: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
	owner := &clusterv1.MachinePool{}
	l.Expect(l.api.Get(t.Context(), poolKey, owner)).To(Succeed())
	owner.Spec.Replicas = ptr.To(replicas)
	l.Expect(l.api.Update(t.Context(), owner)).To(Succeed())
	l.process = l.management.process(0)
	l.APIReader = interceptor.NewClient(l.api, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
		l.lists++
		return c.List(ctx, list, options...)
	}})
	l.Reconciler.clock = func() time.Time { return l.clock }
	return l
}

// reconcile runs the controller once, and returns its writes and the delay before the next reconcile.
func (l *large) reconcile() (calls []string, after time.Duration) {
	l.calls = nil
	result, err := l.Reconcile(context.Background(), ctrl.Request{NamespacedName: poolKey})
	l.Expect(err).ToNot(HaveOccurred())
	return l.calls, result.RequeueAfter
}

// TestLargePool: the machines of a large pool are created and deleted in steps, with consecutive names, and the pool
// isn't reconciled for each change of each machine.
func TestLargePool(t *testing.T) {
	const size = 450
	l := newLarge(t, size)
	for range 2 { // the finalizer, the Paused condition
		l.reconcile()
	}
	l.reconcile()
	for _, made := range []int{200, 400, 450} {
		l.Expect(l.machines()).To(HaveLen(made))
		calls, after := l.reconcile()
		l.Expect(calls).To(BeEmpty())
		l.Expect(after).To(Equal(size * pauseForEach))
		l.clock = l.clock.Add(after)
		calls, _ = l.reconcile()
		l.Expect(len(calls)).To(BeNumerically("<=", changesAtOnce+3))
	}
	var names []string
	for i := range size {
		names = append(names, fmt.Sprintf("workers-%d", i+1))
	}
	var made []string
	for _, machine := range l.machines() {
		made = append(made, machine.Name)
	}
	l.Expect(made).To(ConsistOf(names), "the names have no gap")

	// When all machines are provisioned, the spec and the status are written once.
	l.actAsOthers()
	l.clock, l.lists = l.clock.Add(time.Minute), 0
	calls, _ := l.reconcile()
	l.Expect(calls).To(Equal([]string{"patch", "patch status"}))
	l.Expect(l.lists).To(BeZero(), "without changes to make, the API server isn't read")

	infra := &infrav1.LibvirtMachinePool{}
	l.Expect(l.api.Get(t.Context(), poolKey, infra)).To(Succeed())
	l.Expect(infra.Spec.ProviderIDList).To(HaveLen(size))
	l.Expect(*infra.Status.Ready).To(BeTrue())
	l.Expect(l.api.Delete(t.Context(), infra)).To(Succeed())
	for _, left := range []int{250, 50, 0} {
		l.clock = l.clock.Add(time.Minute)
		l.reconcile()
		l.actAsOthers()
		l.Expect(l.machines()).To(HaveLen(left))
	}
	l.Expect(l.lists).To(BeZero(), "the cache has all machines and their Machines")
	l.clock = l.clock.Add(time.Minute)
	l.reconcile()
	l.Expect(client.IgnoreNotFound(l.api.Get(t.Context(), poolKey, infra))).To(Succeed())
	l.Expect(l.lists).To(BeNumerically(">", 0), "before the pool is deleted, the API server is read")
	l.reconcile()
	_, remembered := l.pace.Load(poolKey)
	l.Expect(remembered).To(BeFalse())
}

// TestPace: small pools are reconciled after each change.
func TestPace(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for machines, want := range map[int]time.Duration{0: 0, smallPool: 0, smallPool + 1: 50500 * time.Microsecond, 4000: 2 * time.Second, 10000: 5 * time.Second} {
		p := &pace{}
		g := NewWithT(t)
		g.Expect(p.wait(poolKey, machines, now)).To(BeZero(), "%d, for the first time", machines)
		p.Store(poolKey, now)
		g.Expect(p.wait(poolKey, machines, now)).To(Equal(want), "%d", machines)
		g.Expect(p.wait(poolKey, machines, now.Add(want))).To(BeZero(), "%d", machines)
		p.Delete(poolKey)
		g.Expect(p.wait(poolKey, machines, now)).To(BeZero(), "%d, of another pool", machines)
	}
}
