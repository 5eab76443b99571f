package libvirt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	golibvirt "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

func (h *host) PCIDevices(ctx context.Context) ([]hypervisor.PCIDevice, error) {
	const doing = "listing the PCI devices"
	listed, err := get(ctx, h, doing, "", func(client *golibvirt.Libvirt) ([]golibvirt.NodeDevice, error) {
		devices, _, err := client.ConnectListAllNodeDevices(1, uint32(golibvirt.ConnectListNodeDevicesCapPciDev))
		return devices, err
	})
	if err != nil {
		return nil, err
	}
	devices := make([]hypervisor.PCIDevice, 0, len(listed))
	for _, one := range listed {
		text, err := get(ctx, h, doing, one.Name, func(client *golibvirt.Libvirt) (string, error) {
			text, err := client.NodeDeviceGetXMLDesc(one.Name, 0)
			if code(err, golibvirt.ErrNoNodeDevice) {
				return "", nil // gone since it was listed
			}
			return text, err
		})
		if err != nil {
			return nil, err
		}
		if text == "" {
			continue
		}
		device, err := readPCIDevice(text)
		if err != nil {
			return nil, &hypervisor.Error{Operation: doing, Object: one.Name, Reason: hypervisor.ErrOther, Cause: fmt.Errorf("%w: %w", errNonsense, err)}
		}
		devices = append(devices, device)
	}
	slices.SortFunc(devices, func(a, b hypervisor.PCIDevice) int { return cmp.Compare(a.Address, b.Address) })
	return devices, nil
}

var (
	pciID = regexp.MustCompile(`^0x[0-9a-f]{4}$`)
	// pciBridge is the class of bridges, of which there are several kinds.
	pciBridge = regexp.MustCompile(`^0x06[0-9a-f]{4}$`)
)

// readPCIDevice reads a node device with the capability pci (https://libvirt.org/formatnode.html).
func readPCIDevice(text string) (hypervisor.PCIDevice, error) {
	var node libvirtxml.NodeDevice
	if err := node.Unmarshal(text); err != nil {
		return hypervisor.PCIDevice{}, fmt.Errorf("reading a node device's XML: %w", err)
	}
	pci := node.Capability.PCI
	if pci == nil {
		return hypervisor.PCIDevice{}, errors.New("reading a node device's XML: it isn't a PCI device")
	}
	if pci.Domain == nil || pci.Bus == nil || pci.Slot == nil || pci.Function == nil || *pci.Bus > 0xff || *pci.Slot > 0x1f || *pci.Function > 7 {
		return hypervisor.PCIDevice{}, errors.New("reading a node device's XML: it has no PCI address")
	}
	device := hypervisor.PCIDevice{
		Address: hypervisor.PCIAddress(*pci.Domain, *pci.Bus, *pci.Slot, *pci.Function),
		Bridge:  pciBridge.MatchString(strings.ToLower(pci.Class)),
	}
	for _, id := range []struct {
		name, text string
		to         *string
	}{{"vendor", pci.Vendor.ID, &device.VendorID}, {"product", pci.Product.ID, &device.ProductID}} {
		lower := strings.ToLower(id.text)
		if !pciID.MatchString(lower) {
			return hypervisor.PCIDevice{}, fmt.Errorf("reading the XML of PCI device %s: the %s %q isn't of the form 0x10de", device.Address, id.name, id.text)
		}
		*id.to = lower[len("0x"):]
	}
	if pci.IOMMUGroup != nil {
		device.IOMMUGroup = &pci.IOMMUGroup.Number
	}
	if node.Driver != nil {
		device.Driver = node.Driver.Name
	}
	return device, nil
}
