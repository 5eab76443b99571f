package libvirtmachinepool

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/outcome"
)

// summarized has the conditions that Ready summarizes.
var summarized = conditions.ForConditionTypes{infrav1.ReplicasReadyCondition, infrav1.UpToDateCondition}

// maxInstances is the maximum number of machines in the status: an object in etcd has at most 1.5 MiB.
const maxInstances = 1000

// observe sets the status.
func (s *scope) observe(seen *members, problem error) {
	status := &s.infra.Status
	status.InfrastructureMachineKind = "LibvirtMachine"
	status.Replicas = ptr.To(int32(len(seen.all))) //nolint:gosec // at most 10000, and the surge of a rollout
	status.Instances = nil
	provisioned := 0
	for i, m := range seen.all {
		if isProvisioned(m.infra) {
			provisioned++
		}
		if i < maxInstances {
			status.Instances = append(status.Instances, instance(m))
		}
	}
	if waits, _ := s.waitsFor(); waits == "" && provisioned >= s.desired(seen) {
		status.Initialization.Provisioned = ptr.To(true)
	}
	status.Ready = ptr.To(ptr.Deref(status.Initialization.Provisioned, false))
	conditions.Set(s.infra, s.replicasReady(seen, problem))
	conditions.Set(s.infra, upToDate(seen))
	outcome.SetReady(s.infra, summarized)
}

func instance(m member) infrav1.LibvirtMachinePoolInstanceStatus {
	one := infrav1.LibvirtMachinePoolInstanceStatus{InstanceName: m.infra.Name, ProviderID: m.infra.Spec.ProviderID,
		Addresses: m.infra.Status.Addresses, Ready: ptr.To(m.ready)}
	if m.machine != nil {
		one.Version = m.machine.Spec.Version
	}
	return one
}

// replicasReady returns the condition of the number of machines. A rollout may add some.
func (s *scope) replicasReady(seen *members, problem error) metav1.Condition {
	desired := s.desired(seen)
	alive := count(seen.all, func(m member) bool { return !m.deleting })
	ready := count(seen.all, func(m member) bool { return m.ready })
	rolling := count(seen.all, func(m member) bool { return m.outdated })
	is := func(status metav1.ConditionStatus, reason, message string, values ...any) metav1.Condition {
		message = fmt.Sprintf(message, values...)
		if problem != nil && !apierrors.IsConflict(problem) {
			message += ": " + problem.Error() // not part of the format: it may contain a percent sign
		}
		return metav1.Condition{Type: infrav1.ReplicasReadyCondition, Status: status, Reason: reason, Message: message}
	}
	reason, waits := s.waitsFor()
	switch {
	case alive < desired && reason != "":
		return is(metav1.ConditionFalse, reason, "%s", waits)
	case alive < desired:
		return is(metav1.ConditionFalse, infrav1.ScalingUpReason, "There are %d of %d machines", alive, desired)
	case len(seen.all) > desired && rolling == 0:
		return is(metav1.ConditionFalse, infrav1.ScalingDownReason, "There are %d machines, %d of which are being deleted; %d are desired",
			len(seen.all), len(seen.all)-alive, desired)
	case ready < desired:
		return is(metav1.ConditionFalse, infrav1.MachinesNotReadyReason, "%d of %d machines are ready; not ready: %s", ready, desired, notReady(seen))
	}
	return is(metav1.ConditionTrue, infrav1.ReplicasReadyReason, "")
}

func notReady(seen *members) string {
	var names []string
	for _, m := range seen.all {
		if !m.ready && !m.deleting {
			names = append(names, m.name)
		}
	}
	return outcome.Names(names)
}

func upToDate(seen *members) metav1.Condition {
	if outdated := count(seen.all, func(m member) bool { return m.outdated }); outdated > 0 {
		return metav1.Condition{Type: infrav1.UpToDateCondition, Status: metav1.ConditionFalse, Reason: infrav1.RollingOutReason,
			Message: fmt.Sprintf("%d of %d machines have an older template, version or bootstrap data", outdated, len(seen.all))}
	}
	return metav1.Condition{Type: infrav1.UpToDateCondition, Status: metav1.ConditionTrue, Reason: infrav1.UpToDateReason}
}

// announce records events of the changed conditions after the status was written.
func (s *scope) announce(before *infrav1.LibvirtMachinePool) {
	if !ptr.Deref(before.Status.Initialization.Provisioned, false) && ptr.Deref(s.infra.Status.Initialization.Provisioned, false) {
		s.recorder.Eventf(s.infra, nil, corev1.EventTypeNormal, "Provisioned", "Provision", "All machines are provisioned")
	}
	was, is := conditions.Get(before, infrav1.UpToDateCondition), conditions.Get(s.infra, infrav1.UpToDateCondition)
	if was != nil && is != nil && was.Status != is.Status {
		s.recorder.Eventf(s.infra, nil, corev1.EventTypeNormal, is.Reason, "RollOut", "%s",
			map[bool]string{true: "All machines match the current template", false: is.Message}[is.Status == metav1.ConditionTrue])
	}
}

// keepMetadata updates the labels, annotations and owners of the machines in place.
func (s *scope) keepMetadata(ctx context.Context, seen *members) error {
	for _, m := range seen.all {
		if m.deleting {
			continue
		}
		after := m.infra.DeepCopy()
		s.setMetadata(after)
		if !m.outdated {
			after.Annotations[infrav1.SourceHashAnnotation] = s.sourceHash()
		}
		if maps.Equal(m.infra.Labels, after.Labels) && maps.Equal(m.infra.Annotations, after.Annotations) &&
			equality.Semantic.DeepEqual(m.infra.OwnerReferences, after.OwnerReferences) {
			continue
		}
		err := s.Client.Patch(ctx, after, outcome.Over(m.infra))
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("writing labels and annotations of LibvirtMachine %s: %w", after.Name, err)
		}
	}
	return nil
}

// writeSpec writes the provider IDs if they have changed. The status is written afterwards over the result, so that it
// is written in a busy pool too.
//
// A machine that is being deleted stays in the list, because Cluster API deletes nodes that aren't in the list without
// draining them.
func (s *scope) writeSpec(ctx context.Context, seen *members) error {
	before := s.infra.DeepCopy()
	if s.infra.Spec.ProviderID == "" {
		s.infra.Spec.ProviderID = infrav1.ProviderIDPrefix + s.infra.Namespace + "/" + s.infra.Name
	}
	ids := []string{}
	for _, m := range seen.all {
		if isProvisioned(m.infra) {
			ids = append(ids, m.infra.Spec.ProviderID)
		}
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	if s.infra.Spec.ProviderID == before.Spec.ProviderID && slices.Equal(ids, before.Spec.ProviderIDList) {
		return nil
	}
	s.infra.Spec.ProviderIDList = ids
	return outcome.Wrap(s.Client.Patch(ctx, s.infra, outcome.Over(before)), "writing spec.providerIDList")
}

// isProvisioned reports whether a machine has, or had, the domain of its provider ID.
func isProvisioned(infra *infrav1.LibvirtMachine) bool {
	return infra.Spec.ProviderID != "" && ptr.Deref(infra.Status.Initialization.Provisioned, false)
}

// writeStatus changes the status, and writes it if it differs.
func (s *scope) writeStatus(ctx context.Context, change func()) error {
	before := s.infra.DeepCopy()
	change()
	written, err := outcome.WriteStatus(ctx, s.Client, before, s.infra)
	if written {
		s.announce(before)
	}
	return outcome.Wrap(err, "writing the status")
}
