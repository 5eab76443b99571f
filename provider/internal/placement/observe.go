package placement

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/fleet"
)

// Handler records all events of LibvirtMachines in the ledger. It adds nothing to the queue.
func (s *Scheduler) Handler() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	observe := func(object client.Object) {
		if infra, ok := object.(*infrav1.LibvirtMachine); ok {
			s.Observe(infra)
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, _ queue) { observe(e.Object) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, _ queue) {
			if e.ObjectOld.GetUID() != e.ObjectNew.GetUID() {
				s.Gone(e.ObjectOld.GetUID()) // its deletion was missed
			}
			observe(e.ObjectNew)
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ queue) { s.Gone(e.Object.GetUID()) },
	}
}

// Load records all bound machines, once. They are in the cache when reconciles begin; later events pass the Handler.
// Machines of other managers count too.
func (s *Scheduler) Load(ctx context.Context) error {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.Ledger.Load(func() ([]Machine, error) {
		machines, err := s.machines(ctx)
		if err != nil {
			return nil, err
		}
		var bound []Machine
		for i := range machines {
			if machines[i].Spec.HostName != "" {
				s.claim(machines[i].DeepCopy()) // until it is observed again
				bound = append(bound, s.taking(&machines[i]))
			}
		}
		return bound, nil
	})
}

// Observe records the current state of a machine. infra must not be changed afterwards.
func (s *Scheduler) Observe(infra *infrav1.LibvirtMachine) {
	if infra.Spec.HostName == "" {
		return
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	s.observe(infra)
}

// observeClaimed records claimed machines whose domains are in snapshots now.
func (s *Scheduler) observeClaimed() {
	s.lock.Lock()
	defer s.lock.Unlock()
	for _, infra := range s.claimed {
		s.observe(infra)
	}
}

// observe is Observe with the lock held.
func (s *Scheduler) observe(infra *infrav1.LibvirtMachine) {
	s.See(s.taking(infra))
	if s.Counts(infra.UID) {
		delete(s.claimed, infra.UID)
		return
	}
	s.claim(infra)
}

// claim remembers a machine that the ledger doesn't count. The lock is held.
func (s *Scheduler) claim(infra *infrav1.LibvirtMachine) {
	if s.claimed == nil {
		s.claimed = map[types.UID]*infrav1.LibvirtMachine{}
	}
	s.claimed[infra.UID] = infra
}

// Gone removes a deleted machine.
func (s *Scheduler) Gone(machine types.UID) {
	s.lock.Lock()
	defer s.lock.Unlock()
	delete(s.claimed, machine)
	s.Ledger.Gone(machine)
}

// machines returns all LibvirtMachines from the cache. Callers must not change them.
func (s *Scheduler) machines(ctx context.Context) ([]infrav1.LibvirtMachine, error) {
	list := &infrav1.LibvirtMachineList{}
	if err := s.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing LibvirtMachines: %w", err)
	}
	return list.Items, nil
}

// taking returns a machine with its observed resources.
func (s *Scheduler) taking(infra *infrav1.LibvirtMachine) Machine {
	snapshot, _ := s.Hosts.Snapshot(infra.Spec.HostName)
	given, machine := GivenTo(infra, snapshot), machineOf(infra)
	machine.Needs, machine.Claimed, machine.Estimated = given.Needs, !given.Is, !given.Whole
	return machine
}

// machineOf returns a machine with the resources of its spec.
func machineOf(infra *infrav1.LibvirtMachine) Machine {
	machine := Machine{
		UID: infra.UID, Host: infra.Spec.HostName, Needs: Needs(&infra.Spec),
		Domain:  strings.TrimPrefix(infra.Spec.ProviderID, infrav1.ProviderIDPrefix),
		Cluster: types.NamespacedName{Namespace: infra.Namespace, Name: infra.Labels[clusterv1.ClusterNameLabel]},
	}
	// The Machine's own owner isn't on the LibvirtMachine. These labels are, and say which one it is.
	for _, label := range []string{
		clusterv1.MachineControlPlaneLabel, clusterv1.MachineSetNameLabel, clusterv1.MachineDeploymentNameLabel, infrav1.PoolLabel,
	} {
		if value, exists := infra.Labels[label]; exists {
			machine.Owner = label + "=" + value
			break
		}
	}
	return machine
}

// Allocated returns the used resources of a host: of machines that are placed there or have a domain there, and of
// foreign domains. A machine with only spec.hostName doesn't count. machines are those whose spec names the host.
func (s *Scheduler) Allocated(host *infrav1.LibvirtHost, snapshot fleet.Snapshot, machines []infrav1.LibvirtMachine) Resources {
	bound, taken := map[string]bool{}, Resources{}
	for i := range machines {
		given := GivenTo(&machines[i], snapshot)
		needs, placed := s.Taken(machines[i].UID)
		if !placed {
			needs = given.Needs
		}
		if placed || given.Is {
			bound[strings.TrimPrefix(machines[i].Spec.ProviderID, infrav1.ProviderIDPrefix)] = true
			taken.add(onHost(needs, host.Spec.StoragePools.Disks))
		}
	}
	taken.add(onHost(Foreign(&host.Spec, snapshot, bound), nil))
	return taken
}
