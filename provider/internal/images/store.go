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

// Options are the limits of a Store. What is zero has its default.
type Options struct {
	// PerHost is how many transfers and copies run at once on a host, and InAll how many transfers in all. Machines of
	// one namespace have at most half of them. Defaults to 4 and 16.
	PerHost, InAll int
	// MaxBytes is how large an image may be. Defaults to 1 TiB.
	MaxBytes int64
	// Sources say where images may come from.
	Sources Sources
	// IdleTimeout is how long a server may be silent. Defaults to a minute.
	IdleTimeout time.Duration
	// MinRate is how many bytes a second a server has to send at least, over each IdleTimeout of waiting for it.
	// Defaults to 64 KiB.
	MinRate int64
	// FirstRetry and LastRetry are how long the first and the last of several retries wait; each
	// waits twice as long as the one before. Defaults to 5 seconds and 5 minutes.
	FirstRetry, LastRetry time.Duration
	// Retention is how long an image stays on a host that nothing uses. For ever when it is 0.
	Retention time.Duration
	// CleanUpTimeout is how long deleting half an image may take when a transfer ends. Defaults to 15 seconds.
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

// Retention is how long an image stays on a host that nothing uses. For ever when it is 0.
func (s *Store) Retention() time.Duration { return s.options.Retention }

// Store brings images to hosts and knows which transfers are under way. It is a Runnable: it ends all
// transfers when its manager stops.
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
	// turns are those of each host, and those of all transfers.
	turns    map[string]*turns
	observed map[string]observation
	// unused is since when images of each host are unused.
	unused map[string]map[hypervisor.VolumeRef]observation
	queue  workqueue.TypedRateLimitingInterface[reconcile.Request]
}

// New returns a store. hosts gives the connection to a host, as it is at the moment; pools gives the
// storage pools in which disks of machines are.
func New(hosts func(host string) (hypervisor.Hypervisor, error), pools func(host string) []string, options Options) *Store {
	options = options.withDefaults()
	s := &Store{
		hosts: hosts, pools: pools, options: options, client: newClient(options.Sources), now: time.Now,
		tasks: map[key]*task{}, turns: map[string]*turns{}, observed: map[string]observation{},
	}
	s.base, s.end = context.WithCancel(context.Background())
	return s
}

// Start implements manager.Runnable: it waits until the context ends, and then for all transfers to
// end and to take away what they have half done.
func (s *Store) Start(ctx context.Context) error {
	<-ctx.Done()
	s.lock.Lock()
	s.end() // under the lock: no transfer begins afterwards
	s.lock.Unlock()
	s.running.Wait()
	s.client.CloseIdleConnections()
	return nil
}

// Source brings the LibvirtMachines that wait for an image to a controller when it is there, or when
// the reason for which it isn't changes.
func (s *Store) Source() source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		s.lock.Lock()
		defer s.lock.Unlock()
		s.queue = queue
		return nil
	})
}

// Ensure returns an image if it is on its host, and otherwise sees to it that it gets there, outside
// of this call. The error is *Transferring or *Failed while it isn't there, or an error of package
// hypervisor when the host can't be asked. machine is brought to the controller when that changes; it
// wants the image until it gets it, or until Forget.
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
			s.Forget(machine) // somebody else has brought it, maybe
		}
		return image, err
	}

	s.lock.Lock()
	defer s.lock.Unlock()
	t := s.tasks[wish.key()]
	if t == nil {
		if s.base.Err() != nil {
			return Image{}, &Transferring{URL: shownURL(wish.URL), Queued: true} // it stops by now
		}
		t = s.begin(ctx, wish)
	}
	t.want(machine)
	return Image{}, t.state()
}

// UnderWay says whether an image is being brought to a host for a machine, or waits for its turn. One that
// failed and waits to be tried again isn't.
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

// Forget says that a machine wants no image any more. A transfer that nobody wants is ended.
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

// task is an image that machines wait for.
type task struct {
	store  *Store
	wish   Wish
	cancel context.CancelFunc
	// done and total are counted while it is transferred.
	done, total atomic.Int64
	// left are volumes that earlier attempts have made. Only the task's goroutine uses it.
	left []hypervisor.VolumeRef

	// The store's lock guards these.
	phase    phase
	attempts int
	retry    time.Time
	err      error
	wantedBy map[types.NamespacedName]bool
}

// begin starts a task. The lock is held.
func (s *Store) begin(ctx context.Context, wish Wish) *task {
	t := &task{store: s, wish: wish, wantedBy: map[types.NamespacedName]bool{}}
	log := klog.FromContext(ctx).WithValues("host", wish.Host, "image", wish.marker(), "url", shownURL(wish.URL))
	// It goes on after the reconcile that it is begun in.
	var own context.Context
	own, t.cancel = context.WithCancel(klog.NewContext(s.base, log))
	s.tasks[wish.key()] = t
	s.running.Go(func() {
		defer t.cancel()
		t.run(own)
	})
	return t
}

// want notes that a machine wants the image. A turn may begin for its namespace. The lock is held.
func (t *task) want(machine types.NamespacedName) {
	t.wantedBy[machine] = true
	if t.phase == queued {
		for _, turns := range t.store.turns {
			turns.begin()
		}
	}
}

// state says how far the task is. The lock is held.
func (t *task) state() error {
	url := shownURL(t.wish.URL)
	if t.err != nil && t.phase != transferring {
		return &Failed{URL: url, Attempts: t.attempts, Retry: t.retry, Err: t.err}
	}
	return &Transferring{URL: url, Queued: t.phase == queued, DoneBytes: t.done.Load(), TotalBytes: t.total.Load()}
}

// run tries until the image is there or nobody wants it.
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
		log.Info("Bringing the image to the host failed and will be tried again", "err", err, "in", wait.String())
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// attempt waits until not too many transfers run, and then tries once.
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
	// The host's own limit first: those that wait for one host don't keep others from theirs.
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

// finish ends a task whose image is there.
func (t *task) finish() {
	s := t.store
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.tasks[t.wish.key()] == t { // else it was forgotten, and maybe begun anew
		delete(s.tasks, t.wish.key())
		t.notify()
	}
}

// fail remembers why an attempt failed, and returns how long to wait for the next.
func (t *task) fail(err error) time.Duration {
	s := t.store
	s.lock.Lock()
	defer s.lock.Unlock()
	changed := t.err == nil || t.err.Error() != err.Error()
	wait := s.options.FirstRetry << min(t.attempts, 20)
	if wait <= 0 || wait > s.options.LastRetry {
		wait = s.options.LastRetry
	}
	wait = wait/2 + rand.N(wait/2+1) //nolint:gosec // spreads retries and keeps no secret
	t.attempts++
	t.phase, t.err, t.retry = waiting, err, s.now().Add(wait)
	if changed {
		t.notify()
	}
	return wait
}

// notify brings those who want the image to the controller. The lock is held.
func (t *task) notify() {
	if t.store.queue == nil {
		return
	}
	for machine := range t.wantedBy {
		t.store.queue.Add(reconcile.Request{NamespacedName: machine})
	}
}
