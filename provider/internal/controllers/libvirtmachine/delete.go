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

// removeDelay is how long to wait for something of the machine's to end before it can be removed.
const removeDelay = 2 * time.Second

// remove takes everything of the machine from its host, and lets the object go then. A host that can't
// be reached is waited for, until somebody says that it is gone for good.
func (s *scope) remove(ctx context.Context) error {
	s.Images.Forget(s.key())
	// It will not be bound any more. At the end, when the answer to the last write is lost, nobody knows
	// any more whose the reservation is.
	s.Scheduler.Release(s.infra.UID)
	if !s.copies.forget(s.key()) {
		s.transferring = true
		s.lookAgain(removeDelay)
		s.deleting("Waiting for the copying of the image to end")
		return nil
	}
	if s.isUnbound() {
		return s.letGo(ctx)
	}
	if s.infra.Annotations[infrav1.HostLostAnnotation] == s.infra.Spec.HostName {
		s.recorder.Eventf(s.infra, nil, corev1.EventTypeWarning, "HostLost", "Delete",
			"Gave up host %s: the domain %s and volumes with the prefix %s may be left on it", s.infra.Spec.HostName, s.uuid, s.uuid)
		return s.letGo(ctx)
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
		return s.removeStranger(ctx)
	}
	connection, err := s.Hosts.Hypervisor(s.host.Name)
	if err == nil {
		s.connection = connection
		s.snapshot, _ = s.Hosts.Snapshot(s.host.Name)
		err = s.removeAll(ctx)
	}
	switch {
	case errors.Is(err, hypervisor.ErrUnreachable):
		s.lookAgain(unreachableDelay)
		s.deleting("Waiting for host %s: %s. %s", s.host.Name, err.Error(), s.howToGiveUp())
		return nil
	case err != nil:
		s.deleting("%s", err.Error())
		return err
	}
	return s.letGo(ctx)
}

func (s *scope) deleting(message string, values ...any) {
	s.set(infrav1.ReadyCondition, metav1.ConditionFalse, infrav1.DeletingReason, message, values...)
}

func (s *scope) howToGiveUp() string {
	return fmt.Sprintf("If the host is lost, set the annotation %s: %s to give up what is left on it",
		infrav1.HostLostAnnotation, s.infra.Spec.HostName)
}

// removeStranger is for a machine whose namespace may not use its host: the host was closed to it after it was placed,
// or its spec was written by hand. It removes what the host itself says to be this machine's: the domain whose metadata
// name it, and volumes with its name. Whatever else there is may be somebody's whose UUID was written into
// spec.providerID. Nothing of what the host answers is shown.
func (s *scope) removeStranger(ctx context.Context) error {
	connection, err := s.Hosts.Hypervisor(s.host.Name)
	if err == nil {
		s.connection = connection
		s.snapshot, _ = s.Hosts.Snapshot(s.host.Name)
		var domain hypervisor.Domain
		if domain, err = connection.Domain(ctx, s.uuid); errors.Is(err, hypervisor.ErrNotFound) || err == nil && s.isNamed(domain) {
			err = s.removeAll(ctx)
		}
	}
	if err != nil {
		ctrl.LoggerFrom(ctx).Info("Waiting for the host of a machine whose namespace may not use it", "LibvirtHost", s.host.Name, "err", err)
		s.lookAgain(unreachableDelay)
		s.deleting("Waiting for the host. %s. %s", access.NotAllowed(s.infra.Namespace), s.howToGiveUp())
		return nil
	}
	return s.letGo(ctx)
}

// letGo gives the machine's addresses back, and removes the finalizer when that is done.
func (s *scope) letGo(ctx context.Context) error {
	if left, err := s.releaseClaims(ctx); err != nil || left {
		return err
	}
	s.written = true
	if _, err := outcome.RemoveFinalizer(ctx, s.Client, s.infra, infrav1.MachineFinalizer); err != nil {
		return err
	}
	ctrl.LoggerFrom(ctx).Info("Let the machine go")
	return nil
}

// removeAll removes what the machine has on its host: first it takes the power from the domain, then it
// deletes the volumes, the seed with its secrets first, and then it undefines the domain, which is the
// record of what is left.
func (s *scope) removeAll(ctx context.Context) error {
	domain, err := s.connection.Domain(ctx, s.uuid)
	switch {
	case errors.Is(err, hypervisor.ErrNotFound):
	case err != nil:
		return err
	case s.isTheirs(domain):
		s.recorder.Eventf(s.infra, nil, corev1.EventTypeWarning, "NotOurs", "Delete",
			"A domain on host %s has the UUID of spec.providerID, but belongs to another machine: it and its volumes aren't deleted", s.host.Name)
		return nil
	default:
		s.domain = &domain
		if err := s.connection.StopDomain(ctx, s.uuid); err != nil && !errors.Is(err, hypervisor.ErrNotFound) {
			return err
		}
	}
	volumes, err := s.volumes(ctx)
	if err != nil {
		return err
	}
	for _, ref := range volumes {
		if err := s.connection.DeleteVolume(ctx, ref); err != nil && !errors.Is(err, hypervisor.ErrNotFound) {
			return err
		}
	}
	if s.domain == nil {
		return nil
	}
	if err := s.removeConsoleLog(ctx); err != nil {
		return err
	}
	if err := s.connection.UndefineDomain(ctx, s.uuid); err != nil && !errors.Is(err, hypervisor.ErrNotFound) {
		return err
	}
	s.refresh(ctx)
	return nil
}

// volumes lists everything on the host that has the machine's name, the seed first. Neither
// the domain, which may not have been defined, nor the snapshot, which may be old, knows all of it; and
// the host's spec may have other pools than when the machine was made.
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
		// Only those have names that can't be known.
		listed, err := s.connection.PoolVolumes(ctx, pool)
		if err != nil && !errors.Is(err, hypervisor.ErrNotFound) {
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

// removeIfGone is for a reconcile that has made something on the host and then couldn't write the
// status: another manager may have removed the machine meanwhile, and nobody would ever look for what
// was made since. It returns the error that it is given, unless that is because the machine is gone.
func (s *scope) removeIfGone(ctx context.Context, err error) error {
	if !s.making || err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		return client.IgnoreNotFound(err)
	}
	if gone, goneErr := s.isGone(ctx); !gone {
		return errors.Join(err, goneErr)
	}
	ctrl.LoggerFrom(ctx).Info("The machine was deleted while it was being made: removing what was made")
	s.copies.forget(s.key())
	s.Images.Forget(s.key())
	if err := s.removeAll(ctx); err != nil {
		return err
	}
	_, err = s.releaseClaims(ctx)
	return err
}

// isGone asks the API server itself whether the machine is gone or about to go.
func (s *scope) isGone(ctx context.Context) (bool, error) {
	now := &infrav1.LibvirtMachine{}
	err := s.APIReader.Get(ctx, s.key(), now)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	return err == nil && (now.UID != s.infra.UID || !now.DeletionTimestamp.IsZero()), outcome.Wrap(err, "reading the machine once more")
}
