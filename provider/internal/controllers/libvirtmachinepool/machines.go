package libvirtmachinepool

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/labels/format"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// member is a machine of a pool.
type member struct {
	infra *infrav1.LibvirtMachine
	// machine is what Cluster API has made for it, or nil.
	machine *clusterv1.Machine
	// outdated says that it is made from another template than the pool has now.
	outdated bool
}

// members are the machines of a pool, by name.
type members struct {
	all []member
	// dangling are Machines whose LibvirtMachine is gone.
	dangling []*clusterv1.Machine
}

// isReady reports whether a machine does its work. Whether its node has joined and is healthy, the Machine knows.
func (m member) isReady() bool {
	return !m.isDeleting() && conditions.IsTrue(m.infra, infrav1.ReadyCondition) &&
		m.machine != nil && conditions.IsTrue(m.machine, clusterv1.MachineAvailableCondition)
}

// object is what to delete so that the machine goes.
func (m member) object() client.Object {
	if m.machine != nil {
		return m.machine
	}
	return m.infra
}

func (m member) isDeleting() bool {
	return !m.infra.DeletionTimestamp.IsZero() || m.machine != nil && !m.machine.DeletionTimestamp.IsZero()
}

func (m member) isChosen() bool {
	_, chosen := m.infra.Annotations[clusterv1.DeleteMachineAnnotation]
	if m.machine != nil && !chosen {
		_, chosen = m.machine.Annotations[clusterv1.DeleteMachineAnnotation]
	}
	return chosen
}

// isUnhealthy reports whether a MachineHealthCheck wants the owner of a Machine to replace it. Cluster API's
// controller of MachinePools leaves that to the provider.
func (m member) isUnhealthy() bool { return collections.IsUnhealthyAndOwnerRemediated(m.machine) }

func (m member) planned() planned {
	return planned{name: m.infra.Name, created: m.infra.CreationTimestamp.Time,
		outdated: m.outdated, ready: m.isReady(), chosen: m.isChosen(), unhealthy: m.isUnhealthy(), deleting: m.isDeleting()}
}

// machines reads the machines of the pool. What it returns isn't to be changed: it may be the cache's own.
func (s *scope) machines(ctx context.Context, reader client.Reader) (*members, error) {
	list := &infrav1.LibvirtMachineList{}
	options := []client.ListOption{client.InNamespace(s.infra.Namespace), client.UnsafeDisableDeepCopy}
	if err := reader.List(ctx, list, append(options, client.MatchingLabels{infrav1.PoolLabel: format.MustFormatValue(s.infra.Name)})...); err != nil {
		return nil, fmt.Errorf("listing the LibvirtMachines of the pool: %w", err)
	}
	machines := &clusterv1.MachineList{}
	if s.owner != nil {
		if err := reader.List(ctx, machines, append(options, client.MatchingLabels{
			clusterv1.MachinePoolNameLabel: format.MustFormatValue(s.owner.Name), clusterv1.ClusterNameLabel: s.owner.Spec.ClusterName})...); err != nil {
			return nil, fmt.Errorf("listing the Machines of the pool: %w", err)
		}
	}
	owners := map[string]*clusterv1.Machine{}
	for i := range machines.Items {
		machine := &machines.Items[i]
		if machine.Spec.InfrastructureRef.Kind == "LibvirtMachine" {
			owners[machine.Spec.InfrastructureRef.Name] = machine
		}
	}
	found := &members{}
	for i := range list.Items {
		infra := &list.Items[i]
		if !s.owns(infra, owners[infra.Name]) {
			continue
		}
		found.all = append(found.all, member{infra: infra, machine: owners[infra.Name], outdated: s.owner != nil && !s.isUpToDate(infra)})
		delete(owners, infra.Name)
	}
	for _, machine := range owners {
		found.dangling = append(found.dangling, machine)
	}
	slices.SortFunc(found.all, func(a, b member) int { return strings.Compare(a.infra.Name, b.infra.Name) })
	slices.SortFunc(found.dangling, func(a, b *clusterv1.Machine) int { return strings.Compare(a.Name, b.Name) })
	return found, nil
}

// owns reports whether a LibvirtMachine with the pool's label is the pool's: labels can be changed. The owner's name
// counts, because its UID is another one after a move. Without an owner of that kind, because the reference was removed,
// the LibvirtMachine is the pool's if one of the pool's Machines refers to it, or if it has no owner.
func (s *scope) owns(infra *infrav1.LibvirtMachine, machine *clusterv1.Machine) bool {
	for _, owner := range infra.OwnerReferences {
		if isKind(owner.APIVersion, owner.Kind, infrav1.GroupVersion.Group, "LibvirtMachinePool") {
			return owner.Name == s.infra.Name
		}
	}
	return machine != nil || len(infra.OwnerReferences) == 0
}

func isKind(apiVersion, kind, wantedGroup, wantedKind string) bool {
	version, err := schema.ParseGroupVersion(apiVersion)
	return err == nil && version.Group == wantedGroup && kind == wantedKind
}

func (m *members) planned() []planned {
	var all []planned
	for _, one := range m.all {
		all = append(all, one.planned())
	}
	return all
}

func (m *members) byName(name string) member {
	for _, one := range m.all {
		if one.infra.Name == name {
			return one
		}
	}
	return member{}
}

func (m *members) count(is func(member) bool) int {
	return count(m.all, is)
}
