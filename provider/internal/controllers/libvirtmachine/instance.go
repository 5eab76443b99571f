package libvirtmachine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
	connection, err := s.Hosts.Hypervisor(s.host.Name)
	if err != nil {
		s.infra.Status.InstanceState = infrav1.InstanceUnknown
		return s.failed(infrav1.InstanceReadyCondition, infrav1.InternalErrorReason, err)
	}
	s.connection = connection
	s.snapshot, _ = s.Hosts.Snapshot(s.host.Name)
	return goOn, nil
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

// lookAtInstance sets the state of the instance from the domain. The missing domain of a provisioned machine isn't
// created again: MachineHealthChecks replace machines.
func (s *scope) lookAtInstance(ctx context.Context) (verdict, error) {
	domain, there := s.snapshot.Domains[s.uuid]
	if !there && s.isProvisioned() {
		// The snapshot may be old, and a false report would have severe consequences.
		var err error
		if domain, err = s.connection.Domain(ctx, s.uuid); err != nil && !errors.Is(err, hypervisor.ErrNotFound) {
			return s.failed(infrav1.InstanceReadyCondition, infrav1.InternalErrorReason, err)
		}
		there = err == nil
	}
	if there && s.isTheirs(domain) {
		return s.uuidTaken(domain)
	}
	if given := placement.GivenTo(s.infra, s.snapshot); given.Is && given.Whole {
		s.Scheduler.Give(s.infra.UID, given.Needs)
	}
	switch {
	case there:
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
			return stop, nil // its seed has no secrets, and goes with it
		}
		return s.removeSeedOfLost(ctx)
	}
	if !s.isCreating() {
		s.made()
	}
	s.setInstance()
	return goOn, nil
}

// isTheirs reports whether a domain belongs to another owner.
func (s *scope) isTheirs(domain hypervisor.Domain) bool {
	return !domain.IsOf(s.uuid, s.infra.Namespace, s.infra.Name)
}

// uuidTaken sets the condition when the domain with the machine's UUID belongs to another owner.
func (s *scope) uuidTaken(domain hypervisor.Domain) (verdict, error) {
	s.lookAgain(noFitDelay)
	whose := "an unknown owner"
	if domain.Owner != nil {
		whose = s.nameOf(domain.Owner.Namespace, domain.Owner.Name)
	}
	return s.waitFor(infrav1.InstanceReadyCondition, infrav1.DomainNameTakenReason,
		"The domain on host %s with the UUID of spec.providerID belongs to %s and isn't changed", s.host.Name, whose)
}

// made sets the conditions of the phases before the domain to True, also after a move that dropped the status.
func (s *scope) made() {
	s.setTrue(infrav1.ImageReadyCondition, infrav1.ImageReadyReason)
	s.setTrue(infrav1.DisksReadyCondition, infrav1.DisksReadyReason)
}

// setInstance sets the condition and the state of the instance from the domain.
func (s *scope) setInstance() {
	state := infrav1.InstanceNotFound
	if s.domain != nil {
		state = infrav1.InstanceState(s.domain.State)
	}
	if s.domain != nil && s.domain.State == hypervisor.StateStarting {
		state = infrav1.InstancePaused // as libvirt has it
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

// checkForCertain asks the API server whether the machine must still be created: the cache may be old, and a machine
// that was provisioned or is being deleted must not be created again.
func (s *scope) checkForCertain(ctx context.Context) (verdict, error) {
	verdict, err := s.checkUnchanged(ctx, func(now *infrav1.LibvirtMachine) bool {
		return !ptr.Deref(now.Status.Initialization.Provisioned, false) &&
			now.Spec.ProviderID == s.infra.Spec.ProviderID && now.Spec.HostName == s.infra.Spec.HostName
	})
	if err != nil || verdict == stop {
		return verdict, err
	}
	if !s.Scheduler.Covers(s.infra.UID, placement.Needs(&s.infra.Spec)) {
		s.lookAgain(outcome.ConflictDelay) // its domain has stopped since the machine was taken for one that is made
		return stop, nil
	}
	s.making = true
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

// checkUnchanged asks the API server whether the machine exists, isn't being deleted, and is as expected. Otherwise
// it waits for the cache.
func (s *scope) checkUnchanged(ctx context.Context, isExpected func(now *infrav1.LibvirtMachine) bool) (verdict, error) {
	now := &infrav1.LibvirtMachine{}
	if err := s.APIReader.Get(ctx, s.key(), now); client.IgnoreNotFound(err) != nil {
		return stop, fmt.Errorf("reading the machine once more: %w", err)
	}
	if now.UID == s.infra.UID && now.DeletionTimestamp.IsZero() && isExpected(now) {
		return goOn, nil
	}
	ctrl.LoggerFrom(ctx).Info("The machine has changed since it was read: waiting for the cache")
	s.written = true
	s.lookAgain(outcome.ConflictDelay)
	return stop, nil
}

// refresh updates the domain in the host's snapshot after a change.
func (s *scope) refresh(ctx context.Context) {
	if err := s.Hosts.Refresh(ctx, s.host.Name, s.uuid); err != nil {
		ctrl.LoggerFrom(ctx).Info("What is known of the domain may be old for a while", "err", err)
	}
}

const (
	// firstBackOff is the delay between the last start and the next one after two stops. It doubles with each stop,
	// up to maxBackOff, like the kubelet's delay for containers.
	firstBackOff, maxBackOff = 10 * time.Second, 5 * time.Minute
	// steadyAfter is how long a domain has to run until earlier stops no longer count.
	steadyAfter = 10 * time.Minute
)

// isOff reports whether the domain of a provisioned machine doesn't run. An update in place starts the domain itself.
func (s *scope) isOff() bool {
	_, updating := isChanging(s.infra)
	return s.isProvisioned() && !updating && s.domain != nil && !s.domain.State.Active()
}

// startDomain starts the domain, or waits if it has stopped repeatedly soon after a start.
func (s *scope) startDomain(ctx context.Context) (verdict, error) {
	if at, stops := s.nextStart(time.Now()); time.Now().Before(at) {
		return s.backOff(at, stops)
	}
	if err := s.connection.StartDomain(ctx, s.uuid); err != nil {
		return s.failed(infrav1.InstanceReadyCondition, infrav1.InstanceCreationFailedReason, err)
	}
	s.noteStart(time.Now())
	ctrl.LoggerFrom(ctx).Info("Started the domain", "LibvirtHost", s.host.Name, "domain", s.domainName())
	s.refresh(ctx)
	started := hypervisor.Domain{UUID: s.uuid, Name: s.domainName(), State: hypervisor.StateRunning, ConsoleLog: s.consoleLog()}
	if !s.isCreating() && s.domain != nil {
		started.ConsoleLog = s.domain.ConsoleLog
	}
	s.domain = &started
	s.setInstance()
	return goOn, nil
}

// startAgain starts a domain that was shut down or has crashed, if spec.runPolicy is Always. It always starts load
// balancers.
func (s *scope) startAgain(ctx context.Context) (verdict, error) {
	if s.hasMachine() && !s.machine.DeletionTimestamp.IsZero() {
		return goOn, nil
	}
	if s.infra.Spec.RunPolicy == infrav1.RunManual && !s.isLoadBalancer() {
		s.set(infrav1.InstanceReadyCondition, metav1.ConditionFalse, infrav1.InstanceNotRunningReason,
			"The domain is in the state %s, and spec.runPolicy is Manual: start it on host %s, or set runPolicy to Always", s.domain.State, s.host.Name)
		return goOn, nil
	}
	was := s.domain.State
	ctrl.LoggerFrom(ctx).Info("The machine doesn't run: starting it", "LibvirtHost", s.host.Name, "state", was)
	if _, err := s.startDomain(ctx); err != nil {
		s.errs = append(s.errs, err) // what comes after it doesn't need it: the seed has to go
		return goOn, nil
	}
	if s.domain.State.Active() {
		s.recorder.Eventf(s.infra, nil, corev1.EventTypeNormal, "StartedAgain", "Start", "The domain was in the state %s and was started again", was)
	}
	return goOn, nil
}

// backOff sets the condition of a domain that stops repeatedly.
func (s *scope) backOff(at time.Time, stops int) (verdict, error) {
	s.lookAgain(max(time.Until(at), time.Second))
	return s.waitFor(infrav1.InstanceReadyCondition, infrav1.CrashLoopBackOffReason,
		"The domain has stopped %d times soon after it was started: it is started again at %s. %s", stops, at.UTC().Format(time.RFC3339), s.seeConsole())
}

// lastStart is the last start of a domain. It is in memory only: a manager that was restarted starts a domain at once.
type lastStart struct {
	machine types.UID
	at      time.Time
	// stops is how often the domain stopped before, each time soon after its start.
	stops int
}

// noteStart remembers that the domain was started.
func (s *scope) noteStart(now time.Time) {
	_, stops := s.nextStart(now)
	s.starts.Store(s.key(), lastStart{machine: s.infra.UID, at: now, stops: stops})
}

// nextStart returns when a domain that doesn't run may be started, and how often it has stopped soon after a start.
func (s *scope) nextStart(now time.Time) (time.Time, int) {
	value, _ := s.starts.Load(s.key())
	last, known := value.(lastStart)
	if !known || last.machine != s.infra.UID || now.Sub(last.at) >= steadyAfter {
		return now, 0
	}
	if last.stops == 0 {
		return now, 1
	}
	return last.at.Add(min(firstBackOff<<min(last.stops-1, 10), maxBackOff)), last.stops + 1
}
