// Package secretwatch watches the metadata of the Secrets of LibvirtClusterIdentities in one namespace. It needs no
// rights for Secrets of other namespaces, and stores no content.
package secretwatch

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// Watch watches the Secrets of one namespace. It may be nil.
type Watch struct {
	cache     cache.Cache
	client    client.Client
	namespace string
}

// New adds a watch of a namespace to a manager, whose own cache has only Secrets of clusters.
func New(mgr ctrl.Manager, namespace string) (*Watch, error) {
	secrets, err := cache.New(mgr.GetConfig(), cache.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		DefaultNamespaces: map[string]cache.Config{namespace: {}}, DefaultTransform: cache.TransformStripManagedFields()})
	if err != nil {
		return nil, fmt.Errorf("creating a cache of the metadata of Secrets: %w", err)
	}
	if err := mgr.Add(secrets); err != nil {
		return nil, fmt.Errorf("adding the watch of Secrets to the manager: %w", err)
	}
	return &Watch{cache: secrets, client: mgr.GetClient(), namespace: namespace}, nil
}

// Covers reports whether an identity's Secret is watched.
func (w *Watch) Covers(identity *infrav1.LibvirtClusterIdentity) bool {
	return w != nil && identity.Spec.SecretRef.Namespace == w.namespace
}

// Source triggers the mapped reconciles of each identity whose Secret was created, changed or deleted.
func (w *Watch) Source(mapped func(context.Context, client.Object) []ctrl.Request) source.Source {
	secret := &metav1.PartialObjectMetadata{}
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	return source.Kind[client.Object](w.cache, secret, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, secret client.Object) []ctrl.Request {
		var requests []ctrl.Request
		for _, identity := range identities(ctx, w.client, client.ObjectKeyFromObject(secret)) {
			requests = append(requests, mapped(ctx, &identity)...)
		}
		return requests
	}))
}

// identities returns the LibvirtClusterIdentities that refer to a Secret.
func identities(ctx context.Context, c client.Client, secret types.NamespacedName) []infrav1.LibvirtClusterIdentity {
	list := &infrav1.LibvirtClusterIdentityList{}
	if err := c.List(ctx, list); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing LibvirtClusterIdentities")
		return nil
	}
	var referring []infrav1.LibvirtClusterIdentity
	for _, identity := range list.Items {
		if ref := identity.Spec.SecretRef; ref.Namespace == secret.Namespace && ref.Name == secret.Name {
			referring = append(referring, identity)
		}
	}
	return referring
}
