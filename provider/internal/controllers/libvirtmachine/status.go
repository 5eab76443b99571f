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

// waitFor says in a condition what is waited for, and stops. Something brings the object here when it
// has happened.
func (s *scope) waitFor(condition, reason, message string, values ...any) (verdict, error) {
	s.set(condition, metav1.ConditionFalse, reason, message, values...)
	return stop, nil
}

// failed says in a condition what has failed, and returns an error so that it is tried again. A host
// that can't be reached isn't an error of the machine: it is tried again when the host is back.
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

// unreachable says that what a condition is about can't be seen.
func (s *scope) unreachable(condition string, err error) (verdict, error) {
	s.set(condition, metav1.ConditionUnknown, infrav1.HostUnreachableReason, "%s", err.Error())
	s.lookAgain(unreachableDelay)
	return stop, nil
}

// unreachableDelay is how long to wait at most for a host to come back. The fleet says it sooner.
const unreachableDelay = time.Minute

// summedUp are the conditions that Ready sums up: those of the phases so far. That the seed is still
// there is no fault of a machine.
var summedUp = conditions.ForConditionTypes{
	infrav1.HostBoundCondition, infrav1.ImageReadyCondition, infrav1.DisksReadyCondition, infrav1.InstanceReadyCondition, infrav1.AddressesReadyCondition,
}

// setReady sums up the other conditions. While the object is being deleted, what is left to do is what
// it says. A machine that has joined its cluster is Ready also when nobody tells its addresses.
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

// waiting are reasons that aren't news: every machine has them on its way.
var waiting = []string{
	infrav1.WaitingForClusterInfrastructureReason, infrav1.WaitingForHostsReason, infrav1.WaitingForBootstrapDataReason, infrav1.WaitingForAddressesReason,
	infrav1.WaitingForNodeReason, infrav1.ImageTransferringReason, infrav1.DiskCopyingReason, infrav1.DeletingReason,
	infrav1.RestartingReason,
}

// announce makes events of what has changed, after it has been written.
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

// finishProvisioning says that the machine is there, once and for good: its domain has been started,
// and has addresses if anything gives it some.
func (s *scope) finishProvisioning(context.Context) (verdict, error) {
	if !s.isProvisioned() {
		s.Scheduler.SetFull(s.host.Name, false)
	}
	s.infra.Status.Initialization.Provisioned = ptr.To(true)
	return goOn, nil
}
