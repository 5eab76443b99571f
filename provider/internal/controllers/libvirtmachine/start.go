package libvirtmachine

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

const (
	// firstBackOff is how long after its last start a domain is started again that stopped twice. The time doubles
	// with each stop, as with kubelet's containers, up to maxBackOff.
	firstBackOff, maxBackOff = 10 * time.Second, 5 * time.Minute
	// steadyAfter is how long a domain has to run until the stops before are forgotten.
	steadyAfter = 10 * time.Minute
)

// isOff says whether the machine was provisioned and its domain doesn't run. One that is being changed in place is
// started by that.
func (s *scope) isOff() bool {
	_, updating := isChanging(s.infra)
	return s.isProvisioned() && !updating && s.domain != nil && !s.domain.State.Active()
}

// startDomain starts the domain, unless it has stopped several times soon after that.
func (s *scope) startDomain(ctx context.Context) (verdict, error) {
	if at, stops := s.starts.next(s.key(), s.infra.UID, time.Now()); time.Now().Before(at) {
		return s.backOff(at, stops)
	}
	if err := s.connection.StartDomain(ctx, s.uuid); err != nil {
		return s.failed(infrav1.InstanceReadyCondition, infrav1.InstanceCreationFailedReason, err)
	}
	s.starts.add(s.key(), s.infra.UID, time.Now())
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

// startAgain starts a domain that was switched off or has crashed, if spec.runPolicy says so. A load balancer has
// nobody else to look after it.
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

// backOff says that the domain isn't started so far, because it stops again and again.
func (s *scope) backOff(at time.Time, stops int) (verdict, error) {
	s.lookAgain(max(time.Until(at), time.Second))
	return s.waitFor(infrav1.InstanceReadyCondition, infrav1.CrashLoopBackOffReason,
		"The domain has stopped %d times soon after it was started: it is started again at %s. %s", stops, at.UTC().Format(time.RFC3339), s.seeConsole())
}

// starts remembers when domains were started, in memory only: a manager that begins starts a domain at once. The
// zero value is ready to use.
type starts struct {
	lock     sync.Mutex
	machines map[client.ObjectKey]lastStart
}

type lastStart struct {
	machine types.UID
	at      time.Time
	// stops is how often the domain stopped before, each time soon after its start.
	stops int
}

// next returns from when on a domain that doesn't run may be started, and how often it has stopped soon after that.
func (s *starts) next(machine client.ObjectKey, uid types.UID, now time.Time) (time.Time, int) {
	s.lock.Lock()
	defer s.lock.Unlock()
	last, known := s.machines[machine]
	if !known || last.machine != uid || now.Sub(last.at) >= steadyAfter {
		return now, 0
	}
	if last.stops == 0 {
		return now, 1
	}
	return last.at.Add(min(firstBackOff<<min(last.stops-1, 10), maxBackOff)), last.stops + 1
}

// add remembers that a domain was started.
func (s *starts) add(machine client.ObjectKey, uid types.UID, now time.Time) {
	_, stops := s.next(machine, uid, now)
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.machines == nil {
		s.machines = map[client.ObjectKey]lastStart{}
	}
	s.machines[machine] = lastStart{machine: uid, at: now, stops: stops}
}

func (s *starts) forget(machine client.ObjectKey) {
	s.lock.Lock()
	defer s.lock.Unlock()
	delete(s.machines, machine)
}
