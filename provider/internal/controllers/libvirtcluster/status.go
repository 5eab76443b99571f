package libvirtcluster

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/outcome"
)

// summedUp are the conditions that Ready sums up.
var summedUp = conditions.ForConditionTypes{infrav1.HostsAvailableCondition, infrav1.ControlPlaneEndpointReadyCondition}

// setProvisioned says that the cluster's infrastructure is there, once and for good.
func setProvisioned(infra *infrav1.LibvirtCluster) {
	for _, condition := range summedUp {
		if !conditions.IsTrue(infra, condition) {
			return
		}
	}
	infra.Status.Initialization.Provisioned = ptr.To(true)
}

// setReady sums up the other conditions. While the object is being deleted, reconcileDelete has set
// Ready and what is left to do is what it says.
func setReady(infra *infrav1.LibvirtCluster) {
	if !infra.DeletionTimestamp.IsZero() {
		return
	}
	outcome.SetReady(infra, summedUp)
}

// waiting are reasons that aren't news: many clusters have them on their way.
var waiting = []string{infrav1.WaitingForControlPlaneEndpointReason, infrav1.WaitingForAddressReason}

// announce records events of the changed conditions after the status was written.
func (r *Reconciler) announce(before, after *infrav1.LibvirtCluster) {
	if !ptr.Deref(before.Status.Initialization.Provisioned, false) && ptr.Deref(after.Status.Initialization.Provisioned, false) {
		r.recorder.Eventf(after, nil, corev1.EventTypeNormal, "Provisioned", "Provision",
			"The endpoint is %s, and hosts are available", after.Spec.ControlPlaneEndpoint.String())
	}
	for _, condition := range append([]string{infrav1.ReadyCondition}, summedUp...) {
		was, is := conditions.Get(before, condition), conditions.Get(after, condition)
		if is == nil || was != nil && was.Status == is.Status && was.Reason == is.Reason {
			continue
		}
		switch {
		case condition == infrav1.ReadyCondition && is.Reason == infrav1.DeletingReason && is.Message != "":
			r.recorder.Eventf(after, nil, corev1.EventTypeNormal, is.Reason, "Delete", "%s", is.Message)
		case condition != infrav1.ReadyCondition && is.Status == metav1.ConditionFalse && !slices.Contains(waiting, is.Reason):
			r.recorder.Eventf(after, nil, corev1.EventTypeWarning, is.Reason, "Reconcile", "%s", is.Message)
		}
	}
}
