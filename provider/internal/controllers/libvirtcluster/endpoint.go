package libvirtcluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/outcome"
)

// takeEndpoint writes the endpoint that users have given to the Cluster into a LibvirtCluster that has none, and
// reports whether it did. The LibvirtCluster's own one is never changed.
//
// It is a separate write before all others: status.initialization.provisioned must not be true without an endpoint
// (contract of InfraCluster, "control plane endpoint").
func (r *Reconciler) takeEndpoint(ctx context.Context, infra *infrav1.LibvirtCluster, cluster *clusterv1.Cluster) (bool, error) {
	if cluster == nil || !infra.DeletionTimestamp.IsZero() ||
		infra.Spec.ControlPlaneEndpoint.IsValid() || !cluster.Spec.ControlPlaneEndpoint.IsValid() ||
		contradicts(infra.Spec.ControlPlaneEndpoint, cluster.Spec.ControlPlaneEndpoint) {
		return false, nil
	}
	after := infra.DeepCopy()
	after.Spec.ControlPlaneEndpoint = cluster.Spec.ControlPlaneEndpoint
	if err := r.Client.Patch(ctx, after, outcome.Over(infra)); err != nil {
		return false, err
	}
	endpoint := after.Spec.ControlPlaneEndpoint.String()
	ctrl.LoggerFrom(ctx).Info("Took the control plane endpoint over from the Cluster", "endpoint", endpoint)
	r.recorder.Eventf(after, nil, corev1.EventTypeNormal, infrav1.ControlPlaneEndpointSetReason, "TakeEndpoint",
		"Copied %s from spec.controlPlaneEndpoint of the Cluster", endpoint)
	return true, nil
}

// lookForEndpoint looks for another LibvirtCluster that had the endpoint first: it is provisioned and this one isn't,
// or it is older. Machines of both clusters would answer for the endpoint.
func (r *Reconciler) lookForEndpoint(ctx context.Context, s *scope) error {
	if !s.infra.Spec.ControlPlaneEndpoint.IsValid() {
		return nil
	}
	list := &infrav1.LibvirtClusterList{}
	if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing LibvirtClusters: %w", err)
	}
	for i := range list.Items {
		if other := &list.Items[i]; sharesEndpoint(s.infra, other) && isFirst(other, s.infra) {
			owner := "A LibvirtCluster of another namespace" // whose names aren't for everybody
			if other.Namespace == s.infra.Namespace {
				owner = "LibvirtCluster " + other.Name
			}
			s.taken = fmt.Sprintf("%s has the endpoint %s: recreate this cluster with another endpoint, or delete the other cluster",
				owner, s.infra.Spec.ControlPlaneEndpoint.String())
			return nil
		}
	}
	return nil
}

// sharesEndpoint reports whether another LibvirtCluster, of which this provider takes care, has the same endpoint.
func sharesEndpoint(infra, other *infrav1.LibvirtCluster) bool {
	return client.ObjectKeyFromObject(infra) != client.ObjectKeyFromObject(other) && controllerutil.ContainsFinalizer(other, infrav1.ClusterFinalizer) &&
		infra.Spec.ControlPlaneEndpoint == other.Spec.ControlPlaneEndpoint
}

// isFirst reports whether one of two LibvirtClusters keeps the endpoint that both have.
func isFirst(one, other *infrav1.LibvirtCluster) bool {
	provisioned := ptr.Deref(one.Status.Initialization.Provisioned, false)
	switch {
	case provisioned != ptr.Deref(other.Status.Initialization.Provisioned, false):
		return provisioned
	case !one.CreationTimestamp.Equal(&other.CreationTimestamp):
		return one.CreationTimestamp.Before(&other.CreationTimestamp)
	}
	return client.ObjectKeyFromObject(one).String() < client.ObjectKeyFromObject(other).String()
}

// contradicts reports whether the set fields of own differ from theirs.
func contradicts(own, theirs clusterv1.APIEndpoint) bool {
	return own.Host != "" && own.Host != theirs.Host || own.Port != 0 && own.Port != theirs.Port
}

// setEndpointCondition sets the condition ControlPlaneEndpointReady.
func setEndpointCondition(s *scope) {
	condition := endpointCondition(&s.infra.Spec, s.cluster.Spec.ControlPlaneEndpoint, s.noAddress)
	if s.taken != "" && condition.Status == metav1.ConditionTrue {
		condition = metav1.Condition{Status: metav1.ConditionFalse, Reason: infrav1.ControlPlaneEndpointTakenReason, Message: s.taken}
	}
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
