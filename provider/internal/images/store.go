package images

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// Options are the limits of a Store. A zero value means the default.
type Options struct {
	// PerHost limits the concurrent transfers and copies on a host, and InAll the concurrent transfers on all hosts.
	// One namespace can have at most half of them. The defaults are 4 and 16.
	PerHost, InAll int
	// MaxBytes is the maximum size of an image. The default is 1 TiB.
	MaxBytes int64
	// Sources has the allowed sources of images.
	Sources Sources
	// IdleTimeout is how long a server may be silent. The default is a minute.
	IdleTimeout time.Duration
	// MinRate is the minimum number of bytes per second, over each IdleTimeout of waiting for the server. The default
	// is 64 KiB.
	MinRate int64
	// FirstRetry and LastRetry are the first and the maximum delay of retries, which doubles each time. The defaults
	// are 5 seconds and 5 minutes.
	FirstRetry, LastRetry time.Duration
	// Retention is how long an unused image stays on a host. 0 means forever.
	Retention time.Duration
	// CleanUpTimeout limits the deletion of an incomplete image at the end of a transfer. The default is 15 seconds.
	CleanUpTimeout time.Duration
}

func (o Options) withDefaults() Options {
	o.PerHost, o.InAll = cmp.Or(o.PerHost, 4), cmp.Or(o.InAll, 16)
	o.MaxBytes, o.MinRate = cmp.Or(o.MaxBytes, 1<<40), cmp.Or(o.MinRate, 64<<10)
	o.IdleTimeout = cmp.Or(o.IdleTimeout, time.Minute)
	o.FirstRetry, o.LastRetry = cmp.Or(o.FirstRetry, 5*time.Second), cmp.Or(o.LastRetry, 5*time.Minute)
	o.CleanUpTimeout = cmp.Or(o.CleanUpTimeout, 15*time.Second)
	return o
}

// Retention is how long an unused image stays on a host. 0 means forever.
func (s *Store) Retention() time.Duration { return s.options.Retention }

// Store transfers images to hosts. It is a Runnable, which cancels all transfers when its manager stops.
type Store struct {
	hosts   func(host string) (hypervisor.Hypervisor, error)
	pools   func(host string) []string
	options Options
	client  *http.Client
	now     func() time.Time

	base    context.Context
	end     context.CancelFunc
	running sync.WaitGroup

	lock  sync.Mutex
	tasks map[key]*task
	// turns has the turns of each host, and of all transfers.
	turns    map[string]*turns
	observed map[string]observation
	// unused has the times since when images of each host are unused.
	unused map[string]map[hypervisor.VolumeRef]observation
	queue  workqueue.TypedRateLimitingInterface[reconcile.Request]
}

// New returns a store. hosts returns the current connection to a host, and pools the storage pools with disks of
// machines.
func New(hosts func(host string) (hypervisor.Hypervisor, error), pools func(host string) []string, options Options) *Store {
	options = options.withDefaults()
	s := &Store{
		hosts: hosts, pools: pools, options: options, client: newClient(options.Sources), now: time.Now,
		tasks: map[key]*task{}, turns: map[string]*turns{}, observed: map[string]observation{},
	}
	s.base, s.end = context.WithCancel(context.Background())
	return s
}

// Start implements manager.Runnable: it waits until the context ends, and then until all transfers have ended and
// cleaned up.
func (s *Store) Start(ctx context.Context) error {
	<-ctx.Done()
	s.lock.Lock()
	s.end() // under the lock: no transfer starts afterwards
	s.lock.Unlock()
	s.running.Wait()
	s.client.CloseIdleConnections()
	return nil
}

// Source triggers reconciles of the LibvirtMachines that wait for an image when the state of the transfer changes.
func (s *Store) Source() source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		s.lock.Lock()
		defer s.lock.Unlock()
		s.queue = queue
		return nil
	})
}

// Ensure returns an image that is on its host, or starts a transfer in the background. The error is *Transferring or
// *Failed until the image is on the host, or an error of package hypervisor. A change triggers a reconcile of
// machine, which wants the image until it gets it or until Forget.
func (s *Store) Ensure(ctx context.Context, wish Wish, machine types.NamespacedName) (Image, error) {
	s.lock.Lock()
	if s.base.Err() != nil {
		defer s.lock.Unlock()
		return Image{}, &Transferring{URL: shownURL(wish.URL), Queued: true} // the manager stops
	}
	if t := s.tasks[wish.key()]; t != nil && t.phase != waiting {
		defer s.lock.Unlock()
		t.want(machine)
		return Image{}, t.state()
	}
	s.lock.Unlock()

	host, err := s.hosts(wish.Host)
	if err != nil {
		return Image{}, err
	}
	image, err := look(ctx, host, wish)
	if !errors.Is(err, errMissing) {
		if err == nil {
			s.Forget(machine) // another manager may have transferred it
		}
		return image, err
	}

	s.lock.Lock()
	defer s.lock.Unlock()
	t := s.tasks[wish.key()]
	if t == nil {
		if s.base.Err() != nil {
			return Image{}, &Transferring{URL: shownURL(wish.URL), Queued: true} // the manager is stopping
		}
		t = s.begin(ctx, wish)
	}
	t.want(machine)
	return Image{}, t.state()
}

// UnderWay reports whether a transfer for a machine is running or queued. One that waits for a retry isn't.
func (s *Store) UnderWay(machine types.NamespacedName) bool {
	s.lock.Lock()
	defer s.lock.Unlock()
	for _, t := range s.tasks {
		if t.wantedBy[machine] && t.phase != waiting {
			return true
		}
	}
	return false
}

// Forget removes a machine's request for an image. A transfer without requests is cancelled.
func (s *Store) Forget(machine types.NamespacedName) {
	s.lock.Lock()
	defer s.lock.Unlock()
	for of, t := range s.tasks {
		delete(t.wantedBy, machine)
		if len(t.wantedBy) == 0 {
			t.cancel()
			delete(s.tasks, of)
		}
	}
}

// phase is what a task does.
type phase int

const (
	starting phase = iota
	queued
	transferring
	// waiting for the next attempt.
	waiting
)

// task is the transfer of an image that machines wait for.
type task struct {
	store  *Store
	wish   Wish
	cancel context.CancelFunc
	// done and total are the transferred and the total bytes.
	done, total atomic.Int64
	// left has the volumes of earlier attempts. Only the task's goroutine uses it.
	left []hypervisor.VolumeRef

	// The store's lock guards these.
	phase    phase
	attempts int
	err      error
	wantedBy map[types.NamespacedName]bool
}

// begin starts a task. The lock is held.
func (s *Store) begin(ctx context.Context, wish Wish) *task {
	t := &task{store: s, wish: wish, wantedBy: map[types.NamespacedName]bool{}}
	log := klog.FromContext(ctx).WithValues("host", wish.Host, "image", wish.marker(), "url", shownURL(wish.URL))
	// The transfer outlives the reconcile that starts it.
	var own context.Context
	own, t.cancel = context.WithCancel(klog.NewContext(s.base, log))
	s.tasks[wish.key()] = t
	s.running.Go(func() {
		defer t.cancel()
		t.run(own)
	})
	return t
}

// want records that a machine wants the image. A waiting turn may start for its namespace. The lock is held.
func (t *task) want(machine types.NamespacedName) {
	t.wantedBy[machine] = true
	if t.phase == queued {
		for _, turns := range t.store.turns {
			turns.begin()
		}
	}
}

// state returns the state of the task as an error. The lock is held.
func (t *task) state() error {
	url := shownURL(t.wish.URL)
	if t.err != nil && t.phase != transferring {
		return &Failed{URL: url, Err: t.err}
	}
	return &Transferring{URL: url, Queued: t.phase == queued, DoneBytes: t.done.Load(), TotalBytes: t.total.Load()}
}

// run retries until the image is on the host or no machine wants it.
func (t *task) run(ctx context.Context) {
	log := klog.FromContext(ctx)
	for {
		err := t.attempt(ctx)
		if ctx.Err() != nil {
			log.Info("The image is no longer wanted, or the manager stops")
			return
		}
		if err == nil {
			log.Info("The image is on the host")
			t.finish()
			return
		}
		wait := t.fail(err)
		log.Info("The transfer of the image failed and is retried", "err", err, "in", wait.String())
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// attempt waits for its turns and then tries once.
func (t *task) attempt(ctx context.Context) error {
	s := t.store
	s.lock.Lock()
	t.phase = starting
	s.lock.Unlock()
	waits := func() {
		if t.phase != queued {
			t.phase = queued
			t.notify()
		}
	}
	// The host's own limit first: transfers that wait for one host don't delay those of others.
	for _, of := range []string{t.wish.Host, allTransfers} {
		end, err := s.take(ctx, of, t.namespaces, waits)
		if err != nil {
			return err
		}
		defer end()
	}
	s.lock.Lock()
	if t.phase == queued {
		t.notify()
	}
	t.phase = transferring
	t.done.Store(0)
	t.total.Store(0)
	s.lock.Unlock()
	err := t.transfer(ctx)
	s.lock.Lock()
	t.phase = waiting // before others get the slots
	s.lock.Unlock()
	return err
}

// finish ends a task whose image is on the host.
func (t *task) finish() {
	s := t.store
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.tasks[t.wish.key()] == t { // otherwise it was forgotten, and another task may have started
		delete(s.tasks, t.wish.key())
		t.notify()
	}
}

// fail records the error of an attempt, and returns the delay before the next one.
func (t *task) fail(err error) time.Duration {
	s := t.store
	s.lock.Lock()
	defer s.lock.Unlock()
	changed := t.err == nil || t.err.Error() != err.Error()
	wait := s.options.FirstRetry << min(t.attempts, 20)
	if wait <= 0 || wait > s.options.LastRetry {
		wait = s.options.LastRetry
	}
	wait = wait/2 + rand.N(wait/2+1) //nolint:gosec // spreads retries, not a secret
	t.attempts++
	t.phase, t.err = waiting, err
	if changed {
		t.notify()
	}
	return wait
}

// notify triggers reconciles of the machines that want the image. The lock is held.
func (t *task) notify() {
	if t.store.queue == nil {
		return
	}
	for machine := range t.wantedBy {
		t.store.queue.Add(reconcile.Request{NamespacedName: machine})
	}
}
