package libvirtmachine

import (
	"sync"
	"time"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/placement"
)

// newHosts knows since when hosts are being connected to for the first time since the manager began. The
// zero value is ready to use.
//
// When a manager begins, its hosts come within seconds, one after the other. Machines that were placed on
// the first of them would be crowded there, though others are empty: they wait a moment. A host that can't be
// reached holds nobody up for longer.
type newHosts struct {
	lock  sync.Mutex
	since map[string]time.Time
}

// see notes how a host is.
func (n *newHosts) see(host string, connecting bool, now time.Time) {
	n.lock.Lock()
	defer n.lock.Unlock()
	if !connecting {
		delete(n.since, host)
		return
	}
	if n.since == nil {
		n.since = map[string]time.Time{}
	}
	if _, there := n.since[host]; !there {
		n.since[host] = now
	}
}

// wait returns for how long to wait for some hosts, each of which is waited for up to some time. 0 when
// nobody has to.
func (n *newHosts) wait(hosts []string, upTo time.Duration, now time.Time) time.Duration {
	n.lock.Lock()
	defer n.lock.Unlock()
	var longest time.Duration
	for _, host := range hosts {
		if since, there := n.since[host]; there {
			longest = max(longest, since.Add(upTo).Sub(now))
		}
	}
	return longest
}

// awaitHosts says whether the machine has to wait for hosts that may turn out to be better than those that
// have been seen.
func (s *scope) awaitHosts(request placement.Request, hosts []placement.Host) bool {
	wait := s.newHosts.wait(placement.Unseen(request, hosts), s.HostsPatience, time.Now())
	if wait <= 0 {
		return false
	}
	s.written = true // nothing is known that would have to be said so soon
	s.lookAgain(wait)
	return true
}
