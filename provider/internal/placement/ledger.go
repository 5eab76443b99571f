package placement

import (
	"errors"
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
// It knows all machines, and hears of each change: Load has those that there are when it begins, and
// from then on, or earlier, See and Gone have to be called with what happens, in its order for each
// machine.
//
// The zero Ledger is ready to be loaded. After a restart it has no reservations, which is right: what
// was chosen and not written is not taken.
type Ledger struct {
	lock   sync.Mutex
	loaded bool
	// placed are the machines that are bound to a host, and those that have a reservation.
	placed tally
	// reserved are those that have only a reservation.
	reserved map[types.UID]bool
	// growing are the placed machines that have room to grow. What they are given and what they grow to is counted, the
	// larger amount of each.
	growing map[types.UID]growth
	// versions count the changes of each host.
	versions map[string]uint64
}

// Load asks for the machines that are bound to a host, as the cache has them, unless it has done so
// before with success. bound must not call the ledger. What See was called with before is in the cache,
// too, and so nothing is lost and nothing is older than what was seen.
func (l *Ledger) Load(bound func() ([]Machine, error)) error {
	l.lock.Lock()
	defer l.lock.Unlock()
	if l.loaded {
		return nil
	}
	listed, err := bound()
	if err != nil {
		return fmt.Errorf("listing the machines that are bound to hosts: %w", err)
	}
	for _, machine := range listed {
		l.see(machine)
	}
	l.loaded = true
	return nil
}

// See says how a machine is: new, or changed. Once it is bound to a host it takes its room there, and
// its reservation is gone. One without a host changes nothing: its reservation stays, and a host that
// was written isn't taken back. Nor does one that is only claimed, unless it was placed on that host: Place
// it there, if it fits. How much a machine takes that was placed isn't changed by an estimate: that is what Place and
// Grow have found room for, or what it was seen to have.
func (l *Ledger) See(machine Machine) {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.see(machine)
}

func (l *Ledger) see(machine Machine) {
	before, there := l.placed.machines[machine.UID]
	placed := there && before.Host == machine.Host
	if machine.Host == "" || machine.Claimed && !placed {
		return
	}
	if grows, is := l.growing[machine.UID]; placed && machine.Estimated {
		machine.Needs = before.Needs
	} else if is {
		grows.given = machine.Needs
		l.growing[machine.UID] = grows
		machine.Needs = grows.needs()
	}
	machine.Claimed, machine.Estimated = false, false
	delete(l.reserved, machine.UID)
	if !there || !before.equal(machine) {
		l.set(machine)
	}
}

// Give says what a machine was seen to have of its host. Nothing happens when it isn't placed.
func (l *Ledger) Give(machine types.UID, given Resources) {
	l.lock.Lock()
	defer l.lock.Unlock()
	if placed, there := l.placed.machines[machine]; there && !l.reserved[machine] {
		placed.Needs = given
		l.see(placed)
	}
}

// Taken returns what is counted for a machine, and false when it isn't placed.
func (l *Ledger) Taken(machine types.UID) (Resources, bool) {
	l.lock.Lock()
	defer l.lock.Unlock()
	placed, there := l.placed.machines[machine]
	return placed.Needs, there
}

// Covers says whether what is counted for a machine is as much as it needs.
func (l *Ledger) Covers(machine types.UID, needs Resources) bool {
	taken, placed := l.Taken(machine)
	return placed && taken.covers(needs)
}

// Gone says that a machine exists no longer.
func (l *Ledger) Gone(machine types.UID) {
	l.lock.Lock()
	defer l.lock.Unlock()
	delete(l.reserved, machine)
	delete(l.growing, machine)
	l.remove(machine)
}

// Release gives up the reservation of a machine, its growth too: it is being deleted, or it is certain
// that what the room is for has not been written. Nothing happens when there is none.
func (l *Ledger) Release(machine types.UID) {
	l.lock.Lock()
	defer l.lock.Unlock()
	if l.reserved[machine] {
		delete(l.reserved, machine)
		l.remove(machine)
	}
	l.endGrowth(machine)
}

// Counts says whether a machine takes room on a host, or has a reservation there.
func (l *Ledger) Counts(machine types.UID) bool {
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.placed.has(machine)
}

// Reservations returns the machines that have a reservation, with their hosts, in no order.
func (l *Ledger) Reservations() []Machine {
	l.lock.Lock()
	defer l.lock.Unlock()
	var reservations []Machine
	for uid := range l.reserved {
		reservations = append(reservations, l.placed.machines[uid])
	}
	return reservations
}

var errNotLoaded = errors.New("the machines that are bound to hosts haven't been loaded")

// Place chooses a host for a machine and reserves its room there. The ledger has to be loaded.
//
// A machine that is bound stays where it is: when it needs more than is counted for it there, that host has to fit.
// One that has a reservation keeps its host as long as it
// fits there: its spec may have been written although the write seemed to fail. The error is a
// *NoFitError, which leaves what is counted as it is.
func (l *Ledger) Place(request Request, hosts []Host) (string, error) {
	l.lock.Lock()
	defer l.lock.Unlock()
	if !l.loaded {
		return "", errNotLoaded
	}
	machine := request.Machine
	before, there := l.placed.machines[machine.UID]
	bound := there && !l.reserved[machine.UID]
	if bound && before.Needs.covers(machine.Needs) {
		return before.Host, nil
	}
	if bound {
		hosts = slices.DeleteFunc(slices.Clone(hosts), func(host Host) bool { return host.Name != before.Host })
	}
	l.placed.remove(machine.UID) // it doesn't stand in its own way
	host, err := l.choose(request, hosts, before.Host)
	if err != nil {
		if there {
			l.placed.set(before)
		}
		return "", err
	}
	machine.Host = host
	machine.Needs = maps.Clone(machine.Needs)
	if l.reserved == nil {
		l.reserved = map[types.UID]bool{}
	}
	if !bound {
		l.reserved[machine.UID] = true
	}
	if there && before.Host != host {
		l.changed(before.Host)
	}
	l.set(machine)
	return host, nil
}

// choose returns the host that is reserved, if there is one and it still fits, or else the best.
func (l *Ledger) choose(request Request, hosts []Host, reserved string) (string, error) {
	for _, host := range hosts {
		if reserved != "" && host.Name == reserved {
			if kept, err := choose(request, []Host{host}, &l.placed); err == nil {
				return kept, nil
			}
		}
	}
	return choose(request, hosts, &l.placed)
}

// Domains returns the UUIDs of the domains that the machines on a host have or will have, those with
// reservations too.
func (l *Ledger) Domains(host string) map[string]bool {
	l.lock.Lock()
	defer l.lock.Unlock()
	domains := map[string]bool{}
	if on := l.placed.hosts[host]; on != nil {
		for uuid := range on.domains {
			domains[uuid] = true
		}
	}
	return domains
}

// Version returns a number that is another one once the machines on a host have changed.
func (l *Ledger) Version(host string) uint64 {
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.versions[host]
}

// Reserved returns how many machines have a reservation.
func (l *Ledger) Reserved() int {
	l.lock.Lock()
	defer l.lock.Unlock()
	return len(l.reserved)
}

func (l *Ledger) set(machine Machine) {
	l.remove(machine.UID)
	l.placed.set(machine)
	l.changed(machine.Host)
}

func (l *Ledger) remove(uid types.UID) {
	if machine, there := l.placed.machines[uid]; there {
		l.placed.remove(uid)
		l.changed(machine.Host)
	}
}

func (l *Ledger) changed(host string) {
	if l.versions == nil {
		l.versions = map[string]uint64{}
	}
	l.versions[host]++
}
