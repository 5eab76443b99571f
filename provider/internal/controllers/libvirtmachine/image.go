package libvirtmachine

import (
	"cmp"
	"context"
	"errors"
	"time"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/images"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/outcome"
)

// imageDelay is the interval of updating the progress of a transfer. The end of the transfer triggers a reconcile
// sooner.
const imageDelay = time.Minute

// ensureImage finds the image on the host, or starts its transfer.
func (s *scope) ensureImage(ctx context.Context) (verdict, error) {
	if name := s.infra.Spec.Image.Volume; name != "" {
		return s.findImageVolume(ctx, hypervisor.VolumeRef{Pool: s.host.Spec.StoragePools.Images, Name: name})
	}
	// The cache may be old: a recreated namespace must not get the images of the old one.
	wish, err := images.WishOf(ctx, s.APIReader, s.host, s.infra)
	if err != nil {
		return s.failed(infrav1.ImageReadyCondition, infrav1.InternalErrorReason, err)
	}
	image, err := s.Images.Ensure(ctx, wish, s.key())
	var transferring *images.Transferring
	var failed *images.Failed
	switch {
	case err == nil:
		s.image, s.wish = image, wish
		s.setTrue(infrav1.ImageReadyCondition, infrav1.ImageReadyReason)
		return goOn, nil
	case errors.As(err, &transferring):
		s.transferring = true
		s.requeueWithin(imageDelay)
		reason := infrav1.ImageTransferringReason
		if transferring.Queued {
			reason = infrav1.ImageQueuedReason
		}
		return s.waitFor(infrav1.ImageReadyCondition, reason, "%s", err.Error())
	case errors.As(err, &failed) && errors.Is(err, hypervisor.ErrNoSpace):
		s.requeueWithin(imageDelay)
		return s.waitFor(infrav1.ImageReadyCondition, infrav1.NoRoomReason, "%s", s.noRoom(err).Error())
	case errors.As(err, &failed):
		s.requeueWithin(imageDelay)
		return s.waitFor(infrav1.ImageReadyCondition, infrav1.ImageTransferFailedReason, "%s", err.Error())
	}
	return s.failed(infrav1.ImageReadyCondition, infrav1.ImageTransferFailedReason, err)
}

// findImageVolume finds an image that an administrator has put into the host's pool. Disks of other machines are
// refused: their content would become the root disk of this machine.
func (s *scope) findImageVolume(ctx context.Context, ref hypervisor.VolumeRef) (verdict, error) {
	if hypervisor.IsOwnName(ref.Name) {
		return s.noImageVolume(ref)
	}
	volume, err := s.connection.Volume(ctx, ref)
	if errors.Is(err, hypervisor.ErrNotFound) {
		s.Hosts.RefreshPool(s.host.Name, ref.Pool)
		s.requeueWithin(noFitDelay)
		return s.noImageVolume(ref)
	}
	if err != nil {
		return s.failed(infrav1.ImageReadyCondition, infrav1.InternalErrorReason, err)
	}
	if s.snapshot.Domains == nil {
		s.requeueWithin(outcome.ConflictDelay)
		return s.waitFor(infrav1.ImageReadyCondition, infrav1.HostUnreachableReason, "The domains on host %s aren't known yet", s.host.Name)
	}
	for _, domain := range s.snapshot.Domains {
		if domain.HasDisk(volume) {
			return s.noImageVolume(ref)
		}
	}
	s.image = images.Image{VolumeRef: ref, Path: volume.Path, Format: hypervisor.VolumeFormat(cmp.Or(s.infra.Spec.Image.Format, infrav1.ImageFormatQCOW2)), CapacityBytes: volume.CapacityBytes}
	s.setTrue(infrav1.ImageReadyCondition, infrav1.ImageReadyReason)
	return goOn, nil
}

// noImageVolume reports a missing image with the same message for all reasons, so that it reveals nothing about other
// volumes and domains.
func (s *scope) noImageVolume(ref hypervisor.VolumeRef) (verdict, error) {
	s.requeueWithin(imageDelay)
	return s.waitFor(infrav1.ImageReadyCondition, infrav1.ImageVolumeNotFoundReason,
		"Host %s has no image %s: the volume doesn't exist, is the disk of a domain, or was created by the provider", s.host.Name, ref)
}
