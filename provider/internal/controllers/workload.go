package controllers

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/core/setup"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/feature"
)

// WorkloadClusters registers what keeps the connections to the workload clusters whose infrastructure is a
// LibvirtCluster, with their kubeconfigs. It returns nil when no feature that is on needs them. name is that
// of the manager.
func WorkloadClusters(ctx context.Context, mgr ctrl.Manager, name string) (clustercache.ClusterCache, error) {
	if !feature.Gates.Enabled(feature.NodeProviderIDs) {
		return nil, nil
	}
	// The manager's client reads Secrets one by one, past the cache: a kubeconfig is read for each connection.
	clusters, err := clustercache.SetupWithManager(ctx, mgr, clustercache.Options{
		SecretClient:  mgr.GetClient(),
		ClusterFilter: ofLibvirt,
		Cache:         setup.ClusterCacheCacheOptions(),
		Client:        setup.ClusterCacheClientOptions(name, 20, 30),
	}, controller.Options{MaxConcurrentReconciles: 10})
	if err != nil {
		return nil, fmt.Errorf("setting up the connections to workload clusters: %w", err)
	}
	return clusters, nil
}

func ofLibvirt(cluster *clusterv1.Cluster) bool {
	infra := cluster.Spec.InfrastructureRef
	return infra.APIGroup == infrav1.GroupVersion.Group && infra.Kind == "LibvirtCluster"
}
