package libvirtmachine

import (
	"context"
	"errors"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/access"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/outcome"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/placement"
)

const (
	// shutdownGrace is how long a guest has to shut down before the power is taken from it. A kubelet that
	// was told to ends its pods in that time.
	shutdownGrace = 5 * time.Minute
	// shutdownDelay is how soon a guest is asked again that may not have listened, as while it booted.
	shutdownDelay = 10 * time.Second
)

// isUpdating says whether the machine is to be changed in place, or was and its condition doesn't say so.
// The annotation comes from the owner of the Machine, together with the spec ("InfraMachine: support for
// in-place changes" of Cluster API's contract for InfraMachine). A spec that somebody has changed
// without it is left alone.
func (s *scope) isUpdating() bool {
	if s.machine == nil || !s.machine.DeletionTimestamp.IsZero() || s.domain == nil {
		return false
	}
	asked, started := isChanging(s.infra)
	condition := conditions.Get(s.infra, infrav1.UpdatedInPlaceCondition)
	// A guest that hasn't joined is in the middle of that; the Machine's controller waits for its node too.
	hasNode := s.machine.Status.NodeRef != (clusterv1.MachineNodeReference{})
	return started || s.InPlaceUpdates && asked && hasNode || condition != nil && condition.Status != metav1.ConditionTrue
}

// isSteady says that nobody asks for a change in place, and none is under way.
func (s *scope) isSteady() bool {
	asked, started := isChanging(s.infra)
	return !asked && !started
}

// endGrowth gives back what was reserved for a change in place that has ended or was called off, once the snapshot of
// the host, which is what is counted then, shows what the machine has.
func (s *scope) endGrowth(ctx context.Context) (verdict, error) {
	if s.domain == nil || !s.Scheduler.Grows(s.infra.UID) {
		return goOn, nil
	}
	has, refs, err := s.extentOf(ctx, *s.domain)
	given := placement.GivenTo(s.infra, s.snapshot)
	if err != nil || !given.Whole || !maps.Equal(given.Needs, has.needs(&s.infra.Spec)) {
		for _, ref := range refs {
			s.Hosts.RefreshPool(s.host.Name, ref.Pool)
		}
		s.lookAgain(noFitDelay)
		return goOn, nil
	}
	s.Scheduler.EndGrowth(s.infra.UID)
	return goOn, nil
}

// updateInPlace gives the machine the CPUs, memory and disks that its spec asks for now: when there is
// room for them the guest is shut down, everything is changed while nothing runs, and the domain is
// started again. Where only disks grow it runs on. What it has is looked up on the host at each step, so that it goes on after a restart.
//
// Nothing but these phases changes the host. The update extension, which Cluster API calls, reports the
// condition UpdatedInPlace.
func (s *scope) updateInPlace(ctx context.Context) (verdict, error) {
	domain, err := s.connection.Domain(ctx, s.uuid)
	if errors.Is(err, hypervisor.ErrNotFound) {
		s.lookAgain(outcome.ConflictDelay) // the snapshot doesn't know it so far
		return goOn, nil
	}
	if err != nil {
		return s.failed(infrav1.UpdatedInPlaceCondition, infrav1.InPlaceUpdateFailedReason, err)
	}
	has, refs, err := s.extentOf(ctx, domain)
	if err != nil {
		return s.failed(infrav1.UpdatedInPlaceCondition, infrav1.InPlaceUpdateFailedReason, err)
	}
	asked, started := isChanging(s.infra)
	covered := has.covers(&s.infra.Spec)
	if !started && (covered || !s.InPlaceUpdates) {
		if verdict, err := s.endGrowth(ctx); err != nil || verdict == stop {
			return verdict, err
		}
	}
	switch {
	case !started && covered:
		s.setTrue(infrav1.UpdatedInPlaceCondition, infrav1.UpdatedInPlaceReason)
		return goOn, nil
	case !started && (!asked || !s.InPlaceUpdates): // it was called off before it began
		conditions.Delete(s.infra, infrav1.UpdatedInPlaceCondition)
		return goOn, nil
	case !started:
		return s.startUpdate(ctx)
	}
	if verdict, err := s.checkUpdate(ctx); err != nil || verdict == stop {
		return verdict, err
	}
	if !s.Scheduler.Covers(s.infra.UID, placement.Needs(&s.infra.Spec)) {
		if fits, err := s.reserveGrowth(ctx); err != nil || !fits {
			return s.callOff(ctx, domain, has, err)
		}
	}
	if domain.State == hypervisor.StateStarting { // what it becomes isn't known so far
		s.lookAgain(shutdownDelay)
		return goOn, nil
	}
	if domain.State.Active() {
		if covered {
			return stop, s.writeStarted(ctx, "")
		}
		if has.hasSize(&s.infra.Spec) {
			if done, err := s.growRunning(ctx, has, refs); err != nil {
				return s.failed(infrav1.UpdatedInPlaceCondition, infrav1.InPlaceUpdateFailedReason, err)
			} else if done {
				return stop, s.writeStarted(ctx, "")
			}
		}
		if domain, err = s.shutDown(ctx); err != nil {
			return s.failed(infrav1.UpdatedInPlaceCondition, infrav1.InPlaceUpdateFailedReason, err)
		}
	}
	if domain.State.Active() {
		s.lookAgain(shutdownDelay)
		s.set(infrav1.UpdatedInPlaceCondition, metav1.ConditionUnknown, infrav1.RestartingReason,
			"The guest was asked to shut down. It is powered off at %s", s.updateStarted().Add(shutdownGrace).UTC().Format(time.RFC3339))
		return goOn, nil
	}
	if err := s.changeStopped(ctx, has, refs); err != nil {
		return s.failed(infrav1.UpdatedInPlaceCondition, infrav1.InPlaceUpdateFailedReason, err)
	}
	return stop, s.writeStarted(ctx, "")
}

// startUpdate writes that the update begins, before anything is changed, if there is room for it.
func (s *scope) startUpdate(ctx context.Context) (verdict, error) {
	fits, err := s.reserveGrowth(ctx)
	if err != nil {
		return s.failed(infrav1.UpdatedInPlaceCondition, infrav1.InternalErrorReason, err)
	}
	if !fits {
		return goOn, nil
	}
	return stop, s.writeStarted(ctx, time.Now().UTC().Format(time.RFC3339))
}

// callOff ends an update that has begun and has no room: it was written by hand that it has begun, the spec asks for more
// since then, or an earlier manager has begun it and the room was given to others meanwhile. The guest runs on with what
// it has.
func (s *scope) callOff(ctx context.Context, domain hypervisor.Domain, has extent, err error) (verdict, error) {
	if err == nil && !domain.State.Active() {
		err = s.connection.StartDomain(ctx, s.uuid)
	}
	if err != nil {
		return s.failed(infrav1.UpdatedInPlaceCondition, infrav1.InPlaceUpdateFailedReason, err)
	}
	s.Scheduler.Give(s.infra.UID, has.needs(&s.infra.Spec))
	s.Scheduler.EndGrowth(s.infra.UID)
	return stop, s.writeStarted(ctx, "")
}

// reserveGrowth looks whether the host and the quota have room for what the spec asks for more, reserves it, and says in
// the condition if they haven't.
func (s *scope) reserveGrowth(ctx context.Context) (bool, error) {
	err := s.Scheduler.Grow(ctx, s.candidate())
	var noFit *placement.NoFitError
	switch {
	case errors.Is(err, placement.ErrNotAllowed):
		s.lookAgain(noFitDelay)
		s.set(infrav1.UpdatedInPlaceCondition, metav1.ConditionFalse, infrav1.NamespaceNotAllowedReason, "%s", access.NotAllowed(s.infra.Namespace))
		return false, nil
	case errors.As(err, &noFit):
		s.lookAgain(noFitDelay)
		s.set(infrav1.UpdatedInPlaceCondition, metav1.ConditionFalse, infrav1.NoRoomReason,
			"Host %s has %s: the update waits for room", s.host.Name, noFit.Hosts[0].Message)
		return false, nil
	}
	return err == nil, err
}

// writeStarted writes when the update began, or that it has ended, over what was read and nothing else.
func (s *scope) writeStarted(ctx context.Context, when string) error {
	s.written = true
	before := s.infra.DeepCopy()
	doing := "writing that an update in place begins"
	if when == "" {
		doing = "writing that an update in place has ended"
		delete(s.infra.Annotations, infrav1.UpdateStartedAnnotation)
	} else {
		s.infra.Annotations[infrav1.UpdateStartedAnnotation] = when // there is another annotation, which asked for it
	}
	err := s.Client.Patch(ctx, s.infra, outcome.Over(before))
	if when != "" {
		s.Scheduler.ReleaseUnlessWritten(ctx, s.infra, err, func(now *infrav1.LibvirtMachine) bool {
			_, started := isChanging(now)
			return started
		})
	}
	return outcome.Wrap(client.IgnoreNotFound(err), doing)
}

// updateStarted is when the update began. One that doesn't say it began just now.
func (s *scope) updateStarted() time.Time {
	began, err := time.Parse(time.RFC3339, s.infra.Annotations[infrav1.UpdateStartedAnnotation])
	if err != nil {
		return time.Now()
	}
	return began
}

// checkUpdate asks the API server itself whether the machine is still to be changed, and into this: the
// cache lags behind, and what is shut down or changed by mistake is somebody's.
func (s *scope) checkUpdate(ctx context.Context) (verdict, error) {
	return s.checkUnchanged(ctx, func(now *infrav1.LibvirtMachine) bool {
		_, started := isChanging(now)
		return started && now.Generation == s.infra.Generation
	})
}

// shutDown asks the guest to shut down, or takes the power from it when its time is over, and returns
// the domain as it is then.
func (s *scope) shutDown(ctx context.Context) (hypervisor.Domain, error) {
	log := ctrl.LoggerFrom(ctx)
	if time.Since(s.updateStarted()) < shutdownGrace {
		log.Info("Asking the guest to shut down, to be changed in place", "LibvirtHost", s.host.Name)
		if err := s.connection.ShutdownDomain(ctx, s.uuid); err != nil {
			// An agent that hangs isn't a reason to wait longer than for a guest that doesn't listen.
			log.Info("The guest can't be asked to shut down", "err", err)
		}
	} else {
		log.Info("The guest hasn't shut down: taking the power from it", "LibvirtHost", s.host.Name)
		if err := s.connection.StopDomain(ctx, s.uuid); err != nil {
			return hypervisor.Domain{}, err
		}
	}
	return s.connection.Domain(ctx, s.uuid)
}

// changeStopped changes the disks and the definition of a domain that doesn't run, and starts it.
func (s *scope) changeStopped(ctx context.Context, has extent, refs map[string]hypervisor.VolumeRef) error {
	for _, name := range has.missing(&s.infra.Spec) {
		if err := s.connection.ResizeVolume(ctx, refs[name], diskSizes(&s.infra.Spec)[name].Value()); err != nil {
			return err
		}
	}
	if !has.hasSize(&s.infra.Spec) {
		size := hypervisor.Size{CPUs: s.infra.Spec.CPUs, MemoryBytes: s.infra.Spec.Memory.Value()}
		if err := s.connection.ResizeDomain(ctx, s.uuid, size); err != nil {
			return err
		}
	}
	if err := s.connection.StartDomain(ctx, s.uuid); err != nil {
		return err
	}
	ctrl.LoggerFrom(ctx).Info("Changed the machine in place and started it", "LibvirtHost", s.host.Name, "cpus", s.infra.Spec.CPUs, "memory", s.infra.Spec.Memory.String())
	s.refresh(ctx)
	return nil
}

// extent is what a machine has on its host of what can be changed in place.
type extent struct {
	hypervisor.Size
	// disks are the capacities of its disks, in bytes, by their names in the spec. That of the root disk
	// has none. One that isn't known isn't there.
	disks map[string]int64
}

// rounding is how much more memory than it was given a domain may have: QEMU wants whole blocks.
var rounding = map[infrav1.Architecture]int64{infrav1.ArchitecturePpc64le: 256 << 20}

const otherRounding = 1 << 20

// hasSize says whether the domain has the CPUs and the memory of a spec.
func (e extent) hasSize(spec *infrav1.LibvirtMachineSpec) bool {
	block, known := rounding[spec.CPU.Architecture]
	if !known {
		block = otherRounding
	}
	more := e.MemoryBytes - spec.Memory.Value()
	return e.CPUs == spec.CPUs && more >= 0 && more < block
}

// missing are the disks that are smaller than a spec wants them.
func (e extent) missing(spec *infrav1.LibvirtMachineSpec) []string {
	var small []string
	for name, wanted := range diskSizes(spec) {
		if has, known := e.disks[name]; known && has < wanted.Value() {
			small = append(small, name)
		}
	}
	return small
}

// covers says whether the machine has what a spec asks for.
func (e extent) covers(spec *infrav1.LibvirtMachineSpec) bool {
	return e.hasSize(spec) && len(e.missing(spec)) == 0
}

// needs is how much room the machine takes as it is.
func (e extent) needs(spec *infrav1.LibvirtMachineSpec) placement.Resources {
	return placement.NeedsWith(spec, e.CPUs, e.MemoryBytes, e.disks)
}

// diskSizes are the sizes that a spec has for disks, by their names, to be read or changed.
func diskSizes(spec *infrav1.LibvirtMachineSpec) map[string]*resource.Quantity {
	sizes := map[string]*resource.Quantity{"": &spec.RootDisk.Size}
	for i := range spec.ExtraDisks {
		sizes[spec.ExtraDisks[i].Name] = &spec.ExtraDisks[i].Size
	}
	return sizes
}

// extentOf asks the host what the machine has.
func (s *scope) extentOf(ctx context.Context, domain hypervisor.Domain) (extent, map[string]hypervisor.VolumeRef, error) {
	has := extent{Size: hypervisor.Size{CPUs: domain.CPUs, MemoryBytes: domain.MemoryBytes}, disks: map[string]int64{}}
	refs := map[string]hypervisor.VolumeRef{}
	for _, ref := range domain.Disks {
		name, own := hypervisor.DiskName(s.volumePrefix(), ref)
		if !own {
			continue
		}
		volume, err := s.connection.Volume(ctx, ref)
		if err != nil {
			return has, nil, err
		}
		has.disks[name], refs[name] = volume.CapacityBytes, ref
	}
	return has, refs, nil
}

// isChanging says whether a machine may have other than its spec asks for, because it is being changed.
func isChanging(infra *infrav1.LibvirtMachine) (asked, started bool) {
	_, asked = infra.Annotations[clusterv1.UpdateInProgressAnnotation]
	_, started = infra.Annotations[infrav1.UpdateStartedAnnotation]
	return asked, started
}

// growRunning makes the disks of a running domain as large as its spec asks for, and returns false where
// the host can't do that: then it is done while nothing runs, as everything else is.
func (s *scope) growRunning(ctx context.Context, has extent, refs map[string]hypervisor.VolumeRef) (bool, error) {
	log := ctrl.LoggerFrom(ctx)
	for _, name := range has.missing(&s.infra.Spec) {
		err := s.connection.GrowDisk(ctx, s.uuid, refs[name], diskSizes(&s.infra.Spec)[name].Value())
		if errors.Is(err, hypervisor.ErrUnsupported) {
			log.Info("The disk can't grow while the guest runs: it has to shut down", "LibvirtHost", s.host.Name, "err", err)
			return false, nil
		}
		if err != nil {
			return false, err
		}
		log.Info("Made a disk of the running machine larger", "LibvirtHost", s.host.Name, "volume", refs[name].String())
	}
	return true, nil
}
