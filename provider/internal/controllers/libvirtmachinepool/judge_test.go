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

// Judge receives all events of the objects of one pool, in the order of the API server, and records violations.
//
// A reconcile uses what it has read at its beginning. Later changes by others are allowed for: the replicas may be any
// value of the MachinePool since then, and machines that others have deleted since then don't count against the pool.
// Judge has its own implementation of the rules and doesn't use the controller's functions.
type Judge struct {
	// Problems has the violations.
	Problems []string
	// Events counts the events, Claims the statuses that report the desired state, Made the created machines, and
	// Taken the deleted ones. Tight counts the creations and deletions at the limit: one more machine, or one ready
	// machine less, would have been a violation.
	Events, Claims, Made, Taken, Tight int

	pool     *clusterv1.MachinePool
	infra    *infrav1.LibvirtMachinePool
	machines map[string]*clusterv1.Machine
	infras   map[string]*infrav1.LibvirtMachine
	// chosen has the names of the machines that have, or had, the annotation to be deleted first.
	chosen map[string]bool
	// unhealthy has the names of the machines that a health check has marked for replacement.
	unhealthy map[string]bool

	// Since the beginning of the reconcile: the desired replicas, the number of machines that others have deleted or
	// made unready, the names of the created Machines and of the machines that have become ready, and the maximum
	// number of outdated machines.
	replicas    []int
	lost        int
	came, risen map[string]bool
	outdated    int
}

// Add adds the counts of another Judge.
func (j *Judge) Add(other *Judge) {
	j.Events, j.Claims, j.Made = j.Events+other.Events, j.Claims+other.Claims, j.Made+other.Made
	j.Taken, j.Tight = j.Taken+other.Taken, j.Tight+other.Tight
}

// Begin is called at the beginning of a reconcile.
func (j *Judge) Begin() {
	j.lost, j.came, j.risen, j.replicas, j.outdated = 0, map[string]bool{}, map[string]bool{}, nil, j.countOutdated()
	if j.pool != nil {
		j.replicas = []int{int(ptr.Deref(j.pool.Spec.Replicas, 1))}
	}
}

// Happened records a written object, or a deleted one if gone is true. byPool is true if the pool's controller did it.
// It copies the object.
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

// made checks the creation of a machine. maxSurge limits the existing machines, and the outdated ones that are being
// deleted.
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
		j.problem("%s makes %d machines, and %d outdated ones are being deleted: %d are allowed", name, alive, leaving, most)
	}
	if j.outdated == 0 && alive > wanted {
		j.problem("%s makes %d machines, %d are desired, and there is no rollout", name, alive, wanted)
	}
}

// taken checks the deletion of a machine by the pool: enough ready machines must remain. A machine that isn't ready, or
// that a user has chosen, may be deleted if enough machines remain.
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
	// The health check limits the number of its replacements.
	if alive := len(j.alive()) + j.lost; alive < least && !j.unhealthy[name] {
		j.problem("%s is deleted, which leaves %d machines: the minimum is %d", name, alive, least)
	}
	if ready := len(j.ready()) + j.lost; slices.Contains(readyBefore, name) && !j.risen[name] && !j.chosen[name] {
		if ready == least {
			j.Tight++
		}
		if ready < least {
			j.problem("%s is deleted, which leaves %d ready machines: the minimum is %d", name, ready, least)
		}
	}
}

func (j *Judge) unavailable(replicas int) int {
	strategy := j.infra.Spec.Strategy
	unavailable := machinesIn(strategy.MaxUnavailable, 0, replicas, false)
	if unavailable == 0 && machinesIn(strategy.MaxSurge, 1, replicas, true) == 0 {
		return 1 // otherwise no rollout could progress
	}
	return unavailable
}

// machinesIn returns a number or a percentage of some replicas.
func machinesIn(value *intstr.IntOrString, otherwise, replicas int, up bool) int {
	if value == nil {
		return otherwise
	}
	percent, is := strings.CutSuffix(value.String(), "%")
	number, err := strconv.Atoi(percent)
	switch {
	case err != nil:
		panic(err) // of the test itself
	case !is:
		return number
	case up:
		return (replicas*number + 99) / 100
	}
	return replicas * number / 100
}

// claim checks the status of a pool that reports the desired state.
func (j *Judge) claim() {
	ids, status := j.infra.Spec.ProviderIDList, j.infra.Status
	if !slices.IsSorted(ids) || len(slices.Compact(slices.Clone(ids))) != len(ids) {
		j.problem("providerIDList isn't sorted, or has duplicates: %v", ids)
	}
	ready := conditions.Get(j.infra, infrav1.ReadyCondition)
	if ready == nil || ready.Status != "True" || ready.ObservedGeneration != j.infra.Generation {
		return
	}
	j.Claims++
	if len(ids) != int(ptr.Deref(status.Replicas, -1)) || len(ids) != len(status.Instances) {
		j.problem("it is ready with %d provider IDs, %d replicas and %d instances", len(ids), ptr.Deref(status.Replicas, -1), len(status.Instances))
	}
	for _, one := range status.Instances {
		if !ptr.Deref(one.Ready, false) || !slices.Contains(ids, one.ProviderID) {
			j.problem("it is ready with %+v", one)
		}
	}
}

func (j *Judge) isLeaving(infra *infrav1.LibvirtMachine) bool {
	machine := j.machines[infra.Name]
	return !infra.DeletionTimestamp.IsZero() || machine != nil && !machine.DeletionTimestamp.IsZero()
}

// isOutdated compares the fields that the tests change.
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

// alive returns the machines that aren't being deleted.
func (j *Judge) alive() []string {
	var found []string
	for name, infra := range j.infras {
		if !j.isLeaving(infra) {
			found = append(found, name)
		}
	}
	return found
}

// ready returns those of them that are ready.
func (j *Judge) ready() []string {
	return slices.DeleteFunc(j.alive(), func(name string) bool {
		machine := j.machines[name]
		return machine == nil || !conditions.IsTrue(j.infras[name], infrav1.ReadyCondition) || !conditions.IsTrue(machine, clusterv1.MachineAvailableCondition)
	})
}
