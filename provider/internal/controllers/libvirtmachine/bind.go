package libvirtmachine

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8slabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/uuid"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/labels/format"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/placement"
)

// bind chooses a host and writes it into the spec, together with the UUID that everything is named
// from, before anything is made. In the spec, because `clusterctl move` drops the status.
func (s *scope) bind(ctx context.Context) (verdict, error) {
	hosts, unlisted, snapshots, err := s.candidates(ctx)
	if err != nil {
		return s.failed(infrav1.HostBoundCondition, infrav1.InternalErrorReason, err)
	}
	if len(hosts) == 0 && unlisted {
		return s.notAllowed()
	}
	machine := s.placed()
	machine.Domain = string(uuid.NewUUID())
	request := placement.NewRequest(machine, &s.infra.Spec, s.failureDomain())
	if s.awaitHosts(request, hosts) {
		return stop, nil
	}
	host, taken, err := s.place(ctx, request, hosts, snapshots)
	if taken != "" {
		return s.macTaken(taken)
	}
	var noFit *placement.NoFitError
	if errors.As(err, &noFit) {
		noFit.Unlisted = unlisted
		s.lookForImages(ctx, noFit)
		return s.noHostFits(noFit)
	}
	if err != nil {
		return s.failed(infrav1.HostBoundCondition, infrav1.InternalErrorReason, err)
	}
	return stop, s.writeAhead(ctx, host, machine.Domain)
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
	s.releaseUnlessWritten(ctx, err, func(now *infrav1.LibvirtMachine) bool { return now.Spec.HostName != "" })
	if err == nil {
		ctrl.LoggerFrom(ctx).Info("Bound the machine to a host", "LibvirtHost", host, "providerID", s.infra.Spec.ProviderID)
	}
	return wrap(client.IgnoreNotFound(err), "writing spec.hostName and spec.providerID")
}

// releaseUnlessWritten gives up what the ledger has reserved for the machine when it is certain that it hasn't
// been written. A conflict alone doesn't say that: the answer to an earlier write may have been lost, and
// the cache not show it so far. The API server itself says what is written.
func (s *scope) releaseUnlessWritten(ctx context.Context, err error, isWritten func(*infrav1.LibvirtMachine) bool) {
	switch {
	case apierrors.IsConflict(err):
		now := &infrav1.LibvirtMachine{}
		err := s.APIReader.Get(ctx, s.key(), now)
		if client.IgnoreNotFound(err) != nil || err == nil && now.UID == s.infra.UID && isWritten(now) {
			return
		}
	case !apierrors.IsNotFound(err) && !apierrors.IsInvalid(err):
		return
	}
	s.Ledger.Release(s.infra.UID)
}

// hostSelector returns which hosts the LibvirtCluster selects. One that is left out selects all.
func (s *scope) hostSelector(ctx context.Context) (k8slabels.Selector, error) {
	infra := &infrav1.LibvirtCluster{}
	if err := s.Client.Get(ctx, client.ObjectKey{Namespace: s.infra.Namespace, Name: s.cluster.Spec.InfrastructureRef.Name}, infra); err != nil {
		return nil, fmt.Errorf("reading the LibvirtCluster: %w", err)
	}
	if infra.Spec.HostSelector == nil {
		return k8slabels.Everything(), nil
	}
	selector, err := metav1.LabelSelectorAsSelector(infra.Spec.HostSelector)
	return selector, wrap(err, "reading spec.hostSelector of the LibvirtCluster")
}

// allMachines returns all LibvirtMachines, to be read only: they are the cache's own.
func (r *Reconciler) allMachines(ctx context.Context) ([]infrav1.LibvirtMachine, error) {
	list := &infrav1.LibvirtMachineList{}
	if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing LibvirtMachines: %w", err)
	}
	return list.Items, nil
}

// placed puts the machine into placement's words.
func (s *scope) placed() placement.Machine {
	machine := placed(s.infra)
	machine.Cluster.Name = s.clusterName()
	return machine
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
