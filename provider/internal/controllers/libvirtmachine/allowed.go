package libvirtmachine

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/access"
)

// isUnproven says whether the machine was never provisioned: its namespace must be allowed to use the
// host that its spec names, whoever has named it. What was provisioned stays when that changes.
func (s *scope) isUnproven() bool { return !s.isProvisioned() }

// checkAllowed stops machines whose namespace may not use their host: somebody has written
// spec.hostName by hand, or the identity's allowedNamespaces or the namespace's labels have changed since
// the machine was bound.
func (s *scope) checkAllowed(ctx context.Context) (verdict, error) {
	host, identities, namespace := &infrav1.LibvirtHost{}, &infrav1.LibvirtClusterIdentityList{}, &corev1.Namespace{}
	if err := s.Client.Get(ctx, client.ObjectKey{Name: s.infra.Namespace}, namespace); err != nil {
		return s.failed(infrav1.HostBoundCondition, infrav1.InternalErrorReason, fmt.Errorf("reading the namespace: %w", err))
	}
	err := s.Client.Get(ctx, client.ObjectKey{Name: s.infra.Spec.HostName}, host)
	if apierrors.IsNotFound(err) {
		return goOn, nil // which is said in the next phase: the machine may have been bound to it by right
	}
	if err != nil {
		return s.failed(infrav1.HostBoundCondition, infrav1.InternalErrorReason, fmt.Errorf("reading LibvirtHost %s: %w", s.infra.Spec.HostName, err))
	}
	if err := s.Client.List(ctx, identities); err != nil {
		return s.failed(infrav1.HostBoundCondition, infrav1.InternalErrorReason, fmt.Errorf("listing LibvirtClusterIdentities: %w", err))
	}
	if !access.Host(host, identities.Items, namespace) {
		return s.notAllowed()
	}
	return goOn, nil
}

// notAllowed says that the namespace gets nothing, and no more than that.
func (s *scope) notAllowed() (verdict, error) {
	s.lookAgain(noFitDelay) // namespaces aren't watched
	return s.waitFor(infrav1.HostBoundCondition, infrav1.NamespaceNotAllowedReason, "%s", access.NotAllowed(s.infra.Namespace))
}

// nameOf names another LibvirtMachine, as far as it may be known in this namespace.
func (s *scope) nameOf(namespace, name string) string {
	if namespace != s.infra.Namespace {
		return "a LibvirtMachine of another namespace"
	}
	return fmt.Sprintf("LibvirtMachine %s/%s", namespace, name)
}
