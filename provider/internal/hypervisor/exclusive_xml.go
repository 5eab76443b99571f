package hypervisor

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"k8s.io/utils/cpuset"
)

// pinElement restricts the CPUs of a virtual CPU.
type pinElement struct {
	CPUs string `xml:"cpuset,attr"`
}

// pciElement is the address of a PCI device. Missing parts are 0.
type pciElement struct {
	Domain   string `xml:"domain,attr"`
	Bus      string `xml:"bus,attr"`
	Slot     string `xml:"slot,attr"`
	Function string `xml:"function,attr"`
}

// hostDeviceElement is a host's device in a domain, or an interface that may be one
// (https://libvirt.org/formatdomain.html#host-device-assignment and #pci-passthrough).
type hostDeviceElement struct {
	Type   string `xml:"type,attr"`
	Source struct {
		Address *pciElement `xml:"address"`
	} `xml:"source"`
}

// pciAddress returns the address of the PCI device. Devices on other buses and most interfaces have none.
func (e hostDeviceElement) pciAddress() *pciElement {
	if e.Type != "pci" && e.Type != "hostdev" {
		return nil
	}
	return e.Source.Address
}

// pinnedCPUs returns the host's CPUs of all pinned virtual CPUs, sorted.
func pinnedCPUs(pins []pinElement) ([]int, error) {
	all := cpuset.New()
	for _, pin := range pins {
		cpus, err := ReadCPUSet(pin.CPUs)
		if err != nil {
			return nil, fmt.Errorf("a virtual CPU is pinned to %q: %w", pin.CPUs, err)
		}
		all = all.Union(cpus)
	}
	if all.IsEmpty() {
		return nil, nil
	}
	return all.List(), nil
}

// hostDevices returns the distinct addresses of PCI devices, sorted. It skips nil.
func hostDevices(elements []*pciElement) ([]string, error) {
	var addresses []string
	for _, at := range elements {
		if at == nil {
			continue
		}
		address, err := at.text()
		if err != nil {
			return nil, err
		}
		addresses = append(addresses, address)
	}
	slices.Sort(addresses)
	return slices.Compact(addresses), nil
}

// text returns the address in the form of 0000:3b:00.0.
func (e pciElement) text() (string, error) {
	var numbers [4]uint64
	for i, part := range []struct {
		text string
		bits int
	}{{e.Domain, 32}, {e.Bus, 8}, {e.Slot, 5}, {e.Function, 3}} {
		if part.text == "" {
			continue
		}
		var err error
		if numbers[i], err = strconv.ParseUint(part.text, 0, part.bits); err != nil {
			return "", fmt.Errorf("the address of a PCI device: %w", err)
		}
	}
	return PCIAddress(uint(numbers[0]), uint(numbers[1]), uint(numbers[2]), uint(numbers[3])), nil
}

// PCIAddress writes the address of a PCI device in the form of 0000:3b:00.0.
func PCIAddress(domain, bus, slot, function uint) string {
	return fmt.Sprintf("%04x:%02x:%02x.%x", domain, bus, slot, function)
}

// cpuSetPattern limits the numbers: a short text could describe a large set.
var cpuSetPattern = regexp.MustCompile(`^([0-9]{1,4}(-[0-9]{1,4})?(,[0-9]{1,4}(-[0-9]{1,4})?)*)?$`)

// ReadCPUSet parses a set of CPUs in the form of the kernel and libvirt, for example 4-15,20. Numbers have at most four
// digits.
func ReadCPUSet(text string) (cpuset.CPUSet, error) {
	if !cpuSetPattern.MatchString(text) {
		return cpuset.New(), fmt.Errorf("%q isn't a list of numbers and ranges of numbers up to 9999", text)
	}
	set, err := cpuset.Parse(text)
	if err != nil {
		return cpuset.New(), fmt.Errorf("reading the list of CPUs %q: %w", text, err)
	}
	return set, nil
}

// PCIDevice is a PCI device of a host.
type PCIDevice struct {
	// Address of the device, for example 0000:3b:00.0.
	Address string
	// VendorID and ProductID are four hexadecimal digits each, in lower case.
	VendorID, ProductID string
	// Bridge says that the device connects buses. Machines can't have it, and it doesn't keep them from other devices.
	Bridge bool
	// IOMMUGroup is the group of devices that are passed through together, or nil without an enabled IOMMU.
	IOMMUGroup *int
	// Driver is the host's driver of the device, or empty.
	Driver string
}
