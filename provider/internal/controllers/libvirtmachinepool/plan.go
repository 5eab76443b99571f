package libvirtmachinepool

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// bounds are the limits of a rollout.
type bounds struct {
	// surge is the maximum number of machines above the replicas, and unavailable the maximum number of missing
	// replicas. They aren't both 0.
	surge, unavailable int
}

// boundsOf returns the bounds of a strategy. If percentages of few replicas round to 0, one replica may be missing,
// as with Deployments, so that a rollout can progress.
func boundsOf(strategy infrav1.MachinePoolStrategy, desired int) bounds {
	scaled := func(value *intstr.IntOrString, otherwise int, roundUp bool) int {
		if value == nil {
			return otherwise
		}
		machines, err := intstr.GetScaledValueFromIntOrPercent(value, desired, roundUp)
		if err != nil {
			return otherwise // the schema and the webhook let nothing else pass
		}
		return max(machines, 0)
	}
	b := bounds{surge: scaled(strategy.MaxSurge, 1, true), unavailable: scaled(strategy.MaxUnavailable, 0, false)}
	if b.surge == 0 && b.unavailable == 0 {
		b.unavailable = 1
	}
	return b
}

// planned is the input of makePlan for one machine.
type planned struct {
	name    string
	created time.Time
	// outdated says that the machine has an older template.
	outdated bool
	// ready says that the machine has a healthy node.
	ready bool
	// chosen says that a user wants this machine to be deleted first.
	chosen bool
	// unhealthy says that a health check wants a replacement.
	unhealthy bool
	// deleting says that the machine is being deleted.
	deleting bool
}

// plan has the next changes of a pool.
type plan struct {
	// creates is the number of machines to create, and deletes has the names of those to delete.
	creates int
	deletes []string
}

func (p plan) isEmpty() bool { return p.creates == 0 && len(p.deletes) == 0 }

// makePlan returns the next changes of the machines of a pool.
//
// Machines that are being deleted don't count, so that a machine on a lost host is replaced before it is given up.
// Outdated ones count for maxSurge until they are gone.
//
// All unhealthy machines are deleted first: the health check limits their number, and none of them is ready.
//
// After the plan is carried out:
//   - there are at most desired+surge machines, unless there were more and none is added;
//   - of those that are ready, a rollout takes none below desired-unavailable. Neither does scaling
//     down, but for those that somebody has chosen.
func makePlan(desired int, b bounds, machines []planned) plan {
	alive, leaving := []planned{}, 0
	for _, m := range machines {
		switch {
		case !m.deleting:
			alive = append(alive, m)
		case m.outdated:
			leaving++
		}
	}
	slices.SortFunc(alive, firstToGo)
	if unhealthy := slices.DeleteFunc(slices.Clone(alive), func(m planned) bool { return !m.unhealthy }); len(unhealthy) > 0 {
		return plan{deletes: names(unhealthy)}
	}
	outdated := count(alive, func(m planned) bool { return m.outdated })

	// More may be there than is asked for only while there is something to roll.
	limit := desired + min(b.surge, outdated)
	if excess := len(alive) - limit; excess > 0 {
		return plan{deletes: names(alive[:excess])}
	}
	p := plan{deletes: names(replaceable(desired, b, alive))}
	if len(p.deletes) == 0 {
		// Replacing what is missing comes first, and what is to come in place of the outdated then.
		p.creates = max(0, min(limit-len(alive), desired+b.surge-len(alive)-leaving))
	}
	return p
}

// replaceable returns the outdated machines that can be deleted now. Machines that aren't ready only need enough
// machines to remain, and ready ones enough ready machines.
func replaceable(desired int, b bounds, alive []planned) []planned {
	least := max(0, desired-b.unavailable)
	spare := len(alive) - least
	spareReady := count(alive, func(m planned) bool { return m.ready }) - least
	var going []planned
	for _, m := range alive {
		switch {
		case !m.outdated || spare <= 0:
			continue
		case m.ready && spareReady <= 0:
			continue
		case m.ready:
			spareReady--
		}
		spare--
		going = append(going, m)
	}
	return going
}

// firstToGo orders machines for deletion: chosen ones, those that aren't ready, outdated ones, the oldest.
func firstToGo(a, b planned) int {
	return cmp.Or(
		-compareBool(a.chosen, b.chosen),
		compareBool(a.ready, b.ready),
		-compareBool(a.outdated, b.outdated),
		a.created.Compare(b.created),
		cmp.Compare(a.name, b.name),
	)
}

// compareBool orders false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

func count[T any](machines []T, is func(T) bool) int {
	number := 0
	for _, m := range machines {
		if is(m) {
			number++
		}
	}
	return number
}

func names(machines []planned) []string {
	var all []string
	for _, m := range machines {
		all = append(all, m.name)
	}
	return all
}

// share returns the first of the failure domains with the fewest machines.
func share(domains []string, machines map[string]int) string {
	var least string
	for i, domain := range domains {
		if i == 0 || machines[domain] < machines[least] {
			least = domain
		}
	}
	return least
}
