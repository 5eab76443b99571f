package libvirtmachine

import (
	"cmp"
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/outcome"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/placement"
)

// reachHost reads the host that the machine is bound to, and gets the connection to it.
func (s *scope) reachHost(ctx context.Context) (verdict, error) {
	if err := s.readHost(ctx); err != nil {
		if apierrors.IsNotFound(err) {
			s.set(infrav1.InstanceReadyCondition, metav1.ConditionUnknown, infrav1.HostNotFoundReason, "The LibvirtHost doesn't exist")
			s.infra.Status.InstanceState = infrav1.InstanceUnknown
			return s.waitFor(infrav1.HostBoundCondition, infrav1.HostNotFoundReason, "LibvirtHost %s doesn't exist: create it again", s.infra.Spec.HostName)
		}
		return s.failed(infrav1.HostBoundCondition, infrav1.InternalErrorReason, err)
	}
	s.setTrue(infrav1.HostBoundCondition, infrav1.HostBoundReason)
	s.infra.Status.FailureDomain = cmp.Or(s.host.Spec.FailureDomain, s.host.Name)
	if err := s.connect(); err != nil {
		s.infra.Status.InstanceState = infrav1.InstanceUnknown
		return s.failed(infrav1.InstanceReadyCondition, infrav1.InternalErrorReason, err)
	}
	return goOn, nil
}

// connect gets the connection to the host and its snapshot.
func (s *scope) connect() (err error) {
	if s.connection, err = s.Hosts.Hypervisor(s.host.Name); err == nil {
		s.snapshot, _ = s.Hosts.Snapshot(s.host.Name)
	}
	return err
}

func (s *scope) readHost(ctx context.Context) error {
	host := &infrav1.LibvirtHost{}
	if err := s.Client.Get(ctx, client.ObjectKey{Name: s.infra.Spec.HostName}, host); err != nil {
		return fmt.Errorf("reading LibvirtHost %s: %w", s.infra.Spec.HostName, err)
	}
	s.host = host
	return nil
}

// isProvisioned reports whether the machine was provisioned. After `clusterctl move`, which drops the status, the
// provider ID in the Machine's spec shows it: Cluster API sets it only for provisioned machines.
func (s *scope) isProvisioned() bool {
	return ptr.Deref(s.infra.Status.Initialization.Provisioned, false) ||
		s.machine != nil && s.machine.Spec.ProviderID != "" && s.machine.Spec.ProviderID == s.infra.Spec.ProviderID
}

// isCreating reports whether the machine still has to be created. A started domain is complete.
func (s *scope) isCreating() bool {
	return !s.isProvisioned() && (s.domain == nil || !s.domain.State.Started())
}

// observeInstance sets the state of the instance from the domain. The missing domain of a provisioned machine isn't
// created again: MachineHealthChecks replace machines.
func (s *scope) observeInstance(ctx context.Context) (verdict, error) {
	domain, exists := s.snapshot.Domains[s.uuid]
	if !exists && s.isProvisioned() {
		// The snapshot may be old, and a false report would replace a running machine.
		var err error
		if domain, err = s.connection.Domain(ctx, s.uuid); hypervisor.IgnoreNotFound(err) != nil {
			return s.failed(infrav1.InstanceReadyCondition, infrav1.InternalErrorReason, err)
		}
		exists = err == nil
	}
	if exists && s.isForeign(domain) {
		return s.uuidTaken(domain)
	}
	if given := placement.GivenTo(s.infra, s.snapshot); given.Is && given.Whole {
		s.Scheduler.Give(s.infra.UID, given.Needs)
	}
	switch {
	case exists:
		s.domain = &domain
	case s.isProvisioned():
		s.infra.Status.Initialization.Provisioned = ptr.To(true)
		s.infra.Status.InstanceState = infrav1.InstanceNotFound
		next := "delete the Machine, or let a MachineHealthCheck do it"
		if s.isLoadBalancer() {
			next = "its LibvirtCluster replaces it"
		}
		s.set(infrav1.InstanceReadyCondition, metav1.ConditionFalse, infrav1.InstanceNotFoundReason,
			"Host %s no longer has the domain %s, which isn't created again: %s", s.host.Name, s.uuid, next)
		if s.isLoadBalancer() {
			return stop, nil // its seed has no secrets and is deleted with the machine
		}
		_, err := s.deleteSeed(ctx)
		return stop, err
	}
	if !s.isCreating() { // a move may have dropped these conditions with the status
		s.setTrue(infrav1.ImageReadyCondition, infrav1.ImageReadyReason)
		s.setTrue(infrav1.DisksReadyCondition, infrav1.DisksReadyReason)
	}
	s.setInstance()
	return goOn, nil
}

// isForeign reports whether a domain belongs to another owner.
func (s *scope) isForeign(domain hypervisor.Domain) bool {
	return !domain.IsOf(s.uuid, s.infra.Namespace, s.infra.Name)
}

// uuidTaken sets the condition when the domain with the machine's UUID belongs to another owner.
func (s *scope) uuidTaken(domain hypervisor.Domain) (verdict, error) {
	s.requeueWithin(noFitDelay)
	whose := "an unknown owner"
	if domain.Owner != nil {
		whose = s.nameOf(domain.Owner.Namespace, domain.Owner.Name)
	}
	return s.waitFor(infrav1.InstanceReadyCondition, infrav1.DomainNameTakenReason,
		"The domain on host %s with the UUID of spec.providerID belongs to %s and isn't changed", s.host.Name, whose)
}

// setInstance sets the condition and the state of the instance from the domain.
func (s *scope) setInstance() {
	state := infrav1.InstanceNotFound
	if s.domain != nil {
		state = infrav1.InstanceState(s.domain.State)
	}
	if s.domain != nil && s.domain.State == hypervisor.StateStarting {
		state = infrav1.InstancePaused // as libvirt shows it
	}
	s.infra.Status.InstanceState = state
	switch {
	case state == infrav1.InstanceRunning || state == infrav1.InstanceBlocked:
		s.setTrue(infrav1.InstanceReadyCondition, infrav1.InstanceRunningReason)
	case s.isCreating():
		// The following phases report the progress. An earlier failure may be outdated.
		if s.domain == nil && conditions.IsTrue(s.infra, infrav1.InstanceReadyCondition) {
			s.set(infrav1.InstanceReadyCondition, metav1.ConditionFalse, infrav1.InstanceNotRunningReason, "The domain is missing and will be created again")
		}
	default:
		s.set(infrav1.InstanceReadyCondition, metav1.ConditionFalse, infrav1.InstanceNotRunningReason, "The domain is in the state %s", state)
	}
}

// confirmCreation reads from the API server whether the machine must still be created: the cache may be old, and a
// machine that was provisioned or is being deleted must not be created again.
func (s *scope) confirmCreation(ctx context.Context) (verdict, error) {
	verdict, err := s.checkUnchanged(ctx, func(now *infrav1.LibvirtMachine) bool {
		return !ptr.Deref(now.Status.Initialization.Provisioned, false) &&
			now.Spec.ProviderID == s.infra.Spec.ProviderID && now.Spec.HostName == s.infra.Spec.HostName
	})
	if err != nil || verdict == stop {
		return verdict, err
	}
	if !s.Scheduler.Covers(s.infra.UID, placement.Needs(&s.infra.Spec)) {
		s.requeueWithin(outcome.ConflictDelay) // its domain has stopped since isUnconfirmed
		return stop, nil
	}
	s.mayHaveCreated = true
	return goOn, nil
}

// runningFor returns how long the domain has been running, or a long time if that isn't known.
func (s *scope) runningFor() time.Duration {
	running := conditions.Get(s.infra, infrav1.InstanceReadyCondition)
	if running == nil || running.Status != metav1.ConditionTrue {
		return 2 * addressInterval
	}
	return time.Since(running.LastTransitionTime.Time)
}

// checkUnchanged reads from the API server whether the machine exists, isn't being deleted, and is as expected.
// Otherwise it waits for the cache.
func (s *scope) checkUnchanged(ctx context.Context, isExpected func(now *infrav1.LibvirtMachine) bool) (verdict, error) {
	now := &infrav1.LibvirtMachine{}
	if err := s.APIReader.Get(ctx, s.key(), now); client.IgnoreNotFound(err) != nil {
		return stop, fmt.Errorf("reading the machine from the API server: %w", err)
	}
	if now.UID == s.infra.UID && now.DeletionTimestamp.IsZero() && isExpected(now) {
		return goOn, nil
	}
	ctrl.LoggerFrom(ctx).Info("The machine has changed since it was read: waiting for the cache")
	s.written = true
	s.requeueWithin(outcome.ConflictDelay)
	return stop, nil
}

// refresh updates the domain in the host's snapshot after a change.
func (s *scope) refresh(ctx context.Context) {
	if err := s.Hosts.Refresh(ctx, s.host.Name, s.uuid); err != nil {
		ctrl.LoggerFrom(ctx).Info("Reading the changed domain failed: its snapshot may be old", "err", err)
	}
}
