package libvirtcluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// takeEndpoint writes the endpoint that users have given to the Cluster into a LibvirtCluster that
// has none, and says whether it did. The LibvirtCluster's own one is never changed.
//
// It is written by itself, before anything else: status.initialization.provisioned must not be true
// while the endpoint isn't there (contract of InfraCluster, "control plane endpoint").
func (r *Reconciler) takeEndpoint(ctx context.Context, infra *infrav1.LibvirtCluster, cluster *clusterv1.Cluster) (bool, error) {
	if cluster == nil || !infra.DeletionTimestamp.IsZero() ||
		infra.Spec.ControlPlaneEndpoint.IsValid() || !cluster.Spec.ControlPlaneEndpoint.IsValid() ||
		contradicts(infra.Spec.ControlPlaneEndpoint, cluster.Spec.ControlPlaneEndpoint) {
		return false, nil
	}
	after := infra.DeepCopy()
	after.Spec.ControlPlaneEndpoint = cluster.Spec.ControlPlaneEndpoint
	if err := r.Client.Patch(ctx, after, client.MergeFromWithOptions(infra, client.MergeFromWithOptimisticLock{})); err != nil {
		return false, err
	}
	endpoint := after.Spec.ControlPlaneEndpoint.String()
	ctrl.LoggerFrom(ctx).Info("Took the control plane endpoint over from the Cluster", "endpoint", endpoint)
	r.recorder.Eventf(after, nil, corev1.EventTypeNormal, infrav1.ControlPlaneEndpointSetReason, "TakeEndpoint",
		"Took %s over from spec.controlPlaneEndpoint of the Cluster", endpoint)
	return true, nil
}

// contradicts says whether what own has of an endpoint isn't what theirs is.
func contradicts(own, theirs clusterv1.APIEndpoint) bool {
	return own.Host != "" && own.Host != theirs.Host || own.Port != 0 && own.Port != theirs.Port
}

// setEndpointCondition says whether the control plane endpoint is known, and its load balancer runs.
func setEndpointCondition(s *scope) {
	condition := endpointCondition(&s.infra.Spec, s.cluster.Spec.ControlPlaneEndpoint, s.noAddress)
	// Without an address of its own the endpoint waits for the load balancer's, and nothing else.
	if s.balancer != nil && (condition.Status == metav1.ConditionTrue || condition.Reason == infrav1.WaitingForControlPlaneEndpointReason) {
		condition = *s.balancer
	}
	condition.Type = infrav1.ControlPlaneEndpointReadyCondition
	conditions.Set(s.infra, condition)
}

func endpointCondition(spec *infrav1.LibvirtClusterSpec, ofCluster clusterv1.APIEndpoint, noAddress error) metav1.Condition {
	own := spec.ControlPlaneEndpoint
	no := func(reason, message string) metav1.Condition {
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: reason, Message: message}
	}
	switch {
	case ofCluster.IsValid() && contradicts(own, ofCluster):
		return no(infrav1.ControlPlaneEndpointMismatchReason, fmt.Sprintf(
			"spec.controlPlaneEndpoint is %s:%d, and that of the Cluster is %s: nodes and kubeconfigs use the Cluster's", own.Host, own.Port, ofCluster.String()))
	case own.IsValid():
		return metav1.Condition{Status: metav1.ConditionTrue, Reason: infrav1.ControlPlaneEndpointSetReason}
	case noAddress != nil:
		return claimCondition(noAddress)
	}
	return no(infrav1.WaitingForControlPlaneEndpointReason,
		"Waiting for spec.controlPlaneEndpoint to be set, here or on the Cluster")
}
