package soak

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/world"
)

// judgeCounts returns the LibvirtHosts with wrong numbers. Without foreign domains, the CPUs and memory are exactly
// those of the bound machines. The pools also contain images.
func (s *soak) judgeCounts(machines []infrav1.LibvirtMachine) error {
	var errs []error
	for _, host := range s.Hosts {
		object := &infrav1.LibvirtHost{ObjectMeta: metav1.ObjectMeta{Name: host.Name}}
		if err := s.Client.Get(s.t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			errs = append(errs, err)
			continue
		}
		var number, cpus int32
		var memory, disks int64
		for i := range machines {
			spec := &machines[i].Spec
			if spec.HostName != host.Name {
				continue
			}
			number++
			cpus += spec.CPUs
			memory += spec.Memory.Value()
			disks += spec.RootDisk.Size.Value()
			for _, disk := range spec.ExtraDisks {
				disks += disk.Size.Value()
			}
		}
		status := object.Status
		if got := ptr.Deref(status.Machines, -1); got != number {
			errs = append(errs, fmt.Errorf("%s reports %d machines, and %d are bound to it", host.Name, got, number))
		}
		if got := ptr.Deref(status.Allocated.CPUs, -1); got != cpus {
			errs = append(errs, fmt.Errorf("%s reports %d allocated CPUs, and its machines have %d", host.Name, got, cpus))
		}
		if got := value(status.Allocated.Memory); got != memory {
			errs = append(errs, fmt.Errorf("%s reports %d allocated bytes of memory, and its machines have %d", host.Name, got, memory))
		}
		if memory > value(status.Capacity.Memory) {
			errs = append(errs, fmt.Errorf("the machines of %s have %d bytes of memory, and it has %s", host.Name, memory, status.Capacity.Memory))
		}
		// The status may differ by a hundredth of the capacity.
		free := host.Pool(world.ImageVolume.Pool)
		lag := free.CapacityBytes / 100
		if got, most := value(status.Allocated.Storage), disks+free.CapacityBytes-free.AvailableBytes; got < disks-lag || got > most+lag {
			errs = append(errs, fmt.Errorf("%s reports %d allocated bytes of storage, and it must be between %d and %d", host.Name, got, disks, most))
		}
	}
	return errors.Join(errs...)
}

func value(quantity *resource.Quantity) int64 {
	if quantity == nil {
		return -1
	}
	return quantity.Value()
}

// judgeLedger returns the superfluous reservations. That of a bound machine is released when the next machine is
// placed; that of a deleted machine would stay for ever.
func (s *soak) judgeLedger(machines []infrav1.LibvirtMachine) error {
	hosts := map[types.UID]string{}
	for i := range machines {
		hosts[machines[i].UID] = machines[i].Spec.HostName
	}
	var errs []error
	for _, reserved := range s.Ledger().Reservations() {
		if host, exists := hosts[reserved.UID]; !exists || host != reserved.Host {
			errs = append(errs, fmt.Errorf("room on %s is reserved for a machine with the UID %s, which is bound to %q", reserved.Host, reserved.UID, host))
		}
	}
	return errors.Join(errs...)
}
