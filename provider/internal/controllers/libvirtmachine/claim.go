package libvirtmachine

import (
	"context"
	"errors"
	"slices"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/fleet"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/placement"
)

// isClaim says whether only the spec says that the machine has on its host what it asks for: this manager hasn't placed
// it there with as much, the host hasn't been seen to have its domain, and it wasn't provisioned, after which nothing is
// made for it. An earlier manager may have placed it, somebody has named the host by hand, or the spec asks for more
// since. A domain that was started stays as it is, whatever the spec says.
func (s *scope) isClaim() bool {
	if s.isProvisioned() || s.Ledger.Covers(s.infra.UID, placement.Needs(&s.infra.Spec)) {
		return false
	}
	snapshot, _ := s.Hosts.Snapshot(s.infra.Spec.HostName)
	given := fleet.GivenTo(s.infra, snapshot)
	return !given.Is || !given.Domain.State.Started()
}

// checkClaim places the machine on the host that its spec names, by the rules for machines without a host.
func (s *scope) checkClaim(ctx context.Context) (verdict, error) {
	hosts, _, snapshots, err := s.candidates(ctx)
	if err != nil {
		return s.failed(infrav1.HostBoundCondition, infrav1.InternalErrorReason, err)
	}
	at := slices.IndexFunc(hosts, func(host placement.Host) bool { return host.Name == s.infra.Spec.HostName })
	if at < 0 {
		return goOn, nil // that it doesn't exist is said in the next phase
	}
	_, taken, err := s.place(ctx, placement.NewRequest(s.placed(), &s.infra.Spec, s.failureDomain()), hosts[at:at+1], snapshots)
	if taken != "" {
		return s.macTaken(taken)
	}
	var noFit *placement.NoFitError
	if errors.As(err, &noFit) {
		return s.noHostFits(noFit)
	}
	if err != nil {
		return s.failed(infrav1.HostBoundCondition, infrav1.InternalErrorReason, err)
	}
	s.told.see(s.Reconciler, s.infra.DeepCopy())
	return goOn, nil
}
