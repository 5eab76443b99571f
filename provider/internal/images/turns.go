package images

import (
	"context"
	"slices"
)

// turns let a number of transfers run at once, and the others wait. The next turn is for the namespace with the
// fewest transfers under way, and a namespace never has more than half of them, so that nobody's images keep everybody
// else's waiting, however slow their servers are. The store's lock guards it.
type turns struct {
	limit int
	// running is how many transfers each namespace has under way.
	running map[string]int
	waiting []*turn
	// users is how many attempts have turns here, want one or are about to.
	users int
}

// turn is a transfer's.
type turn struct {
	// namespaces are those of the machines that want the image now.
	namespaces func() []string
	// namespace is the one that it counts for, once it has begun.
	namespace string
	begun     chan struct{}
}

// begin begins the turns that may begin now, those that have waited longest first. The lock is held.
func (t *turns) begin() {
	for t.total() < t.limit {
		best, namespace := -1, ""
		for i, waiting := range t.waiting {
			for _, candidate := range waiting.namespaces() {
				if t.running[candidate] < max(t.limit/2, 1) && (best < 0 || t.running[candidate] < t.running[namespace]) {
					best, namespace = i, candidate
				}
			}
		}
		if best < 0 {
			return
		}
		next := t.waiting[best]
		t.waiting = slices.Delete(t.waiting, best, best+1)
		if t.running == nil {
			t.running = map[string]int{}
		}
		t.running[namespace]++
		next.namespace = namespace
		close(next.begun)
	}
}

func (t *turns) total() int {
	total := 0
	for _, running := range t.running {
		total += running
	}
	return total
}

// end ends a turn, or waits for it no longer. The lock is held.
func (t *turns) end(of *turn) {
	t.waiting = slices.DeleteFunc(t.waiting, func(waiting *turn) bool { return waiting == of })
	if of.namespace != "" {
		if t.running[of.namespace]--; t.running[of.namespace] == 0 {
			delete(t.running, of.namespace)
		}
	}
	t.begin()
}

// take waits for a turn of a task's, and returns what ends it. The store's lock isn't held.
func (t *task) take(ctx context.Context, from *turns) (end func(), err error) {
	s := t.store
	mine := &turn{namespaces: t.namespaces, begun: make(chan struct{})}
	end = func() {
		s.lock.Lock()
		defer s.lock.Unlock()
		from.end(mine)
	}
	s.lock.Lock()
	from.waiting = append(from.waiting, mine)
	from.begin()
	if mine.namespace == "" && t.phase != queued {
		t.phase = queued
		t.notify()
	}
	s.lock.Unlock()
	select {
	case <-mine.begun:
		return end, nil
	case <-ctx.Done():
		end()
		return nil, ctx.Err()
	}
}

// namespaces are those of the machines that want the image. The lock is held.
func (t *task) namespaces() []string {
	var namespaces []string
	for machine := range t.wantedBy {
		namespaces = append(namespaces, machine.Namespace)
	}
	slices.Sort(namespaces)
	return slices.Compact(namespaces)
}
