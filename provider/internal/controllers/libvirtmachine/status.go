package libvirtmachine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/outcome"
)

// set sets a condition.
func (s *scope) set(condition string, status metav1.ConditionStatus, reason, message string, values ...any) {
	if len(values) > 0 {
		message = fmt.Sprintf(message, values...)
	}
	conditions.Set(s.infra, metav1.Condition{Type: condition, Status: status, Reason: reason, Message: message})
}

func (s *scope) setTrue(condition, reason string) {
	s.set(condition, metav1.ConditionTrue, reason, "")
}

// waitFor sets a condition that says what the machine waits for, and stops. An event triggers the next reconcile.
func (s *scope) waitFor(condition, reason, message string, values ...any) (verdict, error) {
	s.set(condition, metav1.ConditionFalse, reason, message, values...)
	return stop, nil
}

// failed sets a condition to an error and returns the error for a retry. An unreachable host isn't an error of the
// machine: the machine is reconciled when the host is back.
func (s *scope) failed(condition, reason string, err error) (verdict, error) {
	if errors.Is(err, hypervisor.ErrUnreachable) {
		return s.unreachable(condition, err)
	}
	if errors.Is(err, hypervisor.ErrNoSpace) && s.host != nil {
		reason, err = infrav1.NoRoomReason, s.noRoom(err)
	}
	s.set(condition, metav1.ConditionFalse, reason, "%s", err.Error())
	return stop, err
}

// unreachable sets a condition to Unknown.
func (s *scope) unreachable(condition string, err error) (verdict, error) {
	s.set(condition, metav1.ConditionUnknown, infrav1.HostUnreachableReason, "%s", err.Error())
	s.lookAgain(unreachableDelay)
	return stop, nil
}

// unreachableDelay is the delay before the next reconcile while the host is unreachable. The fleet reports its return
// sooner.
const unreachableDelay = time.Minute

// summedUp has the conditions that Ready summarizes. SeedRemoved isn't one of them.
var summedUp = conditions.ForConditionTypes{
	infrav1.HostBoundCondition, infrav1.ImageReadyCondition, infrav1.DisksReadyCondition, infrav1.InstanceReadyCondition, infrav1.AddressesReadyCondition,
}

// setReady summarizes the other conditions. During deletion, Ready has the remaining steps instead. A machine that
// has joined its cluster is Ready even without addresses.
func (s *scope) setReady() {
	infra, of := s.infra, summedUp
	if !infra.DeletionTimestamp.IsZero() {
		return
	}
	if s.hasMachine() && s.machine.Status.NodeRef != (clusterv1.MachineNodeReference{}) {
		of = slices.DeleteFunc(slices.Clone(of), func(condition string) bool { return condition == infrav1.AddressesReadyCondition })
	}
	outcome.SetReady(infra, of, conditions.IgnoreTypesIfMissing(of))
}

// waiting has the reasons of normal progress, for which no event is recorded.
var waiting = []string{
	infrav1.WaitingForClusterInfrastructureReason, infrav1.WaitingForHostsReason, infrav1.WaitingForBootstrapDataReason, infrav1.WaitingForAddressesReason,
	infrav1.WaitingForNodeReason, infrav1.ImageTransferringReason, infrav1.DiskCopyingReason, infrav1.DeletingReason,
	infrav1.RestartingReason,
}

// announce records events of the changed conditions after the status was written.
func (r *Reconciler) announce(before, after *infrav1.LibvirtMachine) {
	if !ptr.Deref(before.Status.Initialization.Provisioned, false) && ptr.Deref(after.Status.Initialization.Provisioned, false) {
		r.recorder.Eventf(after, nil, corev1.EventTypeNormal, "Provisioned", "Provision",
			"The machine runs on host %s, as domain %s", after.Spec.HostName, after.Spec.ProviderID[len(infrav1.ProviderIDPrefix):])
	}
	if is := conditions.Get(after, infrav1.ReadyCondition); is != nil && is.Reason == infrav1.DeletingReason && is.Message != "" {
		was := conditions.Get(before, infrav1.ReadyCondition)
		if was == nil || was.Reason != is.Reason || was.Message != is.Message {
			r.recorder.Eventf(after, nil, corev1.EventTypeWarning, is.Reason, "Delete", "%s", is.Message)
		}
	}
	for _, condition := range append(slices.Clone(summedUp), infrav1.SeedRemovedCondition, infrav1.UpdatedInPlaceCondition, infrav1.NodeProviderIDSetCondition) {
		was, is := conditions.Get(before, condition), conditions.Get(after, condition)
		if is == nil || is.Status == metav1.ConditionTrue || slices.Contains(waiting, is.Reason) ||
			was != nil && was.Status == is.Status && was.Reason == is.Reason {
			continue
		}
		r.recorder.Eventf(after, nil, corev1.EventTypeWarning, is.Reason, "Reconcile", "%s", is.Message)
	}
}

// finishProvisioning marks the machine as provisioned. This is never reverted.
func (s *scope) finishProvisioning(context.Context) (verdict, error) {
	if !s.isProvisioned() {
		s.Scheduler.SetFull(s.host.Name, false)
	}
	s.infra.Status.Initialization.Provisioned = ptr.To(true)
	return goOn, nil
}
