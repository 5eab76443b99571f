package libvirtmachinepool

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/outcome"
)

// summedUp are the conditions that Ready sums up.
var summedUp = conditions.ForConditionTypes{infrav1.ReplicasReadyCondition, infrav1.UpToDateCondition}

// maxInstances is how many machines are told of one by one. An object has to fit into etcd, which takes
// 1.5 MiB; providerIDList has all of them.
const maxInstances = 1000

// observe puts what there is into the status.
func (s *scope) observe(seen *members, problem error) {
	status := &s.infra.Status
	status.InfrastructureMachineKind = "LibvirtMachine"
	status.Replicas = ptr.To(int32(len(seen.all))) //nolint:gosec // at most 10000 and what a rollout adds
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
	outcome.SetReady(s.infra, summedUp)
}

func instance(m member) infrav1.LibvirtMachinePoolInstanceStatus {
	one := infrav1.LibvirtMachinePoolInstanceStatus{InstanceName: m.infra.Name, ProviderID: m.infra.Spec.ProviderID,
		Addresses: m.infra.Status.Addresses, Ready: ptr.To(m.isReady())}
	if m.machine != nil {
		one.Version = m.machine.Spec.Version
	}
	return one
}

// replicasReady compares what is asked for with what there is. More than that is there while a change
// rolls.
func (s *scope) replicasReady(seen *members, problem error) metav1.Condition {
	desired := s.desired(seen)
	alive := seen.count(func(m member) bool { return !m.isDeleting() })
	ready := seen.count(member.isReady)
	rolling := seen.count(func(m member) bool { return m.outdated })
	is := func(status metav1.ConditionStatus, reason, message string, values ...any) metav1.Condition {
		message = fmt.Sprintf(message, values...)
		if problem != nil && !apierrors.IsConflict(problem) {
			message += ": " + problem.Error() // after the format: it may have a percent sign in it
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
		if !m.isReady() && !m.isDeleting() {
			names = append(names, m.infra.Name)
		}
	}
	return outcome.Names(names)
}

func upToDate(seen *members) metav1.Condition {
	if outdated := seen.count(func(m member) bool { return m.outdated }); outdated > 0 {
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
