package libvirtmachine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8slabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/labels"
	"sigs.k8s.io/cluster-api/util/labels/format"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/access"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/fleet"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/placement"
)

// bind chooses a host and writes it into the spec, together with the UUID that everything is named
// from, before anything is made. In the spec, because `clusterctl move` drops the status.
func (s *scope) bind(ctx context.Context) (verdict, error) {
	hosts, snapshots, err := s.candidates(ctx)
	if err != nil {
		return s.failed(infrav1.HostBoundCondition, infrav1.InternalErrorReason, err)
	}
	if len(hosts) == 0 {
		return s.notAllowed()
	}
	if taken, err := s.takenMAC(ctx, hosts, snapshots); err != nil || taken != "" {
		if err == nil {
			s.lookAgain(noFitDelay)
			return s.waitFor(infrav1.HostBoundCondition, infrav1.MACAddressTakenReason, "%s", taken)
		}
		return s.failed(infrav1.HostBoundCondition, infrav1.InternalErrorReason, err)
	}
	request := placement.NewRequest(s.placed(s.infra), &s.infra.Spec,
		cmp.Or(s.machine.Spec.FailureDomain, s.infra.Annotations[infrav1.FailureDomainAnnotation]))
	host, err := s.Ledger.Place(request, hosts, func() ([]placement.Machine, error) { return s.bound(ctx, willTake) })
	var noFit *placement.NoFitError
	if errors.As(err, &noFit) {
		return s.noHostFits(noFit)
	}
	if err != nil {
		return s.failed(infrav1.HostBoundCondition, infrav1.InternalErrorReason, err)
	}
	return stop, s.writeAhead(ctx, host)
}

// writeAhead writes what a host was chosen for, over what was read and nothing else.
func (s *scope) writeAhead(ctx context.Context, host string) error {
	s.written = true
	before := s.infra.DeepCopy()
	s.infra.Spec.HostName = host
	s.infra.Spec.ProviderID = infrav1.ProviderIDPrefix + string(uuid.NewUUID())
	if s.infra.Labels == nil {
		s.infra.Labels = map[string]string{}
	}
	s.infra.Labels[infrav1.HostLabel] = format.MustFormatValue(host)
	err := s.Client.Patch(ctx, s.infra, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsInvalid(err) {
		s.Ledger.Release(s.infra.UID) // it is certain that it wasn't written
	}
	if err == nil {
		ctrl.LoggerFrom(ctx).Info("Bound the machine to a host", "LibvirtHost", host, "providerID", s.infra.Spec.ProviderID)
	}
	return wrap(client.IgnoreNotFound(err), "writing spec.hostName and spec.providerID")
}

// candidates puts all hosts that the namespace may use into placement's words. It returns what was last
// seen of every host too, by name.
func (s *scope) candidates(ctx context.Context) ([]placement.Host, map[string]fleet.Snapshot, error) {
	list, identities, namespace := &infrav1.LibvirtHostList{}, &infrav1.LibvirtClusterIdentityList{}, &corev1.Namespace{}
	if err := s.Client.List(ctx, list); err != nil {
		return nil, nil, fmt.Errorf("listing LibvirtHosts: %w", err)
	}
	if err := s.Client.List(ctx, identities); err != nil {
		return nil, nil, fmt.Errorf("listing LibvirtClusterIdentities: %w", err)
	}
	if err := s.Client.Get(ctx, client.ObjectKey{Name: s.infra.Namespace}, namespace); err != nil {
		return nil, nil, fmt.Errorf("reading the namespace: %w", err)
	}
	selector, err := s.hostSelector(ctx)
	if err != nil {
		return nil, nil, err
	}
	// Snapshots first, and machines afterwards: no domain of ours is then taken for somebody else's.
	snapshots := map[string]fleet.Snapshot{}
	for i := range list.Items {
		snapshots[list.Items[i].Name], _ = s.Hosts.Snapshot(list.Items[i].Name)
	}
	machines, err := s.allMachines(ctx)
	if err != nil {
		return nil, nil, err
	}
	bound := map[string]fleet.Bound{}
	for i := range machines {
		host := machines[i].Spec.HostName
		if bound[host] == nil {
			bound[host] = fleet.Bound{}
		}
		bound[host][strings.TrimPrefix(machines[i].Spec.ProviderID, infrav1.ProviderIDPrefix)] = true
	}
	var hosts []placement.Host
	for i := range list.Items {
		host := &list.Items[i]
		candidate := fleet.PlacementHost(host, snapshots[host.Name], bound[host.Name])
		if s.WatchFilterValue != "" && !labels.HasWatchLabel(host, s.WatchFilterValue) {
			candidate.Connecting, candidate.Ready = false, false
			candidate.Message = fmt.Sprintf("without the label %s: %s it isn't one of this manager's", clusterv1.WatchLabel, s.WatchFilterValue)
		}
		candidate.Selected = selector.Matches(k8slabels.Set(host.Labels))
		if candidate.NamespaceAllowed, err = access.Host(host, identities.Items, namespace); err != nil {
			return nil, nil, err
		}
		if candidate.NamespaceAllowed { // the others are not to be named
			hosts = append(hosts, candidate)
		}
	}
	return hosts, snapshots, nil
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
func (s *scope) allMachines(ctx context.Context) ([]infrav1.LibvirtMachine, error) {
	list := &infrav1.LibvirtMachineList{}
	if err := s.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing LibvirtMachines: %w", err)
	}
	return list.Items, nil
}

// bound returns the machines that are bound to hosts, each with what it takes by one of two ways to count.
func (s *scope) bound(ctx context.Context, take func(*infrav1.LibvirtMachine, Hosts) placement.Resources) ([]placement.Machine, error) {
	machines, err := s.allMachines(ctx)
	if err != nil {
		return nil, err
	}
	var bound []placement.Machine
	for i := range machines {
		if machines[i].Spec.HostName != "" {
			machine := s.placed(&machines[i])
			machine.Needs = take(&machines[i], s.Hosts)
			bound = append(bound, machine)
		}
	}
	return bound, nil
}

// placed puts a machine into placement's words.
func (s *scope) placed(infra *infrav1.LibvirtMachine) placement.Machine {
	machine := placement.Machine{
		UID: infra.UID, Host: infra.Spec.HostName, Needs: placement.Needs(&infra.Spec),
		Cluster: types.NamespacedName{Namespace: infra.Namespace, Name: infra.Labels[clusterv1.ClusterNameLabel]},
	}
	if infra == s.infra {
		machine.Cluster.Name = s.clusterName()
	}
	// The Machine's own owner isn't on the LibvirtMachine. These labels are, and say which one it is.
	for _, label := range []string{
		clusterv1.MachineControlPlaneLabel, clusterv1.MachineSetNameLabel, clusterv1.MachineDeploymentNameLabel, infrav1.PoolLabel,
	} {
		if value, there := infra.Labels[label]; there {
			machine.Owner = label + "=" + value
			break
		}
	}
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
