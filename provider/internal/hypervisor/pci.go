package hypervisor

// PCIDevice is a PCI device of a host.
type PCIDevice struct {
	// Address of the device, for example 0000:3b:00.0.
	Address string
	// VendorID and ProductID are four hexadecimal digits each, in lower case.
	VendorID, ProductID string
	// Bridge says that the device connects buses. No machine can have one, and it is in nobody's way.
	Bridge bool
	// IOMMUGroup is the group of devices that can be given away only together, or nil when the host has no
	// IOMMU that is switched on.
	IOMMUGroup *int
	// Driver is the driver of the host that has the device. Empty for none.
	Driver string
}
