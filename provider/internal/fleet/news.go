package fleet

import (
	"context"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// news are the feeds of everybody who wants to know what changes. They are added before the fleet is
// started, and not guarded by a lock afterwards.
type news struct {
	hosts, reachability, machines []*feed
}

func (n *news) feeds() []*feed {
	return slices.Concat(n.hosts, n.reachability, n.machines)
}

// tell passes a change of a host on.
func (n *news) tell(host string, c change) {
	name := types.NamespacedName{Name: host}
	if c.host {
		for _, feed := range n.hosts {
			feed.put(name)
		}
	}
	if c.reachability {
		for _, feed := range n.reachability {
			feed.put(name)
		}
	}
	for _, owner := range c.owners {
		for _, feed := range n.machines {
			feed.put(types.NamespacedName{Namespace: owner.Namespace, Name: owner.Name})
		}
	}
}

func hostEvent(name types.NamespacedName) event.GenericEvent {
	return event.GenericEvent{Object: &infrav1.LibvirtHost{ObjectMeta: metav1.ObjectMeta{Name: name.Name}}}
}

func machineEvent(name types.NamespacedName) event.GenericEvent {
	return event.GenericEvent{Object: &infrav1.LibvirtMachine{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}}
}

// feed passes names on, never makes their sender wait, and holds each name at most once.
type feed struct {
	event func(types.NamespacedName) event.GenericEvent
	out   chan event.GenericEvent
	// wake has room for one: something was put since run last looked.
	wake chan struct{}

	lock    sync.Mutex
	waiting []types.NamespacedName
	held    map[types.NamespacedName]bool
}

func newFeed(toEvent func(types.NamespacedName) event.GenericEvent) *feed {
	return &feed{event: toEvent, out: make(chan event.GenericEvent), wake: make(chan struct{}, 1), held: map[types.NamespacedName]bool{}}
}

func (f *feed) put(name types.NamespacedName) {
	f.lock.Lock()
	defer f.lock.Unlock()
	if f.held[name] {
		return
	}
	f.held[name] = true
	f.waiting = append(f.waiting, name)
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// next takes the name that has waited longest. From then on it can be put again.
func (f *feed) next() (types.NamespacedName, bool) {
	f.lock.Lock()
	defer f.lock.Unlock()
	if len(f.waiting) == 0 {
		return types.NamespacedName{}, false
	}
	name := f.waiting[0]
	f.waiting = f.waiting[1:]
	delete(f.held, name)
	return name, true
}

// run passes names on until the context ends.
func (f *feed) run(ctx context.Context) {
	for {
		name, found := f.next()
		if !found {
			select {
			case <-f.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		select {
		case f.out <- f.event(name):
		case <-ctx.Done():
			return
		}
	}
}
