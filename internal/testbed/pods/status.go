package pods

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// publish writes the status of a pod. A *waiting error is shown there; other errors are returned for a retry.
func (p *pod) publish(ctx context.Context, object *corev1.Pod, problem error) error {
	before := object.DeepCopy()
	status := &object.Status
	status.Phase = corev1.PodPending
	status.HostIP = p.runner.Network.Gateway().String()
	status.HostIPs = []corev1.HostIP{{IP: status.HostIP}}
	if address := p.address(); address != "" {
		status.PodIP, status.PodIPs = address, []corev1.PodIP{{IP: address}}
	}
	p.mutex.Lock()
	if !p.started.IsZero() {
		status.StartTime = p.started.DeepCopy()
	}
	p.mutex.Unlock()

	wait := corev1.ContainerStateWaiting{Reason: "ContainerCreating"}
	if reason := (*waiting)(nil); errors.As(problem, &reason) {
		wait = corev1.ContainerStateWaiting{Reason: reason.reason, Message: reason.message}
		problem = nil
	}
	status.ContainerStatuses = nil
	allReady, someStarted := true, false
	for i := range object.Spec.Containers {
		one := p.containerStatus(&object.Spec.Containers[i], wait)
		allReady = allReady && one.Ready
		someStarted = someStarted || one.State.Running != nil || one.LastTerminationState.Terminated != nil
		status.ContainerStatuses = append(status.ContainerStatuses, one)
	}
	if someStarted {
		status.Phase = corev1.PodRunning
	}
	setCondition(status, corev1.PodInitialized, true)
	setCondition(status, corev1.ContainersReady, allReady)
	setCondition(status, corev1.PodReady, allReady)
	if equality.Semantic.DeepEqual(before.Status, *status) {
		return problem
	}
	err := p.runner.client.Status().Patch(ctx, object, client.MergeFrom(before))
	return errors.Join(problem, client.IgnoreNotFound(err))
}

func (p *pod) containerStatus(spec *corev1.Container, wait corev1.ContainerStateWaiting) corev1.ContainerStatus {
	status := corev1.ContainerStatus{Name: spec.Name, Image: spec.Image, ImageID: spec.Image}
	p.mutex.Lock()
	c := p.containers[spec.Name]
	p.mutex.Unlock()
	if c == nil {
		status.State.Waiting = &wait
		return status
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	status.RestartCount, status.Ready = c.restarts, c.ready
	status.LastTerminationState.Terminated = c.last
	started := c.process != nil
	status.Started = &started
	switch {
	case started:
		status.State.Running = &corev1.ContainerStateRunning{StartedAt: c.started}
	case c.last != nil:
		status.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: c.last.Message}
	default:
		status.State.Waiting = &wait
	}
	return status
}

func setCondition(status *corev1.PodStatus, kind corev1.PodConditionType, isTrue bool) {
	value := corev1.ConditionFalse
	if isTrue {
		value = corev1.ConditionTrue
	}
	i := slices.IndexFunc(status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
	if i < 0 {
		status.Conditions = append(status.Conditions, corev1.PodCondition{Type: kind})
		i = len(status.Conditions) - 1
	}
	if condition := &status.Conditions[i]; condition.Status != value {
		condition.Status, condition.LastTransitionTime = value, now()
	}
}

// now returns the time in the API server's precision, so that an unchanged status compares as equal.
func now() metav1.Time {
	return metav1.Now().Rfc3339Copy()
}
