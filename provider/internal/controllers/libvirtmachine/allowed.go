package libvirtmachine

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/access"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/placement"
)

// isUnproven says whether the host that the spec names wasn't seen to have the machine's domain: its namespace must be
// allowed to use the host, whoever has named it. What is there stays when that changes. The status isn't asked, nor
// the Machine: whoever may do everything in their namespace can write both.
func (s *scope) isUnproven() bool {
	snapshot, _ := s.Hosts.Snapshot(s.infra.Spec.HostName)
	given := placement.GivenTo(s.infra, snapshot)
	return !given.Is || !s.isNamed(given.Domain)
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
	allowed, err := s.Scheduler.MayUse(ctx, s.infra.Namespace, host)
	if err != nil {
		return s.failed(infrav1.HostBoundCondition, infrav1.InternalErrorReason, err)
	}
	if allowed || s.isNamedThere(ctx, host) {
		return goOn, nil
	}
	return s.notAllowed()
}

// isNamedThere asks a host itself whether it has a domain of the machine's: what was last seen of it may be old. Only
// machines that say that they were provisioned are looked for.
func (s *scope) isNamedThere(ctx context.Context, host *infrav1.LibvirtHost) bool {
	connection, err := s.Hosts.Hypervisor(host.Name)
	if err != nil || !s.isProvisioned() {
		return false
	}
	domain, err := connection.Domain(ctx, s.uuid)
	return err == nil && s.isNamed(domain)
}

// isNamed says whether a domain's metadata say that it is this machine's. A name alone isn't enough for those that may
// not use the host.
func (s *scope) isNamed(domain hypervisor.Domain) bool {
	return domain.Owner != nil && !s.isTheirs(domain)
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
