package libvirtmachine

import (
	"context"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/fleet"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/placement"
)

// placed puts a machine into placement's words.
func placed(infra *infrav1.LibvirtMachine) placement.Machine {
	machine := placement.Machine{
		UID: infra.UID, Host: infra.Spec.HostName, Needs: placement.Needs(&infra.Spec),
		Domain:  strings.TrimPrefix(infra.Spec.ProviderID, infrav1.ProviderIDPrefix),
		Cluster: types.NamespacedName{Namespace: infra.Namespace, Name: infra.Labels[clusterv1.ClusterNameLabel]},
	}
	// The Machine's own owner isn't on the LibvirtMachine. These labels are, and say which one it is.
	for _, label := range []string{
		clusterv1.MachineControlPlaneLabel, clusterv1.MachineSetNameLabel, clusterv1.MachineDeploymentNameLabel, infrav1.PoolLabel,
	} {
		if value, there := infra.Labels[label]; there {
			machine.Owner = label + "=" + value
			break
		}
	}
	return machine
}

// told is what the ledger is told of machines, in the order in which it happens to them. The zero value is
// ready to use.
type told struct {
	lock sync.Mutex
	// claimed are machines that the ledger doesn't count, because only their spec says that they are on a host.
	claimed map[types.UID]*infrav1.LibvirtMachine
}

// all tells of all machines that are bound, once. All of them are in the cache when reconciles begin; what
// comes later is told by the handler. Machines count that other managers reconcile, too.
func (t *told) all(ctx context.Context, r *Reconciler) error {
	t.lock.Lock()
	defer t.lock.Unlock()
	return r.Ledger.Load(func() ([]placement.Machine, error) {
		machines, err := r.allMachines(ctx)
		if err != nil {
			return nil, err
		}
		var bound []placement.Machine
		for i := range machines {
			if machines[i].Spec.HostName != "" {
				t.claim(machines[i].DeepCopy()) // until it is looked at again
				bound = append(bound, taking(&machines[i], r.Hosts))
			}
		}
		return bound, nil
	})
}

// again tells of the machines of which hosts that have been seen meanwhile show that they are there.
func (t *told) again(r *Reconciler) {
	t.lock.Lock()
	defer t.lock.Unlock()
	for _, infra := range t.claimed {
		t.tell(r, infra)
	}
}

// tell tells the ledger of a machine as it is seen now. The lock is held.
func (t *told) tell(r *Reconciler, infra *infrav1.LibvirtMachine) {
	r.Ledger.See(taking(infra, r.Hosts))
	if r.Ledger.Counts(infra.UID) {
		delete(t.claimed, infra.UID)
		return
	}
	t.claim(infra)
}

// claim remembers a machine that the ledger doesn't count. The lock is held.
func (t *told) claim(infra *infrav1.LibvirtMachine) {
	if t.claimed == nil {
		t.claimed = map[types.UID]*infrav1.LibvirtMachine{}
	}
	t.claimed[infra.UID] = infra
}

func (t *told) see(r *Reconciler, object client.Object) {
	infra, is := object.(*infrav1.LibvirtMachine)
	if !is || infra.Spec.HostName == "" {
		return
	}
	t.lock.Lock()
	defer t.lock.Unlock()
	t.tell(r, infra)
}

func (t *told) gone(r *Reconciler, machine types.UID) {
	t.lock.Lock()
	defer t.lock.Unlock()
	delete(t.claimed, machine)
	r.Ledger.Gone(machine)
}

// taking puts a machine into placement's words, with what it takes.
func taking(infra *infrav1.LibvirtMachine, hosts Hosts) placement.Machine {
	snapshot, _ := hosts.Snapshot(infra.Spec.HostName)
	given, machine := fleet.GivenTo(infra, snapshot), placed(infra)
	machine.Needs, machine.Claimed, machine.Estimated = given.Needs, !given.Is, !given.Whole
	return machine
}

// keepLedger tells the ledger what happens to machines. It brings none of them here.
func (r *Reconciler) keepLedger() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, _ queue) { r.told.see(r, e.Object) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, _ queue) {
			if e.ObjectOld.GetUID() != e.ObjectNew.GetUID() {
				r.told.gone(r, e.ObjectOld.GetUID()) // nobody saw it go
			}
			r.told.see(r, e.ObjectNew)
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ queue) { r.told.gone(r, e.Object.GetUID()) },
	}
}
