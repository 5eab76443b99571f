package libvirtmachine

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/access"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/domainxml"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/exclusive"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/outcome"
)

// ensureDomain defines the domain. Defining the same domain again changes nothing.
func (s *scope) ensureDomain(ctx context.Context) (verdict, error) {
	if requests := exclusive.Requests(&s.infra.Spec, &s.host.Spec, s.snapshot.Facts, s.snapshot.Devices); len(requests) > 0 {
		return s.ensureExclusive(ctx, requests)
	}
	return s.define(ctx, nil)
}

// define defines the domain with the exclusive CPUs and devices that were chosen for it.
func (s *scope) define(ctx context.Context, chosen exclusive.Chosen) (verdict, error) {
	namespace := &corev1.Namespace{}
	if err := s.Client.Get(ctx, client.ObjectKey{Name: s.infra.Namespace}, namespace); err != nil {
		return s.failed(infrav1.InstanceReadyCondition, infrav1.InternalErrorReason, fmt.Errorf("reading the namespace: %w", err))
	}
	definition, err := s.definition(chosen, access.Networks(s.host, namespace))
	if err != nil {
		// A retry doesn't help: the spec of the machine or the host must change.
		return s.waitFor(infrav1.InstanceReadyCondition, infrav1.InstanceCreationFailedReason, "spec: %s", err.Error())
	}
	err = s.connection.DefineDomain(ctx, definition)
	if errors.Is(err, hypervisor.ErrAlreadyExists) {
		return s.nameTaken()
	}
	if err != nil {
		return s.failed(infrav1.InstanceReadyCondition, infrav1.InstanceCreationFailedReason, err)
	}
	if err := s.connection.SetAutostart(ctx, s.uuid, ptr.Deref(s.infra.Spec.Autostart, true)); err != nil {
		return s.failed(infrav1.InstanceReadyCondition, infrav1.InstanceCreationFailedReason, err)
	}
	return goOn, nil
}

func (s *scope) definition(chosen exclusive.Chosen, networks []infrav1.HostNetwork) (hypervisor.Definition, error) {
	cpus := exclusive.CPUsOf(&s.host.Spec, s.snapshot.Facts)
	if len(cpus.Dedicated) > 0 && cpus.Shared == "" && !exclusive.Dedicated(&s.infra.Spec) {
		return hypervisor.Definition{}, fmt.Errorf("dedicatedCPUs of LibvirtHost %s has all CPUs of the host: machines without cpu.dedicated need at least one", s.host.Name)
	}
	failureDomain, host := s.topology()
	return domainxml.Machine{
		UUID: s.uuid, Name: s.domainName(), Owner: s.owner(), Spec: &s.infra.Spec,
		Emulated: !slices.Contains(s.snapshot.Facts.Features, infrav1.HostFeatureKVM),
		RootDisk: s.rootDisk, ExtraDisks: s.extraDisks, Seed: s.seed, IgnitionPath: s.ignitionPath,
		AvailabilityZone: failureDomain, Host: host, ConsoleLog: s.consoleLog(),
		Networks: networks, Addresses: s.knownAddresses(), HostDevices: chosen.Devices(), DedicatedCPUs: chosen.CPUs(), SharedCPUs: cpus.Shared,
	}.Definition()
}

// knownAddresses returns the addresses from pools, by the index of the interface.
func (s *scope) knownAddresses() map[int][]netip.Addr {
	known := map[int][]netip.Addr{}
	for i, given := range s.claimed {
		for _, address := range given {
			known[i] = append(known[i], address.Addr())
		}
	}
	return known
}

// nameTaken sets the condition when another domain has the name of the machine's domain.
func (s *scope) nameTaken() (verdict, error) {
	s.requeueWithin(noFitDelay)
	return s.waitFor(infrav1.InstanceReadyCondition, infrav1.DomainNameTakenReason,
		"Another domain on host %s has the name %s or the UUID of spec.providerID, and isn't changed: rename or undefine it, or delete the Machine",
		s.host.Name, s.domainName())
}

// exclusiveTries is the number of attempts in one reconcile, if other managers choose at the same time.
const exclusiveTries = 3

// ensureExclusive defines the domain of a machine with exclusive CPUs or devices, in the steps that package exclusive
// describes. It continues only if no other domain uses any of them.
//
// Within a manager, one machine at a time chooses on a host, so that concurrent machines choose different CPUs and
// devices. The others are requeued.
func (s *scope) ensureExclusive(ctx context.Context, requests []exclusive.Request) (verdict, error) {
	end, begun := s.Scheduler.Choosing(s.host.Name)
	if !begun {
		s.requeueWithin(outcome.ConflictDelay)
		return stop, nil
	}
	defer end()
	domains, err := s.connection.ListDomains(ctx)
	if err != nil {
		return s.failed(infrav1.InstanceReadyCondition, infrav1.InstanceCreationFailedReason, err)
	}
	for range exclusiveTries {
		if s.isActive(domains) {
			return goOn, nil // not in the snapshot yet; its CPUs and devices were checked before it was started
		}
		chosen, err := exclusive.Choose(s.uuid, requests, domains)
		var notFree *exclusive.NotFreeError
		if errors.As(err, &notFree) {
			return s.notFree(ctx, notFree, domains)
		}
		if err != nil {
			return s.failed(infrav1.InstanceReadyCondition, infrav1.InternalErrorReason, err)
		}
		if verdict, err := s.define(ctx, chosen); err != nil || verdict == stop {
			return verdict, err
		}
		if domains, err = s.connection.ListDomains(ctx); err != nil {
			return s.failed(infrav1.InstanceReadyCondition, infrav1.InstanceCreationFailedReason, err)
		}
		rivals := exclusive.Rivals(s.uuid, domains)
		if len(rivals) == 0 {
			ctrl.LoggerFrom(ctx).Info("Chose exclusive CPUs and devices", "LibvirtHost", s.host.Name, "chosen", chosen)
			return goOn, nil
		}
		if !exclusive.Yields(s.uuid, rivals) {
			break // the rivals yield; a rival that no manager creates any more keeps its choice: see Choose
		}
	}
	s.requeueWithin(outcome.ConflictDelay)
	return s.waitFor(infrav1.InstanceReadyCondition, infrav1.NotFreeReason,
		"Another machine got the same CPUs or devices of host %s at the same time: one of the two machines chooses again", s.host.Name)
}

// isActive reports whether the machine's own domain is active.
func (s *scope) isActive(domains []hypervisor.Domain) bool {
	for _, domain := range domains {
		if domain.UUID == s.uuid {
			return domain.State.Active()
		}
	}
	return false
}

// notFree sets the condition when the host has too few free CPUs or devices. It undefines a domain that conflicts
// with others: the domain was never started and can be defined again.
func (s *scope) notFree(ctx context.Context, why *exclusive.NotFreeError, domains []hypervisor.Domain) (verdict, error) {
	s.requeueWithin(noFitDelay)
	if rivals := exclusive.Rivals(s.uuid, domains); len(rivals) > 0 {
		s.requeueWithin(outcome.ConflictDelay)
		if exclusive.Yields(s.uuid, rivals) {
			if err := s.connection.UndefineDomain(ctx, s.uuid); hypervisor.IgnoreNotFound(err) != nil {
				return s.failed(infrav1.InstanceReadyCondition, infrav1.InstanceCreationFailedReason, err)
			}
		}
	}
	return s.waitFor(infrav1.InstanceReadyCondition, infrav1.NotFreeReason, "spec.%s on host %s", why.Error(), s.host.Name)
}

// consoleLog returns the path of the console log on the host, or an empty string.
//
// The file must not be in a storage pool. When libvirt refreshes a pool, it reads the headers of all files in the
// folder, and opens the backing files that they name. A guest that writes a header with the path of a named pipe to its
// console would block all storage of the host.
func (s *scope) consoleLog() string {
	folder := s.host.Spec.ConsoleLogFolder
	if folder == "" || s.snapshot.PoolAt(folder) != "" {
		return ""
	}
	return path.Join(folder, hypervisor.ConsoleLogName(s.domainName()))
}

// seeConsole returns how to read the guest's console, for messages about a machine that has started and doesn't report
// progress.
func (s *scope) seeConsole() string {
	if s.domain != nil && s.domain.ConsoleLog != "" {
		return fmt.Sprintf("See what the guest has written to its console, on host %s: tail -n 100 %s", s.host.Name, s.domain.ConsoleLog)
	}
	return fmt.Sprintf("See the console of the guest, on host %s: virsh console %s", s.host.Name, s.domainName())
}

// consoleLogPatience is how long the deletion of a machine waits for the host to delete the console log.
const consoleLogPatience = 5 * time.Minute

// removeConsoleLog deletes the console log of a stopped domain. If the host keeps refusing, the machine is deleted
// without it, and an event has the path of the file.
func (s *scope) removeConsoleLog(ctx context.Context) error {
	file := s.domain.ConsoleLog
	if file == "" {
		return nil
	}
	err := hypervisor.IgnoreNotFound(s.connection.RemoveConsoleLog(ctx, s.uuid))
	if err == nil {
		return nil
	}
	deleted := s.infra.DeletionTimestamp
	tryAgain := deleted != nil && time.Since(deleted.Time) < consoleLogPatience && !errors.Is(err, hypervisor.ErrUnsupported)
	if tryAgain || hypervisor.Uncertain(err) || errors.Is(err, hypervisor.ErrBusy) {
		return err
	}
	s.recorder.Eventf(s.infra, nil, corev1.EventTypeWarning, "ConsoleLogStays", "Delete", "The file %s stays on host %s: %s", file, s.host.Name, err.Error())
	return nil
}

const (
	// firstBackOff is the delay between the last start and the next one after two stops. It doubles with each stop, up
	// to maxBackOff, like the kubelet's delay for containers.
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
	s.recordStart(time.Now())
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
	ctrl.LoggerFrom(ctx).Info("Starting the domain, which doesn't run", "LibvirtHost", s.host.Name, "state", was)
	if _, err := s.startDomain(ctx); err != nil {
		s.errs = append(s.errs, err) // the following phases run too: the seed must be deleted
		return goOn, nil
	}
	if s.domain.State.Active() {
		s.recorder.Eventf(s.infra, nil, corev1.EventTypeNormal, "StartedAgain", "Start", "The domain was in the state %s and was started again", was)
	}
	return goOn, nil
}

// backOff sets the condition of a domain that stops repeatedly.
func (s *scope) backOff(at time.Time, stops int) (verdict, error) {
	s.requeueWithin(max(time.Until(at), time.Second))
	return s.waitFor(infrav1.InstanceReadyCondition, infrav1.CrashLoopBackOffReason,
		"The domain has stopped %d times soon after it was started: it is started again at %s. %s", stops, at.UTC().Format(time.RFC3339), s.seeConsole())
}

// lastStart is the last start of a domain. It is in memory only: a restarted manager starts a domain at once.
type lastStart struct {
	machine types.UID
	at      time.Time
	// stops is the number of stops before, each soon after a start.
	stops int
}

// recordStart records that the domain was started.
func (s *scope) recordStart(now time.Time) {
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
