package fleet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/metrics"
)

// session is the connection to one host with one target.
type session struct {
	host   string
	target Target
	fleet  *Fleet
	// cancel ends the session. Guarded by the fleet's lock; nil until the session begins.
	cancel context.CancelFunc

	lock     sync.Mutex
	ended    bool
	snapshot Snapshot
	// connection is the open connection, or nil.
	connection hypervisor.Hypervisor
	// uuid is the expected UUID of the hypervisor, once it is known. refused is why nothing may be placed on it.
	uuid    string
	refused error
	// begun numbers the readings. listed is the last one of all domains, and read has later ones of single domains,
	// including missing ones. Readings overlap, and an older one must not replace a newer one.
	begun, listed uint64
	read          map[string]uint64

	refreshes refreshes
}

func newSession(host string, target Target, fleet *Fleet) *session {
	return &session{host: host, target: target, fleet: fleet, uuid: target.UUID, read: map[string]uint64{}, refreshes: newRefreshes()}
}

// end ends the session and returns its last snapshot. Nothing is published afterwards. The fleet's lock is held.
func (s *session) end() Snapshot {
	if s.cancel != nil {
		s.cancel()
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	s.ended = true
	s.connection = nil
	return s.snapshot
}

// publish replaces the snapshot and notifies subscribers. The lock is held while edit runs.
func (s *session) publish(edit func(Snapshot) Snapshot) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.ended {
		return
	}
	before := s.snapshot
	s.snapshot = edit(before)
	s.snapshot.Version = s.fleet.published.Add(1)
	// Under the lock, so that a notified subscriber finds the change in the snapshot.
	s.fleet.news.tell(s.host, compare(before, s.snapshot))
}

// run keeps a connection to the host until the context ends.
func (s *session) run(ctx context.Context) {
	log := ctrl.LoggerFrom(ctx)
	options := s.fleet.options
	backoff := options.MinBackoff
	for {
		var since time.Time
		err := guarded(func() error { return s.visit(ctx, &since) })
		if ctx.Err() != nil {
			return
		}
		s.lost(err)
		if s.fleet.promote(s, nil) {
			return
		}
		if !since.IsZero() && time.Since(since) > options.MaxBackoff {
			backoff = options.MinBackoff // the connection lasted
		}
		wait := jitter(backoff, 0.5)
		log.Info("The host isn't connected", "reason", err.Error(), "nextTryIn", wait.Round(time.Millisecond).String())
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		backoff = min(2*backoff, options.MaxBackoff)
	}
}

// jitter returns a duration that differs from d by at most that part.
func jitter(d time.Duration, part float64) time.Duration {
	return time.Duration(float64(d) * (1 - part + 2*part*rand.Float64())) //nolint:gosec // not a secret
}

// guarded returns a panic as an error, so that no answer of a host can end the manager.
func guarded(act func() error) (err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = &hypervisor.Error{Operation: "reading the host", Reason: hypervisor.ErrOther, Cause: fmt.Errorf("panic: %v", panicked)}
		}
	}()
	return act()
}

// visit connects to the host and follows it until the connection is lost or the context ends. It always returns an
// error. since is set when the host was read.
func (s *session) visit(ctx context.Context, since *time.Time) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	began := time.Now()
	connection, err := limited(ctx, s, func(ctx context.Context) (hypervisor.Hypervisor, error) {
		return s.fleet.connect(ctx, s.target)
	})
	metrics.Connected(s.host, began, err)
	if err != nil {
		return err
	}
	connection = metrics.Measured(s.host, connection)
	defer func() { _ = connection.Close() }()

	number := s.beginReading()
	// The watch lives as long as its context, so a context can't limit the time of this call.
	limit := time.AfterFunc(s.fleet.options.CallLimit, cancel)
	watch, err := connection.Watch(ctx)
	if !limit.Stop() {
		err = &hypervisor.Error{Operation: "watching the domains", Reason: hypervisor.ErrTimeout, Cause: err}
	}
	if err != nil {
		return err
	}
	rest, err := s.readAllButDomains(ctx, connection)
	if err != nil {
		return err
	}
	s.fleet.promote(s, connection)
	s.publishAll(connection, number, rest, watch.Domains)
	*since = time.Now()
	ctrl.LoggerFrom(ctx).Info("Connected to the host", "domains", len(watch.Domains), "libvirt", rest.Facts.LibvirtVersion)

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return guarded(func() error { return s.follow(ctx, connection, watch.Changed) }) })
	group.Go(func() error { return guarded(func() error { return s.readEverySoOften(ctx, connection) }) })
	return group.Wait()
}

// lost publishes the lost connection with its error. The last state stays.
func (s *session) lost(err error) {
	s.publish(func(snapshot Snapshot) Snapshot {
		s.connection = nil
		snapshot.Reachable, snapshot.Err = false, err
		return snapshot
	})
}

// readEverySoOften reads everything from the host at intervals, for changes without events and missed events.
func (s *session) readEverySoOften(ctx context.Context, connection hypervisor.Hypervisor) error {
	var next <-chan time.Time
	for {
		if next == nil {
			next = time.After(jitter(s.fleet.options.ListInterval, 0.2))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.refreshes.wake:
			s.refreshWanted(ctx, connection)
			continue
		case <-next:
			next = nil
		}
		s.refreshNext(ctx, connection)
		number := s.beginReading()
		domains, err := limited(ctx, s, connection.ListDomains)
		if err != nil {
			return err
		}
		rest, err := s.readAllButDomains(ctx, connection)
		if err != nil {
			return err
		}
		s.publishAll(connection, number, rest, domains)
	}
}

// pending is a domain with an event that must be read.
type pending struct {
	uuid string
	// due is the time to read it.
	due time.Time
}

// follow reads each domain with an event, until the events end. It waits a moment to combine events: a new domain has
// two, and its creator reads it too.
func (s *session) follow(ctx context.Context, connection hypervisor.Hypervisor, changed <-chan string) error {
	// waiting has the domains in the order of their due times. since has the number of the last reading that began
	// before the event: later readings include the change.
	var waiting []pending
	since := map[string]uint64{}
	for {
		var due <-chan time.Time
		if len(waiting) > 0 {
			due = time.After(time.Until(waiting[0].due))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case uuid, open := <-changed:
			if !open {
				return unreachable(s.host, errors.New("the connection was lost"))
			}
			if _, waits := since[uuid]; !waits {
				waiting = append(waiting, pending{uuid: uuid, due: time.Now().Add(s.fleet.options.SettleTime)})
			}
			since[uuid] = s.lastReading()
		case <-due:
			uuid := waiting[0].uuid
			known := s.hasReadSince(uuid, since[uuid])
			waiting = waiting[1:]
			delete(since, uuid)
			if known {
				continue
			}
			if err := s.readDomain(ctx, connection, uuid); err != nil {
				return err
			}
		}
	}
}

// lastReading returns the number of the last reading.
func (s *session) lastReading() uint64 {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.begun
}

// hasReadSince reports whether a domain was read and published by a later reading than the given one.
func (s *session) hasReadSince(uuid string, reading uint64) bool {
	s.lock.Lock()
	defer s.lock.Unlock()
	return max(s.listed, s.read[uuid]) > reading
}
