package images

import (
	"context"
	"slices"
)

// allTransfers names the turns of all transfers, which go through this process. Copies are made by their hosts.
const allTransfers = ""

// turns let a number of transfers and copies run at once, and the others wait. The next turn is for the namespace with
// the fewest under way, and a namespace never has more than half of them, so that nobody's images keep everybody else's
// waiting, however slow their servers are. The store's lock guards it.
type turns struct {
	limit int
	// running is how many transfers and copies each namespace has under way.
	running map[string]int
	waiting []*turn
}

// turn is that of a transfer or a copy.
type turn struct {
	// namespaces are those of the machines that want it now.
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

// Copy runs a function that copies an image on a host when it is its turn there: copies have the turns of transfers.
func (s *Store) Copy(ctx context.Context, host, namespace string, run func(ctx context.Context) error) error {
	end, err := s.take(ctx, host, func() []string { return []string{namespace} }, func() {})
	if err != nil {
		return err
	}
	defer end()
	return run(ctx)
}

// take waits for a turn on a host, or for one of allTransfers, and returns what ends it. namespaces and waits, which is
// called when it has to wait, are called with the lock held.
func (s *Store) take(ctx context.Context, of string, namespaces func() []string, waits func()) (end func(), err error) {
	mine := &turn{namespaces: namespaces, begun: make(chan struct{})}
	s.lock.Lock()
	from := s.turns[of]
	if from == nil {
		from = &turns{limit: s.options.PerHost}
		if of == allTransfers {
			from.limit = s.options.InAll
		}
		s.turns[of] = from
	}
	from.waiting = append(from.waiting, mine)
	from.begin()
	if mine.namespace == "" {
		waits()
	}
	s.lock.Unlock()
	end = func() {
		s.lock.Lock()
		defer s.lock.Unlock()
		from.end(mine)
		if from.total() == 0 && len(from.waiting) == 0 {
			delete(s.turns, of)
		}
	}
	select {
	case <-mine.begun:
		return end, nil
	case <-ctx.Done():
		end()
		return nil, ctx.Err()
	case <-s.base.Done():
		end()
		return nil, s.base.Err()
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
