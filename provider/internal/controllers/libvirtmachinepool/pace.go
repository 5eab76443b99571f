package libvirtmachinepool

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// smallPool is how many machines a pool has at most that is looked at each time that something changes.
	smallPool = 100
	// pauseForEach is for how long a larger one is left alone after a look, for each of its machines. A look
	// goes through all of them, and may write a list of all of them: with a look for each change of each
	// machine, what it costs to make a pool would grow with the square of its size. 2 s for 4000 machines.
	pauseForEach = 500 * time.Microsecond
	// changesAtOnce is how many machines a reconcile makes or deletes at most. The rest is for the next ones,
	// long before a reconcile is cut off and the names that it has taken are lost.
	changesAtOnce = 200
)

// pace knows when large pools were last looked at. The zero value is ready to use.
type pace struct {
	lock sync.Mutex
	last map[types.NamespacedName]time.Time
}

// wait returns how long to leave a pool of so many machines alone. 0 when it can be looked at.
func (p *pace) wait(pool types.NamespacedName, machines int, now time.Time) time.Duration {
	if machines <= smallPool {
		return 0
	}
	p.lock.Lock()
	defer p.lock.Unlock()
	last, there := p.last[pool]
	if !there {
		return 0
	}
	return max(last.Add(time.Duration(machines)*pauseForEach).Sub(now), 0)
}

// looked remembers that a pool was looked at.
func (p *pace) looked(pool types.NamespacedName, now time.Time) {
	p.lock.Lock()
	defer p.lock.Unlock()
	if p.last == nil {
		p.last = map[types.NamespacedName]time.Time{}
	}
	p.last[pool] = now
}

// forget drops what is known of a pool that is gone.
func (p *pace) forget(pool types.NamespacedName) {
	p.lock.Lock()
	defer p.lock.Unlock()
	delete(p.last, pool)
}
