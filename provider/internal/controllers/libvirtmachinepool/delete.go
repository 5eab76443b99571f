package libvirtmachinepool

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// reconcileDelete deletes the machines, and lets the pool go when all are gone. The last one that goes
// brings the object here again.
func (s *scope) reconcileDelete(ctx context.Context) error {
	seen, err := s.machines(ctx, s.APIReader)
	if err != nil {
		return err
	}
	var problem error
	for _, m := range seen.all {
		problem = errors.Join(problem, s.deleteMember(ctx, m))
	}
	for _, machine := range seen.dangling {
		problem = errors.Join(problem, s.deleteDangling(ctx, machine))
	}
	if problem == nil && len(seen.all) == 0 {
		before := s.infra.DeepCopy()
		controllerutil.RemoveFinalizer(s.infra, infrav1.MachinePoolFinalizer)
		err := s.Client.Patch(ctx, s.infra, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		return wrap(client.IgnoreNotFound(err), "removing the finalizer")
	}
	return errors.Join(problem, s.writeStatus(ctx, func() {
		message := fmt.Sprintf("Waiting for %d machines to be deleted: %s", len(seen.all), shorten(names(seen.planned())))
		if problem != nil {
			message = problem.Error()
		}
		conditions.Set(s.infra, metav1.Condition{Type: infrav1.ReadyCondition, Status: metav1.ConditionFalse, Reason: infrav1.DeletingReason, Message: message})
	}))
}
