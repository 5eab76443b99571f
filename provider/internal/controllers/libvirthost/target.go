package libvirthost

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/fleet"
)

// targetError says why it isn't known how to reach a host.
type targetError struct{ reason, message string }

// Error returns the message.
func (e *targetError) Error() string { return e.message }

// target returns how a host is reached. The error is a *targetError when somebody has to change something for
// that, and the target then is without what is missing.
func (r *Reconciler) target(ctx context.Context, host *infrav1.LibvirtHost) (fleet.Target, error) {
	data, missing := r.credentials(ctx, host.Spec.IdentityRef)
	target, err := fleet.TargetOf(&host.Spec, data)
	if err != nil {
		return fleet.Target{}, &targetError{infrav1.ConnectionFailedReason, err.Error()}
	}
	target.UUID = hypervisorUUID(host)
	return target, missing
}

// credentials reads the Secret of an identity. Whether what is in it can be used is for the
// connection to say, and for the identity's own condition.
func (r *Reconciler) credentials(ctx context.Context, ref *infrav1.ClusterIdentityReference) (map[string][]byte, error) {
	if ref == nil {
		return nil, nil
	}
	identity, secret := &infrav1.LibvirtClusterIdentity{}, &corev1.Secret{}
	err := r.Client.Get(ctx, client.ObjectKey{Name: ref.Name}, identity)
	if apierrors.IsNotFound(err) {
		return nil, &targetError{infrav1.IdentityNotFoundReason, fmt.Sprintf("LibvirtClusterIdentity %s doesn't exist", ref.Name)}
	}
	if err != nil {
		return nil, fmt.Errorf("reading LibvirtClusterIdentity %s: %w", ref.Name, err)
	}
	key := client.ObjectKey{Namespace: identity.Spec.SecretRef.Namespace, Name: identity.Spec.SecretRef.Name}
	err = r.Client.Get(ctx, key, secret)
	if apierrors.IsNotFound(err) {
		return nil, &targetError{infrav1.IdentityNotFoundReason,
			fmt.Sprintf("Secret %s of LibvirtClusterIdentity %s doesn't exist", key, ref.Name)}
	}
	if err != nil {
		return nil, fmt.Errorf("reading Secret %s of LibvirtClusterIdentity %s: %w", key, ref.Name, err)
	}
	return secret.Data, nil
}
