package libvirtmachinepool

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/outcome"
)

// reconcileDelete deletes the machines, and lets the pool go when all are gone. The last one that goes
// brings the object here again.
//
// All machines are read from the API server itself only where the cache may not show one, or the Machine of
// one, yet: with a look for each machine that goes, that would be too much of a large pool.
func (s *scope) reconcileDelete(ctx context.Context) error {
	seen, err := s.machines(ctx, s.Client)
	if err == nil && (len(seen.all) == 0 || seen.count(func(m member) bool { return m.machine == nil && !m.isDeleting() }) > 0) {
		seen, err = s.machines(ctx, s.APIReader)
	}
	if err != nil {
		return err
	}
	var problem error
	changes := 0
	for _, m := range seen.all {
		if m.object().GetDeletionTimestamp().IsZero() && changes < changesAtOnce {
			changes++
			problem = errors.Join(problem, s.deleteMember(ctx, m))
		}
	}
	for _, machine := range seen.dangling {
		if machine.DeletionTimestamp.IsZero() && changes < changesAtOnce {
			changes++
			problem = errors.Join(problem, s.deleteDangling(ctx, machine))
		}
	}
	if problem == nil && len(seen.all) == 0 {
		_, err := outcome.RemoveFinalizer(ctx, s.Client, s.infra, infrav1.MachinePoolFinalizer)
		return err
	}
	return errors.Join(problem, s.writeStatus(ctx, func() {
		message := fmt.Sprintf("Waiting for %d machines to be deleted: %s", len(seen.all), outcome.Names(names(seen.planned())))
		if problem != nil {
			message = problem.Error()
		}
		conditions.Set(s.infra, metav1.Condition{Type: infrav1.ReadyCondition, Status: metav1.ConditionFalse, Reason: infrav1.DeletingReason, Message: message})
	}))
}
