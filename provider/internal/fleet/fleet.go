// Package fleet keeps one session with each libvirt host: it connects, watches the domains, publishes snapshots,
// notifies controllers of changes, and reconnects when the connection is lost.
//
// Reconciles read snapshots and call a host only to change something. A snapshot may be older than the state of the
// host. Use the snapshot to wait for a change. Read from the host itself before creating or deleting something.
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

// Options has intervals and time limits. A zero value means the default.
type Options struct {
	// ListInterval is the interval of reading everything from a host, plus or minus a fifth. The default is a minute.
	ListInterval time.Duration
	// MinBackoff and MaxBackoff are the bounds of the delay before a reconnect, plus or minus a half. The defaults
	// are a second and two minutes.
	MinBackoff, MaxBackoff time.Duration
	// CallLimit is the time limit of the session's calls, after which the connection is closed. The default is two
	// minutes, more than the hypervisor's own limit.
	CallLimit time.Duration
	// PoolLimit is the time limit of reading a storage pool. After it, the previous state stays. The default is 30
	// seconds.
	PoolLimit time.Duration
	// RefreshInterval is the interval at which a host refreshes its storage pools, one at a time, to find files of
	// others. MinRefresh is the minimum time between two refreshes of a pool. The defaults are 5 minutes and 30
	// seconds.
	RefreshInterval, MinRefresh time.Duration
	// SettleTime is the delay between an event of a domain and reading it, to combine events: a new domain is defined
	// and started. The default is 200 ms.
	SettleTime time.Duration
}

func (o Options) withDefaults() Options {
	o.ListInterval, o.SettleTime = cmp.Or(o.ListInterval, time.Minute), cmp.Or(o.SettleTime, 200*time.Millisecond)
	o.MinBackoff, o.MaxBackoff = cmp.Or(o.MinBackoff, time.Second), cmp.Or(o.MaxBackoff, 2*time.Minute)
	o.CallLimit, o.PoolLimit = cmp.Or(o.CallLimit, 2*time.Minute), cmp.Or(o.PoolLimit, 30*time.Second)
	o.RefreshInterval, o.MinRefresh = cmp.Or(o.RefreshInterval, 5*time.Minute), cmp.Or(o.MinRefresh, 30*time.Second)
	return o
}

// Fleet has the sessions with all hosts. Its methods may be called concurrently, and before it is started.
type Fleet struct {
	connect Connect
	options Options

	lock     sync.Mutex
	sessions map[string]*session
	// candidates has sessions with new credentials, which replace those in sessions once they have connected.
	candidates map[string]*session
	// life is the context of the sessions, set by Start.
	life context.Context
	// ended is set at the end of Start. No session starts after that.
	ended bool
	// published counts the published snapshots.
	published atomic.Uint64
	group     sync.WaitGroup
	news      news
}

var (
	_ manager.Runnable               = &Fleet{}
	_ manager.LeaderElectionRunnable = &Fleet{}
)

// New returns a fleet without hosts. Start starts its sessions.
func New(connect Connect, options Options) *Fleet {
	return &Fleet{connect: connect, options: options.withDefaults(), sessions: map[string]*session{}, candidates: map[string]*session{}}
}

// Start implements manager.Runnable: it starts the sessions, and returns when the context and all sessions have
// ended.
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

// Ensure starts a session with a host, or keeps the existing one. A session with another target is replaced. If only
// the credentials differ, the old session stays until the new one has connected or the old connection is lost. Ensure
// doesn't wait for the host.
func (f *Fleet) Ensure(host string, target Target) {
	target.Pools, target.Networks, target.Interfaces = slices.Clone(target.Pools), slices.Clone(target.Networks), slices.Clone(target.Interfaces)
	target.Filters = slices.Clone(target.Filters)
	f.lock.Lock()
	defer f.lock.Unlock()
	old, exists := f.sessions[host]
	if exists {
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
	if exists && old.isOpen() && old.target.samePlace(target) && target.UUID == old.hypervisorUUID() {
		f.candidates[host] = s
		f.begin(s)
		return
	}
	f.sessions[host] = s
	if exists {
		last := old.end()
		if old.target.samePlace(target) && target.UUID == old.hypervisorUUID() {
			// The old snapshot is valid until the new credentials are tried.
			s.snapshot = last
		}
		f.news.tell(host, compare(last, s.snapshot))
	}
	f.begin(s)
}

// Forget ends the session with a host, if any, and drops its snapshot. It doesn't wait for pending calls, whose
// results are no longer published.
func (f *Fleet) Forget(host string) {
	f.lock.Lock()
	defer f.lock.Unlock()
	f.dropCandidate(host)
	if s, exists := f.sessions[host]; exists {
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

// Snapshot returns the last snapshot of a host, and false if there is no session with it.
func (f *Fleet) Snapshot(host string) (Snapshot, bool) {
	s := f.session(host)
	if s == nil {
		return Snapshot{}, false
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.snapshot, true
}

// HypervisorUUID returns the expected UUID of a host's hypervisor: from its target, or from the first answer. It may
// be empty.
func (f *Fleet) HypervisorUUID(host string) string {
	if s := f.session(host); s != nil {
		return s.hypervisorUUID()
	}
	return ""
}

// Pools returns the sorted names of the storage pools in a host's target, or nothing if there is no session with it.
func (f *Fleet) Pools(host string) []string {
	s := f.session(host)
	if s == nil {
		return nil
	}
	return slices.Clone(s.target.Pools)
}

// Hypervisor returns the connection to a host. Callers must not close it. The error is a hypervisor.Error with the
// reason ErrUnreachable.
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

// Refresh reads a domain from its host into the snapshot, for callers that have changed it. A missing domain is no
// error. Errors are of type hypervisor.Error.
func (f *Fleet) Refresh(ctx context.Context, host, uuid string) error {
	s, connection, err := f.open(host)
	if err != nil {
		return err
	}
	return s.readDomain(ctx, connection, uuid)
}

// Hosts returns a channel of LibvirtHosts, with only their names, that have changed in anything but their own
// domains. Call it before Start. Each caller gets its own channel. Pending changes of one host are combined, and no
// session waits for a receiver.
func (f *Fleet) Hosts() <-chan event.GenericEvent {
	return f.subscribe(&f.news.hosts, hostEvent)
}

// Reachability returns a channel of LibvirtHosts, with only their names, that became reachable or unreachable.
// Otherwise it is like Hosts.
func (f *Fleet) Reachability() <-chan event.GenericEvent {
	return f.subscribe(&f.news.reachability, hostEvent)
}

// Machines returns a channel of LibvirtMachines, with only their namespaces and names, whose domains have changed.
// Otherwise it is like Hosts.
func (f *Fleet) Machines() <-chan event.GenericEvent {
	return f.subscribe(&f.news.machines, machineEvent)
}

func (f *Fleet) subscribe(to *[]*feed, toEvent func(types.NamespacedName) event.GenericEvent) <-chan event.GenericEvent {
	f.lock.Lock()
	defer f.lock.Unlock()
	if f.life != nil {
		panic("the sessions with hosts have been started: subscribe before Start")
	}
	feed := newFeed(toEvent)
	*to = append(*to, feed)
	return feed.out
}
