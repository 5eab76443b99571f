// Package fleet keeps one session with each libvirt host: it connects, watches the domains, publishes
// what is there as a snapshot, tells controllers what has changed, and connects again when the
// connection is lost.
//
// Reconciles read snapshots, which costs nothing, and call a host only to change something. A snapshot
// may lag behind its host: news take their time. To wait for something, look at the snapshot; before
// making or removing something, look at the host itself.
package fleet

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/metrics"
)

// Options say how often and how long. What is 0 has the default.
type Options struct {
	// ListInterval is the time between two readings of all of a host, give or take a fifth. A minute.
	ListInterval time.Duration
	// MinBackoff and MaxBackoff are the shortest and the longest time, give or take a half, until a host
	// that couldn't be reached is tried again. A second and two minutes.
	MinBackoff, MaxBackoff time.Duration
	// CallLimit is how long a host may take for one of the session's calls before the connection is
	// given up. Two minutes: more than the hypervisor itself allows for a call.
	CallLimit time.Duration
	// PoolLimit is how long a storage pool may take to be read before what was seen of it stays. 30 seconds.
	PoolLimit time.Duration
	// RefreshInterval is how often a host looks itself at what is in each of its storage pools, in turn: what others
	// have put there. MinRefresh is the shortest time between two such looks at a pool. 5 minutes and 30 seconds.
	RefreshInterval, MinRefresh time.Duration
	// SettleTime is how long news of a domain wait for more of the same: a domain that is made is defined
	// and started. A fifth of a second.
	SettleTime time.Duration
}

func (o Options) withDefaults() Options {
	o.ListInterval, o.SettleTime = cmp.Or(o.ListInterval, time.Minute), cmp.Or(o.SettleTime, 200*time.Millisecond)
	o.MinBackoff, o.MaxBackoff = cmp.Or(o.MinBackoff, time.Second), cmp.Or(o.MaxBackoff, 2*time.Minute)
	o.CallLimit, o.PoolLimit = cmp.Or(o.CallLimit, 2*time.Minute), cmp.Or(o.PoolLimit, 30*time.Second)
	o.RefreshInterval, o.MinRefresh = cmp.Or(o.RefreshInterval, 5*time.Minute), cmp.Or(o.MinRefresh, 30*time.Second)
	return o
}

// Fleet is the sessions with all hosts. Its methods may be called from several goroutines at once,
// and before it is started.
type Fleet struct {
	connect Connect
	options Options

	lock     sync.Mutex
	sessions map[string]*session
	// candidates are sessions with new credentials, which take the place of those in sessions when they have
	// connected.
	candidates map[string]*session
	// life is the context that sessions live in, from Start on.
	life context.Context
	// ended is set at the end of Start: no session begins any more.
	ended bool
	// published counts the snapshots that were published.
	published atomic.Uint64
	group     sync.WaitGroup
	news      news
}

var (
	_ manager.Runnable               = &Fleet{}
	_ manager.LeaderElectionRunnable = &Fleet{}
)

// New returns a fleet without hosts. Sessions begin when it is started.
func New(connect Connect, options Options) *Fleet {
	return &Fleet{connect: connect, options: options.withDefaults(), sessions: map[string]*session{}, candidates: map[string]*session{}}
}

// Start implements manager.Runnable: it lets sessions begin, blocks until the context ends, and then
// until the last session has ended.
func (f *Fleet) Start(ctx context.Context) error {
	f.lock.Lock()
	if f.life != nil {
		f.lock.Unlock()
		return errors.New("the sessions with hosts have been started before")
	}
	f.life = ctx
	metrics.Reachable(f.reachable)
	for _, s := range f.sessions {
		f.begin(s)
	}
	for _, feed := range f.news.feeds() {
		f.group.Go(func() { feed.run(ctx) })
	}
	f.lock.Unlock()

	<-ctx.Done()
	f.lock.Lock()
	f.ended = true
	f.lock.Unlock()
	f.group.Wait()
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: hosts are for the leader only.
func (f *Fleet) NeedLeaderElection() bool { return true }

// begin starts a session. The lock is held.
func (f *Fleet) begin(s *session) {
	if f.life == nil || f.ended {
		return
	}
	ctx, cancel := context.WithCancel(ctrl.LoggerInto(f.life, ctrl.Log.WithName("fleet").WithValues("LibvirtHost", s.host)))
	s.cancel = cancel
	f.group.Go(func() {
		defer cancel()
		s.run(ctx)
	})
}

// Ensure begins a session with a host, or keeps the one that there is. When the target isn't the one
// that the session has, the session ends and another one begins. When only the credentials are others, the
// session stays until the new ones have connected or its connection is lost. It never waits for the host.
func (f *Fleet) Ensure(host string, target Target) {
	target.Pools, target.Networks, target.Interfaces = slices.Clone(target.Pools), slices.Clone(target.Networks), slices.Clone(target.Interfaces)
	target.Filters = slices.Clone(target.Filters)
	f.lock.Lock()
	defer f.lock.Unlock()
	old, there := f.sessions[host]
	if there {
		known := old.hypervisorUUID()
		if target.UUID == "" && (old.refusal() == nil || old.target.samePlace(target)) {
			target.UUID = known
		}
		if old.target.equal(target) && target.UUID == known {
			f.dropCandidate(host) // the credentials are as before
			return
		}
		if candidate := f.candidates[host]; candidate != nil && candidate.target.equal(target) && target.UUID == known {
			return
		}
	}
	f.dropCandidate(host)
	metrics.AddHost(host)
	s := newSession(host, target, f)
	if there && old.isOpen() && old.target.samePlace(target) && target.UUID == old.hypervisorUUID() {
		f.candidates[host] = s
		f.begin(s)
		return
	}
	f.sessions[host] = s
	if there {
		last := old.end()
		if old.target.samePlace(target) && target.UUID == old.hypervisorUUID() {
			// What was seen with the other credentials is as good, until the new ones are tried.
			s.snapshot = last
		}
		f.news.tell(host, compare(last, s.snapshot))
	}
	f.begin(s)
}

// Forget ends the session with a host and drops its snapshot. Nothing happens when there is none. It
// doesn't wait for calls that are under way; nothing of them is published any more.
func (f *Fleet) Forget(host string) {
	f.lock.Lock()
	defer f.lock.Unlock()
	f.dropCandidate(host)
	if s, there := f.sessions[host]; there {
		delete(f.sessions, host)
		f.news.tell(host, compare(s.end(), Snapshot{}))
		metrics.RemoveHost(host)
	}
}

func (f *Fleet) session(host string) *session {
	f.lock.Lock()
	defer f.lock.Unlock()
	return f.sessions[host]
}

// reachable returns the hosts, and whether there is a connection to each.
func (f *Fleet) reachable() map[string]bool {
	f.lock.Lock()
	sessions := maps.Clone(f.sessions)
	f.lock.Unlock()
	hosts := map[string]bool{}
	for host, s := range sessions {
		hosts[host] = s.isOpen()
	}
	return hosts
}

// Snapshot returns what was last seen of a host, and false when there is no session with it.
func (f *Fleet) Snapshot(host string) (Snapshot, bool) {
	s := f.session(host)
	if s == nil {
		return Snapshot{}, false
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.snapshot, true
}

// HypervisorUUID returns the UUID of the hypervisor that a host is taken for: the one of its target, or of the
// first one that has answered. Empty when none is known.
func (f *Fleet) HypervisorUUID(host string) string {
	if s := f.session(host); s != nil {
		return s.hypervisorUUID()
	}
	return ""
}

// Pools returns the names of the storage pools of a host that are looked at, sorted. None when there is
// no session with it.
func (f *Fleet) Pools(host string) []string {
	s := f.session(host)
	if s == nil {
		return nil
	}
	return slices.Clone(s.target.Pools)
}

// Hypervisor returns the connection to a host, which stays the session's: don't close it. The error is
// of type hypervisor.Error with the reason ErrUnreachable when there is no connection now.
func (f *Fleet) Hypervisor(host string) (hypervisor.Hypervisor, error) {
	_, connection, err := f.open(host)
	return connection, err
}

// open returns the session with a host and its connection.
func (f *Fleet) open(host string) (*session, hypervisor.Hypervisor, error) {
	s := f.session(host)
	if s == nil {
		return nil, nil, unreachable(host, errors.New("there is no session with it"))
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	switch {
	case s.connection != nil:
		return s, s.connection, nil
	case s.snapshot.Err != nil:
		return nil, nil, unreachable(host, s.snapshot.Err)
	}
	return nil, nil, unreachable(host, errors.New("connecting"))
}

func unreachable(host string, cause error) error {
	return &hypervisor.Error{Operation: "reaching host", Object: host, Reason: hypervisor.ErrUnreachable, Cause: cause}
}

// Refresh reads a domain from its host and puts it into the snapshot, for callers that have just
// changed it and don't want to see it as it was. A domain that isn't there is no error. Errors are
// of type hypervisor.Error.
func (f *Fleet) Refresh(ctx context.Context, host, uuid string) error {
	s, connection, err := f.open(host)
	if err != nil {
		return err
	}
	return s.readDomain(ctx, connection, uuid)
}

// Hosts returns a channel of LibvirtHosts, by name only, of which something but our own domains has
// changed: whether they can be reached, what they have, domains of others. Call it before Start; each
// caller gets a channel of its own. Changes that nobody has received yet are one; no session waits.
func (f *Fleet) Hosts() <-chan event.GenericEvent {
	return f.subscribe(&f.news.hosts, hostEvent)
}

// Reachability returns a channel of LibvirtHosts, by name only, that can be reached again or no longer:
// what concerns all machines that are bound to them, also those that have no domain so far. It is
// like Hosts otherwise.
func (f *Fleet) Reachability() <-chan event.GenericEvent {
	return f.subscribe(&f.news.reachability, hostEvent)
}

// Machines returns a channel of LibvirtMachines, by namespace and name only, whose domains have
// changed, as the domains say whose they are. It is like Hosts otherwise.
func (f *Fleet) Machines() <-chan event.GenericEvent {
	return f.subscribe(&f.news.machines, machineEvent)
}

func (f *Fleet) subscribe(to *[]*feed, toEvent func(types.NamespacedName) event.GenericEvent) <-chan event.GenericEvent {
	f.lock.Lock()
	defer f.lock.Unlock()
	if f.life != nil {
		panic("the sessions with hosts have been started: ask for news before that")
	}
	feed := newFeed(toEvent)
	*to = append(*to, feed)
	return feed.out
}
