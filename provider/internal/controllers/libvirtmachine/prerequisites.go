package libvirtmachine

import (
	"context"

	"k8s.io/utils/ptr"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

func (s *scope) isUnbound() bool { return s.infra.Spec.HostName == "" }

// checkPrerequisites waits for what a machine needs before it gets a place.
func (s *scope) checkPrerequisites(context.Context) (verdict, error) {
	switch {
	case !s.machine.DeletionTimestamp.IsZero():
		return s.waitFor(infrav1.HostBoundCondition, infrav1.DeletingReason, "The Machine is being deleted")
	case !ptr.Deref(s.cluster.Status.Initialization.InfrastructureProvisioned, false):
		return s.waitFor(infrav1.HostBoundCondition, infrav1.WaitingForClusterInfrastructureReason,
			"Waiting for status.initialization.infrastructureProvisioned of the Cluster to be true")
	case s.machine.Spec.Bootstrap.DataSecretName == nil:
		return s.waitFor(infrav1.HostBoundCondition, infrav1.WaitingForBootstrapDataReason,
			"Waiting for spec.bootstrap.dataSecretName of the Machine to be set")
	}
	for i, nic := range s.infra.Spec.Interfaces {
		if len(nic.AddressesFromPools) > 0 {
			return s.waitFor(infrav1.AddressesReadyCondition, infrav1.AddressesFromPoolsNotSupportedReason,
				"This version claims no addresses from pools: leave spec.interfaces[%d].addressesFromPools out", i)
		}
	}
	return goOn, nil
}
