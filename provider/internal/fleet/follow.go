package fleet

import (
	"context"
	"errors"
	"time"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// heard is a domain that something has happened to.
type heard struct {
	uuid string
	// due is when to read it.
	due time.Time
}

// follow reads each domain that something happens to, until there are no more news. It lets them settle
// first: a domain that is made is in the news twice, and whoever makes it reads it, too.
func (s *session) follow(ctx context.Context, connection hypervisor.Hypervisor, changed <-chan string) error {
	// waiting are in the order in which they are due. since has which reading was the last one to begin
	// before the latest news: later ones know what has happened.
	var waiting []heard
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
				waiting = append(waiting, heard{uuid: uuid, due: time.Now().Add(s.fleet.options.SettleTime)})
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

// lastReading returns the number of the last reading that has begun.
func (s *session) lastReading() uint64 {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.begun
}

// hasReadSince reports whether a domain was read, and published, by a reading that began after another one.
func (s *session) hasReadSince(uuid string, reading uint64) bool {
	s.lock.Lock()
	defer s.lock.Unlock()
	return max(s.listed, s.read[uuid]) > reading
}
