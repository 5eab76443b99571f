package libvirthost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/fleet"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/outcome"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/watches"
)

// hypervisorUUID returns the recorded UUID of a host's hypervisor.
func hypervisorUUID(host client.Object) string {
	return strings.ToLower(strings.TrimSpace(host.GetAnnotations()[infrav1.HypervisorUUIDAnnotation]))
}

// recognize records the hypervisor that has answered, before any machine is placed there, or refuses it if another
// LibvirtHost has it. It reports whether it has written.
func (r *Reconciler) recognize(ctx context.Context, host *infrav1.LibvirtHost) (bool, error) {
	uuid := r.Fleet.HypervisorUUID(host.Name)
	if uuid == "" {
		return false, nil
	}
	twin, err := r.twin(ctx, host, uuid)
	if err != nil {
		return false, err
	}
	if twin != "" {
		r.Fleet.Refuse(host.Name, &fleet.DuplicateHypervisorError{UUID: uuid, Host: twin})
		return false, nil
	}
	r.Fleet.Refuse(host.Name, nil)
	if hypervisorUUID(host) == uuid {
		return false, nil
	}
	recorded := host.DeepCopy()
	metav1.SetMetaDataAnnotation(&recorded.ObjectMeta, infrav1.HypervisorUUIDAnnotation, uuid)
	return true, r.Client.Patch(ctx, recorded, outcome.Over(host))
}

// twin returns the name of another LibvirtHost that had the hypervisor first, or nothing.
func (r *Reconciler) twin(ctx context.Context, host *infrav1.LibvirtHost, uuid string) (string, error) {
	list := &infrav1.LibvirtHostList{}
	if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("listing LibvirtHosts: %w", err)
	}
	for i := range list.Items {
		other := &list.Items[i]
		if other.Name == host.Name || hypervisorUUID(other) != uuid {
			continue
		}
		earlier := cmp.Or(other.CreationTimestamp.Compare(host.CreationTimestamp.Time), cmp.Compare(other.Name, host.Name)) < 0
		if earlier || hypervisorUUID(host) != uuid {
			return other.Name, nil
		}
	}
	return "", nil
}

// hypervisorChanged passes changes of the recorded hypervisor, and deletions.
func hypervisorChanged() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool { return hypervisorUUID(e.ObjectOld) != hypervisorUUID(e.ObjectNew) },
	}
}

// twins returns the other hosts with the hypervisor of a host.
func (r *Reconciler) twins(ctx context.Context, host client.Object) []ctrl.Request {
	return watches.Requests(ctx, r.Client, &infrav1.LibvirtHostList{}, func(other *infrav1.LibvirtHost) bool {
		uuid := r.Fleet.HypervisorUUID(other.Name)
		return other.Name != host.GetName() && uuid != "" && uuid == hypervisorUUID(host)
	})
}

// explain returns the reason for a host without a connection, and what a user can do about an unexpected hypervisor.
func explain(err error) (reason, instructions string) {
	other, duplicate := (*fleet.OtherHypervisorError)(nil), (*fleet.DuplicateHypervisorError)(nil)
	switch {
	case errors.As(err, &other) && other.Got == "":
		return infrav1.OtherHypervisorReason, ". Correct spec.uri, or where its name and address lead"
	case errors.As(err, &other):
		return infrav1.OtherHypervisorReason, fmt.Sprintf(
			". Correct spec.uri, or where its name and address lead. If the hypervisor was replaced, and all that ran on it is gone, set the annotation %s: %s",
			infrav1.HypervisorUUIDAnnotation, other.Got)
	case errors.As(err, &duplicate):
		return infrav1.DuplicateHypervisorReason, fmt.Sprintf(
			". Delete one of the two, or correct spec.uri and remove the annotation %s. If they are two hypervisors, their machines have the same UUID: set host_uuid in libvirtd.conf of one",
			infrav1.HypervisorUUIDAnnotation)
	}
	return infrav1.ConnectionFailedReason, ""
}
