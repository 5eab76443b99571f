package libvirtmachine

import (
	"context"
	"errors"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// seedDelay is how long to give a guest that hasn't let go of its seed.
const seedDelay = 30 * time.Second

// removeSeed takes the bootstrap data, with its secrets, from the host as soon as the Machine has a node.
func (s *scope) removeSeed(ctx context.Context) (verdict, error) {
	if conditions.IsTrue(s.infra, infrav1.SeedRemovedCondition) {
		return goOn, nil
	}
	if s.machine.Status.NodeRef == (clusterv1.MachineNodeReference{}) {
		s.set(infrav1.SeedRemovedCondition, metav1.ConditionFalse, infrav1.WaitingForNodeReason, "Waiting for status.nodeRef of the Machine")
		return goOn, nil
	}
	err := s.detachSeed(ctx)
	if errors.Is(err, hypervisor.ErrBusy) {
		s.lookAgain(seedDelay)
		return s.waitFor(infrav1.SeedRemovedCondition, infrav1.SeedInUseReason, "%s", err.Error())
	}
	if err == nil {
		err = s.deleteSeed(ctx)
	}
	if err != nil {
		return s.failed(infrav1.SeedRemovedCondition, infrav1.InternalErrorReason, err)
	}
	ctrl.LoggerFrom(ctx).Info("Removed the seed", "LibvirtHost", s.host.Name)
	s.setTrue(infrav1.SeedRemovedCondition, infrav1.SeedRemovedReason)
	return goOn, nil
}

// removeSeedOfLost takes the bootstrap data from the host when the domain is gone for good: no node of it
// will come, nobody reads it again, and the machine may stay for long as it is. Nothing comes after it.
func (s *scope) removeSeedOfLost(ctx context.Context) (verdict, error) {
	if conditions.IsTrue(s.infra, infrav1.SeedRemovedCondition) {
		return stop, nil
	}
	if err := s.deleteSeed(ctx); err != nil {
		return s.failed(infrav1.SeedRemovedCondition, infrav1.InternalErrorReason, err)
	}
	ctrl.LoggerFrom(ctx).Info("Removed the seed of a machine whose domain is gone", "LibvirtHost", s.host.Name)
	s.setTrue(infrav1.SeedRemovedCondition, infrav1.SeedRemovedReason)
	return stop, nil
}

// detachSeed takes the seed from the domain, so that the domain starts without it from now on.
func (s *scope) detachSeed(ctx context.Context) error {
	if s.domain == nil {
		return nil
	}
	if s.infra.Spec.BootstrapFormat == infrav1.BootstrapFormatIgnition {
		// The guest has read it, and the running domain needs its file no more.
		return s.connection.RemoveIgnition(ctx, s.uuid)
	}
	for _, disk := range s.domain.Disks {
		if disk.Name == s.seedRef().Name {
			return s.connection.DetachDisk(ctx, s.uuid, disk)
		}
	}
	err := s.connection.DetachDisk(ctx, s.uuid, s.seedRef()) // what is known of the disks may be old
	if errors.Is(err, hypervisor.ErrNotFound) {
		return nil
	}
	return err
}

// deleteSeed deletes the seed's volume, wherever it was made: the pool for disks that don't ask for one
// may have been another one then.
func (s *scope) deleteSeed(ctx context.Context) error {
	for _, pool := range s.pools() {
		err := s.connection.DeleteVolume(ctx, s.volume(pool, "seed"))
		if err != nil && !errors.Is(err, hypervisor.ErrNotFound) {
			return err
		}
	}
	return nil
}

// pools are all storage pools that something of the machine may be in, sorted.
func (s *scope) pools() []string {
	pools := append([]string{s.pool(s.infra.Spec.RootDisk.Pool)}, s.host.Spec.StoragePools.Disks...)
	for _, disk := range s.infra.Spec.ExtraDisks {
		pools = append(pools, s.pool(disk.Pool))
	}
	if s.domain != nil {
		for _, disk := range s.domain.Disks {
			pools = append(pools, disk.Pool)
		}
	}
	slices.Sort(pools)
	return slices.DeleteFunc(slices.Compact(pools), func(pool string) bool { return pool == "" })
}
