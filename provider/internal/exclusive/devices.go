package exclusive

import (
	"fmt"
	"slices"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// Lent is a PCI device of a host that its spec lends to machines.
type Lent struct {
	hypervisor.PCIDevice
	// Problem says why no machine can have it all the same. Empty when one can.
	Problem string
}

// LentOf returns the devices that a host's spec lends, in the order of their addresses.
//
// A machine can have a device only together with its whole IOMMU group
// (https://docs.kernel.org/driver-api/vfio.html#groups-devices-and-iommus): what else is in it, but for
// bridges, must not be in use by the host, and must not be lent to somebody else.
func LentOf(spec *infrav1.LibvirtHostSpec, devices []hypervisor.PCIDevice) []Lent {
	isLent := func(device hypervisor.PCIDevice) bool {
		return slices.ContainsFunc(spec.HostDevices, func(model infrav1.LentDevices) bool {
			return model.VendorID == device.VendorID && model.ProductID == device.ProductID &&
				(len(model.Addresses) == 0 || slices.Contains(model.Addresses, device.Address))
		})
	}
	var lent []Lent
	for _, device := range devices {
		if isLent(device) {
			lent = append(lent, Lent{PCIDevice: device, Problem: problem(device, devices, isLent)})
		}
	}
	return lent
}

// harmless are the drivers of the host that leave a device to machines.
var harmless = []string{"", "vfio-pci", "pci-stub"}

func problem(device hypervisor.PCIDevice, all []hypervisor.PCIDevice, isLent func(hypervisor.PCIDevice) bool) string {
	switch {
	case device.Bridge:
		return "is a bridge"
	case device.IOMMUGroup == nil:
		return "has no IOMMU group: enable the IOMMU of the host"
	}
	for _, other := range all {
		if other.Address == device.Address || other.Bridge || other.IOMMUGroup == nil || *other.IOMMUGroup != *device.IOMMUGroup {
			continue
		}
		if isLent(other) {
			return fmt.Sprintf("shares an IOMMU group with %s, which spec.hostDevices has too: keep one of them", other.Address)
		}
		if !slices.Contains(harmless, other.Driver) {
			return fmt.Sprintf("shares an IOMMU group with %s, which the host's driver %s uses", other.Address, other.Driver)
		}
	}
	return ""
}
