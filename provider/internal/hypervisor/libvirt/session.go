package libvirt

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"sync"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// session is a connection to a libvirt daemon with its own client, which can't be reused after a disconnect.
type session struct {
	client *golibvirt.Libvirt
	conn   *guard
	// lost is closed with the connection.
	lost chan struct{}
	once sync.Once
}

var errLost = &hypervisor.Error{Operation: "calling libvirt", Reason: hypervisor.ErrUnreachable, Cause: errors.New("the connection was lost")}

// given is a dialer for the library that returns an existing connection, so that it can be closed from outside.
type given struct{ conn net.Conn }

// Dial implements the library's dialer.
func (g given) Dial() (net.Conn, error) { return g.conn, nil }

// openSession dials and opens a session with the daemon's driver.
func openSession(ctx context.Context, dial func(context.Context) (net.Conn, error), connectURI string) (*session, error) {
	raw, err := dial(ctx)
	if err != nil {
		return nil, err
	}
	s := &session{conn: newGuard(raw), lost: make(chan struct{})}
	s.client = golibvirt.NewWithDialer(given{s.conn})
	opened := make(chan error, 1)
	go func() {
		opened <- s.client.ConnectToURI(golibvirt.ConnectURI(connectURI))
	}()
	select {
	case err := <-opened:
		if err != nil {
			s.close()
			return nil, err
		}
	case <-ctx.Done():
		s.close()
		return nil, ctx.Err()
	}
	go func() {
		<-s.client.Disconnected()
		s.close()
	}()
	return s, nil
}

// close closes the connection, which ends all calls.
func (s *session) close() {
	s.once.Do(func() {
		close(s.lost)
		_ = s.conn.Close()
	})
}

// do runs calls of the library. It returns when they return, when the context ends, or when the connection is lost.
// After limit it closes the connection: the library has no other way to cancel calls. 0 means no limit.
func do[T any](ctx context.Context, s *session, limit time.Duration, calls func(client *golibvirt.Libvirt) (T, error)) (T, error) {
	var none T
	select {
	case <-s.lost:
		return none, errLost
	default:
	}
	if err := ctx.Err(); err != nil {
		return none, err
	}
	type outcome struct {
		value T
		err   error
	}
	done := make(chan outcome, 1)
	stuck := make(chan struct{})
	finished := func() bool { return true }
	if limit > 0 {
		finished = time.AfterFunc(limit, func() {
			close(stuck)
			s.close()
		}).Stop
	}
	go func() {
		var result outcome
		defer func() {
			// The library's decoder panics on some invalid replies.
			if panicked := recover(); panicked != nil {
				result.err = fmt.Errorf("an answer of the host can't be understood: %v", panicked)
				s.close()
			}
			finished()
			done <- result
		}()
		result.value, result.err = calls(s.client)
	}()
	select {
	case result := <-done:
		if nonsense := s.conn.failure(); result.err != nil && nonsense != nil {
			return none, nonsense // the library only sees the end of the connection
		}
		return result.value, result.err
	case <-ctx.Done():
		return none, ctx.Err()
	case <-s.lost:
	}
	select {
	case <-stuck:
		return none, fmt.Errorf("%w: no answer for %s", context.DeadlineExceeded, limit)
	default:
	}
	if nonsense := s.conn.failure(); nonsense != nil {
		return none, nonsense
	}
	return none, net.ErrClosed
}

const (
	// describedAtOnce is the number of concurrent look-ups of volumes of a pool.
	describedAtOnce = 12
	// knownFor is the lifetime of cached volumes: their used space changes, and others may change them.
	knownFor = 5 * time.Minute
)

// link is the connection for some calls of a host: a daemon processes five calls of a connection at a time, and a
// timeout closes the connection. It is opened on demand, and again after it was lost, but not after the host's own.
type link struct {
	host *host
	// limit is the time limit of a call.
	limit time.Duration

	lock    sync.Mutex
	session *session
}

func (l *link) open(ctx context.Context) (*session, error) {
	l.lock.Lock()
	defer l.lock.Unlock()
	if l.session != nil {
		select {
		case <-l.session.lost:
		default:
			return l.session, nil
		}
	}
	s, err := l.host.another(ctx)
	if err != nil {
		return nil, err
	}
	l.session = s
	return s, nil
}

// get runs calls on a link.
func get[T any](ctx context.Context, on *link, doing, object string, calls func(client *golibvirt.Libvirt) (T, error)) (T, error) {
	var result T
	s, err := on.open(ctx)
	if err == nil {
		result, err = do(ctx, s, on.limit, calls)
	}
	if err != nil {
		return result, failure(doing, object, err)
	}
	return result, nil
}

// run is get for calls without a result.
func run(ctx context.Context, on *link, doing, object string, calls func(client *golibvirt.Libvirt) error) error {
	_, err := get(ctx, on, doing, object, func(client *golibvirt.Libvirt) (struct{}, error) { return struct{}{}, calls(client) })
	return err
}

// knownVolumes is a cache of volumes. The zero value is ready to use.
type knownVolumes struct {
	lock sync.Mutex
	// changes counts the operations that may change volumes.
	changes uint64
	pools   map[string]knownPool
}

type knownPool struct {
	since   time.Time
	volumes map[string]hypervisor.Volume
}

// of returns the cached volumes of a pool, and a number for set.
func (k *knownVolumes) of(pool string) (map[string]hypervisor.Volume, uint64) {
	k.lock.Lock()
	defer k.lock.Unlock()
	if time.Since(k.pools[pool].since) > knownFor {
		delete(k.pools, pool)
	}
	return maps.Clone(k.pools[pool].volumes), k.changes
}

// set caches the volumes of a pool, unless there was a change since the call of of with this number.
func (k *knownVolumes) set(pool string, number uint64, volumes []hypervisor.Volume) {
	byName := make(map[string]hypervisor.Volume, len(volumes))
	for _, volume := range volumes {
		byName[volume.Name] = volume
	}
	k.lock.Lock()
	defer k.lock.Unlock()
	if number != k.changes {
		return
	}
	if k.pools == nil {
		k.pools = map[string]knownPool{}
	}
	since := time.Now()
	if before, exists := k.pools[pool]; exists {
		since = before.since
	}
	k.pools[pool] = knownPool{since: since, volumes: byName}
}

// forget removes a volume from the cache, or the whole pool if the name is empty.
func (k *knownVolumes) forget(ref hypervisor.VolumeRef) {
	k.lock.Lock()
	defer k.lock.Unlock()
	k.changes++
	if ref.Name == "" {
		delete(k.pools, ref.Pool)
		return
	}
	delete(k.pools[ref.Pool].volumes, ref.Name)
}
