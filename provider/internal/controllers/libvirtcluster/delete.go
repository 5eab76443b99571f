package libvirtcluster

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/outcome"
)

// reconcileDelete lets the object go when no LibvirtMachine of the cluster is left: they need it to know which hosts
// are theirs. Cluster API deletes them first; somebody else may not. The last machine that goes brings the object
// here again. The load balancer goes after them, and the endpoint's address goes back to its pool then. The object
// waits for that too: an IPAM provider leaves claims alone whose Cluster is gone. It reports whether nothing is left
// to wait for.
func (r *Reconciler) reconcileDelete(ctx context.Context, s *scope) (bool, error) {
	ready := metav1.Condition{Type: infrav1.ReadyCondition, Status: metav1.ConditionFalse, Reason: infrav1.DeletingReason}
	names, err := r.machineNames(ctx, s.infra)
	switch {
	case err != nil:
	case len(names) > 0:
		ready.Message = fmt.Sprintf("Waiting for %d LibvirtMachines to be deleted: %s", len(names), outcome.Names(names))
	default:
		ready.Message, err = r.deleteBalancer(ctx, s)
		if err != nil || ready.Message != "" {
			break
		}
		var left []string
		left, err = r.claimer(s.infra).Release(ctx, []string{claimName(s.infra)})
		switch {
		case err != nil:
		case len(left) > 0:
			ready.Message = "Waiting for the IPAM provider to release IPAddressClaims: " + outcome.Names(left)
		default:
			return true, nil
		}
	}
	if err != nil {
		ready.Message = err.Error()
	}
	conditions.Set(s.infra, ready)
	return false, err
}

// machineNames lists the LibvirtMachines of the cluster, but for its load balancer.
func (r *Reconciler) machineNames(ctx context.Context, infra *infrav1.LibvirtCluster) ([]string, error) {
	name := clusterName(infra)
	if name == "" {
		return nil, nil // it never belonged to a Cluster
	}
	list := &infrav1.LibvirtMachineList{}
	if err := r.Client.List(ctx, list, client.InNamespace(infra.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: name}); err != nil {
		return nil, fmt.Errorf("listing the LibvirtMachines of the cluster: %w", err)
	}
	var names []string
	for i := range list.Items {
		if !isBalancerOf(&list.Items[i], infra) {
			names = append(names, list.Items[i].Name)
		}
	}
	return names, nil
}
