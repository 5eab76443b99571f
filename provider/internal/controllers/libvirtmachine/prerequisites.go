package libvirtmachine

import (
	"context"

	"k8s.io/utils/ptr"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

func (s *scope) isUnbound() bool { return s.infra.Spec.HostName == "" }

// checkPrerequisites waits for what a machine needs before it gets a place.
func (s *scope) checkPrerequisites(ctx context.Context) (verdict, error) {
	if s.isLoadBalancer() {
		return goOn, nil // the Cluster's infrastructure waits for it, and its LibvirtCluster makes it when it is to be there
	}
	switch {
	case !s.machine.DeletionTimestamp.IsZero():
		return s.waitFor(infrav1.HostBoundCondition, infrav1.DeletingReason, "The Machine is being deleted")
	case !ptr.Deref(s.cluster.Status.Initialization.InfrastructureProvisioned, false):
		return s.waitFor(infrav1.HostBoundCondition, infrav1.WaitingForClusterInfrastructureReason,
			"Waiting for status.initialization.infrastructureProvisioned of the Cluster to be true")
	}
	_, problem, err := s.bootstrapSecret(ctx)
	if err != nil {
		return s.failed(infrav1.HostBoundCondition, infrav1.InternalErrorReason, err)
	}
	if problem != "" {
		s.lookAgain(noFitDelay) // Machines are watched, MachinePools aren't: their machines are made when there is bootstrap data
		return s.waitFor(infrav1.HostBoundCondition, infrav1.WaitingForBootstrapDataReason, "%s", problem)
	}
	return goOn, nil
}
