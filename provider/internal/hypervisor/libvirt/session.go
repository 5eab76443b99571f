package libvirt

import (
	"context"
	"errors"
	"fmt"
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
		return none, &hypervisor.Error{Operation: "calling libvirt", Reason: hypervisor.ErrUnreachable, Cause: errors.New("the connection was lost")}
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
			return none, nonsense // which the library only knows as the end of the connection
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
