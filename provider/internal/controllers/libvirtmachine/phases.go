package libvirtmachine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/claims"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/domainxml"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/fleet"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/images"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/loadbalancer"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/outcome"
)

// phases are the steps in the life of a machine, in order. Each one compares the actual state with the desired state
// and then changes it, so that a manager that was killed after any call continues after a restart. A phase that stops
// has set the reason in its condition.
var phases = []phase{
	{when: (*scope).isLoadBalancer, do: (*scope).readConfiguration},
	{when: (*scope).isUnbound, do: (*scope).checkPrerequisites},
	{when: (*scope).isUnbound, do: (*scope).bind},
	{when: (*scope).lacksDomain, do: (*scope).checkAllowed},
	{when: (*scope).isUnconfirmed, do: (*scope).confirmPlacement},
	{do: (*scope).reachHost},
	{do: (*scope).observeInstance},
	{when: (*scope).isCreating, do: (*scope).confirmCreation},
	{when: (*scope).isCreating, do: (*scope).ensureClaims},
	{when: (*scope).isCreating, do: (*scope).ensureImage},
	{when: (*scope).isCreating, do: (*scope).ensureRootDisk},
	{when: (*scope).isCreating, do: (*scope).ensureExtraDisks},
	{when: (*scope).isCreating, do: (*scope).ensureSeed},
	{when: (*scope).isCreating, do: (*scope).ensureDomain},
	{when: (*scope).isCreating, do: (*scope).startDomain},
	{when: (*scope).isOff, do: (*scope).startAgain},
	{do: (*scope).findAddresses},
	{when: (*scope).mayHaveLateCopies, do: (*scope).removeLateCopies},
	{do: (*scope).finishProvisioning},
	{when: (*scope).isLoadBalancer, do: (*scope).configure},
	{when: (*scope).hasMachine, do: (*scope).setNodeProviderID},
	{when: (*scope).isSteady, do: (*scope).endGrowth},
	{when: (*scope).isUpdating, do: (*scope).updateInPlace},
	{when: (*scope).hasMachine, do: (*scope).removeSeed},
}

// phase is a step in the life of a machine.
type phase struct {
	// when reports whether the phase applies. A nil function means always.
	when func(*scope) bool
	// do runs the phase. The following phases run only if it returns goOn.
	do func(*scope, context.Context) (verdict, error)
}

// verdict reports whether the next phase runs.
type verdict int

const (
	goOn verdict = iota
	stop
)

// scope is the state of one reconcile.
type scope struct {
	*Reconciler
	// infra is the reconciled object. Its status is written at the end.
	infra *infrav1.LibvirtMachine
	// machine owns infra, and cluster is their Cluster. Each may be nil during deletion. A load balancer has no
	// machine.
	machine *clusterv1.Machine
	cluster *clusterv1.Cluster
	// balancer is the configuration of a load balancer.
	balancer loadbalancer.Configuration

	// uuid is the UUID of the domain, from spec.providerID. It is empty while the machine isn't bound.
	uuid string
	// host is the machine's host, with its snapshot and connection.
	host       *infrav1.LibvirtHost
	snapshot   fleet.Snapshot
	connection hypervisor.Hypervisor
	// domain is the existing domain, or nil.
	domain *hypervisor.Domain
	// image and the following fields are the parts of the domain. wish is the request for an image with a URL.
	image        images.Image
	wish         images.Wish
	rootDisk     domainxml.Disk
	extraDisks   map[string]domainxml.Disk
	seed         *hypervisor.VolumeRef
	ignitionPath string
	// claimed has the addresses from pools, by the index of the interface. It is nil until the claims are read.
	// unallocated has the claims without an address.
	claimed     map[int][]claims.Address
	unallocated []*claims.NotGivenError

	// written is true if a write of this reconcile triggers the next one.
	written bool
	// transferring is true while an image is downloaded or copied for the machine.
	transferring bool
	// mayHaveCreated is true if this reconcile may have created an object on the host.
	mayHaveCreated bool
	// after is the delay before the next reconcile, or 0 for none.
	after time.Duration
	errs  []error
}

// run runs the phases.
func (s *scope) run(ctx context.Context) error {
	for _, phase := range phases {
		if phase.when != nil && !phase.when(s) {
			continue
		}
		if verdict, err := phase.do(s, ctx); err != nil || verdict == stop {
			return err
		}
	}
	return nil
}

// requeueWithin requests another reconcile after at most the given time.
func (s *scope) requeueWithin(after time.Duration) {
	if s.after == 0 || after < s.after {
		s.after = after
	}
}

func (s *scope) key() client.ObjectKey { return client.ObjectKeyFromObject(s.infra) }

// noRoom marks the host as full, so that new machines are placed elsewhere, refreshes its storage pools, and wraps
// the error.
func (s *scope) noRoom(err error) error {
	s.Scheduler.SetFull(s.host.Name, true)
	for _, pool := range append(s.pools(), s.host.Spec.StoragePools.Images) {
		s.Hosts.RefreshPool(s.host.Name, pool)
	}
	return fmt.Errorf("host %s has no room: %w", s.host.Name, err)
}

// All names on a host are derived from the UUID in spec.providerID, which is written before anything is created, and
// from the machine's namespace and name. A restarted manager finds the objects that it has created, and
// no objects of other machines.

// domainName returns the name of the domain.
func (s *scope) domainName() string {
	return hypervisor.DomainName(s.uuid, s.infra.Namespace, s.infra.Name)
}

func (s *scope) owner() hypervisor.Owner {
	return hypervisor.Owner{Cluster: s.clusterName(), Namespace: s.infra.Namespace, Name: s.infra.Name}
}

// volumePrefix returns the prefix of the names of the machine's volumes.
func (s *scope) volumePrefix() string {
	return hypervisor.VolumePrefix(s.uuid, s.infra.Namespace, s.infra.Name)
}

func (s *scope) volume(pool, what string) hypervisor.VolumeRef {
	return hypervisor.VolumeRef{Pool: pool, Name: s.volumePrefix() + what}
}

// pool returns the storage pool of a disk: the given one, or the first one of the host.
func (s *scope) pool(wanted string) string {
	if wanted == "" && len(s.host.Spec.StoragePools.Disks) > 0 {
		return s.host.Spec.StoragePools.Disks[0]
	}
	return wanted
}

func (s *scope) rootRef() hypervisor.VolumeRef {
	return s.volume(s.pool(s.infra.Spec.RootDisk.Pool), "root")
}

func (s *scope) seedRef() hypervisor.VolumeRef {
	return s.volume(s.pool(s.infra.Spec.RootDisk.Pool), "seed")
}

// pools returns all storage pools that may have volumes of the machine, sorted.
func (s *scope) pools() []string {
	pools := append([]string{s.pool(s.infra.Spec.RootDisk.Pool)}, s.host.Spec.StoragePools.Disks...)
	for _, disk := range s.infra.Spec.ExtraDisks {
		pools = append(pools, s.pool(disk.Pool))
	}
	if s.domain != nil {
		for _, disk := range s.domain.Disks {
			pools = append(pools, disk.Pool)
		}
	}
	slices.Sort(pools)
	return slices.DeleteFunc(slices.Compact(pools), func(pool string) bool { return pool == "" })
}

func (s *scope) mac(nic int) string {
	return cmp.Or(s.infra.Spec.Interfaces[nic].MACAddress, domainxml.MACAddress(s.uuid, nic))
}

// set sets a condition.
func (s *scope) set(condition string, status metav1.ConditionStatus, reason, message string, values ...any) {
	if len(values) > 0 {
		message = fmt.Sprintf(message, values...)
	}
	conditions.Set(s.infra, metav1.Condition{Type: condition, Status: status, Reason: reason, Message: message})
}

func (s *scope) setTrue(condition, reason string) {
	s.set(condition, metav1.ConditionTrue, reason, "")
}

// waitFor sets a condition that says what the machine waits for, and stops. An event triggers the next reconcile.
func (s *scope) waitFor(condition, reason, message string, values ...any) (verdict, error) {
	s.set(condition, metav1.ConditionFalse, reason, message, values...)
	return stop, nil
}

// failed sets a condition to an error and returns the error for a retry. An unreachable host isn't an error of the
// machine: the machine is reconciled again when the host is reachable.
func (s *scope) failed(condition, reason string, err error) (verdict, error) {
	if errors.Is(err, hypervisor.ErrUnreachable) {
		s.set(condition, metav1.ConditionUnknown, infrav1.HostUnreachableReason, "%s", err.Error())
		s.requeueWithin(unreachableDelay)
		return stop, nil
	}
	if errors.Is(err, hypervisor.ErrNoSpace) && s.host != nil {
		reason, err = infrav1.NoRoomReason, s.noRoom(err)
	}
	s.set(condition, metav1.ConditionFalse, reason, "%s", err.Error())
	return stop, err
}

// unreachableDelay is the delay before the next reconcile while the host is unreachable. A reachable host triggers one
// sooner.
const unreachableDelay = time.Minute

// summarized has the conditions that Ready summarizes. It doesn't include SeedRemoved.
var summarized = conditions.ForConditionTypes{
	infrav1.HostBoundCondition, infrav1.ImageReadyCondition, infrav1.DisksReadyCondition, infrav1.InstanceReadyCondition, infrav1.AddressesReadyCondition,
}

// setReady summarizes the other conditions. During deletion, Ready shows the remaining steps instead. A machine that
// has joined its cluster is Ready even without addresses.
func (s *scope) setReady() {
	infra, of := s.infra, summarized
	if !infra.DeletionTimestamp.IsZero() {
		return
	}
	if s.hasMachine() && s.machine.Status.NodeRef != (clusterv1.MachineNodeReference{}) {
		of = slices.DeleteFunc(slices.Clone(of), func(condition string) bool { return condition == infrav1.AddressesReadyCondition })
	}
	outcome.SetReady(infra, of, conditions.IgnoreTypesIfMissing(of))
}

// waiting has the reasons of normal progress, for which no event is recorded.
var waiting = []string{
	infrav1.WaitingForClusterInfrastructureReason, infrav1.WaitingForHostsReason, infrav1.WaitingForBootstrapDataReason, infrav1.WaitingForAddressesReason,
	infrav1.WaitingForNodeReason, infrav1.ImageTransferringReason, infrav1.DiskCopyingReason, infrav1.DeletingReason,
	infrav1.RestartingReason,
}

// announce records events of the changed conditions after the status was written.
func (r *Reconciler) announce(before, after *infrav1.LibvirtMachine) {
	if !ptr.Deref(before.Status.Initialization.Provisioned, false) && ptr.Deref(after.Status.Initialization.Provisioned, false) {
		r.recorder.Eventf(after, nil, corev1.EventTypeNormal, "Provisioned", "Provision",
			"The machine runs on host %s, as domain %s", after.Spec.HostName, after.Spec.ProviderID[len(infrav1.ProviderIDPrefix):])
	}
	if is := conditions.Get(after, infrav1.ReadyCondition); is != nil && is.Reason == infrav1.DeletingReason && is.Message != "" {
		was := conditions.Get(before, infrav1.ReadyCondition)
		if was == nil || was.Reason != is.Reason || was.Message != is.Message {
			r.recorder.Eventf(after, nil, corev1.EventTypeWarning, is.Reason, "Delete", "%s", is.Message)
		}
	}
	for _, condition := range append(slices.Clone(summarized), infrav1.SeedRemovedCondition, infrav1.UpdatedInPlaceCondition, infrav1.NodeProviderIDSetCondition) {
		was, is := conditions.Get(before, condition), conditions.Get(after, condition)
		if is == nil || is.Status == metav1.ConditionTrue || slices.Contains(waiting, is.Reason) ||
			was != nil && was.Status == is.Status && was.Reason == is.Reason {
			continue
		}
		r.recorder.Eventf(after, nil, corev1.EventTypeWarning, is.Reason, "Reconcile", "%s", is.Message)
	}
}

// finishProvisioning marks the machine as provisioned. This is never reverted.
func (s *scope) finishProvisioning(context.Context) (verdict, error) {
	if !s.isProvisioned() {
		s.Scheduler.SetFull(s.host.Name, false)
	}
	s.infra.Status.Initialization.Provisioned = ptr.To(true)
	return goOn, nil
}
