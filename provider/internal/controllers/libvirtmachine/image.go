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

// imageDelay is how often to look how far a transfer is. Its end brings the machine here sooner.
const imageDelay = time.Minute

// ensureImage finds the image on the host, or has it brought there.
func (s *scope) ensureImage(ctx context.Context) (verdict, error) {
	if name := s.infra.Spec.Image.Volume; name != "" {
		return s.findImageVolume(ctx, hypervisor.VolumeRef{Pool: s.host.Spec.StoragePools.Images, Name: name})
	}
	// Not from the cache: a namespace that is made anew under its name must not have the images of the old one.
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
		s.lookAgain(imageDelay)
		reason := infrav1.ImageTransferringReason
		if transferring.Queued {
			reason = infrav1.ImageQueuedReason
		}
		return s.waitFor(infrav1.ImageReadyCondition, reason, "%s", err.Error())
	case errors.As(err, &failed) && errors.Is(err, hypervisor.ErrNoSpace):
		s.lookAgain(imageDelay)
		return s.waitFor(infrav1.ImageReadyCondition, infrav1.NoRoomReason, "%s", s.noRoom(err).Error())
	case errors.As(err, &failed):
		s.lookAgain(imageDelay)
		return s.waitFor(infrav1.ImageReadyCondition, infrav1.ImageTransferFailedReason, "%s", err.Error())
	}
	return s.failed(infrav1.ImageReadyCondition, infrav1.ImageTransferFailedReason, err)
}

// findImageVolume finds an image that somebody has put into the host's pool. What machines have there, of whatever
// namespace, isn't an image: its content would become the root disk of this one.
func (s *scope) findImageVolume(ctx context.Context, ref hypervisor.VolumeRef) (verdict, error) {
	if hypervisor.IsOwnName(ref.Name) {
		return s.noImageVolume(ref)
	}
	volume, err := s.connection.Volume(ctx, ref)
	if errors.Is(err, hypervisor.ErrNotFound) {
		s.Hosts.RefreshPool(s.host.Name, ref.Pool)
		s.lookAgain(noFitDelay)
		return s.noImageVolume(ref)
	}
	if err != nil {
		return s.failed(infrav1.ImageReadyCondition, infrav1.InternalErrorReason, err)
	}
	if s.snapshot.Domains == nil {
		s.lookAgain(outcome.ConflictDelay)
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

// noImageVolume says that there is no such image, and not which of the reasons it is: others' volumes and domains
// aren't for everybody to find out about.
func (s *scope) noImageVolume(ref hypervisor.VolumeRef) (verdict, error) {
	s.lookAgain(imageDelay)
	return s.waitFor(infrav1.ImageReadyCondition, infrav1.ImageVolumeNotFoundReason,
		"Host %s has no image %s: the volume doesn't exist, is the disk of a domain, or was created by the provider", s.host.Name, ref)
}
