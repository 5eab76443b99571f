package fake

import (
	"context"
	"slices"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// SetPCIDevices replaces the PCI devices of the host. A new host has none.
func (h *Host) SetPCIDevices(devices ...hypervisor.PCIDevice) {
	h.lock.Lock()
	defer h.lock.Unlock()
	h.devices = devices
}

// PCIDevices implements hypervisor.Hypervisor.
func (c *connection) PCIDevices(ctx context.Context) ([]hypervisor.PCIDevice, error) {
	return do(ctx, c, "listing the PCI devices", PCIDevices, "", func() ([]hypervisor.PCIDevice, error) {
		return slices.Clone(c.host.devices), nil
	})
}

// deviceInUse returns the address of a domain's device that an active domain uses, or "". libvirt refuses to start the
// domain then. The lock is held.
func (h *Host) deviceInUse(d *domain) string {
	for _, other := range h.domains {
		if other == d || !other.State.Active() {
			continue
		}
		for _, address := range d.HostDevices {
			if slices.Contains(other.HostDevices, address) {
				return address
			}
		}
	}
	return ""
}
