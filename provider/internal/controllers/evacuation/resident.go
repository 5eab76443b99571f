package evacuation

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8slabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/index"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/notes"
)

// maxMessage is the maximum length of the messages of a machine's conditions, in bytes.
const maxMessage = 512

// resident is a machine on the host, with the state that decides about its replacement.
type resident struct {
	infra   *infrav1.LibvirtMachine
	machine *clusterv1.Machine // nil when there is none
	cluster *clusterv1.Cluster // nil when there is none
	owner   *metav1.OwnerReference
	// check is a MachineHealthCheck that has the Machine as a target, or nil.
	check *clusterv1.MachineHealthCheck
	// others is the number of other Ready Machines of the owner, and wanted the number that is needed before this one
	// may be deleted, or 0 if it isn't known.
	others, wanted int
}

// name returns the name of the Machine, or of the LibvirtMachine without one.
func (m *resident) name() string {
	if m.machine != nil {
		return m.machine.Namespace + "/" + m.machine.Name
	}
	return m.infra.Namespace + "/" + m.infra.Name
}

func (m *resident) isControlPlane() bool {
	return m.machine != nil && util.IsControlPlaneMachine(m.machine)
}

// isBalancer reports whether the machine is a load balancer, which its LibvirtCluster replaces.
func (m *resident) isBalancer() bool {
	return m.machine == nil && m.infra.Labels[infrav1.LoadBalancerLabel] != ""
}

// isLeaving reports whether the machine is being deleted or replaced already.
func (m *resident) isLeaving() bool {
	if !m.infra.DeletionTimestamp.IsZero() || m.machine != nil && !m.machine.DeletionTimestamp.IsZero() {
		return true
	}
	return m.machine != nil && m.blockedBy() == "" && (annotations.HasRemediateMachine(m.machine) || collections.IsUnhealthyAndOwnerRemediated(m.machine))
}

// blockedBy returns the reason if a user must make a change before the machine can be replaced.
func (m *resident) blockedBy() string {
	switch {
	case m.isBalancer():
		return ""
	case m.machine == nil:
		return "it has no Machine"
	case annotations.HasSkipRemediation(m.machine):
		return "its Machine has the annotation " + clusterv1.MachineSkipRemediationAnnotation
	case m.check == nil:
		return "no MachineHealthCheck has its Machine as a target"
	case m.owner == nil && !m.check.Spec.Remediation.TemplateRef.IsDefined():
		return "its Machine has no owner that would replace it: delete it by hand"
	}
	return ""
}

// waitsToLeave returns the reason why a leaving machine still exists, if its conditions have one.
func (m *resident) waitsToLeave() string {
	const leaving = "it is being deleted"
	switch {
	case m.cluster != nil && ptr.Deref(m.cluster.Spec.Paused, false):
		return leaving + ", and its Cluster is paused"
	case m.machine != nil && annotations.HasPaused(m.machine):
		return leaving + ", and its Machine is paused"
	case m.infra != nil && annotations.HasPaused(m.infra):
		return leaving + ", and its LibvirtMachine is paused"
	}
	var says []string
	if m.machine != nil {
		if deleting := conditions.Get(m.machine, clusterv1.MachineDeletingCondition); deleting != nil && deleting.Status == metav1.ConditionTrue {
			says = append(says, deleting.Message)
		}
	}
	if m.infra != nil {
		if ready := conditions.Get(m.infra, infrav1.ReadyCondition); ready != nil && ready.Reason == infrav1.DeletingReason {
			says = append(says, ready.Message)
		}
	}
	says = slices.DeleteFunc(says, func(text string) bool { return text == "" })
	if len(says) == 0 {
		return leaving
	}
	return leaving + ": " + notes.Cut(strings.ReplaceAll(strings.Join(says, "; "), "\n", " "), maxMessage)
}

// waitsFor returns the reason if the replacement waits without needing a user.
func (m *resident) waitsFor() string {
	switch {
	case m.isBalancer():
		return "its LibvirtCluster replaces it as soon as another host is Ready"
	case m.cluster != nil && annotations.IsPaused(m.cluster, m.machine), annotations.HasPaused(m.infra):
		return "it or its Cluster is paused"
	case annotations.HasPaused(m.check):
		return fmt.Sprintf("MachineHealthCheck %s is paused", m.check.Name)
	case m.others < m.wanted:
		return fmt.Sprintf("%s %s has %d other Ready machines and needs %d", m.owner.Kind, m.owner.Name, m.others, m.wanted)
	}
	return ""
}

// residents returns the machines that are bound to a host, sorted by name, with those of control planes last.
func (r *Reconciler) residents(ctx context.Context, host string) ([]resident, error) {
	bound, err := index.BoundTo(ctx, r.Client, host)
	if err != nil {
		return nil, err
	}
	all, view := make([]resident, 0, len(bound)), r.newView()
	for i := range bound {
		m, err := view.resident(ctx, &bound[i])
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b resident) int {
		return cmp.Or(cmp.Compare(boolToInt(a.isControlPlane()), boolToInt(b.isControlPlane())), cmp.Compare(a.name(), b.name()))
	})
	return all, nil
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (v *view) resident(ctx context.Context, infra *infrav1.LibvirtMachine) (resident, error) {
	m := resident{infra: infra}
	machine, err := util.GetOwnerMachine(ctx, v.Client, infra.ObjectMeta)
	if client.IgnoreNotFound(err) != nil {
		return m, fmt.Errorf("reading the Machine of LibvirtMachine %s/%s: %w", infra.Namespace, infra.Name, err)
	}
	if err != nil || machine == nil {
		return m, nil //nolint:nilerr // blockedBy reports the missing Machine
	}
	m.machine, m.owner = machine, metav1.GetControllerOf(machine)
	cluster := &clusterv1.Cluster{}
	switch err := v.Client.Get(ctx, client.ObjectKey{Namespace: machine.Namespace, Name: machine.Spec.ClusterName}, cluster); {
	case client.IgnoreNotFound(err) != nil:
		return m, fmt.Errorf("reading the Cluster of Machine %s/%s: %w", machine.Namespace, machine.Name, err)
	case err == nil:
		m.cluster = cluster
	}
	if m.check, err = v.checkOf(ctx, machine); err != nil {
		return m, err
	}
	if m.owner == nil {
		return m, nil
	}
	ready, desired, err := v.replicas(ctx, machine.Namespace, m.owner.Kind, m.owner.Name, machine)
	m.others, m.wanted = ready, desired-1
	return m, err
}

// desired returns the desired number of Machines of an owner. For a control plane of any kind, the Cluster has the
// number.
func (r *Reconciler) desired(ctx context.Context, namespace, kind, name, clusterName string) (int, error) {
	key := client.ObjectKey{Namespace: namespace, Name: name}
	var replicas *int32
	var err error
	switch kind {
	case "MachineSet":
		set := &clusterv1.MachineSet{}
		err = r.Client.Get(ctx, key, set)
		replicas = set.Spec.Replicas
	case "MachinePool":
		pool := &clusterv1.MachinePool{}
		err = r.Client.Get(ctx, key, pool)
		replicas = pool.Spec.Replicas
	default:
		cluster := &clusterv1.Cluster{}
		if clusterName == "" {
			return 0, nil
		}
		err = r.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: clusterName}, cluster)
		if cluster.Spec.ControlPlaneRef.Kind == kind && cluster.Spec.ControlPlaneRef.Name == name && cluster.Status.ControlPlane != nil {
			replicas = cluster.Status.ControlPlane.DesiredReplicas
		}
	}
	if client.IgnoreNotFound(err) != nil {
		return 0, fmt.Errorf("reading the desired number of machines of %s %s/%s: %w", kind, namespace, name, err)
	}
	return int(ptr.Deref(replicas, 0)), nil
}

// view caches the objects that the machines on a host share: their owners, and the checks of their namespaces.
type view struct {
	*Reconciler
	owned  map[owner]*owned
	checks map[string][]check
}

type owner struct{ namespace, kind, name string }

// owned has the UIDs of the Ready Machines of an owner, and the desired number.
type owned struct {
	ready   map[types.UID]bool
	desired int
}

// check is a MachineHealthCheck with its parsed selector.
type check struct {
	*clusterv1.MachineHealthCheck
	selector k8slabels.Selector
}

func (r *Reconciler) newView() *view {
	return &view{Reconciler: r, owned: map[owner]*owned{}, checks: map[string][]check{}}
}

// checkOf returns a MachineHealthCheck that has a Machine as a target, as its controller selects them (Cluster API
// v1.14.2, getMachinesFromMHC), or nil.
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
			if err == nil && one.DeletionTimestamp.IsZero() { // an invalid selector selects no targets
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

// replicas returns the number of Ready Machines of an owner except one, which may be nil, and the desired number, or 0
// if it isn't known.
func (v *view) replicas(ctx context.Context, namespace, kind, name string, except *clusterv1.Machine) (ready, desired int, err error) {
	of := owner{namespace, kind, name}
	machines, read := v.owned[of]
	if !read {
		if machines, err = v.count(ctx, of); err != nil {
			return 0, 0, err
		}
		v.owned[of] = machines
	}
	ready = len(machines.ready)
	if except != nil && machines.ready[except.UID] {
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
		if machine.DeletionTimestamp.IsZero() && conditions.IsTrue(machine, clusterv1.MachineReadyCondition) {
			machines.ready[machine.UID] = true
		}
	}
	var err error
	machines.desired, err = v.desired(ctx, of.namespace, of.kind, of.name, clusterName)
	return machines, err
}
