package libvirthost

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/index"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/outcome"
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
func (r *Reconciler) finishDeletion(ctx context.Context, host *infrav1.LibvirtHost) error {
	r.forget(host.Name)
	removed, err := outcome.RemoveFinalizer(ctx, r.Client, host, infrav1.HostFinalizer)
	if !removed { // the object stays for somebody else's
		set(host, infrav1.ReadyCondition, metav1.ConditionFalse, infrav1.DeletingReason, "")
	}
	return err
}
