package placement

import (
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/types"
)

// Grow reserves what a machine that is bound to a host needs more than it has there. machine has its
// host, and its needs as they are to be; has is what it takes now. What becomes less, or stays, needs
// no room. bound returns the machines that are bound to hosts with what they take:
// one that is about to grow and has no room reserved takes what it has.
//
// The room is reserved until bound says that the machine takes it, or EndGrowth or Release gives it up. To ask again
// for the same changes nothing. The error is a *NoFitError about the one host, or comes from bound.
func (l *Ledger) Grow(machine Machine, has Resources, host Host, bound func() ([]Machine, error)) error {
	l.lock.Lock()
	defer l.lock.Unlock()

	listed, err := bound()
	if err != nil {
		return fmt.Errorf("listing the machines that are bound to hosts: %w", err)
	}
	machines := l.taken(listed)
	needs, has := onHost(machine.Needs, host.Pools), onHost(has, host.Pools)
	more := Resources{}
	for key, value := range needs {
		if value > has[key] {
			more[key] = value
		}
	}
	counted := countAll(machines, machine.UID)
	if over := host.Quota.exceeded(needs, has, counted.usedOf(host.Quota, machine.Cluster.Namespace)); len(over) > 0 {
		return &NoFitError{Hosts: []Unfit{{Host: host.Name, Reason: QuotaExceeded, Message: quotaExceeded(over)}}}
	}
	free := loadOf(&machine, &host, counted).free
	if short := free.shortages(more); len(short) > 0 {
		return &NoFitError{Hosts: []Unfit{{Host: host.Name, Reason: NoRoom, Message: noRoom(short)}}}
	}
	if l.growing == nil {
		l.growing = map[types.UID]Resources{}
	}
	l.growing[machine.UID] = maps.Clone(machine.Needs)
	return nil
}

// EndGrowth gives up what is reserved for a machine to grow, and nothing else: it has grown, or its spec doesn't
// ask for more any longer. Nothing happens when nothing is reserved.
func (l *Ledger) EndGrowth(machine types.UID) {
	l.lock.Lock()
	defer l.lock.Unlock()
	delete(l.growing, machine)
}

// taken returns what machines take, counting what is reserved for them. Reservations of machines whose
// specs say it now, and of those that are gone, end. The lock is held.
func (l *Ledger) taken(listed []Machine) []Machine {
	machines := make([]Machine, 0, len(listed))
	there := map[types.UID]bool{}
	for _, machine := range listed {
		if machine.Host == "" || machine.Claimed && !l.placed.has(machine.UID) {
			continue
		}
		there[machine.UID] = true
		if reserved, grows := l.growing[machine.UID]; grows {
			if len(machine.Needs.shortages(reserved)) == 0 {
				delete(l.growing, machine.UID)
			}
			machine.Needs = Most(machine.Needs, reserved)
		}
		machines = append(machines, machine)
	}
	for uid := range l.reserved {
		if !there[uid] {
			machines = append(machines, l.placed.machines[uid])
		}
	}
	maps.DeleteFunc(l.growing, func(uid types.UID, _ Resources) bool { return !there[uid] })
	return machines
}

// Most returns the larger amount of each resource.
func Most(a, b Resources) Resources {
	most := maps.Clone(a)
	if most == nil {
		most = Resources{}
	}
	for key, value := range b {
		most[key] = max(most[key], value)
	}
	return most
}
