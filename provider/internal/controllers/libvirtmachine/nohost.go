package libvirtmachine

import (
	"context"
	"time"

	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
