package controllers

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/core/setup"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/feature"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/index"
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
		Cache:         cacheOptions(),
		Client:        setup.ClusterCacheClientOptions(name, 20, 30),
	}, controller.Options{MaxConcurrentReconciles: 10})
	if err != nil {
		return nil, fmt.Errorf("setting up the connections to workload clusters: %w", err)
	}
	return clusters, nil
}

// cacheOptions let the node of a machine be found among thousands.
func cacheOptions() clustercache.CacheOptions {
	options := setup.ClusterCacheCacheOptions()
	options.Indexes = append(options.Indexes, clustercache.CacheOptionsIndex{Object: &corev1.Node{}, Field: index.NodeDomain, ExtractValue: index.DomainsOf})
	return options
}

func ofLibvirt(cluster *clusterv1.Cluster) bool {
	infra := cluster.Spec.InfrastructureRef
	return infra.APIGroup == infrav1.GroupVersion.Group && infra.Kind == "LibvirtCluster"
}
