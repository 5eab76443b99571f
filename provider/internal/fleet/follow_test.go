package fleet

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// counting is a host that counts the readings of each domain.
type counting struct {
	hypervisor.Hypervisor
	reads map[string]int
}

// Domain implements hypervisor.Domains.
func (c *counting) Domain(_ context.Context, uuid string) (hypervisor.Domain, error) {
	c.reads[uuid]++
	return hypervisor.Domain{UUID: uuid}, nil
}

// TestEventsAreCombined checks that the events of a domain cause one reading, and none if it was read after them.
func TestEventsAreCombined(t *testing.T) {
	const settle = time.Second
	for name, tc := range map[string]struct {
		act  func(ctx context.Context, s *session, host *counting, news chan<- string)
		want map[string]int
	}{
		"one": {
			act:  func(_ context.Context, _ *session, _ *counting, news chan<- string) { news <- "a" },
			want: map[string]int{"a": 1},
		},
		"concurrent events": {
			act: func(_ context.Context, _ *session, _ *counting, news chan<- string) {
				for _, uuid := range []string{"a", "b", "a", "a"} {
					news <- uuid
				}
			},
			want: map[string]int{"a": 1, "b": 1},
		},
		"later events": {
			act: func(_ context.Context, _ *session, _ *counting, news chan<- string) {
				news <- "a"
				time.Sleep(2 * settle)
				news <- "a"
			},
			want: map[string]int{"a": 2},
		},
		"a stream of events": {
			act: func(_ context.Context, _ *session, _ *counting, news chan<- string) {
				for range 10 {
					news <- "a"
					time.Sleep(3 * settle / 10)
				}
			},
			want: map[string]int{"a": 3},
		},
		"read before the event": {
			act: func(ctx context.Context, s *session, host *counting, news chan<- string) {
				_ = s.readDomain(ctx, host, "a")
				news <- "a"
			},
			want: map[string]int{"a": 2},
		},
		"read after the event": {
			act: func(ctx context.Context, s *session, host *counting, news chan<- string) {
				news <- "a"
				news <- "b"
				synctest.Wait()
				_ = s.readDomain(ctx, host, "a")
			},
			want: map[string]int{"a": 1, "b": 1},
		},
		"listed since": {
			act: func(_ context.Context, s *session, host *counting, news chan<- string) {
				news <- "a"
				synctest.Wait()
				s.publishAll(host, s.beginReading(), Snapshot{}, nil)
			},
			want: map[string]int{},
		},
		"a list that began before the event": {
			act: func(_ context.Context, s *session, host *counting, news chan<- string) {
				number := s.beginReading()
				news <- "a"
				synctest.Wait()
				s.publishAll(host, number, Snapshot{}, nil)
			},
			want: map[string]int{"a": 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				s := newSession("host", Target{}, New(nil, Options{SettleTime: settle}))
				host, news := &counting{reads: map[string]int{}}, make(chan string)
				ended := make(chan error)
				go func() { ended <- s.follow(t.Context(), host, news) }()
				tc.act(t.Context(), s, host, news)
				time.Sleep(2 * settle)
				close(news)
				g.Expect(<-ended).To(MatchError(hypervisor.ErrUnreachable))
				g.Expect(host.reads).To(Equal(tc.want))
			})
		})
	}
}
