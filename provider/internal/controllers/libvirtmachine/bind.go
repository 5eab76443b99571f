package libvirtmachine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/labels/format"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/access"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/metrics"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/outcome"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/placement"
)

const (
	// noFitDelay is the delay before the next search for a host. A change of a host triggers a search sooner, but freed
	// resources don't.
	noFitDelay = 30 * time.Second
	// hostsDelay is how long machines without a host wait after a change of a host. When a manager starts, all hosts
	// change at about the same time: each machine is then reconciled once and not once per host.
	hostsDelay = 500 * time.Millisecond
)

func (s *scope) isUnbound() bool { return s.infra.Spec.HostName == "" }

// checkPrerequisites waits for the prerequisites of binding a machine to a host.
func (s *scope) checkPrerequisites(ctx context.Context) (verdict, error) {
	if s.isLoadBalancer() {
		return goOn, nil // the infrastructure of the Cluster waits for its load balancer
	}
	switch {
	case !s.machine.DeletionTimestamp.IsZero():
		return s.waitFor(infrav1.HostBoundCondition, infrav1.DeletingReason, "The Machine is being deleted")
	case !ptr.Deref(s.cluster.Status.Initialization.InfrastructureProvisioned, false):
		return s.waitFor(infrav1.HostBoundCondition, infrav1.WaitingForClusterInfrastructureReason,
			"Waiting for status.initialization.infrastructureProvisioned of the Cluster to be true")
	}
	_, problem, err := s.bootstrapSecret(ctx)
	if err != nil {
		return s.failed(infrav1.HostBoundCondition, infrav1.InternalErrorReason, err)
	}
	if problem != "" {
		s.requeueWithin(noFitDelay) // MachinePools aren't watched
		return s.waitFor(infrav1.HostBoundCondition, infrav1.WaitingForBootstrapDataReason, "%s", problem)
	}
	return goOn, nil
}

// bind chooses a host and writes it into the spec, together with the UUID for all names, before any object is created.
// They are in the spec because `clusterctl move` drops the status.
func (s *scope) bind(ctx context.Context) (verdict, error) {
	host, domain, err := s.Scheduler.Place(ctx, s.candidate())
	if err != nil {
		return s.notPlaced(ctx, err)
	}
	return stop, s.writeBinding(ctx, host, domain)
}

// isUnconfirmed reports whether the binding to the host is known from the spec only: this manager hasn't placed the
// machine there with these resources, the host has no started domain of it, and it isn't provisioned. An earlier
// manager may have placed it, a user may have set spec.hostName, or the spec may request more now.
func (s *scope) isUnconfirmed() bool {
	if s.isProvisioned() || s.Scheduler.Covers(s.infra.UID, placement.Needs(&s.infra.Spec)) {
		return false
	}
	snapshot, _ := s.Hosts.Snapshot(s.infra.Spec.HostName)
	given := placement.GivenTo(s.infra, snapshot)
	return !given.Is || !given.Domain.State.Started()
}

// confirmPlacement places the machine on the host in its spec. A later phase reports a missing host.
func (s *scope) confirmPlacement(ctx context.Context) (verdict, error) {
	if err := s.Scheduler.Claim(ctx, s.candidate()); err != nil {
		return s.notPlaced(ctx, err)
	}
	return goOn, nil
}

// candidate returns the machine in the form that the scheduler needs.
func (s *scope) candidate() placement.Candidate {
	return placement.Candidate{Infra: s.infra, Cluster: s.cluster, FailureDomain: s.failureDomain()}
}

// notPlaced sets the condition of a machine that can't be placed.
func (s *scope) notPlaced(ctx context.Context, err error) (verdict, error) {
	var later *placement.LaterError
	var taken *placement.MACTakenError
	var noFit *placement.NoFitError
	switch {
	case errors.As(err, &later):
		s.written = true // no result to report yet
		s.requeueWithin(later.After)
		return stop, nil
	case errors.Is(err, placement.ErrNotAllowed):
		return s.notAllowed()
	case errors.As(err, &taken):
		s.requeueWithin(noFitDelay)
		return s.waitFor(infrav1.HostBoundCondition, infrav1.MACAddressTakenReason, "%s", err.Error())
	case errors.As(err, &noFit):
		s.refreshImagePools(ctx, noFit)
		return s.noHostFits(noFit)
	}
	return s.failed(infrav1.HostBoundCondition, infrav1.InternalErrorReason, err)
}

// refreshImagePools refreshes the image pools of hosts that lack only the image: an administrator may have added it.
func (s *scope) refreshImagePools(ctx context.Context, why *placement.NoFitError) {
	for _, unfit := range why.Hosts {
		if unfit.Reason != placement.MissingImage {
			continue
		}
		host := &infrav1.LibvirtHost{}
		if err := s.Client.Get(ctx, client.ObjectKey{Name: unfit.Host}, host); err == nil {
			s.Hosts.RefreshPool(host.Name, host.Spec.StoragePools.Images)
		}
	}
}

// noHostFits sets the condition of a machine for which no host fits. While the first connections to hosts are being
// opened, the result of an earlier manager stays.
func (s *scope) noHostFits(why *placement.NoFitError) (verdict, error) {
	s.requeueWithin(noFitDelay)
	metrics.NoFit(why.Reasons()...)
	if !why.ForNow() {
		return s.waitFor(infrav1.HostBoundCondition, infrav1.NoHostFitsReason, "%s", why.Error())
	}
	previous := conditions.Get(s.infra, infrav1.HostBoundCondition)
	if previous != nil && previous.Reason == infrav1.NoHostFitsReason && previous.ObservedGeneration == s.infra.Generation {
		return stop, nil
	}
	return s.waitFor(infrav1.HostBoundCondition, infrav1.WaitingForHostsReason, "%s", why.Error())
}

// failureDomain returns the required failure domain, or "" for any. A load balancer has none.
func (s *scope) failureDomain() string {
	if s.machine == nil {
		return ""
	}
	return cmp.Or(s.machine.Spec.FailureDomain, s.infra.Annotations[infrav1.FailureDomainAnnotation])
}

// writeBinding writes the chosen host and the provider ID. The write fails if the object has changed since it was read.
func (s *scope) writeBinding(ctx context.Context, host, domain string) error {
	s.written = true
	before := s.infra.DeepCopy()
	s.infra.Spec.HostName = host
	s.infra.Spec.ProviderID = infrav1.ProviderIDPrefix + domain
	metav1.SetMetaDataLabel(&s.infra.ObjectMeta, infrav1.HostLabel, format.MustFormatValue(host))
	err := s.Client.Patch(ctx, s.infra, outcome.Over(before))
	s.Scheduler.ReleaseUnlessWritten(ctx, s.infra, err, func(now *infrav1.LibvirtMachine) bool { return now.Spec.HostName != "" })
	if err == nil {
		ctrl.LoggerFrom(ctx).Info("Bound the machine to a host", "LibvirtHost", host, "providerID", s.infra.Spec.ProviderID)
	}
	return outcome.Wrap(client.IgnoreNotFound(err), "writing spec.hostName and spec.providerID")
}

func (s *scope) clusterName() string {
	switch {
	case s.cluster != nil:
		return s.cluster.Name
	case s.machine != nil:
		return s.machine.Spec.ClusterName
	}
	return s.infra.Labels[clusterv1.ClusterNameLabel]
}

// lacksDomain reports whether the snapshot of the host lacks the machine's domain: then the namespace must be allowed
// to use the host. Existing domains stay when that changes. The status and the Machine are no proof of a domain,
// because users of the namespace can write both.
func (s *scope) lacksDomain() bool {
	snapshot, _ := s.Hosts.Snapshot(s.infra.Spec.HostName)
	given := placement.GivenTo(s.infra, snapshot)
	return !given.Is || !s.isNamed(given.Domain)
}

// checkAllowed stops machines whose namespace may not use their host: spec.hostName was set by a user, or the
// identity's allowedNamespaces or the namespace's labels have changed since the machine was bound.
func (s *scope) checkAllowed(ctx context.Context) (verdict, error) {
	err := s.readHost(ctx)
	if apierrors.IsNotFound(err) {
		return goOn, nil // the next phase reports it: the machine may have been allowed to use the host
	}
	if err != nil {
		return s.failed(infrav1.HostBoundCondition, infrav1.InternalErrorReason, err)
	}
	allowed, err := s.Scheduler.MayUse(ctx, s.infra.Namespace, s.host)
	if err != nil {
		return s.failed(infrav1.HostBoundCondition, infrav1.InternalErrorReason, err)
	}
	if allowed || s.hasDomainOnHost(ctx) {
		return goOn, nil
	}
	return s.notAllowed()
}

// hasDomainOnHost requests the machine's domain from the host, as the snapshot may be old. It does so for provisioned
// machines only.
func (s *scope) hasDomainOnHost(ctx context.Context) bool {
	connection, err := s.Hosts.Hypervisor(s.host.Name)
	if err != nil || !s.isProvisioned() {
		return false
	}
	domain, err := connection.Domain(ctx, s.uuid)
	return err == nil && s.isNamed(domain)
}

// isNamed reports whether the metadata of a domain has the name of this machine. For a machine that may not use the
// host, a domain name alone isn't enough.
func (s *scope) isNamed(domain hypervisor.Domain) bool {
	return domain.Owner != nil && !s.isForeign(domain)
}

// notAllowed sets the condition of a machine whose namespace may not use the host, without details.
func (s *scope) notAllowed() (verdict, error) {
	s.requeueWithin(noFitDelay) // namespaces aren't watched
	return s.waitFor(infrav1.HostBoundCondition, infrav1.NamespaceNotAllowedReason, "%s", access.NotAllowed(s.infra.Namespace))
}

// nameOf returns the name of another LibvirtMachine if it is in the same namespace.
func (s *scope) nameOf(namespace, name string) string {
	if namespace != s.infra.Namespace {
		return "a LibvirtMachine of another namespace"
	}
	return fmt.Sprintf("LibvirtMachine %s/%s", namespace, name)
}
