package libvirtmachinepool

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// bounds say how far a pool may be from what is asked for while a change rolls through it.
type bounds struct {
	// surge is how many machines there may be above the replicas, and unavailable how many of the
	// replicas may be missing. They aren't both 0.
	surge, unavailable int
}

// boundsOf returns what a strategy means for some replicas. A percentage of few replicas may come to
// nothing: then one may be missing, as it is for Deployments, or nothing would ever roll.
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

// planned is a machine as planning sees it.
type planned struct {
	name    string
	created time.Time
	// outdated says that it is made from another template than the pool has now.
	outdated bool
	// ready says that it does its work: its node is there and healthy.
	ready bool
	// chosen says that somebody wants it to be the first to go.
	chosen bool
	// unhealthy says that a health check wants it to be replaced.
	unhealthy bool
	// deleting says that it is on its way out, for whatever reason.
	deleting bool
}

// plan is what brings a pool nearer to what is asked for.
type plan struct {
	// creates is how many machines to make, and deletes are the names of those to delete.
	creates int
	deletes []string
}

func (p plan) isEmpty() bool { return p.creates == 0 && len(p.deletes) == 0 }

// makePlan says what to do about the machines of a pool, now; what comes after it is planned anew.
//
// Machines that are being deleted don't count as the pool's, so that one on a host that is lost is
// replaced before somebody gives up on it. Those that a rollout deletes are the exception: they use the
// room that maxSurge speaks of until they are gone.
//
// What a health check wants to be replaced goes first, all of it: how much may go at once is the health
// check's business, and none of it is ready.
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

// replaceable are the outdated machines that can go now. Those that aren't ready serve nobody: they go
// as long as there are enough machines at all. Of the others, none goes that is needed.
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

// firstToGo orders machines: those that somebody has chosen, those that aren't ready, those that are
// outdated, the oldest.
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

// share returns the one of some failure domains that has the fewest machines, the first of several.
func share(domains []string, machines map[string]int) string {
	var least string
	for i, domain := range domains {
		if i == 0 || machines[domain] < machines[least] {
			least = domain
		}
	}
	return least
}
