package libvirtmachine

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor/fake"
)

// TestSlowHostTakesFewWorkers: of the machines of a host that doesn't answer only some are reconciled at once. The
// others come back to the queue at once, those of other hosts go on, and each end lets one of those come that wait.
func TestSlowHostTakesFewWorkers(t *testing.T) {
	w := newWorld(t, nil, "slow", "other")
	m := w.until(w.newManager(0), w.isProvisioned)
	const many = atWorkOnHost + 5
	template := w.infra()
	for i := range many {
		next := template.DeepCopy()
		next.Name, next.UID, next.ResourceVersion = fmt.Sprintf("m-%d", i), "", ""
		next.Spec.ProviderID = infrav1.ProviderIDPrefix + fmt.Sprintf("%08x-0000-4000-8000-000000000000", i)
		next.Spec.HostName = "slow"
		if i == many-1 {
			next.Spec.HostName = "other"
		}
		w.Expect(w.api.Create(t.Context(), next)).To(Succeed())
		w.Expect(w.api.Status().Update(t.Context(), next)).To(Succeed())
	}
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
	defer queue.ShutDown()
	w.Expect(m.atWork.start(t.Context(), queue)).To(Succeed())
	w.hosts["slow"].Inject(fake.Fault{Operation: fake.Domain, Effect: fake.Hang, Times: -1})
	ctx, answer := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	reconcile := func(i int) (ctrl.Result, error) {
		return m.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKey{Namespace: key.Namespace, Name: fmt.Sprintf("m-%d", i)}})
	}
	for i := range atWorkOnHost {
		ended.Go(func() { _, _ = reconcile(i) })
	}
	w.Eventually(w.hosts["slow"].Hanging).WithTimeout(patience).Should(Equal(atWorkOnHost))
	for i := atWorkOnHost; i < many-1; i++ {
		w.Expect(reconcile(i)).To(Equal(ctrl.Result{RequeueAfter: turnDelay}))
	}
	_, err := reconcile(many - 1)
	w.Expect(err).ToNot(HaveOccurred(), "on the other host")
	w.Expect(queue.Len()).To(BeZero())
	w.hosts["slow"].ClearFaults()
	answer()
	ended.Wait()
	w.Expect(queue.Len()).To(Equal(many - 1 - atWorkOnHost))
	w.Expect(m.atWork.hosts).To(BeEmpty())
}

// TestCopiesTakeTurns: full clones of a host are made a few at a time.
func TestCopiesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		var c copies
		var lock sync.Mutex
		begun, finish := map[string]int{}, make(chan struct{})
		for i := range 5 {
			for _, host := range []string{"a", "b"} {
				ended, err := c.ensure(t.Context(), host, client.ObjectKey{Namespace: host, Name: fmt.Sprint(i)}, func(context.Context) error {
					lock.Lock()
					begun[host]++
					lock.Unlock()
					<-finish
					return nil
				})
				g.Expect(ended).To(BeFalse())
				g.Expect(err).ToNot(HaveOccurred())
			}
		}
		synctest.Wait() // until all of them run, or wait
		g.Expect(begun).To(Equal(map[string]int{"a": copiesOnHost, "b": copiesOnHost}))
		close(finish)
		synctest.Wait()
		g.Expect(begun).To(Equal(map[string]int{"a": 5, "b": 5}))
	})
}
