package placement

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Ledger places machines for concurrent reconciles. A placed machine counts immediately, before its host is in the
// machine's spec and in the cache.
//
// It must know all machines: Load lists the existing ones, and See and Gone must be called with every change, in
// order for each machine.
//
// The zero Ledger is ready to be loaded. A restart drops all reservations: a chosen host that wasn't written doesn't
// count.
type Ledger struct {
	lock   sync.Mutex
	loaded bool
	// placed has the bound machines and those with a reservation.
	placed tally
	// reserved has the machines with only a reservation.
	reserved map[types.UID]bool
	// growing has the placed machines with a reservation for growth. The larger amount of each resource counts.
	growing map[types.UID]growth
	// versions count the changes of each host.
	versions map[string]uint64
}

// Load reads the bound machines from the cache, once. bound must not call the ledger. The cache includes everything
// that See was called with before.
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

// See records a new or changed machine. A bound machine counts on its host instead of its reservation. A machine
// without a host changes nothing: its reservation stays. Nor does a machine that is only claimed, unless it was
// placed on that host: Place must find room for it first. An estimate doesn't change the counted resources of a
// placed machine.
func (l *Ledger) See(machine Machine) {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.see(machine)
}

func (l *Ledger) see(machine Machine) {
	before, exists := l.placed.machines[machine.UID]
	placed := exists && before.Host == machine.Host
	if machine.Host == "" || machine.Claimed && !placed {
		return
	}
	if grows, ok := l.growing[machine.UID]; placed && machine.Estimated {
		machine.Needs = before.Needs
	} else if ok {
		grows.given = machine.Needs
		l.growing[machine.UID] = grows
		machine.Needs = grows.needs()
	}
	machine.Claimed, machine.Estimated = false, false
	delete(l.reserved, machine.UID)
	if !exists || !before.equal(machine) {
		l.set(machine)
	}
}

// Give records the observed resources of a placed machine. It does nothing for other machines.
func (l *Ledger) Give(machine types.UID, given Resources) {
	l.lock.Lock()
	defer l.lock.Unlock()
	if placed, exists := l.placed.machines[machine]; exists && !l.reserved[machine] {
		placed.Needs = given
		l.see(placed)
	}
}

// Taken returns the counted resources of a machine, and false if it isn't placed.
func (l *Ledger) Taken(machine types.UID) (Resources, bool) {
	l.lock.Lock()
	defer l.lock.Unlock()
	placed, exists := l.placed.machines[machine]
	return placed.Needs, exists
}

// Covers reports whether the counted resources of a machine include its needs.
func (l *Ledger) Covers(machine types.UID, needs Resources) bool {
	taken, placed := l.Taken(machine)
	return placed && taken.covers(needs)
}

// Gone removes a deleted machine.
func (l *Ledger) Gone(machine types.UID) {
	l.lock.Lock()
	defer l.lock.Unlock()
	delete(l.reserved, machine)
	delete(l.growing, machine)
	l.remove(machine)
}

// Release drops the reservations of a machine: it is being deleted, or its host or update was certainly not written.
func (l *Ledger) Release(machine types.UID) {
	l.lock.Lock()
	defer l.lock.Unlock()
	if l.reserved[machine] {
		delete(l.reserved, machine)
		l.remove(machine)
	}
	l.endGrowth(machine)
}

// Counts reports whether a machine is placed or has a reservation.
func (l *Ledger) Counts(machine types.UID) bool {
	_, counts := l.Taken(machine)
	return counts
}

// Reservations returns the machines with a reservation, with their hosts, in no particular order.
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

// Place chooses a host for a machine and reserves room there. The ledger must be loaded.
//
// A bound machine stays on its host, which must have room if the machine needs more than before. A machine with a
// reservation keeps its host while it fits: its spec may have been written although the write seemed to fail. The
// error is a *NoFitError, and doesn't change the ledger.
func (l *Ledger) Place(request Request, hosts []Host) (string, error) {
	l.lock.Lock()
	defer l.lock.Unlock()
	if !l.loaded {
		return "", errNotLoaded
	}
	machine := request.Machine
	before, exists := l.placed.machines[machine.UID]
	bound := exists && !l.reserved[machine.UID]
	if bound && before.Needs.covers(machine.Needs) {
		return before.Host, nil
	}
	if bound {
		hosts = slices.DeleteFunc(slices.Clone(hosts), func(host Host) bool { return host.Name != before.Host })
	}
	l.placed.remove(machine.UID) // its own resources don't block it
	host, err := l.choose(request, hosts, before.Host)
	if err != nil {
		if exists {
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
	if exists && before.Host != host {
		l.changed(before.Host)
	}
	l.set(machine)
	return host, nil
}

// choose returns the reserved host if it still fits, or else the best one.
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

// Domains returns the UUIDs of the domains of all machines on a host, including those with reservations.
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

// Version returns a number that changes with the machines on a host.
func (l *Ledger) Version(host string) uint64 {
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.versions[host]
}

// Reserved returns the number of machines with a reservation.
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
	if machine, exists := l.placed.machines[uid]; exists {
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

	placed, exists := l.placed.machines[machine]
	if !exists || placed.Host != host.Name {
		return &NoFitError{Hosts: []Unfit{{Host: host.Name, Reason: NoRoom, Message: "no room: the machine isn't placed on this host"}}}
	}
	given := placed.Needs
	if grows, ok := l.growing[machine]; ok {
		given = grows.given
	}
	l.placed.remove(machine) // its own resources don't block it
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
	grows, ok := l.growing[machine]
	if !ok {
		return
	}
	delete(l.growing, machine)
	if placed, exists := l.placed.machines[machine]; exists {
		placed.Needs = grows.given
		l.set(placed)
	}
}
