package exclusive

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/utils/cpuset"
	"k8s.io/utils/ptr"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// Lent is a PCI device of a host that its spec lends to machines.
type Lent struct {
	hypervisor.PCIDevice
	// Problem is why no machine can have the device, or empty.
	Problem string
}

// LentOf returns the devices that a host's spec lends, in the order of their addresses.
//
// A machine gets a device only with its whole IOMMU group
// (https://docs.kernel.org/driver-api/vfio.html#groups-devices-and-iommus). So other devices of the group, except
// bridges, must not be in use or lent.
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

// harmless has the drivers that leave a device to machines.
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

// CPUs has the CPUs of a host by their use, in order.
type CPUs struct {
	// Dedicated are the CPUs for machines with dedicated CPUs.
	Dedicated []int
	// Shared are the others, as the kernel writes lists of CPUs. It is empty if none is dedicated.
	Shared string
	// Missing are those that are in the spec but not on the host.
	Missing string
}

// CPUsOf returns the CPUs of a host. A set that the webhook would refuse counts as empty.
func CPUsOf(spec *infrav1.LibvirtHostSpec, facts hypervisor.Facts) CPUs {
	wanted, err := ReadCPUs(spec.DedicatedCPUs)
	if err != nil || wanted.IsEmpty() {
		return CPUs{}
	}
	all := cpuset.New(facts.AllCPUs()...)
	return CPUs{
		Dedicated: wanted.Intersection(all).List(),
		Shared:    all.Difference(wanted).String(),
		Missing:   wanted.Difference(all).String(),
	}
}

// ReadCPUs reads a set of CPUs such as 4-15,20. An empty text is an empty set.
func ReadCPUs(text string) (cpuset.CPUSet, error) {
	// The schema has the same limit: a long range would take much memory.
	const longest = 256
	if len(text) > longest {
		return cpuset.New(), fmt.Errorf("a set of CPUs has at most %d characters", longest)
	}
	read, err := hypervisor.ReadCPUSet(text)
	if err != nil {
		return cpuset.New(), fmt.Errorf("%q isn't a set of CPUs such as 4-15,20: %w", text, err)
	}
	return read, nil
}

// Dedicated reports whether a machine requests dedicated CPUs.
func Dedicated(spec *infrav1.LibvirtMachineSpec) bool {
	return ptr.Deref(spec.CPU.Dedicated, false)
}

const (
	// cpuRequest is the name of the request for dedicated CPUs.
	cpuRequest = "cpu.dedicated"
	// deviceRequest is the prefix of the name of a request for devices, followed by its name in the spec.
	deviceRequest = "hostDevices "
)

// Requests lists the CPUs and devices that a machine needs exclusively, from those that its host lends.
func Requests(machine *infrav1.LibvirtMachineSpec, host *infrav1.LibvirtHostSpec, facts hypervisor.Facts, devices []hypervisor.PCIDevice) []Request {
	var requests []Request
	if Dedicated(machine) {
		request := Request{Name: cpuRequest, Count: int(machine.CPUs)}
		for _, cpu := range CPUsOf(host, facts).Dedicated {
			request.From = append(request.From, CPU(cpu))
		}
		requests = append(requests, request)
	}
	for _, spec := range machine.HostDevices {
		request := Request{Name: deviceRequest + spec.Name, Count: int(spec.Count)}
		for _, device := range LentOf(host, devices) {
			if device.Problem == "" && device.VendorID == spec.VendorID && device.ProductID == spec.ProductID {
				request.From = append(request.From, Device(device.Address))
			}
		}
		requests = append(requests, request)
	}
	return requests
}

// Devices returns the addresses of the chosen devices, by the names in spec.hostDevices.
func (c Chosen) Devices() map[string][]string {
	devices := map[string][]string{}
	for request, resources := range c {
		if name, ok := strings.CutPrefix(request, deviceRequest); ok {
			for _, resource := range resources {
				devices[name] = append(devices[name], string(resource))
			}
		}
	}
	return devices
}

// CPUs returns the numbers of the chosen CPUs.
func (c Chosen) CPUs() []int {
	var numbers []int
	for _, resource := range c[cpuRequest] {
		number, _ := strconv.Atoi(strings.TrimPrefix(string(resource), cpuPrefix)) // as CPU has written it
		numbers = append(numbers, number)
	}
	return numbers
}
