package libvirthost

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/fleet"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/outcome"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/placement"
)

const maxFeatures = 64

// summarized has the conditions that Ready summarizes.
var summarized = conditions.ForConditionTypes{infrav1.ReachableCondition, infrav1.PoolsReadyCondition, infrav1.NetworksReadyCondition}

// architectures has the values that the status allows.
var architectures = []infrav1.Architecture{
	infrav1.ArchitectureAmd64, infrav1.ArchitectureArm64, infrav1.ArchitectureS390x, infrav1.ArchitecturePpc64le,
}

// connecting reports whether the first connection is being opened.
func connecting(snapshot fleet.Snapshot) bool {
	return !snapshot.Reachable && snapshot.Err == nil
}

// seen reports whether the status is about the current spec.
func seen(host *infrav1.LibvirtHost) bool {
	condition := conditions.Get(host, infrav1.ReachableCondition)
	return condition != nil && condition.ObservedGeneration == host.Generation
}

func set(host *infrav1.LibvirtHost, conditionType string, status metav1.ConditionStatus, reason, message string) {
	conditions.Set(host, metav1.Condition{Type: conditionType, Status: status, Reason: reason, Message: message})
}

// setUnreachable sets the conditions of a host without a connection.
func setUnreachable(host *infrav1.LibvirtHost, reason, message string) {
	set(host, infrav1.ReachableCondition, metav1.ConditionFalse, reason, message)
	setUnseen(host)
}

func setUnseen(host *infrav1.LibvirtHost) {
	for _, condition := range []string{infrav1.PoolsReadyCondition, infrav1.NetworksReadyCondition} {
		set(host, condition, metav1.ConditionUnknown, infrav1.HostUnreachableReason, "There is no connection to the host")
	}
}

// setSeen sets the conditions and resources from a snapshot.
func setSeen(host *infrav1.LibvirtHost, snapshot fleet.Snapshot) {
	switch {
	case connecting(snapshot):
		set(host, infrav1.ReachableCondition, metav1.ConditionUnknown, infrav1.ConnectingReason, "")
		setUnseen(host)
	case !snapshot.Reachable:
		reason, instructions := explain(snapshot.Err)
		setUnreachable(host, reason, outcome.OneLine(snapshot.Err)+instructions)
	default:
		set(host, infrav1.ReachableCondition, metav1.ConditionTrue, infrav1.ReachableReason, "")
		setLacking(host, infrav1.PoolsReadyCondition, infrav1.PoolsReadyReason, infrav1.PoolsNotReadyReason, poolProblems(host, snapshot))
		setNetworks(host, snapshot)
	}
	if snapshot.Taken.IsZero() {
		return
	}
	facts := snapshot.Facts
	host.Status.LibvirtVersion = facts.LibvirtVersion
	host.Status.Arch = ""
	if arch := infrav1.Architecture(facts.Architecture); slices.Contains(architectures, arch) {
		host.Status.Arch = arch
	}
	host.Status.Features = slices.Clone(facts.Features[:min(len(facts.Features), maxFeatures)])
	capacity := placement.Capacity(snapshot)
	host.Status.Capacity = counted(int64(facts.CPUs), facts.MemoryBytes, storage(host, capacity))
}

func setLacking(host *infrav1.LibvirtHost, condition, good, bad string, problems []string) {
	if len(problems) == 0 {
		set(host, condition, metav1.ConditionTrue, good, "")
		return
	}
	slices.Sort(problems)
	set(host, condition, metav1.ConditionFalse, bad, strings.Join(problems, "; "))
}

// poolTypes are the types of pools that support overlays in qcow2 (https://libvirt.org/storage.html).
var poolTypes = []string{"dir", "fs", "netfs"}

func poolProblems(host *infrav1.LibvirtHost, snapshot fleet.Snapshot) []string {
	var problems []string
	if pool := snapshot.PoolAt(host.Spec.ConsoleLogFolder); pool != "" {
		problems = append(problems, fmt.Sprintf("Storage pool %s is in spec.consoleLogFolder, where console logs of guests could make it unusable: choose another folder", pool))
	}
	for name, pool := range snapshot.Pools {
		problem := problem(pool.Err, pool.Active)
		if problem == "" && pool.Type != "" && !slices.Contains(poolTypes, pool.Type) {
			problem = fmt.Sprintf("is of type %s: use a pool of type %s", pool.Type, strings.Join(poolTypes, ", "))
		}
		if problem != "" {
			problems = append(problems, fmt.Sprintf("Storage pool %s %s", name, problem))
		}
	}
	return problems
}

func problem(err error, active bool) string {
	switch {
	case errors.Is(err, hypervisor.ErrNotFound):
		return "doesn't exist"
	case err != nil:
		return "can't be read: " + err.Error()
	case !active:
		return "isn't active"
	}
	return ""
}

// setCounts sets the allocated resources and the number of bound machines.
func setCounts(host *infrav1.LibvirtHost, snapshot fleet.Snapshot, machines int, allocated placement.Resources) {
	host.Status.Machines = ptr.To(int32(machines)) //nolint:gosec // a host has no 2 billion machines
	var memory int64
	for resource, amount := range allocated {
		if resource.Kind == placement.Memory || resource.Kind == placement.Hugepages {
			memory += amount
		}
	}
	before := host.Status.Allocated.Storage
	cpus := allocated[placement.Resource{Kind: placement.CPU}] + allocated[placement.Resource{Kind: placement.DedicatedCPU}]
	host.Status.Allocated = counted(cpus, memory, storage(host, allocated))
	setExclusive(host, snapshot, allocated)
	if isNegligible(before, host.Status.Allocated.Storage, host.Status.Capacity.Storage) {
		host.Status.Allocated.Storage = before
	}
}

// isNegligible reports whether two amounts differ by less than a hundredth of the capacity. Other files on the pool
// cause such changes, which aren't worth a write.
func isNegligible(before, after, capacity *resource.Quantity) bool {
	if before == nil || after == nil || capacity == nil {
		return false
	}
	difference := before.Value() - after.Value()
	return max(difference, -difference) < capacity.Value()/100
}

// storage returns the storage in the pools for disks.
func storage(host *infrav1.LibvirtHost, amounts placement.Resources) int64 {
	var sum int64
	for _, pool := range host.Spec.StoragePools.Disks {
		sum += amounts[placement.Resource{Kind: placement.Disk, Name: pool}]
	}
	return sum
}

func counted(cpus, memory, storage int64) infrav1.HostResources {
	return infrav1.HostResources{CPUs: ptr.To(int32(cpus)), //nolint:gosec // no host has 2 billion CPUs
		Memory: resource.NewQuantity(memory, resource.BinarySI), Storage: resource.NewQuantity(storage, resource.BinarySI)}
}

// setReady summarizes the other conditions. Deletion and maintenance of the host take precedence.
func setReady(host *infrav1.LibvirtHost, machines []infrav1.LibvirtMachine) {
	if !host.DeletionTimestamp.IsZero() {
		names := outcome.NamesOf(machines, func(m infrav1.LibvirtMachine) string { return m.Namespace + "/" + m.Name })
		set(host, infrav1.ReadyCondition, metav1.ConditionFalse, infrav1.DeletingReason,
			fmt.Sprintf("Waiting for %d LibvirtMachines that are bound to the host to be deleted: %s", len(machines), names))
		return
	}
	outcome.SetReady(host, summarized)
	if maintenance := host.Spec.Maintenance; maintenance != nil {
		message := fmt.Sprintf("In maintenance (%s)", maintenance.Mode)
		if maintenance.Reason != "" {
			message += ": " + maintenance.Reason
		}
		if rest := conditions.GetMessage(host, infrav1.ReadyCondition); rest != "" {
			message += "\n" + rest
		}
		set(host, infrav1.ReadyCondition, metav1.ConditionFalse, infrav1.InMaintenanceReason, message)
	}
}

// announce records events of the changed conditions after the status was written.
func (r *Reconciler) announce(before, after *infrav1.LibvirtHost) {
	for _, condition := range append([]string{infrav1.ReadyCondition}, summarized...) {
		was, is := conditions.Get(before, condition), conditions.Get(after, condition)
		if is == nil || was != nil && was.Status == is.Status && was.Reason == is.Reason {
			continue
		}
		switch {
		case condition == infrav1.ReadyCondition && is.Reason == infrav1.DeletingReason && is.Message != "":
			r.recorder.Eventf(after, nil, corev1.EventTypeNormal, is.Reason, "Delete", "%s", is.Message)
		case condition != infrav1.ReadyCondition && is.Status == metav1.ConditionFalse, is.Reason == infrav1.EarlierCredentialsReason:
			r.recorder.Eventf(after, nil, corev1.EventTypeWarning, is.Reason, "Connect", "%s", is.Message)
		case condition == infrav1.ReachableCondition && is.Status == metav1.ConditionTrue:
			r.recorder.Eventf(after, nil, corev1.EventTypeNormal, is.Reason, "Connect", "Connected to libvirt %s", after.Status.LibvirtVersion)
		}
	}
}

const countInterval = 30 * time.Second

// writeDelay returns how long the write of a changed status can wait, or 0 if it is unchanged or urgent.
func (r *Reconciler) writeDelay(before, after *infrav1.LibvirtHost) time.Duration {
	last, written := r.written.Load(after.Name)
	if !written || isUrgent(before, after) || equality.Semantic.DeepEqual(before.Status, after.Status) {
		return 0
	}
	return max(time.Until(last.(time.Time).Add(cmp.Or(r.CountInterval, countInterval))), 0)
}

// isUrgent reports whether more than numbers or messages has changed in the status.
func isUrgent(before, after *infrav1.LibvirtHost) bool {
	return !slices.EqualFunc(before.Status.Conditions, after.Status.Conditions, func(a, b metav1.Condition) bool {
		return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason && a.ObservedGeneration == b.ObservedGeneration
	}) ||
		!equality.Semantic.DeepEqual(before.Status.Capacity, after.Status.Capacity) ||
		before.Status.Arch != after.Status.Arch || before.Status.LibvirtVersion != after.Status.LibvirtVersion ||
		!slices.Equal(before.Status.Features, after.Status.Features)
}
