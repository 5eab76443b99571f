package fleet

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// news has the feeds of all subscribers. They are added before the fleet is started, and not guarded by a lock
// afterwards.
type news struct {
	hosts, reachability, machines []*feed
}

func (n *news) feeds() []*feed {
	return slices.Concat(n.hosts, n.reachability, n.machines)
}

// tell notifies the subscribers of a change.
func (n *news) tell(host string, c change) {
	name := types.NamespacedName{Name: host}
	if c.host {
		for _, feed := range n.hosts {
			feed.names.Add(name)
		}
	}
	if c.reachability {
		for _, feed := range n.reachability {
			feed.names.Add(name)
		}
	}
	for _, owner := range c.owners {
		for _, feed := range n.machines {
			feed.names.Add(types.NamespacedName{Namespace: owner.Namespace, Name: owner.Name})
		}
	}
}

func hostEvent(name types.NamespacedName) event.GenericEvent {
	return event.GenericEvent{Object: &infrav1.LibvirtHost{ObjectMeta: metav1.ObjectMeta{Name: name.Name}}}
}

func machineEvent(name types.NamespacedName) event.GenericEvent {
	return event.GenericEvent{Object: &infrav1.LibvirtMachine{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}}
}

// feed passes names to a subscriber. Senders never wait, and a queued name isn't added again.
type feed struct {
	event func(types.NamespacedName) event.GenericEvent
	out   chan event.GenericEvent
	names workqueue.TypedInterface[types.NamespacedName]
}

func newFeed(toEvent func(types.NamespacedName) event.GenericEvent) *feed {
	return &feed{event: toEvent, out: make(chan event.GenericEvent), names: workqueue.NewTyped[types.NamespacedName]()}
}

// run passes names on until the context ends.
func (f *feed) run(ctx context.Context) {
	defer context.AfterFunc(ctx, f.names.ShutDown)()
	for {
		name, ended := f.names.Get()
		if ended {
			return
		}
		f.names.Done(name) // it can be added again
		select {
		case f.out <- f.event(name):
		case <-ctx.Done():
			return
		}
	}
}
