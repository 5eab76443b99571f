package placement

import (
	"maps"

	"k8s.io/apimachinery/pkg/types"
)

// growth has the resources of a machine before and after an update.
type growth struct {
	given, wanted Resources
}

// needs returns the larger amount of each resource: during an update the machine may use either.
func (g growth) needs() Resources {
	most := maps.Clone(g.given)
	if most == nil {
		most = Resources{}
	}
	for key, value := range g.wanted {
		most[key] = max(most[key], value)
	}
	return most
}

// Grow reserves the additional resources of a placed machine on its host. Resources that shrink or stay need no room.
//
// The reservation lasts until EndGrowth or Release. Repeating the call changes nothing. The error is a *NoFitError
// about the one host, and doesn't change the ledger.
func (l *Ledger) Grow(machine types.UID, needs Resources, host Host) error {
	l.lock.Lock()
	defer l.lock.Unlock()

	placed, there := l.placed.machines[machine]
	if !there || placed.Host != host.Name {
		return &NoFitError{Hosts: []Unfit{{Host: host.Name, Reason: NoRoom, Message: "no room for a machine that isn't placed on it"}}}
	}
	given := placed.Needs
	if grows, is := l.growing[machine]; is {
		given = grows.given
	}
	l.placed.remove(machine) // it doesn't stand in its own way
	defer func() { l.set(placed) }()

	wanted, has := onHost(needs, host.Pools), onHost(given, host.Pools)
	more := Resources{}
	for key, value := range wanted {
		if value > has[key] {
			more[key] = value
		}
	}
	if over := host.Quota.exceeded(wanted, has, l.placed.usedOf(host.Quota, placed.Cluster.Namespace)); len(over) > 0 {
		return &NoFitError{Hosts: []Unfit{{Host: host.Name, Reason: QuotaExceeded, Message: quotaExceeded(over)}}}
	}
	if short := loadOf(&placed, &host, &l.placed).free.shortages(more); len(short) > 0 {
		return &NoFitError{Hosts: []Unfit{{Host: host.Name, Reason: NoRoom, Message: noRoom(short)}}}
	}
	if l.growing == nil {
		l.growing = map[types.UID]growth{}
	}
	grows := growth{given: given, wanted: maps.Clone(needs)}
	l.growing[machine] = grows
	placed.Needs = grows.needs()
	return nil
}

// Grows reports whether a machine has a reservation for growth.
func (l *Ledger) Grows(machine types.UID) bool {
	l.lock.Lock()
	defer l.lock.Unlock()
	_, grows := l.growing[machine]
	return grows
}

// EndGrowth releases the reservation for growth of a machine, if there is one: it has grown, or its spec no longer
// asks for more.
func (l *Ledger) EndGrowth(machine types.UID) {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.endGrowth(machine)
}

func (l *Ledger) endGrowth(machine types.UID) {
	grows, is := l.growing[machine]
	if !is {
		return
	}
	delete(l.growing, machine)
	if placed, there := l.placed.machines[machine]; there {
		placed.Needs = grows.given
		l.set(placed)
	}
}
