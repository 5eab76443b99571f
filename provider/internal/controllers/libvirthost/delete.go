package libvirthost

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/index"
)

// machines returns the LibvirtMachines that are bound to a host, of all namespaces that the manager sees,
// to be read only: they are the cache's own.
func (r *Reconciler) machines(ctx context.Context, host string) ([]infrav1.LibvirtMachine, error) {
	list := &infrav1.LibvirtMachineList{}
	if err := r.Client.List(ctx, list, client.MatchingFields{index.MachineHost: host}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the LibvirtMachines that are bound to the host: %w", err)
	}
	return list.Items, nil
}

// finishDeletion ends the session and lets the object go: no machine is bound to the host.
func (r *Reconciler) finishDeletion(host *infrav1.LibvirtHost) {
	r.forget(host.Name)
	set(host, infrav1.ReadyCondition, metav1.ConditionFalse, infrav1.DeletingReason, "")
	controllerutil.RemoveFinalizer(host, infrav1.HostFinalizer)
}
