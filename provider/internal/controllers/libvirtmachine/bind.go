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
	// noFitDelay is how long to wait before looking for a host once more. Changes of hosts do it sooner;
	// room that other machines give back isn't announced.
	noFitDelay = 30 * time.Second
	// hostsDelay is how long machines without a host wait after a change of a host: when a manager begins,
	// all hosts change within a moment, and that is one look for each machine and not one for each host.
	hostsDelay = 500 * time.Millisecond
)

func (s *scope) isUnbound() bool { return s.infra.Spec.HostName == "" }

// checkPrerequisites waits for what a machine needs before it gets a place.
func (s *scope) checkPrerequisites(ctx context.Context) (verdict, error) {
	if s.isLoadBalancer() {
		return goOn, nil // the Cluster's infrastructure waits for it, and its LibvirtCluster makes it when it is to be there
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
		s.lookAgain(noFitDelay) // Machines are watched, MachinePools aren't: their machines are made when there is bootstrap data
		return s.waitFor(infrav1.HostBoundCondition, infrav1.WaitingForBootstrapDataReason, "%s", problem)
	}
	return goOn, nil
}

// bind chooses a host and writes it into the spec, together with the UUID that everything is named
// from, before anything is made. In the spec, because `clusterctl move` drops the status.
func (s *scope) bind(ctx context.Context) (verdict, error) {
	host, domain, err := s.Scheduler.Place(ctx, s.candidate())
	if err != nil {
		return s.notPlaced(ctx, err)
	}
	return stop, s.writeAhead(ctx, host, domain)
}

// isClaim says whether only the spec says that the machine has on its host what it asks for: this manager hasn't placed
// it there with as much, the host hasn't been seen to have its domain, and it wasn't provisioned, after which nothing is
// made for it. An earlier manager may have placed it, somebody has named the host by hand, or the spec asks for more
// since. A domain that was started stays as it is, whatever the spec says.
func (s *scope) isClaim() bool {
	if s.isProvisioned() || s.Scheduler.Covers(s.infra.UID, placement.Needs(&s.infra.Spec)) {
		return false
	}
	snapshot, _ := s.Hosts.Snapshot(s.infra.Spec.HostName)
	given := placement.GivenTo(s.infra, snapshot)
	return !given.Is || !given.Domain.State.Started()
}

// checkClaim places the machine on the host that its spec names. That it doesn't exist is said in the next phase.
func (s *scope) checkClaim(ctx context.Context) (verdict, error) {
	if err := s.Scheduler.Claim(ctx, s.candidate()); err != nil {
		return s.notPlaced(ctx, err)
	}
	return goOn, nil
}

// candidate is the machine as one to be placed.
func (s *scope) candidate() placement.Candidate {
	return placement.Candidate{Infra: s.infra, Cluster: s.cluster, FailureDomain: s.failureDomain()}
}

// notPlaced says why the machine gets no host, or not the one that its spec names.
func (s *scope) notPlaced(ctx context.Context, err error) (verdict, error) {
	var later *placement.LaterError
	var taken *placement.MACTakenError
	var noFit *placement.NoFitError
	switch {
	case errors.As(err, &later):
		s.written = true // nothing is known that would have to be said so soon
		s.lookAgain(later.After)
		return stop, nil
	case errors.Is(err, placement.ErrNotAllowed):
		return s.notAllowed()
	case errors.As(err, &taken):
		s.lookAgain(noFitDelay)
		return s.waitFor(infrav1.HostBoundCondition, infrav1.MACAddressTakenReason, "%s", err.Error())
	case errors.As(err, &noFit):
		s.lookForImages(ctx, noFit)
		return s.noHostFits(noFit)
	}
	return s.failed(infrav1.HostBoundCondition, infrav1.InternalErrorReason, err)
}

// lookForImages asks hosts that lack nothing but the image to look for it: somebody may have put it there.
func (s *scope) lookForImages(ctx context.Context, why *placement.NoFitError) {
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

// noHostFits says why the machine has no host. As long as hosts are being connected to for the first
// time, that isn't known: what was found by an earlier manager then stays as it was said.
func (s *scope) noHostFits(why *placement.NoFitError) (verdict, error) {
	s.lookAgain(noFitDelay)
	metrics.NoFit(why.Reasons()...)
	if !why.ForNow() {
		return s.waitFor(infrav1.HostBoundCondition, infrav1.NoHostFitsReason, "%s", why.Error())
	}
	said := conditions.Get(s.infra, infrav1.HostBoundCondition)
	if said != nil && said.Reason == infrav1.NoHostFitsReason && said.ObservedGeneration == s.infra.Generation {
		return stop, nil
	}
	return s.waitFor(infrav1.HostBoundCondition, infrav1.WaitingForHostsReason, "%s", why.Error())
}

// failureDomain is the one that the machine must be in, or "". A load balancer may be in any.
func (s *scope) failureDomain() string {
	if s.machine == nil {
		return ""
	}
	return cmp.Or(s.machine.Spec.FailureDomain, s.infra.Annotations[infrav1.FailureDomainAnnotation])
}

// writeAhead writes what a host was chosen for, over what was read and nothing else.
func (s *scope) writeAhead(ctx context.Context, host, domain string) error {
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
