package images

import (
	"context"
	"slices"
)

// allTransfers is the key of the turns of all transfers, which pass through this process. Hosts make copies themselves.
const allTransfers = ""

// turns limits concurrent transfers and copies. The next turn is for the namespace with the fewest running ones. A
// namespace has at most half of them, so that slow servers of one namespace don't block the others. The store's lock
// guards it.
type turns struct {
	limit int
	// running counts the transfers and copies of each namespace.
	running map[string]int
	waiting []*turn
}

// turn is a turn of a transfer or a copy.
type turn struct {
	// namespaces returns the namespaces of the waiting machines.
	namespaces func() []string
	// namespace is the namespace that the turn counts for after it has started.
	namespace string
	begun     chan struct{}
}

// begin starts waiting turns, the oldest first. The lock is held.
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

// end ends a turn, or removes it from the waiting ones. The lock is held.
func (t *turns) end(of *turn) {
	t.waiting = slices.DeleteFunc(t.waiting, func(waiting *turn) bool { return waiting == of })
	if of.namespace != "" {
		if t.running[of.namespace]--; t.running[of.namespace] == 0 {
			delete(t.running, of.namespace)
		}
	}
	t.begin()
}

// Copy calls a function that copies an image on a host, in a turn of that host.
func (s *Store) Copy(ctx context.Context, host, namespace string, run func(ctx context.Context) error) error {
	end, err := s.take(ctx, host, func() []string { return []string{namespace} }, func() {})
	if err != nil {
		return err
	}
	defer end()
	return run(ctx)
}

// take waits for a turn on a host or of allTransfers, and returns the function that ends it. namespaces and waits are
// called with the lock held, waits if there is no turn at once.
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

// namespaces returns the namespaces of the machines that want the image. The lock is held.
func (t *task) namespaces() []string {
	var namespaces []string
	for machine := range t.wantedBy {
		namespaces = append(namespaces, machine.Namespace)
	}
	slices.Sort(namespaces)
	return slices.Compact(namespaces)
}
