package libvirtmachine

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/outcome"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/placement"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/metricstest"
)

// TestWaitingForHosts: the resources of hosts that are being connected to aren't known, and the machine waits for them.
func TestWaitingForHosts(t *testing.T) {
	w := newWorld(t, nil, "a", "b")
	w.changeHost("b", func(h *infrav1.LibvirtHost) { h.Spec.Maintenance = &infrav1.HostMaintenance{} })
	w.connecting.Store("a", true)
	m := w.newManager(0)
	w.Expect(w.message(m, infrav1.HostBoundCondition, infrav1.WaitingForHostsReason)).To(Equal("no host fits so far (0 of 2 Ready and selected): a: connecting; b: in maintenance"))
	w.Expect(w.infra().Spec.HostName).To(BeEmpty())
	w.Expect(w.events.Events).To(BeEmpty(), "waiting isn't an event")
	w.connecting.Delete("a")
	w.until(m, w.isProvisioned)
	w.Expect(w.infra().Spec.HostName).To(Equal("a"))
}

// TestUsableHostDoesNotWait: a machine doesn't wait for a host that is being connected to if another host fits,
// or if that host can't fit.
func TestUsableHostDoesNotWait(t *testing.T) {
	w := newWorld(t, nil, "a", "b")
	w.connecting.Store("a", true)
	w.until(w.newManager(0), w.isProvisioned)
	w.Expect(w.infra().Spec.HostName).To(Equal("b"))

	w = newWorld(t, nil, "a", "b")
	w.connecting.Store("a", true)
	change(w, &clusterv1.Machine{}, key.Name, func(m *clusterv1.Machine) { m.Spec.FailureDomain = "rack-c" })
	w.Expect(w.message(w.newManager(0), infrav1.HostBoundCondition, infrav1.NoHostFitsReason)).To(HavePrefix("no host fits (2 of 2 Ready and selected): a: in failure domain rack-a"))

	w = newWorld(t, func(infra *infrav1.LibvirtMachine) { infra.Labels[clusterv1.WatchLabel] = "blue" }, "a")
	w.connecting.Store("a", true)
	m := w.newManager(0)
	m.WatchFilterValue, m.Scheduler.WatchFilterValue = "blue", "blue"
	w.Expect(w.message(m, infrav1.HostBoundCondition, infrav1.NoHostFitsReason)).To(ContainSubstring("it lacks the label cluster.x-k8s.io/watch-filter: blue"))
}

// TestConditionStaysWhileConnecting: a started manager keeps the result of an earlier manager in the
// condition while it connects to hosts.
func TestConditionStaysWhileConnecting(t *testing.T) {
	w := newWorld(t, func(infra *infrav1.LibvirtMachine) { infra.Spec.CPUs = 99 }, "a")
	_, counted := metricstest.Count(w, "caplv_placement_no_fit_total", "reason", string(placement.NoRoom))
	w.Expect(w.message(w.newManager(0), infrav1.HostBoundCondition, infrav1.NoHostFitsReason)).To(ContainSubstring("CPUs: 99 needed, 16 free"))
	_, now := metricstest.Count(w, "caplv_placement_no_fit_total", "reason", string(placement.NoRoom))
	w.Expect(now).To(BeNumerically(">", counted))
	before := w.infra()
	w.output()
	next := w.newManager(0)
	for _, connecting := range []bool{true, false} {
		if w.connecting.Clear(); connecting {
			w.connecting.Store("a", true)
		}
		result, err := next.reconcile()
		w.Expect(err).ToNot(HaveOccurred())
		w.Expect(result.RequeueAfter).To(Equal(noFitDelay))
		w.Expect(w.infra()).To(Equal(before))
		w.Expect(w.events.Events).To(BeEmpty())
	}

	change(w, &infrav1.LibvirtMachine{}, key.Name, func(m *infrav1.LibvirtMachine) { m.Spec.CPUs, m.Generation = 2, 1 })
	w.connecting.Store("a", true)
	w.message(next, infrav1.HostBoundCondition, infrav1.WaitingForHostsReason) // the earlier result was for another spec
}

// TestHostIsBack: when hosts become reachable, their machines are reconciled at once, and machines without a host once
// after a delay.
func TestHostIsBack(t *testing.T) {
	w := newWorld(t, nil, "a")
	w.Expect(w.api.Create(t.Context(), &infrav1.LibvirtMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "bound"},
		Spec: infrav1.LibvirtMachineSpec{HostName: "a"}})).To(Succeed())
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
	defer queue.ShutDown()
	m := w.newManager(0)
	for _, host := range []string{"a", "b", "c"} {
		m.reachabilityChanged(t.Context(), event.GenericEvent{Object: &infrav1.LibvirtHost{ObjectMeta: metav1.ObjectMeta{Name: host}}}, queue)
	}
	next := func() client.ObjectKey {
		request, _ := queue.Get()
		queue.Done(request)
		return request.NamespacedName
	}
	w.Expect(next()).To(Equal(client.ObjectKey{Namespace: "other", Name: "bound"}))
	w.Expect(queue.Len()).To(BeZero())
	w.Expect(next()).To(Equal(key))
	w.Expect(queue.Len()).To(BeZero())
}

// TestHostChanged checks which changes of a host trigger reconciles of machines without a host.
func TestHostChanged(t *testing.T) {
	host := func(reachable, ready metav1.ConditionStatus, how ...func(*infrav1.LibvirtHost)) *infrav1.LibvirtHost {
		h := &infrav1.LibvirtHost{}
		for condition, status := range map[string]metav1.ConditionStatus{infrav1.ReachableCondition: reachable, infrav1.ReadyCondition: ready} {
			if status != "" {
				conditions.Set(h, metav1.Condition{Type: condition, Status: status, Reason: "X"})
			}
		}
		for _, change := range how {
			change(h)
		}
		return h
	}
	const yes, no, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
	for name, tc := range map[string]struct {
		before, after *infrav1.LibvirtHost
		want          bool
	}{
		"nothing":               {before: host(yes, yes), after: host(yes, yes)},
		"numbers":               {before: host(yes, yes), after: host(yes, yes, func(h *infrav1.LibvirtHost) { h.Status.Machines = new(int32) })},
		"ready":                 {before: host(yes, no), after: host(yes, yes), want: true},
		"no longer ready":       {before: host(yes, yes), after: host(yes, no), want: true},
		"the first try failed":  {before: host(unknown, unknown), after: host(no, no), want: true},
		"the first connection":  {before: host("", ""), after: host(unknown, unknown), want: true},
		"another spec":          {before: host(yes, yes), after: host(yes, yes, func(h *infrav1.LibvirtHost) { h.Generation++ }), want: true},
		"another label, chosen": {before: host(yes, yes), after: host(yes, yes, func(h *infrav1.LibvirtHost) { h.Labels = map[string]string{"a": "b"} }), want: true},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(hostChanged().Update(event.UpdateEvent{ObjectOld: tc.before, ObjectNew: tc.after})).To(Equal(tc.want))
		})
	}
}

// TestReservationsEnd checks that the reservation of a deleted machine ends, even if the answer to the last write is
// lost and the UID is unknown afterwards.
func TestReservationsEnd(t *testing.T) {
	w := newWorld(t, nil, "a")
	w.functions.Patch = func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
		err := c.Patch(ctx, object, patch, options...)
		if err == nil && !object.GetDeletionTimestamp().IsZero() {
			return apierrors.NewTimeoutError("the answer is lost", 1)
		}
		return err
	}
	m := w.until(w.newManager(0), func() bool { return w.infra().Spec.HostName != "" })
	w.Expect(m.Scheduler.Reserved()).To(Equal(1))
	w.delete()
	w.until(m, w.isDeleted)
	_, err := m.reconcile()
	w.Expect(err).ToNot(HaveOccurred())
	w.Expect(m.Scheduler.Reserved()).To(BeZero())
}

// TestReservationOutlivesAConflict: the write of a host has succeeded, its answer was lost, and the cache doesn't have
// it. The retry conflicts with that write, and the reservation stays until the cache has it.
func TestReservationOutlivesAConflict(t *testing.T) {
	w := newWorld(t, nil, "a")
	var old *infrav1.LibvirtMachine
	w.functions.Patch = func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
		before := w.infra()
		err := c.Patch(ctx, object, patch, options...)
		if err == nil && old == nil && w.infra().Spec.HostName != "" {
			old = before
			return apierrors.NewTimeoutError("the answer is lost", 1)
		}
		return err
	}
	m := w.until(w.newManager(0), func() bool { return old != nil })
	w.Expect(m.Scheduler.Reserved()).To(Equal(1))

	machine, cluster, err := m.owners(t.Context(), old)
	w.Expect(err).ToNot(HaveOccurred())
	result, err := m.Reconciler.reconcile(t.Context(), &scope{Reconciler: m.Reconciler, infra: old, machine: machine, cluster: cluster})
	w.Expect(err).ToNot(HaveOccurred())
	w.Expect(result.RequeueAfter).To(Equal(outcome.ConflictDelay))
	w.Expect(m.Scheduler.Reserved()).To(Equal(1))
	m.Scheduler.Observe(w.infra())
	w.Expect(m.Scheduler.Reserved()).To(BeZero())
	w.Expect(m.Scheduler.Domains("a")).To(HaveKey(w.uuid()))
}
