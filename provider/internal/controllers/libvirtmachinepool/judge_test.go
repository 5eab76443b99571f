package libvirtmachinepool

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// Judge is told of everything that happens to the objects of one pool, in the order in which the API
// server has it, and notes what mustn't happen.
//
// A reconcile goes by what it has read at its beginning. What others do after that is allowed for: the
// replicas may be any that the MachinePool had since, and machines that others have taken since are no
// fault of the pool's. It reckons by itself, not by the controller's functions.
type Judge struct {
	// Problems is what was wrong.
	Problems []string
	// Events, Claims, Made and Taken count: all that happened, what the pool said of itself while it was
	// as asked for, and the machines that it made and took. Tight counts those that it couldn't have made
	// or taken if there had been one more, or one ready less.
	Events, Claims, Made, Taken, Tight int

	pool     *clusterv1.MachinePool
	infra    *infrav1.LibvirtMachinePool
	machines map[string]*clusterv1.Machine
	infras   map[string]*infrav1.LibvirtMachine
	// chosen are the names of those that have, or had, the annotation that makes them the first to go.
	chosen map[string]bool
	// unhealthy are the names of those that a health check wants to be replaced.
	unhealthy map[string]bool

	// Since the beginning of the reconcile: the replicas that were asked for, how many machines others
	// have taken or made unready, the names of Machines that have come and of machines that have become
	// ready, and the most that was outdated.
	replicas    []int
	lost        int
	came, risen map[string]bool
	outdated    int
}

// Add adds the counts of another.
func (j *Judge) Add(other *Judge) {
	j.Events, j.Claims, j.Made = j.Events+other.Events, j.Claims+other.Claims, j.Made+other.Made
	j.Taken, j.Tight = j.Taken+other.Taken, j.Tight+other.Tight
}

// Begin says that a reconcile begins.
func (j *Judge) Begin() {
	j.lost, j.came, j.risen, j.replicas, j.outdated = 0, map[string]bool{}, map[string]bool{}, nil, j.countOutdated()
	if j.pool != nil {
		j.replicas = []int{int(ptr.Deref(j.pool.Spec.Replicas, 1))}
	}
}

// Happened tells of an object that was written or, if gone, deleted for good; byPool says whether it was
// the pool's controller that did it. It doesn't keep others from changing the object.
func (j *Judge) Happened(object client.Object, gone, byPool bool) {
	if j.machines == nil {
		j.machines, j.infras = map[string]*clusterv1.Machine{}, map[string]*infrav1.LibvirtMachine{}
		j.chosen, j.unhealthy = map[string]bool{}, map[string]bool{}
		j.Begin()
	}
	j.Events++
	aliveBefore, readyBefore := j.alive(), j.ready()
	if _, chosen := object.GetAnnotations()[clusterv1.DeleteMachineAnnotation]; chosen {
		j.chosen[object.GetName()] = true
	}
	switch o := object.DeepCopyObject().(type) {
	case *clusterv1.MachinePool:
		j.pool = o
		j.replicas = append(j.replicas, int(ptr.Deref(o.Spec.Replicas, 1)))
		return
	case *infrav1.LibvirtMachinePool:
		j.infra = o
		j.outdated = max(j.outdated, j.countOutdated())
		j.claim()
		return
	case *clusterv1.Machine:
		if j.machines[o.Name] == nil {
			j.came[o.Name] = true
		}
		j.machines[o.Name] = o
		if gone {
			delete(j.machines, o.Name)
		}
		if collections.IsUnhealthyAndOwnerRemediated(o) {
			j.unhealthy[o.Name] = true
		}
		if byPool && (gone || !o.DeletionTimestamp.IsZero()) {
			j.taken(o.Name, aliveBefore, readyBefore)
		}
	case *infrav1.LibvirtMachine:
		isNew := j.infras[o.Name] == nil && !gone
		j.infras[o.Name] = o
		if gone {
			delete(j.infras, o.Name)
		}
		switch {
		case isNew:
			j.made(o.Name)
		case byPool && (gone || !o.DeletionTimestamp.IsZero()) && slices.Contains(aliveBefore, o.Name):
			if j.machines[o.Name] != nil && !j.came[o.Name] {
				j.problem("LibvirtMachine %s is deleted and not its Machine: its node isn't drained", o.Name)
			}
			j.taken(o.Name, aliveBefore, readyBefore)
		}
	}
	ready := j.ready()
	for _, name := range ready {
		if !slices.Contains(readyBefore, name) {
			j.risen[name] = true
		}
	}
	if !byPool {
		j.lost += max(0, len(readyBefore)-len(ready), len(aliveBefore)-len(j.alive()))
	}
}

func (j *Judge) problem(format string, values ...any) {
	j.Problems = append(j.Problems, fmt.Sprintf("event %d: ", j.Events)+fmt.Sprintf(format, values...))
}

// made looks at a machine that was made: maxSurge speaks of those that are there, and of the outdated
// that are on their way out.
func (j *Judge) made(name string) {
	j.Made++
	alive, leaving := len(j.alive()), 0
	for _, infra := range j.infras {
		if j.isLeaving(infra) && j.isOutdated(infra) {
			leaving++
		}
	}
	most, wanted := 0, 0
	for _, replicas := range j.replicas {
		most, wanted = max(most, replicas+machinesIn(j.infra.Spec.Strategy.MaxSurge, 1, replicas, true)), max(wanted, replicas)
	}
	if alive+leaving == most {
		j.Tight++
	}
	if alive+leaving > most {
		j.problem("%s makes %d machines, and %d outdated ones leave: %d are allowed", name, alive, leaving, most)
	}
	if j.outdated == 0 && alive > wanted {
		j.problem("%s makes %d machines, %d are asked for, and there is nothing to roll", name, alive, wanted)
	}
}

// taken looks at a machine that the pool has taken: of those that do their work, there must be enough.
// One that isn't ready may go, and one that somebody has chosen, as long as there are enough machines.
func (j *Judge) taken(name string, aliveBefore, readyBefore []string) {
	if !slices.Contains(aliveBefore, name) {
		return
	}
	j.Taken++
	least := -1
	for _, replicas := range j.replicas {
		enough := replicas - min(replicas, j.unavailable(replicas))
		if least < 0 || enough < least {
			least = enough
		}
	}
	// How many a health check may take at once is its own business.
	if alive := len(j.alive()) + j.lost; alive < least && !j.unhealthy[name] {
		j.problem("%s is taken, which leaves %d machines: at least %d are to be there", name, alive, least)
	}
	if ready := len(j.ready()) + j.lost; slices.Contains(readyBefore, name) && !j.risen[name] && !j.chosen[name] {
		if ready == least {
			j.Tight++
		}
		if ready < least {
			j.problem("%s is taken, which leaves %d that are ready: at least %d are to be", name, ready, least)
		}
	}
}

func (j *Judge) unavailable(replicas int) int {
	strategy := j.infra.Spec.Strategy
	unavailable := machinesIn(strategy.MaxUnavailable, 0, replicas, false)
	if unavailable == 0 && machinesIn(strategy.MaxSurge, 1, replicas, true) == 0 {
		return 1 // or nothing could ever roll
	}
	return unavailable
}

// machinesIn is how many of some replicas a number or percentage is.
func machinesIn(value *intstr.IntOrString, otherwise, replicas int, up bool) int {
	if value == nil {
		return otherwise
	}
	percent, is := strings.CutSuffix(value.String(), "%")
	number, err := strconv.Atoi(percent)
	switch {
	case err != nil:
		panic(err) // the tests' own
	case !is:
		return number
	case up:
		return (replicas*number + 99) / 100
	}
	return replicas * number / 100
}

// claim looks at what a pool says of itself while it says that it is as it was asked for.
func (j *Judge) claim() {
	ids, status := j.infra.Spec.ProviderIDList, j.infra.Status
	if !slices.IsSorted(ids) || len(slices.Compact(slices.Clone(ids))) != len(ids) {
		j.problem("providerIDList isn't sorted, or has something twice: %v", ids)
	}
	ready := conditions.Get(j.infra, infrav1.ReadyCondition)
	if ready == nil || ready.Status != "True" || ready.ObservedGeneration != j.infra.Generation {
		return
	}
	j.Claims++
	if len(ids) != int(ptr.Deref(status.Replicas, -1)) || len(ids) != len(status.Instances) {
		j.problem("it says that it is ready with %d provider IDs, %d replicas and %d instances", len(ids), ptr.Deref(status.Replicas, -1), len(status.Instances))
	}
	for _, one := range status.Instances {
		if !ptr.Deref(one.Ready, false) || !slices.Contains(ids, one.ProviderID) {
			j.problem("it says that it is ready with %+v", one)
		}
	}
}

func (j *Judge) isLeaving(infra *infrav1.LibvirtMachine) bool {
	machine := j.machines[infra.Name]
	return !infra.DeletionTimestamp.IsZero() || machine != nil && !machine.DeletionTimestamp.IsZero()
}

// isOutdated goes by what the tests change.
func (j *Judge) isOutdated(infra *infrav1.LibvirtMachine) bool {
	return j.infra != nil && infra.Spec.CPUs != j.infra.Spec.Template.Spec.CPUs
}

func (j *Judge) countOutdated() int {
	found := 0
	for _, infra := range j.infras {
		if j.isOutdated(infra) {
			found++
		}
	}
	return found
}

// alive are the machines that aren't on their way out.
func (j *Judge) alive() []string {
	var found []string
	for name, infra := range j.infras {
		if !j.isLeaving(infra) {
			found = append(found, name)
		}
	}
	return found
}

// ready are those of them that do their work.
func (j *Judge) ready() []string {
	return slices.DeleteFunc(j.alive(), func(name string) bool {
		machine := j.machines[name]
		return machine == nil || !conditions.IsTrue(j.infras[name], infrav1.ReadyCondition) || !conditions.IsTrue(machine, clusterv1.MachineAvailableCondition)
	})
}
