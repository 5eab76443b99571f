package placement

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Ledger places machines for many reconciles at once. What it has placed counts as taken from then
// on, also while nobody sees it: the host is written to the machine's spec after the choice, and
// the cache that machines are read from shows it later still.
//
// The zero Ledger is ready to use. After a restart it is empty, which is right: what was chosen and
// not written is not taken.
type Ledger struct {
	lock     sync.Mutex
	reserved map[types.UID]Machine
	// growing is what bound machines will need that have room to grow.
	growing map[types.UID]Resources
}

// Place chooses a host for a machine and reserves its room there. bound returns the machines that
// are bound to a host, as the cache has them; it is called while no other machine is placed, so
// that a machine is seen by it or reserved here, and must not call the ledger.
//
// A machine that is bound stays where it is. One that has a reservation keeps its host as long as it
// fits there: its spec may have been written although the write seemed to fail. The error is a
// *NoFitError, which leaves a reservation as it is, or comes from bound.
func (l *Ledger) Place(request Request, hosts []Host, bound func() ([]Machine, error)) (string, error) {
	l.lock.Lock()
	defer l.lock.Unlock()

	listed, err := bound()
	if err != nil {
		return "", fmt.Errorf("listing the machines that are bound to hosts: %w", err)
	}
	var machines []Machine
	for _, machine := range listed {
		if machine.Host == "" {
			continue // it would hide its reservation
		}
		if machine.UID == request.Machine.UID {
			delete(l.reserved, machine.UID)
			return machine.Host, nil
		}
		delete(l.reserved, machine.UID) // its spec says it now
		machines = append(machines, machine)
	}
	machines = slices.AppendSeq(machines, maps.Values(l.reserved))

	host, kept := l.keep(request, hosts, machines)
	if !kept {
		if host, err = Choose(request, hosts, machines); err != nil {
			return "", err
		}
	}
	if l.reserved == nil {
		l.reserved = map[types.UID]Machine{}
	}
	machine := request.Machine
	machine.Host = host
	machine.Needs = maps.Clone(machine.Needs)
	l.reserved[machine.UID] = machine
	return host, nil
}

// keep returns the host that is reserved for a machine, if it still fits.
func (l *Ledger) keep(request Request, hosts []Host, machines []Machine) (string, bool) {
	reserved, found := l.reserved[request.Machine.UID]
	if !found {
		return "", false
	}
	hosts = slices.DeleteFunc(slices.Clone(hosts), func(h Host) bool { return h.Name != reserved.Host })
	host, err := Choose(request, hosts, machines)
	return host, err == nil
}

// Release gives up the reservation of a machine, its growth too: it is being deleted, or it is certain
// that what the room is for has not been written. Nothing happens when there is none.
func (l *Ledger) Release(machine types.UID) {
	l.lock.Lock()
	defer l.lock.Unlock()
	delete(l.reserved, machine)
	delete(l.growing, machine)
}

// Reservations returns the machines that have a reservation, with their hosts, in no order.
func (l *Ledger) Reservations() []Machine {
	l.lock.Lock()
	defer l.lock.Unlock()
	return slices.Collect(maps.Values(l.reserved))
}

// Reserved returns how many machines have a reservation.
func (l *Ledger) Reserved() int {
	l.lock.Lock()
	defer l.lock.Unlock()
	return len(l.reserved)
}
