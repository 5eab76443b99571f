package libvirtmachine

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/images"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/fake"
)

// TestSlowHostTakesFewWorkers: a host that doesn't answer blocks only a limited number of workers. Its other machines
// are requeued at once, machines of other hosts continue, and the end of each reconcile requeues a waiting machine.
func TestSlowHostTakesFewWorkers(t *testing.T) {
	w := newWorld(t, nil, "slow", "other")
	m := w.until(w.newManager(0), w.isProvisioned)
	const many = maxPerHost + 5
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
	w.Expect(m.hostLimiter.start(t.Context(), queue)).To(Succeed())
	w.hosts["slow"].Inject(fake.Fault{Operation: fake.Domain, Effect: fake.Hang, Times: -1})
	ctx, answer := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	reconcile := func(i int) (ctrl.Result, error) {
		return m.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKey{Namespace: key.Namespace, Name: fmt.Sprintf("m-%d", i)}})
	}
	for i := range maxPerHost {
		ended.Go(func() { _, _ = reconcile(i) })
	}
	w.Eventually(w.hosts["slow"].Hanging).WithTimeout(patience).Should(Equal(maxPerHost))
	for i := maxPerHost; i < many-1; i++ {
		w.Expect(reconcile(i)).To(Equal(ctrl.Result{RequeueAfter: turnDelay}))
	}
	_, err := reconcile(many - 1)
	w.Expect(err).ToNot(HaveOccurred(), "on the other host")
	w.Expect(queue.Len()).To(BeZero())
	w.hosts["slow"].ClearFaults()
	answer()
	ended.Wait()
	w.Expect(queue.Len()).To(Equal(many - 1 - maxPerHost))
	w.Expect(m.hostLimiter.hosts).To(BeEmpty())
}

// TestCopiesCountAsTransfers: copies count as transfers. While an image is copied on a host, another transfer to
// it is queued.
func TestCopiesCountAsTransfers(t *testing.T) {
	const full = 1
	requested := make(chan struct{}, 100)
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { requested <- struct{}{}; <-r.Context().Done() }))
	t.Cleanup(func() { silent.CloseClientConnections(); silent.Close() })
	w := newWorld(t, lives[full].change, "a")
	w.images = &images.Options{Sources: testSources, PerHost: 1}
	w.hosts["a"].Inject(fake.Fault{Operation: fake.CloneVolume, Effect: fake.Hang})
	m := w.until(w.newManager(0), func() bool { return w.hosts["a"].Hanging() > 0 })
	another := client.ObjectKey{Namespace: "another", Name: "m"}
	w.Eventually(func() bool {
		_, err := m.Images.Ensure(t.Context(), images.Wish{Host: "a", Pool: "default", URL: silent.URL, Checksum: checksum(nil)}, another)
		var transferring *images.Transferring
		return errors.As(err, &transferring) && transferring.Queued || len(requested) > 0
	}).WithTimeout(patience).Should(BeTrue())
	w.Expect(requested).To(BeEmpty())
	m.Images.Forget(another)
	w.hosts["a"].SetReachable(false) // which ends the copy
	w.hosts["a"].SetReachable(true)
	w.until(m, w.isProvisioned)
}
