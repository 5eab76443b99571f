package libvirtmachine

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/access"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// isUnproven says whether the status doesn't say that the machine was provisioned: its namespace must be allowed
// to use the host that its spec names, whoever has named it. What was provisioned stays when that changes.
func (s *scope) isUnproven() bool {
	return !ptr.Deref(s.infra.Status.Initialization.Provisioned, false)
}

// checkAllowed stops machines whose namespace may not use their host: somebody has written
// spec.hostName by hand, or the identity's allowedNamespaces or the namespace's labels have changed since
// the machine was bound.
func (s *scope) checkAllowed(ctx context.Context) (verdict, error) {
	host := &infrav1.LibvirtHost{}
	err := s.Client.Get(ctx, client.ObjectKey{Name: s.infra.Spec.HostName}, host)
	if apierrors.IsNotFound(err) {
		return goOn, nil // which is said in the next phase: the machine may have been bound to it by right
	}
	if err != nil {
		return s.failed(infrav1.HostBoundCondition, infrav1.InternalErrorReason, fmt.Errorf("reading LibvirtHost %s: %w", s.infra.Spec.HostName, err))
	}
	allowed, err := s.mayUse(ctx, host)
	if err != nil {
		return s.failed(infrav1.HostBoundCondition, infrav1.InternalErrorReason, err)
	}
	if !allowed && !s.wasMoved(ctx, host) {
		return s.notAllowed()
	}
	return goOn, nil
}

// wasMoved says whether a machine without a status was provisioned: its Machine says so, which whoever may write
// Machines can write, and so does the host.
func (s *scope) wasMoved(ctx context.Context, host *infrav1.LibvirtHost) bool {
	if !s.isProvisioned() {
		return false
	}
	connection, err := s.Hosts.Hypervisor(host.Name)
	if err != nil {
		return false
	}
	is, err := s.isNamedOn(ctx, connection)
	return err == nil && is
}

// isNamedOn says whether a host has a domain whose metadata says that it is this machine's.
func (s *scope) isNamedOn(ctx context.Context, connection hypervisor.Hypervisor) (bool, error) {
	domain, err := connection.Domain(ctx, s.uuid)
	if errors.Is(err, hypervisor.ErrNotFound) {
		return false, nil
	}
	return err == nil && domain.Owner != nil && !s.isTheirs(domain), err
}

// mayUse says whether the machine's namespace may use a host as things are now.
func (s *scope) mayUse(ctx context.Context, host *infrav1.LibvirtHost) (bool, error) {
	identities, namespace := &infrav1.LibvirtClusterIdentityList{}, &corev1.Namespace{}
	if err := s.Client.Get(ctx, client.ObjectKey{Name: s.infra.Namespace}, namespace); err != nil {
		return false, fmt.Errorf("reading the namespace: %w", err)
	}
	if err := s.Client.List(ctx, identities); err != nil {
		return false, fmt.Errorf("listing LibvirtClusterIdentities: %w", err)
	}
	return access.Host(host, identities.Items, namespace), nil
}

// isStranger says that nothing shows that the machine was ever let in on its host: its namespace may not use the
// host, and the status doesn't say that it once did. Then spec.hostName and spec.providerID may have been written
// by hand, by somebody who may write LibvirtMachines and not their status. A machine whose host was closed to its
// namespace afterwards is none, unless `clusterctl move` has dropped its status.
func (s *scope) isStranger(ctx context.Context) (bool, error) {
	// Set with the first look at the host, before anything is made there, and never taken away.
	if s.infra.Status.FailureDomain != "" || ptr.Deref(s.infra.Status.Initialization.Provisioned, false) {
		return false, nil
	}
	allowed, err := s.mayUse(ctx, s.host)
	return err == nil && !allowed, err
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
