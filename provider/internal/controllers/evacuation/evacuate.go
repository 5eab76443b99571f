package evacuation

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/outcome"
)

// mark returns the value of the annotation that requests a replacement. unmark removes only this value.
func mark(host string) string { return "evacuating LibvirtHost " + host }

// evacuate takes the next step with the machine that is being replaced, or chooses the next one.
func (r *Reconciler) evacuate(ctx context.Context, host *infrav1.LibvirtHost) error {
	residents, err := r.residents(ctx, host.Name)
	if err != nil {
		return err
	}
	if host.Status.Evacuation == nil {
		host.Status.Evacuation = &infrav1.HostEvacuation{}
	}
	status := host.Status.Evacuation
	status.Machines = ptr.To(max(ptr.Deref(status.Machines, 0), int32(len(residents)))) //nolint:gosec // a host has no 2 billion machines
	if len(residents) == 0 {
		status.Current = nil
		setCondition(host, metav1.ConditionTrue, infrav1.EvacuatedReason, fmt.Sprintf("All of %d machines are gone", *status.Machines))
		return nil
	}
	waits := ""
	if status.Current != nil {
		if waits, err = r.replace(ctx, host, residents); err != nil {
			return err
		}
		if waits == "" {
			status.Current = nil
		}
	}
	p := choose(residents)
	if status.Current == nil && p.next != nil {
		status.Current = current(p.next)
		waits = "starting"
	}
	p.report(host, waits)
	return nil
}

func current(m *resident) *infrav1.EvacuatedMachine {
	out := &infrav1.EvacuatedMachine{Namespace: m.machine.Namespace, Name: m.machine.Name, UID: string(m.machine.UID), OwnerKind: "Machine", OwnerName: m.machine.Name}
	if m.owner != nil {
		out.OwnerKind, out.OwnerName = m.owner.Kind, m.owner.Name
	}
	return out
}

// plan has the possible next steps for the machines on a host.
type plan struct {
	residents []resident
	// next is the machine to replace next. It may be nil.
	next *resident
	// waiting and blocked are the machines that can't be replaced now, with their reasons.
	waiting, blocked []string
}

// choose returns the machine to replace next: one that is being deleted or replaced, then workers, then control plane
// machines. The latter wait for workers that can be replaced later, and not for blocked ones.
func choose(residents []resident) plan {
	p := plan{residents: residents}
	leaving := false
	for i := range residents {
		m := &residents[i]
		if m.isLeaving() && m.machine != nil && !leaving {
			p.next, leaving = m, true
			continue
		}
		if m.isLeaving() {
			leaving = true
			p.waiting = append(p.waiting, m.name()+": "+m.waitsToLeave())
			continue
		}
		if why := m.blockedBy(); why != "" {
			p.blocked = append(p.blocked, m.name()+": "+why)
			continue
		}
		if why := m.waitsFor(); why != "" {
			p.waiting = append(p.waiting, m.name()+": "+why)
			continue
		}
		if p.next == nil && (!m.isControlPlane() || len(p.waiting) == 0) {
			p.next = m
		}
	}
	if leaving && p.next != nil && !p.next.isLeaving() {
		p.next = nil // wait for the deletion of a machine without a Machine
	}
	return p
}

// report sets the condition.
func (p *plan) report(host *infrav1.LibvirtHost, waits string) {
	status := host.Status.Evacuation
	gone := int(*status.Machines) - len(p.residents)
	parts := []string{fmt.Sprintf("%d of %d machines are gone", gone, *status.Machines)}
	reason := infrav1.EvacuatingReason
	if status.Current != nil {
		parts = append(parts, fmt.Sprintf("replacing Machine %s/%s: %s", status.Current.Namespace, status.Current.Name, waits))
	} else if len(p.waiting) == 0 {
		reason = infrav1.EvacuationBlockedReason
	}
	if len(p.waiting) > 0 {
		parts = append(parts, "waiting: "+outcome.List(p.waiting, "; "))
	}
	if len(p.blocked) > 0 {
		parts = append(parts, "can't be replaced: "+outcome.List(p.blocked, "; "))
	}
	setCondition(host, metav1.ConditionFalse, reason, strings.Join(parts, "\n"))
}

func setCondition(host *infrav1.LibvirtHost, status metav1.ConditionStatus, reason, message string) {
	conditions.Set(host, metav1.Condition{Type: infrav1.EvacuatedCondition, Status: status, Reason: reason, Message: message})
}

// replace takes the next step with the current machine. It returns the reason for waiting, or nothing if the machine
// was replaced or can't be.
func (r *Reconciler) replace(ctx context.Context, host *infrav1.LibvirtHost, residents []resident) (string, error) {
	status := host.Status.Evacuation.Current
	machine := &clusterv1.Machine{}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: status.Namespace, Name: status.Name}, machine)
	if client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("reading Machine %s/%s: %w", status.Namespace, status.Name, err)
	}
	if err != nil || string(machine.UID) != status.UID {
		ready, desired, err := r.newView().replicas(ctx, status.Namespace, status.OwnerKind, status.OwnerName, nil)
		if err != nil || ready >= desired {
			return "", err
		}
		return fmt.Sprintf("it is gone, and %s %s has %d of %d machines Ready", status.OwnerKind, status.OwnerName, ready, desired), nil
	}
	var m *resident
	for i := range residents {
		if residents[i].machine != nil && residents[i].machine.UID == machine.UID {
			m = &residents[i]
		}
	}
	if !machine.DeletionTimestamp.IsZero() {
		if m == nil {
			m = &resident{machine: machine}
		}
		return m.waitsToLeave(), nil
	}
	if m == nil {
		return "its LibvirtMachine is gone", nil
	}
	if why := m.blockedBy(); why != "" {
		return "", r.unmark(ctx, host, machine)
	}
	if m.cluster != nil && annotations.IsPaused(m.cluster, machine) || annotations.HasPaused(m.infra) || annotations.HasPaused(m.check) {
		return m.waitsFor(), nil
	}
	if !annotations.HasRemediateMachine(machine) {
		return waitForCheck(m), r.mark(ctx, host, machine)
	}
	return waitForRemediation(m), nil
}

// waitForRemediation returns the reason why a marked machine still exists.
func waitForRemediation(m *resident) string {
	if allowed := conditions.Get(m.check, clusterv1.MachineHealthCheckRemediationAllowedCondition); allowed != nil && allowed.Status == metav1.ConditionFalse {
		return fmt.Sprintf("MachineHealthCheck %s doesn't allow it now: %s", m.check.Name, allowed.Message)
	}
	if !collections.IsUnhealthyAndOwnerRemediated(m.machine) || m.owner == nil {
		return waitForCheck(m)
	}
	waits := fmt.Sprintf("waiting for %s %s", m.owner.Kind, m.owner.Name)
	if remediated := conditions.Get(m.machine, clusterv1.MachineOwnerRemediatedCondition); remediated.Message != "" {
		waits += ": " + remediated.Message
	}
	return waits
}

// waitForCheck is the message while the MachineHealthCheck hasn't marked the machine as unhealthy.
func waitForCheck(m *resident) string {
	return fmt.Sprintf("waiting for MachineHealthCheck %s to mark it as unhealthy, because of its annotation %s", m.check.Name, clusterv1.RemediateMachineAnnotation)
}

// mark requests the replacement of a machine.
func (r *Reconciler) mark(ctx context.Context, host *infrav1.LibvirtHost, machine *clusterv1.Machine) error {
	before := machine.DeepCopy()
	annotations.AddAnnotations(machine, map[string]string{clusterv1.RemediateMachineAnnotation: mark(host.Name)})
	if err := r.Client.Patch(ctx, machine, outcome.Over(before)); client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("setting the annotation %s on Machine %s/%s: %w", clusterv1.RemediateMachineAnnotation, machine.Namespace, machine.Name, err)
	}
	ctrl.LoggerFrom(ctx).Info("Requested the replacement of a machine", "Machine", client.ObjectKeyFromObject(machine).String(), "LibvirtHost", host.Name)
	return nil
}

// unmark removes the annotation, unless another writer has set it or the machine is being deleted.
func (r *Reconciler) unmark(ctx context.Context, host *infrav1.LibvirtHost, machine *clusterv1.Machine) error {
	if machine.Annotations[clusterv1.RemediateMachineAnnotation] != mark(host.Name) || !machine.DeletionTimestamp.IsZero() {
		return nil
	}
	before := machine.DeepCopy()
	delete(machine.Annotations, clusterv1.RemediateMachineAnnotation)
	if err := r.Client.Patch(ctx, machine, outcome.Over(before)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("removing the annotation %s from Machine %s/%s: %w", clusterv1.RemediateMachineAnnotation, machine.Namespace, machine.Name, err)
	}
	return nil
}

// cancel ends a cancelled evacuation. A marked machine that isn't being deleted stays.
func (r *Reconciler) cancel(ctx context.Context, host *infrav1.LibvirtHost) error {
	if host.Status.Evacuation == nil {
		conditions.Delete(host, infrav1.EvacuatedCondition)
		return nil
	}
	if status := host.Status.Evacuation.Current; status != nil {
		machine := &clusterv1.Machine{}
		err := r.Client.Get(ctx, client.ObjectKey{Namespace: status.Namespace, Name: status.Name}, machine)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading Machine %s/%s: %w", status.Namespace, status.Name, err)
		}
		if err == nil && string(machine.UID) == status.UID {
			if err := r.unmark(ctx, host, machine); err != nil {
				return err
			}
		}
	}
	host.Status.Evacuation = nil
	conditions.Delete(host, infrav1.EvacuatedCondition)
	return nil
}

// announce records events of the changed conditions after the status was written.
func (r *Reconciler) announce(before, after *infrav1.LibvirtHost) {
	was, is := conditions.Get(before, infrav1.EvacuatedCondition), conditions.Get(after, infrav1.EvacuatedCondition)
	if is == nil {
		return
	}
	if is.Reason == infrav1.EvacuatingReason {
		current := after.Status.Evacuation.Current
		if current != nil && (before.Status.Evacuation == nil || !sameMachine(before.Status.Evacuation.Current, current)) {
			r.recorder.Eventf(after, nil, corev1.EventTypeNormal, is.Reason, "Evacuate", "Replacing Machine %s/%s", current.Namespace, current.Name)
		}
		return
	}
	if was != nil && was.Reason == is.Reason {
		return
	}
	kind := corev1.EventTypeNormal
	if is.Reason == infrav1.EvacuationBlockedReason {
		kind = corev1.EventTypeWarning
	}
	r.recorder.Eventf(after, nil, kind, is.Reason, "Evacuate", "%s", is.Message)
}

func sameMachine(a, b *infrav1.EvacuatedMachine) bool {
	return a != nil && b != nil && a.UID == b.UID
}
