package libvirtmachine

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// atWorkOnHost is how many machines of one host are reconciled at once: a slow one must not take all workers.
	atWorkOnHost = 10
	// turnDelay is when a machine is looked at again at the latest that waits for its turn.
	turnDelay = 30 * time.Second
)

// atWork counts the machines of each host that are being reconciled. Those that are too many don't wait in a worker:
// each end brings one of them back to the queue. The zero value is ready to use.
type atWork struct {
	lock  sync.Mutex
	hosts map[string]*hostTurns
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
}

type hostTurns struct {
	working int
	waiting []client.ObjectKey
}

// begin says whether a machine may be reconciled now. If so, call end afterwards.
func (a *atWork) begin(host string, machine client.ObjectKey) bool {
	a.lock.Lock()
	defer a.lock.Unlock()
	if a.hosts == nil {
		a.hosts = map[string]*hostTurns{}
	}
	t := a.hosts[host]
	if t == nil {
		t = &hostTurns{}
		a.hosts[host] = t
	}
	if t.working == atWorkOnHost {
		if !slices.Contains(t.waiting, machine) {
			t.waiting = append(t.waiting, machine)
		}
		return false
	}
	t.working++
	return true
}

// end gives the turn to the machine that has waited longest.
func (a *atWork) end(host string) {
	a.lock.Lock()
	defer a.lock.Unlock()
	t := a.hosts[host]
	t.working--
	if len(t.waiting) > 0 {
		next := t.waiting[0]
		t.waiting = t.waiting[1:]
		if a.queue != nil {
			a.queue.Add(reconcile.Request{NamespacedName: next})
		}
	}
	if t.working == 0 && len(t.waiting) == 0 {
		delete(a.hosts, host)
	}
}

// start implements source.Func.
func (a *atWork) start(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	a.lock.Lock()
	defer a.lock.Unlock()
	a.queue = queue
	return nil
}
