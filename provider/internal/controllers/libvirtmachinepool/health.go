package libvirtmachinepool

import (
	"context"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	v1beta1conditions "sigs.k8s.io/cluster-api/util/conditions/deprecated/v1beta1"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/outcome"
)

// forgetRecovered takes the condition OwnerRemediated from Machines that are healthy again, as Cluster
// API's controller of MachineSets does with its own. A MachineHealthCheck sets it and leaves the rest to the
// owner. While the pool is paused, or before it gets to it, the node may recover; were the condition to stay,
// the next time that the Machine is unhealthy the pool would replace it although the MachineHealthCheck has
// reached the limit of what may be replaced at once.
func (s *scope) forgetRecovered(ctx context.Context, seen *members) error {
	var errs []error
	for _, m := range seen.all {
		if m.machine == nil || m.isDeleting() || !hasRecovered(m.machine) {
			continue
		}
		after := m.machine.DeepCopy()
		if isRecovered(after) {
			conditions.Delete(after, clusterv1.MachineOwnerRemediatedCondition)
		}
		if isRecoveredV1Beta1(after) {
			v1beta1conditions.Delete(after, clusterv1.MachineOwnerRemediatedV1Beta1Condition)
		}
		err := s.Client.Status().Patch(ctx, after, outcome.Over(m.machine))
		if client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("taking the condition %s from Machine %s, which is healthy again: %w", clusterv1.MachineOwnerRemediatedCondition, after.Name, err))
		}
	}
	return errors.Join(errs...)
}

func hasRecovered(machine *clusterv1.Machine) bool {
	return isRecovered(machine) || isRecoveredV1Beta1(machine)
}

func isRecovered(machine *clusterv1.Machine) bool {
	return conditions.IsTrue(machine, clusterv1.MachineHealthCheckSucceededCondition) && conditions.IsFalse(machine, clusterv1.MachineOwnerRemediatedCondition)
}

// isRecoveredV1Beta1 is isRecovered by the conditions of an older contract, which the Machine has as well.
func isRecoveredV1Beta1(machine *clusterv1.Machine) bool {
	return v1beta1conditions.IsTrue(machine, clusterv1.MachineHealthCheckSucceededV1Beta1Condition) && v1beta1conditions.IsFalse(machine, clusterv1.MachineOwnerRemediatedV1Beta1Condition)
}
