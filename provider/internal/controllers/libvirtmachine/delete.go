package libvirtmachine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/access"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/outcome"
)

// removeDelay is the interval of checking whether a copy has ended before the machine is removed.
const removeDelay = 2 * time.Second

// remove deletes all objects of the machine on its host, and then removes the finalizer. It waits for an unreachable
// host until a user gives the host up.
func (s *scope) remove(ctx context.Context) error {
	s.Images.Forget(s.key())
	// The machine will not be bound again. Release the reservation now: the UID is unknown once the object is
	// deleted.
	s.Scheduler.Release(s.infra.UID)
	if !s.copies.forget(s.key()) {
		s.transferring = true
		s.requeueWithin(removeDelay)
		s.deleting("Waiting for the copying of the image to end")
		return nil
	}
	if s.isUnbound() {
		return s.release(ctx)
	}
	if s.infra.Annotations[infrav1.HostLostAnnotation] == s.infra.Spec.HostName {
		s.recorder.Eventf(s.infra, nil, corev1.EventTypeWarning, "HostLost", "Delete",
			"Gave up host %s: the domain %s and volumes with the prefix %s may be left on it", s.infra.Spec.HostName, s.uuid, s.uuid)
		return s.release(ctx)
	}
	if err := s.readHost(ctx); err != nil {
		if apierrors.IsNotFound(err) {
			s.deleting("Waiting for LibvirtHost %s, which doesn't exist: create it again. %s", s.infra.Spec.HostName, s.howToGiveUp())
			return nil
		}
		s.deleting("%s", err.Error())
		return err
	}
	allowed, err := s.Scheduler.MayUse(ctx, s.infra.Namespace, s.host)
	if err != nil {
		s.deleting("%s", err.Error())
		return err
	}
	if !allowed {
		return s.removeNotAllowed(ctx)
	}
	if err = s.connect(); err == nil {
		err = s.removeAll(ctx)
	}
	switch {
	case errors.Is(err, hypervisor.ErrUnreachable):
		s.requeueWithin(unreachableDelay)
		s.deleting("Waiting for host %s: %s. %s", s.host.Name, err.Error(), s.howToGiveUp())
		return nil
	case err != nil:
		s.deleting("%s", err.Error())
		return err
	}
	return s.release(ctx)
}

func (s *scope) deleting(message string, values ...any) {
	s.set(infrav1.ReadyCondition, metav1.ConditionFalse, infrav1.DeletingReason, message, values...)
}

func (s *scope) howToGiveUp() string {
	return fmt.Sprintf("If the host is lost, set the annotation %s: %s to give up what is left on it",
		infrav1.HostLostAnnotation, s.infra.Spec.HostName)
}

// removeNotAllowed deletes a machine whose namespace may not use its host: access was revoked after the machine was
// placed, or a user wrote its spec. It deletes only a domain with the name of this machine in its metadata, and volumes
// with its name. Other objects may belong to another user whose UUID was copied to spec.providerID. Errors of the host
// aren't shown.
func (s *scope) removeNotAllowed(ctx context.Context) error {
	err := s.connect()
	if err == nil {
		var domain hypervisor.Domain
		if domain, err = s.connection.Domain(ctx, s.uuid); errors.Is(err, hypervisor.ErrNotFound) || err == nil && s.isNamed(domain) {
			err = s.removeAll(ctx)
		}
	}
	if err != nil {
		ctrl.LoggerFrom(ctx).Info("Waiting for the host of a machine whose namespace may not use it", "LibvirtHost", s.host.Name, "err", err)
		s.requeueWithin(unreachableDelay)
		s.deleting("Waiting for the host. %s. %s", access.NotAllowed(s.infra.Namespace), s.howToGiveUp())
		return nil
	}
	return s.release(ctx)
}

// release releases the machine's addresses, and then removes the finalizer.
func (s *scope) release(ctx context.Context) error {
	if left, err := s.releaseClaims(ctx); err != nil || left {
		return err
	}
	s.written = true
	if _, err := outcome.RemoveFinalizer(ctx, s.Client, s.infra, infrav1.MachineFinalizer); err != nil {
		return err
	}
	ctrl.LoggerFrom(ctx).Info("Removed the finalizer")
	return nil
}

// removeAll deletes all objects of the machine on its host. It powers off the domain and deletes the volumes, beginning
// with the seed and its secrets. It undefines the domain last, because the domain lists its disks.
func (s *scope) removeAll(ctx context.Context) error {
	domain, err := s.connection.Domain(ctx, s.uuid)
	switch {
	case errors.Is(err, hypervisor.ErrNotFound):
	case err != nil:
		return err
	case s.isForeign(domain):
		s.recorder.Eventf(s.infra, nil, corev1.EventTypeWarning, "NotOurs", "Delete",
			"A domain on host %s has the UUID of spec.providerID, but belongs to another machine: it and its volumes aren't deleted", s.host.Name)
		return nil
	default:
		s.domain = &domain
		if err := s.connection.StopDomain(ctx, s.uuid); hypervisor.IgnoreNotFound(err) != nil {
			return err
		}
	}
	volumes, err := s.volumes(ctx)
	if err != nil {
		return err
	}
	for _, ref := range volumes {
		if err := s.connection.DeleteVolume(ctx, ref); hypervisor.IgnoreNotFound(err) != nil {
			return err
		}
	}
	if s.domain == nil {
		return nil
	}
	if err := s.removeConsoleLog(ctx); err != nil {
		return err
	}
	if err := s.connection.UndefineDomain(ctx, s.uuid); hypervisor.IgnoreNotFound(err) != nil {
		return err
	}
	s.refresh(ctx)
	return nil
}

// volumes lists all volumes with the machine's name, the seed first. It combines several sources: the domain may be
// undefined, the snapshot may be old, and the pools in the host's spec may have changed.
func (s *scope) volumes(ctx context.Context) ([]hypervisor.VolumeRef, error) {
	refs := map[hypervisor.VolumeRef]bool{}
	for _, pool := range s.pools() {
		refs[s.volume(pool, "seed")] = true
		refs[s.volume(pool, "root")] = true
		for _, disk := range s.infra.Spec.ExtraDisks {
			refs[s.volume(pool, "disk-"+disk.Name)] = true
		}
		if s.infra.Spec.RootDisk.Clone != infrav1.CloneFull {
			continue
		}
		// Only full copies have unpredictable names.
		listed, err := s.connection.PoolVolumes(ctx, pool)
		if hypervisor.IgnoreNotFound(err) != nil {
			return nil, err
		}
		for _, volume := range listed {
			refs[volume.VolumeRef] = true
		}
	}
	for _, pool := range s.snapshot.Pools {
		for _, volume := range pool.Volumes {
			refs[volume.VolumeRef] = true
		}
	}
	if s.domain != nil {
		for _, disk := range s.domain.Disks {
			refs[disk] = true
		}
	}
	maps.DeleteFunc(refs, func(ref hypervisor.VolumeRef, _ bool) bool { return !strings.HasPrefix(ref.Name, s.volumePrefix()) })
	return slices.SortedFunc(maps.Keys(refs), func(a, b hypervisor.VolumeRef) int {
		rank := func(ref hypervisor.VolumeRef) string {
			if strings.HasSuffix(ref.Name, "-seed") {
				return "0" + ref.String()
			}
			return "1" + ref.String()
		}
		return strings.Compare(rank(a), rank(b))
	}), nil
}

// removeIfDeleted cleans up after a reconcile that changed the host and then failed to write the status. If another
// manager has deleted the machine in the meantime, removeIfDeleted deletes the objects that were created since. It
// returns the given error, unless the machine was deleted.
func (s *scope) removeIfDeleted(ctx context.Context, err error) error {
	if !s.mayHaveCreated || err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		return client.IgnoreNotFound(err)
	}
	if deleted, readErr := s.isDeleted(ctx); !deleted {
		return errors.Join(err, readErr)
	}
	ctrl.LoggerFrom(ctx).Info("The machine was deleted during its creation: deleting its objects on the host")
	s.copies.forget(s.key())
	s.Images.Forget(s.key())
	if err := s.removeAll(ctx); err != nil {
		return err
	}
	_, err = s.releaseClaims(ctx)
	return err
}

// isDeleted reads from the API server whether the machine is deleted or being deleted.
func (s *scope) isDeleted(ctx context.Context) (bool, error) {
	now := &infrav1.LibvirtMachine{}
	err := s.APIReader.Get(ctx, s.key(), now)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	return err == nil && (now.UID != s.infra.UID || !now.DeletionTimestamp.IsZero()), outcome.Wrap(err, "reading the machine from the API server")
}
