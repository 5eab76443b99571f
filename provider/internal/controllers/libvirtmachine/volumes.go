package libvirtmachine

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/bytesize"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/domainxml"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/images"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/outcome"
)

// ensureRootDisk creates the root disk from the image.
func (s *scope) ensureRootDisk(ctx context.Context) (verdict, error) {
	size := s.infra.Spec.RootDisk.Size.Value()
	if s.image.CapacityBytes > size {
		unit := bytesize.UnitFor(size, s.image.CapacityBytes)
		return s.waitFor(infrav1.DisksReadyCondition, infrav1.DiskCreationFailedReason,
			"spec.rootDisk.size is %s, but the disk in the image has %s: increase the size", unit.Down(size), unit.Up(s.image.CapacityBytes))
	}
	if s.infra.Spec.RootDisk.Clone == infrav1.CloneFull {
		return s.ensureCopy(ctx)
	}
	volume, err := s.ensureVolume(ctx, hypervisor.VolumeSpec{VolumeRef: s.rootRef(), Format: hypervisor.FormatQCOW2, CapacityBytes: size,
		Backing: &hypervisor.Backing{Path: s.image.Path, Format: s.image.Format}})
	if err != nil {
		return s.failed(infrav1.DisksReadyCondition, infrav1.DiskCreationFailedReason, fmt.Errorf("the root disk: %w", err))
	}
	if s.infra.Spec.Image.Volume == "" {
		// It may have been deleted as unused while its overlay was created.
		exists, err := images.Confirm(ctx, s.connection, s.wish, s.image)
		if err != nil {
			return s.failed(infrav1.DisksReadyCondition, infrav1.DiskCreationFailedReason, fmt.Errorf("the root disk: %w", err))
		}
		if !exists {
			s.requeueWithin(outcome.ConflictDelay)
			return s.waitFor(infrav1.ImageReadyCondition, infrav1.ImageTransferringReason, "The unused image was deleted from the host and is downloaded again")
		}
	}
	s.rootDisk = domainxml.Disk{VolumeRef: volume.VolumeRef, Format: hypervisor.FormatQCOW2}
	return goOn, nil
}

// ensureExtraDisks creates the extra disks, which are empty.
func (s *scope) ensureExtraDisks(ctx context.Context) (verdict, error) {
	s.extraDisks = map[string]domainxml.Disk{}
	for _, disk := range s.infra.Spec.ExtraDisks {
		volume, err := s.ensureVolume(ctx, hypervisor.VolumeSpec{VolumeRef: s.extraRef(disk), Format: hypervisor.FormatQCOW2, CapacityBytes: disk.Size.Value()})
		if err != nil {
			return s.failed(infrav1.DisksReadyCondition, infrav1.DiskCreationFailedReason, fmt.Errorf("the disk %s: %w", disk.Name, err))
		}
		s.extraDisks[disk.Name] = domainxml.Disk{VolumeRef: volume.VolumeRef, Format: hypervisor.FormatQCOW2}
	}
	s.setTrue(infrav1.DisksReadyCondition, infrav1.DisksReadyReason)
	return goOn, nil
}

func (s *scope) extraRef(disk infrav1.ExtraDiskSpec) hypervisor.VolumeRef {
	return s.volume(s.pool(disk.Pool), "disk-"+disk.Name)
}

// ensureVolume creates a volume, or returns the existing one after growing or recreating it if it doesn't match.
// Creating an existing volume changes nothing, so that no look-up is needed before.
func (s *scope) ensureVolume(ctx context.Context, spec hypervisor.VolumeSpec) (hypervisor.Volume, error) {
	volume, err := s.connection.CreateVolume(ctx, spec)
	if !errors.Is(err, hypervisor.ErrAlreadyExists) {
		return volume, err
	}
	if volume, err = s.connection.Volume(ctx, spec.VolumeRef); err != nil {
		return volume, err
	}
	backing := ""
	if spec.Backing != nil {
		backing = spec.Backing.Path
	}
	if volume.BackingPath != backing {
		// The host was stopped during its creation, or the image was deleted. If another manager has started the
		// domain, the volume is in use.
		if domain, err := s.connection.Domain(ctx, s.uuid); err == nil && domain.State.Active() || hypervisor.IgnoreNotFound(err) != nil {
			return volume, errors.Join(fmt.Errorf("the volume %s isn't an overlay of %q, and the domain may be running", spec.VolumeRef, backing), err)
		}
		ctrl.LoggerFrom(ctx).Info("A volume has another backing file than its image: creating it again", "volume", spec.String())
		if err := s.connection.DeleteVolume(ctx, spec.VolumeRef); hypervisor.IgnoreNotFound(err) != nil {
			return volume, err
		}
		return s.connection.CreateVolume(ctx, spec)
	}
	if volume.CapacityBytes < spec.CapacityBytes {
		return volume, s.connection.ResizeVolume(ctx, spec.VolumeRef, spec.CapacityBytes)
	}
	return volume, nil
}

// copies has the running full copies of images. They take long, and so run outside of reconciles. The zero value is
// ready to use.
type copies struct {
	lock  sync.Mutex
	jobs  map[client.ObjectKey]*job
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
}

type job struct {
	cancel context.CancelFunc
	ended  bool
	err    error
}

// ensure runs a function for a machine in the background, unless one is running. ended is true if it has ended, with or
// without an error. The next call then starts a new one. The end triggers a reconcile of the machine.
func (c *copies) ensure(ctx context.Context, machine client.ObjectKey, run func(context.Context) error) (ended bool, err error) {
	c.lock.Lock()
	defer c.lock.Unlock()
	if j, exists := c.jobs[machine]; exists {
		if j.ended {
			delete(c.jobs, machine)
		}
		return j.ended, j.err
	}
	j := &job{}
	// The copy outlives the reconcile, and ends with its connection at the latest.
	ctx, j.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if c.jobs == nil {
		c.jobs = map[client.ObjectKey]*job{}
	}
	c.jobs[machine] = j
	go func() {
		defer j.cancel()
		err := run(ctx)
		c.lock.Lock()
		defer c.lock.Unlock()
		j.ended, j.err = true, err
		if c.queue != nil {
			c.queue.Add(reconcile.Request{NamespacedName: machine})
		}
	}()
	return false, nil
}

// underWay reports whether a copy for a machine is running.
func (c *copies) underWay(machine client.ObjectKey) bool {
	c.lock.Lock()
	defer c.lock.Unlock()
	j, exists := c.jobs[machine]
	return exists && !j.ended
}

// forget cancels the copy for a machine, and reports whether none is running.
func (c *copies) forget(machine client.ObjectKey) bool {
	c.lock.Lock()
	defer c.lock.Unlock()
	j, exists := c.jobs[machine]
	if !exists {
		return true
	}
	j.cancel()
	if j.ended {
		delete(c.jobs, machine)
	}
	return j.ended
}

// start implements source.Func.
func (c *copies) start(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.queue = queue
	return nil
}

// copyFormat is the format of full copies, independent of the format of the image. When libvirt refreshes a pool, it
// probes the format of each volume, and opens files that a header names. A guest must not control the first bytes of a
// volume, as it does in a raw one.
const copyFormat = hypervisor.FormatQCOW2

// copyDelay is the interval of checking a copy, and the delay before a retry.
const copyDelay = 30 * time.Second

// ensureCopy creates the root disk as a full copy of the image. As with images, each attempt creates another volume. An
// overlay with the name of the root disk marks the complete copy. The overlay is never written to.
func (s *scope) ensureCopy(ctx context.Context) (verdict, error) {
	disk, err := s.findCopy(ctx)
	if err == nil {
		s.rootDisk = domainxml.Disk{VolumeRef: disk.VolumeRef, Format: copyFormat}
		s.removeOtherCopies(ctx)
		return goOn, nil
	}
	if !errors.Is(err, errNoCopy) {
		return s.failed(infrav1.DisksReadyCondition, infrav1.DiskCreationFailedReason, fmt.Errorf("the root disk: %w", err))
	}
	background := *s
	background.infra = s.infra.DeepCopy() // the reconcile changes s.infra
	ended, err := s.copies.ensure(ctx, s.key(), func(ctx context.Context) error {
		return s.Images.Copy(ctx, background.host.Name, background.infra.Namespace, background.copyImage)
	})
	if ended && err != nil {
		return s.failed(infrav1.DisksReadyCondition, infrav1.DiskCreationFailedReason, fmt.Errorf("the root disk: %w", err))
	}
	s.transferring = !ended
	s.requeueWithin(copyDelay)
	return s.waitFor(infrav1.DisksReadyCondition, infrav1.DiskCopyingReason, "The image is being copied to the root disk, or the copy is queued")
}

var errNoCopy = errors.New("no complete copy of the image exists")

// findCopy returns the complete copy, or errNoCopy.
func (s *scope) findCopy(ctx context.Context) (hypervisor.Volume, error) {
	marker, err := s.connection.Volume(ctx, s.rootRef())
	if errors.Is(err, hypervisor.ErrNotFound) {
		return hypervisor.Volume{}, errNoCopy
	}
	if err != nil {
		return hypervisor.Volume{}, err
	}
	ref := hypervisor.VolumeRef{Pool: marker.Pool, Name: path.Base(marker.BackingPath)}
	if strings.HasPrefix(ref.Name, s.rootRef().Name+".") {
		disk, err := s.connection.Volume(ctx, ref)
		if !errors.Is(err, hypervisor.ErrNotFound) {
			return disk, err
		}
	}
	// The marked copy was deleted by a user.
	if err := s.connection.DeleteVolume(ctx, s.rootRef()); hypervisor.IgnoreNotFound(err) != nil {
		return hypervisor.Volume{}, err
	}
	return hypervisor.Volume{}, errNoCopy
}

// copyImage creates a copy and its marker.
func (s *scope) copyImage(ctx context.Context) (err error) {
	var id [6]byte
	_, _ = rand.Read(id[:]) // never fails
	ref := s.rootRef()
	ref.Name += "." + hex.EncodeToString(id[:])
	size := s.infra.Spec.RootDisk.Size.Value()
	defer func() {
		if err != nil && !hypervisor.Uncertain(err) {
			s.removeCopy(context.WithoutCancel(ctx), ref)
		}
	}()
	volume, err := s.connection.CloneVolume(ctx, hypervisor.VolumeSpec{VolumeRef: ref, Format: copyFormat, CapacityBytes: size}, s.image.VolumeRef)
	if err != nil {
		return err
	}
	if volume.CapacityBytes < size {
		if err := s.connection.ResizeVolume(ctx, ref, size); err != nil {
			return err
		}
	}
	_, err = s.connection.CreateVolume(ctx, hypervisor.VolumeSpec{VolumeRef: s.rootRef(), Format: hypervisor.FormatQCOW2, CapacityBytes: size,
		Backing: &hypervisor.Backing{Path: volume.Path, Format: copyFormat}})
	if errors.Is(err, hypervisor.ErrAlreadyExists) {
		s.removeCopy(ctx, ref) // another manager was faster
		return nil
	}
	if deleted, readErr := s.isDeleted(ctx); deleted || readErr != nil {
		// Another manager has deleted the machine during the copying, and doesn't look for the copy again.
		s.removeCopy(ctx, s.rootRef())
		s.removeCopy(ctx, ref)
		return errors.Join(err, readErr)
	}
	return err
}

// removeOtherCopies deletes the copies in the snapshot that killed or late managers have created. removeLateCopies
// deletes the others.
func (s *scope) removeOtherCopies(ctx context.Context) {
	for name := range s.snapshot.Pools[s.rootDisk.Pool].Volumes {
		if strings.HasPrefix(name, s.rootRef().Name+".") && name != s.rootDisk.Name {
			s.removeCopy(ctx, hypervisor.VolumeRef{Pool: s.rootDisk.Pool, Name: name})
		}
	}
}

// mayHaveLateCopies reports whether copies may exist that the snapshot doesn't have.
func (s *scope) mayHaveLateCopies() bool {
	return !s.isProvisioned() && s.infra.Spec.RootDisk.Clone == infrav1.CloneFull
}

// removeLateCopies deletes all copies except the used one, before the machine is provisioned. The copying process of a
// killed libvirtd continues: its file may appear after the restarted daemon has listed the pool, but not later than the
// upload of the seed.
func (s *scope) removeLateCopies(ctx context.Context) (verdict, error) {
	domain, err := s.connection.Domain(ctx, s.uuid)
	if err != nil {
		return s.failed(infrav1.InstanceReadyCondition, infrav1.InternalErrorReason, err)
	}
	isCopy := func(ref hypervisor.VolumeRef) bool { return strings.HasPrefix(ref.Name, s.rootRef().Name+".") }
	at := slices.IndexFunc(domain.Disks, isCopy)
	if at < 0 {
		return goOn, nil
	}
	used := domain.Disks[at]
	listed, err := s.connection.PoolVolumes(ctx, used.Pool)
	if err != nil {
		return s.failed(infrav1.InstanceReadyCondition, infrav1.InternalErrorReason, err)
	}
	for _, volume := range listed {
		if isCopy(volume.VolumeRef) && volume.VolumeRef != used {
			s.removeCopy(ctx, volume.VolumeRef)
		}
	}
	return goOn, nil
}

// removeCopy deletes an unused copy. If that fails, it is deleted with the machine.
func (s *scope) removeCopy(ctx context.Context, ref hypervisor.VolumeRef) {
	ctx, cancel := context.WithTimeout(ctx, copyDelay)
	defer cancel()
	if err := s.connection.DeleteVolume(ctx, ref); hypervisor.IgnoreNotFound(err) != nil {
		ctrl.LoggerFrom(ctx).Info("A copy of the image stays until the machine is deleted", "volume", ref.String(), "err", err)
	}
}
