package libvirtcluster

import (
	"cmp"
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/claims"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/outcome"
)

// +kubebuilder:rbac:groups=ipam.cluster.x-k8s.io,resources=ipaddressclaims,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=ipam.cluster.x-k8s.io,resources=ipaddresses,verbs=get;list;watch

// defaultPort is that of API servers, unless the Cluster or the LibvirtCluster says another one.
const defaultPort = 6443

// claimName is the name of the IPAddressClaim for the control plane endpoint. No LibvirtMachine's claim
// has such a name: theirs end with numbers.
func claimName(infra *infrav1.LibvirtCluster) string { return infra.Name + "-control-plane-endpoint" }

func (r *Reconciler) claimer(infra *infrav1.LibvirtCluster) claims.Claimer {
	return claims.Claimer{Client: r.Client, APIReader: r.APIReader, Owner: infra, Cluster: clusterName(infra)}
}

// claimEndpoint claims the address of a control plane endpoint that has none from the pool that is named for it, and
// writes it into the spec, by itself as takeEndpoint does. It reports whether it has written, and in problem why
// there is no address.
func (r *Reconciler) claimEndpoint(ctx context.Context, infra *infrav1.LibvirtCluster, cluster *clusterv1.Cluster) (written bool, problem, err error) {
	pool := infra.Spec.ControlPlaneLoadBalancer.AddressFromPool
	if cluster == nil || pool == nil || !infra.DeletionTimestamp.IsZero() || infra.Spec.ControlPlaneEndpoint.Host != "" || cluster.Spec.ControlPlaneEndpoint.Host != "" {
		return false, nil, nil
	}
	address, problem := r.claimer(infra).Ensure(ctx, claimName(infra), *pool)
	if problem != nil {
		return false, problem, nil
	}
	after := infra.DeepCopy()
	after.Spec.ControlPlaneEndpoint.Host = address.Addr().String()
	after.Spec.ControlPlaneEndpoint.Port = endpointPort(infra, cluster)
	if err := r.Client.Patch(ctx, after, outcome.Over(infra)); err != nil {
		return false, nil, err
	}
	endpoint := after.Spec.ControlPlaneEndpoint.String()
	ctrl.LoggerFrom(ctx).Info("Claimed the control plane endpoint", "endpoint", endpoint, "IPAddressClaim", claimName(infra))
	r.recorder.Eventf(after, nil, corev1.EventTypeNormal, infrav1.ControlPlaneEndpointSetReason, "ClaimEndpoint",
		"%s was allocated for IPAddressClaim %s", endpoint, claimName(infra))
	return true, nil, nil
}

// endpointPort is that of an endpoint that may have none so far.
func endpointPort(infra *infrav1.LibvirtCluster, cluster *clusterv1.Cluster) int32 {
	return cmp.Or(infra.Spec.ControlPlaneEndpoint.Port, cluster.Spec.ControlPlaneEndpoint.Port, cluster.Spec.ClusterNetwork.APIServerPort, defaultPort)
}

// claimCondition says why there is no address for the endpoint.
func claimCondition(problem error) metav1.Condition {
	reason := infrav1.AddressClaimFailedReason
	if notGiven := claims.NotGiven(problem); notGiven != nil && !notGiven.Failed {
		reason = infrav1.WaitingForAddressReason
	}
	return metav1.Condition{Status: metav1.ConditionFalse, Reason: reason, Message: problem.Error()}
}
