package libvirtmachine

import (
	"fmt"
	"sync"
	"time"
)

// fullFor is for how long a host that was found to be full gets no machines, unless one that is bound to it gets
// what it needs meanwhile. Those that are bound there look more often than that.
const fullFor = 30 * time.Minute

// full knows hosts that had no room for something that a machine needed there, although by what is counted there
// was: files of others, or images. The zero value is ready to use.
type full struct {
	lock  sync.Mutex
	until map[string]time.Time
}

func (f *full) note(host string) {
	f.lock.Lock()
	defer f.lock.Unlock()
	if f.until == nil {
		f.until = map[string]time.Time{}
	}
	f.until[host] = time.Now().Add(fullFor)
}

func (f *full) forget(host string) {
	f.lock.Lock()
	defer f.lock.Unlock()
	delete(f.until, host)
}

func (f *full) is(host string) bool {
	f.lock.Lock()
	defer f.lock.Unlock()
	return time.Now().Before(f.until[host])
}

// noRoom remembers that the machine's host is full, so that others go elsewhere, has it look at its storage pools
// again, and says it.
func (s *scope) noRoom(err error) error {
	s.full.note(s.host.Name)
	for _, pool := range append(s.pools(), s.host.Spec.StoragePools.Images) {
		s.Hosts.RefreshPool(s.host.Name, pool)
	}
	return fmt.Errorf("the host %s has no room: %w", s.host.Name, err)
}
