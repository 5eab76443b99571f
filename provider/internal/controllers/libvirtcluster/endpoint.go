package libvirtcluster

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/claims"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/outcome"
)

// setEndpoint writes the endpoint of a cluster once it is known, and reports whether it has written. problem is the
// reason why there is no address from the pool.
func (r *Reconciler) setEndpoint(ctx context.Context, infra *infrav1.LibvirtCluster, cluster *clusterv1.Cluster) (written bool, problem, err error) {
	if cluster == nil || !infra.DeletionTimestamp.IsZero() {
		return false, nil, nil
	}
	if own, ofCluster := infra.Spec.ControlPlaneEndpoint, cluster.Spec.ControlPlaneEndpoint; !own.IsValid() && ofCluster.IsValid() && !contradicts(own, ofCluster) {
		return true, nil, r.writeEndpoint(ctx, infra, ofCluster, nil, "TakeEndpoint", "Copied %s from spec.controlPlaneEndpoint of the Cluster", ofCluster.String())
	}
	if written, problem, err = r.claimEndpoint(ctx, infra, cluster); err != nil || written {
		return written, problem, err
	}
	written, err = r.takeBalancersEndpoint(ctx, infra, cluster)
	return written, problem, err
}

// writeEndpoint writes the endpoint, and records an event with its source.
//
// It is a separate write: status.initialization.provisioned must not be true without an endpoint (contract for
// InfraCluster, "control plane endpoint").
func (r *Reconciler) writeEndpoint(ctx context.Context, infra *infrav1.LibvirtCluster, endpoint clusterv1.APIEndpoint, related runtime.Object,
	action, source string, values ...any) error {
	after := infra.DeepCopy()
	after.Spec.ControlPlaneEndpoint = endpoint
	if err := r.Client.Patch(ctx, after, outcome.Over(infra)); err != nil {
		return err
	}
	ctrl.LoggerFrom(ctx).Info("Set the control plane endpoint", "endpoint", endpoint.String(), "source", fmt.Sprintf(source, values...))
	r.recorder.Eventf(after, related, corev1.EventTypeNormal, infrav1.ControlPlaneEndpointSetReason, action, source, values...)
	return nil
}

// lookForEndpoint looks for another LibvirtCluster that had the endpoint first. Machines of both clusters would answer
// at it.
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
			owner := "A LibvirtCluster of another namespace" // names in other namespaces aren't shown
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

// sharesEndpoint reports whether another LibvirtCluster of this provider has the same endpoint.
func sharesEndpoint(infra, other *infrav1.LibvirtCluster) bool {
	return client.ObjectKeyFromObject(infra) != client.ObjectKeyFromObject(other) && controllerutil.ContainsFinalizer(other, infrav1.ClusterFinalizer) &&
		infra.Spec.ControlPlaneEndpoint == other.Spec.ControlPlaneEndpoint
}

// isFirst reports whether one of two LibvirtClusters keeps their endpoint: the provisioned one, or the older one.
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

// contradicts reports whether a set field of own differs from the one of other.
func contradicts(own, other clusterv1.APIEndpoint) bool {
	return own.Host != "" && own.Host != other.Host || own.Port != 0 && own.Port != other.Port
}

// setEndpointCondition sets the condition ControlPlaneEndpointReady.
func setEndpointCondition(s *scope) {
	condition := endpointCondition(&s.infra.Spec, s.cluster.Spec.ControlPlaneEndpoint, s.noAddress)
	if s.taken != "" && condition.Status == metav1.ConditionTrue {
		condition = metav1.Condition{Status: metav1.ConditionFalse, Reason: infrav1.ControlPlaneEndpointTakenReason, Message: s.taken}
	}
	// An endpoint without a configured address waits for the load balancer's address only.
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

// +kubebuilder:rbac:groups=ipam.cluster.x-k8s.io,resources=ipaddressclaims,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=ipam.cluster.x-k8s.io,resources=ipaddresses,verbs=get;list;watch

// defaultPort is the port of an API server if no field sets another one.
const defaultPort = 6443

// claimName returns the name of the endpoint's IPAddressClaim. The names of machines' claims end with numbers.
func claimName(infra *infrav1.LibvirtCluster) string { return infra.Name + "-control-plane-endpoint" }

func (r *Reconciler) claimer(infra *infrav1.LibvirtCluster) claims.Claimer {
	return claims.Claimer{Client: r.Client, APIReader: r.APIReader, Owner: infra, Cluster: clusterName(infra)}
}

// claimEndpoint claims an address from the pool for an endpoint without one. problem is the reason why there is no
// address.
func (r *Reconciler) claimEndpoint(ctx context.Context, infra *infrav1.LibvirtCluster, cluster *clusterv1.Cluster) (written bool, problem, err error) {
	pool := infra.Spec.ControlPlaneLoadBalancer.AddressFromPool
	if pool == nil || infra.Spec.ControlPlaneEndpoint.Host != "" || cluster.Spec.ControlPlaneEndpoint.Host != "" {
		return false, nil, nil
	}
	address, problem := r.claimer(infra).Ensure(ctx, claimName(infra), *pool)
	if problem != nil {
		return false, problem, nil
	}
	endpoint := clusterv1.APIEndpoint{Host: address.Addr().String(), Port: endpointPort(infra, cluster)}
	return true, nil, r.writeEndpoint(ctx, infra, endpoint, nil, "ClaimEndpoint", "%s was allocated for IPAddressClaim %s", endpoint.String(), claimName(infra))
}

// endpointPort returns the port of the endpoint, also before the endpoint is known.
func endpointPort(infra *infrav1.LibvirtCluster, cluster *clusterv1.Cluster) int32 {
	return cmp.Or(infra.Spec.ControlPlaneEndpoint.Port, cluster.Spec.ControlPlaneEndpoint.Port, cluster.Spec.ClusterNetwork.APIServerPort, defaultPort)
}

// claimCondition returns the condition of an endpoint without an address.
func claimCondition(problem error) metav1.Condition {
	reason := infrav1.AddressClaimFailedReason
	if notGiven := claims.NotGiven(problem); notGiven != nil && !notGiven.Failed {
		reason = infrav1.WaitingForAddressReason
	}
	return metav1.Condition{Status: metav1.ConditionFalse, Reason: reason, Message: problem.Error()}
}
