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
			return otherwise // the schema and the webhook reject other values
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
	// outdated is true if the machine has an older template.
	outdated bool
	// ready is true if the machine has a healthy node.
	ready bool
	// chosen is true if a user wants this machine to be deleted first.
	chosen bool
	// unhealthy is true if a health check requests a replacement.
	unhealthy bool
	// deleting is true if the machine is being deleted.
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
// Outdated ones count for maxSurge until they are deleted.
//
// All unhealthy machines are deleted first: the health check limits their number, and they aren't ready.
//
// After the plan is carried out:
//   - there are at most desired+surge machines, unless there were more before, and then no machine is created;
//   - at least desired-unavailable machines are ready, unless fewer were ready before or scaling down deletes
//     machines that a user has chosen.
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
	slices.SortFunc(alive, compareForDeletion)
	if unhealthy := slices.DeleteFunc(slices.Clone(alive), func(m planned) bool { return !m.unhealthy }); len(unhealthy) > 0 {
		return plan{deletes: names(unhealthy)}
	}
	outdated := count(alive, func(m planned) bool { return m.outdated })

	// The surge is allowed only during a rollout.
	limit := desired + min(b.surge, outdated)
	if excess := len(alive) - limit; excess > 0 {
		return plan{deletes: names(alive[:excess])}
	}
	p := plan{deletes: names(replaceable(desired, b, alive))}
	if len(p.deletes) == 0 {
		// Missing machines are created first, and then replacements of outdated ones.
		p.creates = max(0, min(limit-len(alive), desired+b.surge-len(alive)-leaving))
	}
	return p
}

// replaceable returns the outdated machines that can be deleted now. A machine that isn't ready can be deleted if
// enough machines remain, and a ready one if enough ready machines remain.
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

// compareForDeletion orders machines for deletion: chosen ones, those that aren't ready, outdated ones, the oldest.
func compareForDeletion(a, b planned) int {
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
