package libvirtmachine

import (
	"cmp"
	"context"
	"errors"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/labels/format"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/metrics"
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
	if s.infra.Labels == nil {
		s.infra.Labels = map[string]string{}
	}
	s.infra.Labels[infrav1.HostLabel] = format.MustFormatValue(host)
	err := s.Client.Patch(ctx, s.infra, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	s.Scheduler.ReleaseUnlessWritten(ctx, s.infra, err, func(now *infrav1.LibvirtMachine) bool { return now.Spec.HostName != "" })
	if err == nil {
		ctrl.LoggerFrom(ctx).Info("Bound the machine to a host", "LibvirtHost", host, "providerID", s.infra.Spec.ProviderID)
	}
	return wrap(client.IgnoreNotFound(err), "writing spec.hostName and spec.providerID")
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
