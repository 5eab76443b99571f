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

// pace has the time of the last reconcile of each pool. The zero value is ready to use.
type pace struct{ sync.Map }

// wait returns for how long a pool of this many machines is left alone, or 0 if it can be reconciled now.
func (p *pace) wait(pool types.NamespacedName, machines int, now time.Time) time.Duration {
	last, known := p.Load(pool)
	if !known || machines <= smallPool {
		return 0
	}
	return max(last.(time.Time).Add(time.Duration(machines)*pauseForEach).Sub(now), 0)
}
