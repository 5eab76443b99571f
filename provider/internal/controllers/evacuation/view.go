package evacuation

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8slabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/index"
)

// view is what one reconcile has read of what machines on a host have in common: each owner and each namespace is
// looked at once, however many of their machines are there.
type view struct {
	*Reconciler
	owned  map[owner]*owned
	checks map[string][]check
}

type owner struct{ namespace, kind, name string }

// owned are the Machines of an owner: which of them are Ready, and how many it wants.
type owned struct {
	ready   map[types.UID]bool
	desired int
}

// check is a MachineHealthCheck with what it selects.
type check struct {
	*clusterv1.MachineHealthCheck
	selector k8slabels.Selector
}

func (r *Reconciler) look() *view {
	return &view{Reconciler: r, owned: map[owner]*owned{}, checks: map[string][]check{}}
}

// checkOf returns a MachineHealthCheck that has a Machine as a target, as its controller finds them
// (Cluster API v1.14.2, getMachinesFromMHC), or nil.
func (v *view) checkOf(ctx context.Context, machine *clusterv1.Machine) (*clusterv1.MachineHealthCheck, error) {
	checks, read := v.checks[machine.Namespace]
	if !read {
		list := &clusterv1.MachineHealthCheckList{}
		if err := v.Client.List(ctx, list, client.InNamespace(machine.Namespace)); err != nil {
			return nil, fmt.Errorf("listing MachineHealthChecks: %w", err)
		}
		for i := range list.Items {
			one := &list.Items[i]
			selector, err := metav1.LabelSelectorAsSelector(metav1.CloneSelectorAndAddLabel(&one.Spec.Selector, clusterv1.ClusterNameLabel, one.Spec.ClusterName))
			if err == nil && one.DeletionTimestamp.IsZero() { // one with a selector that can't be read finds no targets
				checks = append(checks, check{one, selector})
			}
		}
		v.checks[machine.Namespace] = checks
	}
	for _, one := range checks {
		if one.selector.Matches(k8slabels.Set(machine.Labels)) {
			return one.MachineHealthCheck, nil
		}
	}
	return nil, nil
}

// replicas counts the Ready Machines of an owner besides one of them, which may be nil, and says how many
// the owner wants: 0 when it is gone or that isn't known.
func (v *view) replicas(ctx context.Context, namespace, kind, name string, besides *clusterv1.Machine) (ready, desired int, err error) {
	of := owner{namespace, kind, name}
	machines, read := v.owned[of]
	if !read {
		if machines, err = v.count(ctx, of); err != nil {
			return 0, 0, err
		}
		v.owned[of] = machines
	}
	ready = len(machines.ready)
	if besides != nil && machines.ready[besides.UID] {
		ready--
	}
	return ready, machines.desired, nil
}

func (v *view) count(ctx context.Context, of owner) (*owned, error) {
	list := &clusterv1.MachineList{}
	if err := v.Client.List(ctx, list, client.InNamespace(of.namespace), client.MatchingFields{index.MachineOwner: index.Owner(of.kind, of.name)},
		client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing Machines: %w", err)
	}
	machines, clusterName := &owned{ready: map[types.UID]bool{}}, ""
	for i := range list.Items {
		machine := &list.Items[i]
		clusterName = machine.Spec.ClusterName
		if machine.DeletionTimestamp.IsZero() && isReady(machine) {
			machines.ready[machine.UID] = true
		}
	}
	var err error
	machines.desired, err = v.desired(ctx, of.namespace, of.kind, of.name, clusterName)
	return machines, err
}
