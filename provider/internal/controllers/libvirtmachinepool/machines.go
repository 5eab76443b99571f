package libvirtmachinepool

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/conditions"
	v1beta1conditions "sigs.k8s.io/cluster-api/util/conditions/deprecated/v1beta1"
	"sigs.k8s.io/cluster-api/util/labels/format"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/outcome"
)

// member is a machine of a pool, with the state that decides about it.
type member struct {
	planned
	infra *infrav1.LibvirtMachine
	// machine is the Machine that Cluster API has created for it, or nil.
	machine *clusterv1.Machine
}

// members are the machines of a pool, by name.
type members struct {
	all []member
	// dangling are Machines whose LibvirtMachine is deleted.
	dangling []*clusterv1.Machine
}

// member returns the state of a machine. A machine is ready if it is Ready and its node is healthy according to the
// Machine. It is unhealthy if a MachineHealthCheck requests the owner to replace the Machine: Cluster API's controller
// of MachinePools leaves that to the provider.
func (s *scope) member(infra *infrav1.LibvirtMachine, machine *clusterv1.Machine) member {
	m := member{infra: infra, machine: machine, planned: planned{name: infra.Name, created: infra.CreationTimestamp.Time,
		outdated: s.owner != nil && !s.isUpToDate(infra), deleting: !infra.DeletionTimestamp.IsZero()}}
	_, m.chosen = infra.Annotations[clusterv1.DeleteMachineAnnotation]
	if machine == nil {
		return m
	}
	_, isChosen := machine.Annotations[clusterv1.DeleteMachineAnnotation]
	m.chosen = m.chosen || isChosen
	m.deleting = m.deleting || !machine.DeletionTimestamp.IsZero()
	m.ready = !m.deleting && conditions.IsTrue(infra, infrav1.ReadyCondition) && conditions.IsTrue(machine, clusterv1.MachineAvailableCondition)
	m.unhealthy = collections.IsUnhealthyAndOwnerRemediated(machine)
	return m
}

// object returns the object to delete. Cluster API then deletes the other one.
func (m member) object() client.Object {
	if m.machine != nil {
		return m.machine
	}
	return m.infra
}

// machines reads the machines of the pool. They may belong to the cache: callers must not change them.
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
	pool := &members{}
	for i := range list.Items {
		infra := &list.Items[i]
		if !s.owns(infra, owners[infra.Name]) {
			continue
		}
		pool.all = append(pool.all, s.member(infra, owners[infra.Name]))
		delete(owners, infra.Name)
	}
	for _, machine := range owners {
		pool.dangling = append(pool.dangling, machine)
	}
	slices.SortFunc(pool.all, func(a, b member) int { return strings.Compare(a.name, b.name) })
	slices.SortFunc(pool.dangling, func(a, b *clusterv1.Machine) int { return strings.Compare(a.Name, b.Name) })
	return pool, nil
}

// owns reports whether a LibvirtMachine with the pool's label belongs to the pool. The owner's name counts, because its
// UID changes with a move. If a user has removed the owner reference, a Machine of the pool must refer to it, or it
// must have no owner.
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
		all = append(all, one.planned)
	}
	return all
}

func (m *members) byName(name string) member {
	for _, one := range m.all {
		if one.name == name {
			return one
		}
	}
	return member{}
}

// forgetRecovered removes the condition OwnerRemediated from Machines that are healthy again, as Cluster API does for
// MachineSets. Otherwise the pool would replace a Machine that is unhealthy later, without asking the
// MachineHealthCheck for its limits.
func (s *scope) forgetRecovered(ctx context.Context, seen *members) error {
	var errs []error
	for _, m := range seen.all {
		if m.machine == nil || m.deleting || !hasRecovered(m.machine) {
			continue
		}
		after := m.machine.DeepCopy()
		if isRecovered(after) {
			conditions.Delete(after, clusterv1.MachineOwnerRemediatedCondition)
		}
		if isRecoveredV1Beta1(after) {
			v1beta1conditions.Delete(after, clusterv1.MachineOwnerRemediatedV1Beta1Condition)
		}
		err := s.Client.Status().Patch(ctx, after, outcome.Over(m.machine))
		if client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("removing the condition %s from Machine %s, which is healthy again: %w", clusterv1.MachineOwnerRemediatedCondition, after.Name, err))
		}
	}
	return errors.Join(errs...)
}

func hasRecovered(machine *clusterv1.Machine) bool {
	return isRecovered(machine) || isRecoveredV1Beta1(machine)
}

func isRecovered(machine *clusterv1.Machine) bool {
	return conditions.IsTrue(machine, clusterv1.MachineHealthCheckSucceededCondition) && conditions.IsFalse(machine, clusterv1.MachineOwnerRemediatedCondition)
}

// isRecoveredV1Beta1 is isRecovered for the conditions of the older contract.
func isRecoveredV1Beta1(machine *clusterv1.Machine) bool {
	return v1beta1conditions.IsTrue(machine, clusterv1.MachineHealthCheckSucceededV1Beta1Condition) && v1beta1conditions.IsFalse(machine, clusterv1.MachineOwnerRemediatedV1Beta1Condition)
}

// desiredMachine returns a new LibvirtMachine of the pool.
func (s *scope) desiredMachine(name, failureDomain string) *infrav1.LibvirtMachine {
	infra := &infrav1.LibvirtMachine{ObjectMeta: metav1.ObjectMeta{Namespace: s.infra.Namespace, Name: name}}
	s.setMetadata(infra)
	infra.Annotations[infrav1.SourceHashAnnotation] = s.sourceHash()
	if failureDomain != "" {
		infra.Annotations[infrav1.FailureDomainAnnotation] = failureDomain
	}
	s.infra.Spec.Template.Spec.DeepCopyInto(&infra.Spec)
	return infra
}

// setMetadata sets the pool's labels, annotations and owner reference, and keeps others. The owner reference isn't the
// one of the controller, which is the Machine that Cluster API creates later.
func (s *scope) setMetadata(infra *infrav1.LibvirtMachine) {
	template := s.infra.Spec.Template.ObjectMeta
	infra.Labels, infra.Annotations = merged(infra.Labels, template.Labels), merged(infra.Annotations, template.Annotations)
	infra.Labels[clusterv1.ClusterNameLabel] = s.owner.Spec.ClusterName
	infra.Labels[clusterv1.MachinePoolNameLabel] = format.MustFormatValue(s.owner.Name)
	infra.Labels[infrav1.PoolLabel] = format.MustFormatValue(s.infra.Name)
	if value, filtered := s.infra.Labels[clusterv1.WatchLabel]; filtered {
		infra.Labels[clusterv1.WatchLabel] = value
	}
	reference := metav1.OwnerReference{APIVersion: infrav1.GroupVersion.String(), Kind: "LibvirtMachinePool", Name: s.infra.Name, UID: s.infra.UID}
	for i, owner := range infra.OwnerReferences {
		if isKind(owner.APIVersion, owner.Kind, infrav1.GroupVersion.Group, reference.Kind) && owner.Name == reference.Name {
			infra.OwnerReferences[i] = reference
			return
		}
	}
	infra.OwnerReferences = append(infra.OwnerReferences, reference)
}

func merged(into, from map[string]string) map[string]string {
	all := make(map[string]string, len(into)+len(from))
	maps.Copy(all, into)
	maps.Copy(all, from)
	return all
}

// sourceHash returns the value of SourceHashAnnotation for new machines: hashes of the template's spec, and of the
// version and the bootstrap data of the MachinePool. Labels and annotations are changed in place.
func (s *scope) sourceHash() string {
	if s.sourceHashCache == "" {
		template := s.owner.Spec.Template.Spec
		s.sourceHashCache = hash(s.infra.Spec.Template.Spec) + "-" + hash([]string{template.Version, ptr.Deref(template.Bootstrap.DataSecretName, "")})
	}
	return s.sourceHashCache
}

func hash(of any) string {
	text, err := json.Marshal(of)
	if err != nil {
		panic(fmt.Sprintf("%T can't be written as JSON: %v", of, err)) // it was read from JSON
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// isUpToDate reports whether a machine has the current template: by its hash, also after updates in place, or by its
// spec, because defaults of new fields change the hash.
func (s *scope) isUpToDate(infra *infrav1.LibvirtMachine) bool {
	sourceHash := infra.Annotations[infrav1.SourceHashAnnotation]
	if sourceHash == s.sourceHash() {
		return true
	}
	_, software, _ := strings.Cut(sourceHash, "-")
	if _, softwareNow, _ := strings.Cut(s.sourceHash(), "-"); software != softwareNow {
		return false
	}
	spec := infra.Spec.DeepCopy()
	spec.ProviderID, spec.HostName = "", ""
	return equality.Semantic.DeepEqual(spec, &s.infra.Spec.Template.Spec)
}
