package libvirtmachine

import (
	"context"
	"errors"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/bytesize"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/domainxml"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/images"
)

// ensureRootDisk makes the disk that the machine starts from out of the image.
func (s *scope) ensureRootDisk(ctx context.Context) (verdict, error) {
	size := s.infra.Spec.RootDisk.Size.Value()
	if s.image.CapacityBytes > size {
		unit := bytesize.UnitFor(size, s.image.CapacityBytes)
		return s.waitFor(infrav1.DisksReadyCondition, infrav1.DiskCreationFailedReason,
			"spec.rootDisk.size is %s, and the disk in the image has %s: make it at least as large", unit.Down(size), unit.Up(s.image.CapacityBytes))
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
		// It may have been deleted as unused while the overlay of it was made.
		there, err := images.Confirm(ctx, s.connection, s.imageWish(), s.image)
		if err != nil {
			return s.failed(infrav1.DisksReadyCondition, infrav1.DiskCreationFailedReason, fmt.Errorf("the root disk: %w", err))
		}
		if !there {
			s.lookAgain(conflictDelay)
			return s.waitFor(infrav1.ImageReadyCondition, infrav1.ImageTransferringReason, "The image was deleted from the host as unused, and is brought there again")
		}
	}
	s.rootDisk = domainxml.Disk{VolumeRef: volume.VolumeRef, Format: hypervisor.FormatQCOW2}
	return goOn, nil
}

// ensureExtraDisks makes the disks that are empty at first.
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

// ensureVolume returns a volume that is as it is asked for: made, as it is there, made larger, or made
// anew. To create one that is there changes nothing, so that nobody has to look first.
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
		// Of a host that was stopped while it made it, or of an image that is gone. A domain that runs has
		// it in use all the same: another manager has started it.
		if domain, err := s.connection.Domain(ctx, s.uuid); err == nil && domain.State.Active() || err != nil && !errors.Is(err, hypervisor.ErrNotFound) {
			return volume, errors.Join(fmt.Errorf("the volume %s isn't an overlay of %q, and the domain may be running", spec.VolumeRef, backing), err)
		}
		ctrl.LoggerFrom(ctx).Info("A volume isn't what it should be an overlay of: making it anew", "volume", spec.String())
		if err := s.connection.DeleteVolume(ctx, spec.VolumeRef); err != nil && !errors.Is(err, hypervisor.ErrNotFound) {
			return volume, err
		}
		return s.connection.CreateVolume(ctx, spec)
	}
	if volume.CapacityBytes < spec.CapacityBytes {
		return volume, s.connection.ResizeVolume(ctx, spec.VolumeRef, spec.CapacityBytes)
	}
	return volume, nil
}
