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
	// shutdownGrace is how long a guest has to shut down before it is powered off. A kubelet with graceful shutdown
	// ends its pods in that time.
	shutdownGrace = 5 * time.Minute
	// shutdownDelay is the delay before the next shutdown request: a booting guest may ignore a request.
	shutdownDelay = 10 * time.Second
)

// isUpdating reports whether the machine needs an update in place, or its condition isn't up to date. The owner of
// the Machine sets the annotation together with the spec ("InfraMachine: support for in-place changes" of Cluster
// API's contract for InfraMachine). A changed spec without the annotation is ignored.
func (s *scope) isUpdating() bool {
	if s.machine == nil || !s.machine.DeletionTimestamp.IsZero() || s.domain == nil {
		return false
	}
	requested, started := isChanging(s.infra)
	condition := conditions.Get(s.infra, infrav1.UpdatedInPlaceCondition)
	// A guest without a node may be joining. The Machine's controller waits for the node too.
	newWorldWithNode := s.machine.Status.NodeRef != (clusterv1.MachineNodeReference{})
	return started || s.InPlaceUpdates && requested && newWorldWithNode || condition != nil && condition.Status != metav1.ConditionTrue
}

// isSteady reports whether no update in place is requested or running.
func (s *scope) isSteady() bool {
	requested, started := isChanging(s.infra)
	return !requested && !started
}

// endGrowth releases the reservation of a finished or cancelled update, once the snapshot of the host shows the
// resources of the machine, which are counted from then on.
func (s *scope) endGrowth(ctx context.Context) (verdict, error) {
	if s.domain == nil || !s.Scheduler.Grows(s.infra.UID) {
		return goOn, nil
	}
	has, err := s.extentOf(ctx, *s.domain)
	given := placement.GivenTo(s.infra, s.snapshot)
	if err != nil || !given.Whole || !maps.Equal(given.Needs, has.needs(&s.infra.Spec)) {
		for _, ref := range has.refs {
			s.Hosts.RefreshPool(s.host.Name, ref.Pool)
		}
		s.requeueWithin(noFitDelay)
		return goOn, nil
	}
	s.Scheduler.EndGrowth(s.infra.UID)
	return goOn, nil
}

// updateInPlace gives the machine the CPUs, memory and disks of its spec. If the host has room, it shuts the guest
// down, changes the domain and the disks, and starts the domain again. If only disks grow, the guest keeps running.
// Each step reads the state from the host, so that the update continues after a restart of the manager.
//
// Only these phases change the host. The update extension, which Cluster API calls, reports the condition
// UpdatedInPlace.
func (s *scope) updateInPlace(ctx context.Context) (verdict, error) {
	domain, err := s.connection.Domain(ctx, s.uuid)
	if errors.Is(err, hypervisor.ErrNotFound) {
		s.requeueWithin(outcome.ConflictDelay) // not in the snapshot yet
		return goOn, nil
	}
	if err != nil {
		return s.failed(infrav1.UpdatedInPlaceCondition, infrav1.InPlaceUpdateFailedReason, err)
	}
	has, err := s.extentOf(ctx, domain)
	if err != nil {
		return s.failed(infrav1.UpdatedInPlaceCondition, infrav1.InPlaceUpdateFailedReason, err)
	}
	requested, started := isChanging(s.infra)
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
	case !started && (!requested || !s.InPlaceUpdates): // cancelled before it started
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
			return s.cancelUpdate(ctx, domain, has, err)
		}
	}
	if domain.State == hypervisor.StateStarting { // its next state isn't known yet
		s.requeueWithin(shutdownDelay)
		return goOn, nil
	}
	if domain.State.Active() {
		if covered {
			return stop, s.writeStarted(ctx, "")
		}
		if has.hasSize(&s.infra.Spec) {
			if done, err := s.growRunning(ctx, has); err != nil {
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
		s.requeueWithin(shutdownDelay)
		s.set(infrav1.UpdatedInPlaceCondition, metav1.ConditionUnknown, infrav1.RestartingReason,
			"The guest was asked to shut down. It is powered off at %s", s.updateStarted().Add(shutdownGrace).UTC().Format(time.RFC3339))
		return goOn, nil
	}
	if err := s.changeStopped(ctx, has); err != nil {
		return s.failed(infrav1.UpdatedInPlaceCondition, infrav1.InPlaceUpdateFailedReason, err)
	}
	return stop, s.writeStarted(ctx, "")
}

// startUpdate reserves room and records the start of the update before anything is changed.
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

// cancelUpdate cancels a started update for which there is no room: a user has set the annotation, the spec has grown
// since, or an earlier manager started the update and other machines got the room. The guest keeps its resources.
func (s *scope) cancelUpdate(ctx context.Context, domain hypervisor.Domain, has extent, err error) (verdict, error) {
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

// reserveGrowth reserves room for the growth on the host and in the quota. It sets the condition if there is none.
func (s *scope) reserveGrowth(ctx context.Context) (bool, error) {
	err := s.Scheduler.Grow(ctx, s.candidate())
	var noFit *placement.NoFitError
	switch {
	case errors.Is(err, placement.ErrNotAllowed):
		s.requeueWithin(noFitDelay)
		s.set(infrav1.UpdatedInPlaceCondition, metav1.ConditionFalse, infrav1.NamespaceNotAllowedReason, "%s", access.NotAllowed(s.infra.Namespace))
		return false, nil
	case errors.As(err, &noFit):
		s.requeueWithin(noFitDelay)
		s.set(infrav1.UpdatedInPlaceCondition, metav1.ConditionFalse, infrav1.NoRoomReason,
			"Host %s has %s: the update waits for room", s.host.Name, noFit.Hosts[0].Message)
		return false, nil
	}
	return err == nil, err
}

// writeStarted writes the start time of the update, or removes it. The write fails if the object has changed since it
// was read.
func (s *scope) writeStarted(ctx context.Context, when string) error {
	s.written = true
	before := s.infra.DeepCopy()
	doing := "writing the start of an update in place"
	if when == "" {
		doing = "writing the end of an update in place"
		delete(s.infra.Annotations, infrav1.UpdateStartedAnnotation)
	} else {
		s.infra.Annotations[infrav1.UpdateStartedAnnotation] = when // not nil: another annotation has requested the update
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

// updateStarted returns the start time of the update, or the current time if it is invalid.
func (s *scope) updateStarted() time.Time {
	began, err := time.Parse(time.RFC3339, s.infra.Annotations[infrav1.UpdateStartedAnnotation])
	if err != nil {
		return time.Now()
	}
	return began
}

// checkUpdate reads from the API server whether the update is still requested with this spec: the cache may be old, and
// a shutdown can't be undone.
func (s *scope) checkUpdate(ctx context.Context) (verdict, error) {
	return s.checkUnchanged(ctx, func(now *infrav1.LibvirtMachine) bool {
		_, started := isChanging(now)
		return started && now.Generation == s.infra.Generation
	})
}

// shutDown requests a shutdown of the guest, or powers the domain off after shutdownGrace. It returns the domain
// afterwards.
func (s *scope) shutDown(ctx context.Context) (hypervisor.Domain, error) {
	log := ctrl.LoggerFrom(ctx)
	if time.Since(s.updateStarted()) < shutdownGrace {
		log.Info("Requesting a shutdown of the guest for an update in place", "LibvirtHost", s.host.Name)
		if err := s.connection.ShutdownDomain(ctx, s.uuid); err != nil {
			// A hanging agent doesn't extend the time for the shutdown.
			log.Info("Requesting a shutdown of the guest failed", "err", err)
		}
	} else {
		log.Info("The guest hasn't shut down: powering off the domain", "LibvirtHost", s.host.Name)
		if err := s.connection.StopDomain(ctx, s.uuid); err != nil {
			return hypervisor.Domain{}, err
		}
	}
	return s.connection.Domain(ctx, s.uuid)
}

// changeStopped changes the disks and the definition of a stopped domain, and starts it.
func (s *scope) changeStopped(ctx context.Context, has extent) error {
	for _, name := range has.missing(&s.infra.Spec) {
		if err := s.connection.ResizeVolume(ctx, has.refs[name], diskSizes(&s.infra.Spec)[name].Value()); err != nil {
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

// extent has the resources of a machine on its host that can change in place.
type extent struct {
	hypervisor.Size
	// disks has the known capacities of its disks in bytes, by their names in the spec, and refs their volumes. The name
	// of the root disk is empty.
	disks map[string]int64
	refs  map[string]hypervisor.VolumeRef
}

// rounding is the size of a memory block: QEMU rounds the memory of a domain up to whole blocks.
var rounding = map[infrav1.Architecture]int64{infrav1.ArchitecturePpc64le: 256 << 20}

const otherRounding = 1 << 20

// hasSize reports whether the domain has the CPUs and the memory of a spec.
func (e extent) hasSize(spec *infrav1.LibvirtMachineSpec) bool {
	block, known := rounding[spec.CPU.Architecture]
	if !known {
		block = otherRounding
	}
	more := e.MemoryBytes - spec.Memory.Value()
	return e.CPUs == spec.CPUs && more >= 0 && more < block
}

// missing returns the names of the disks that are smaller than in a spec.
func (e extent) missing(spec *infrav1.LibvirtMachineSpec) []string {
	var small []string
	for name, wanted := range diskSizes(spec) {
		if has, known := e.disks[name]; known && has < wanted.Value() {
			small = append(small, name)
		}
	}
	return small
}

// covers reports whether the machine has the resources of a spec.
func (e extent) covers(spec *infrav1.LibvirtMachineSpec) bool {
	return e.hasSize(spec) && len(e.missing(spec)) == 0
}

// needs returns the resources that the machine uses now.
func (e extent) needs(spec *infrav1.LibvirtMachineSpec) placement.Resources {
	return placement.NeedsWith(spec, e.CPUs, e.MemoryBytes, e.disks)
}

// diskSizes returns pointers to the sizes of the disks in a spec, by their names.
func diskSizes(spec *infrav1.LibvirtMachineSpec) map[string]*resource.Quantity {
	sizes := map[string]*resource.Quantity{"": &spec.RootDisk.Size}
	for i := range spec.ExtraDisks {
		sizes[spec.ExtraDisks[i].Name] = &spec.ExtraDisks[i].Size
	}
	return sizes
}

// extentOf reads the resources of the machine from the host.
func (s *scope) extentOf(ctx context.Context, domain hypervisor.Domain) (extent, error) {
	has := extent{Size: hypervisor.Size{CPUs: domain.CPUs, MemoryBytes: domain.MemoryBytes},
		disks: map[string]int64{}, refs: map[string]hypervisor.VolumeRef{}}
	for _, ref := range domain.Disks {
		name, own := hypervisor.DiskName(s.volumePrefix(), ref)
		if !own {
			continue
		}
		volume, err := s.connection.Volume(ctx, ref)
		if err != nil {
			return extent{}, err
		}
		has.disks[name], has.refs[name] = volume.CapacityBytes, ref
	}
	return has, nil
}

// isChanging reports whether an update in place is requested, and whether it has started.
func isChanging(infra *infrav1.LibvirtMachine) (requested, started bool) {
	_, requested = infra.Annotations[clusterv1.UpdateInProgressAnnotation]
	_, started = infra.Annotations[infrav1.UpdateStartedAnnotation]
	return requested, started
}

// growRunning grows the disks of a running domain. It returns false if the host doesn't support that and the domain has
// to be stopped.
func (s *scope) growRunning(ctx context.Context, has extent) (bool, error) {
	log := ctrl.LoggerFrom(ctx)
	for _, name := range has.missing(&s.infra.Spec) {
		err := s.connection.GrowDisk(ctx, s.uuid, has.refs[name], diskSizes(&s.infra.Spec)[name].Value())
		if errors.Is(err, hypervisor.ErrUnsupported) {
			log.Info("The disk can't grow while the guest runs: a shutdown is needed", "LibvirtHost", s.host.Name, "err", err)
			return false, nil
		}
		if err != nil {
			return false, err
		}
		log.Info("Grew a disk of the running machine", "LibvirtHost", s.host.Name, "volume", has.refs[name].String())
	}
	return true, nil
}
