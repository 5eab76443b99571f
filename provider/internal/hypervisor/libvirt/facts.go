package libvirt

import (
	"cmp"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	golibvirt "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// capabilities has the parts of https://libvirt.org/formatcaps.html that this package reads.
type capabilities struct {
	UUID string `xml:"host>uuid"`
	Arch string `xml:"host>cpu>arch"`
	// Pages has the pages of each NUMA node, by size.
	Pages []struct {
		Unit  string `xml:"unit,attr"`
		Size  int64  `xml:"size,attr"`
		Count int64  `xml:",chardata"`
	} `xml:"host>topology>cells>cell>pages"`
	// CPUs has the CPUs of each NUMA node.
	CPUs []struct {
		Number int `xml:"id,attr"`
	} `xml:"host>topology>cells>cell>cpus>cpu"`
	Guests []struct {
		Arch struct {
			Name    string `xml:"name,attr"`
			Domains []struct {
				Type string `xml:"type,attr"`
			} `xml:"domain"`
		} `xml:"arch"`
	} `xml:"guest"`
}

// domainCapabilities has the parts of https://libvirt.org/formatdomaincaps.html that this package reads.
type domainCapabilities struct {
	OS struct {
		supported
		Loader supported `xml:"loader"`
	} `xml:"os"`
	TPM supported `xml:"devices>tpm"`
}

type supported struct {
	Supported string `xml:"supported,attr"`
	Enums     []struct {
		Name   string   `xml:"name,attr"`
		Values []string `xml:"value"`
	} `xml:"enum"`
}

func (s supported) has(enum, value string) bool {
	for _, one := range s.Enums {
		if one.Name == enum && slices.Contains(one.Values, value) {
			return true
		}
	}
	return false
}

// architectures has Kubernetes' names of architectures that differ from libvirt's.
var architectures = map[string]string{"x86_64": "amd64", "aarch64": "arm64"}

func (h *host) Facts(ctx context.Context) (hypervisor.Facts, error) {
	return get(ctx, &h.calls, "asking for the host's facts", "", func(client *golibvirt.Libvirt) (hypervisor.Facts, error) {
		version, err := client.ConnectGetLibVersion()
		if err != nil {
			return hypervisor.Facts{}, err
		}
		_, memory, cpus, _, _, _, _, _, err := client.NodeGetInfo() //nolint:dogsled // the library's signature
		if err != nil {
			return hypervisor.Facts{}, err
		}
		caps, err := readCapabilities(client)
		if err != nil {
			return hypervisor.Facts{}, err
		}
		facts := hypervisor.Facts{
			UUID: strings.ToLower(caps.UUID), LibvirtVersion: fmt.Sprintf("%d.%d.%d", version/1000000, version/1000%1000, version%1000),
			Architecture: caps.Arch, CPUs: cpus, MemoryBytes: int64(memory) << 10, //nolint:gosec // no host has 8 EiB
		}
		if name, other := architectures[caps.Arch]; other {
			facts.Architecture = name
		}
		h.uuid.Store(facts.UUID)
		facts.HugepageBytes = caps.hugepages()
		facts.CPUNumbers = caps.cpus()
		ofDomains, err := domainFeatures(client, caps)
		facts.Features = append(caps.features(), ofDomains...)
		slices.Sort(facts.Features)
		return facts, err
	})
}

func readCapabilities(client *golibvirt.Libvirt) (capabilities, error) {
	var caps capabilities
	text, err := client.ConnectGetCapabilities()
	if err != nil {
		return caps, err
	}
	if err := xml.Unmarshal([]byte(text), &caps); err != nil {
		return caps, fmt.Errorf("%w: reading the capabilities: %w", errNonsense, err)
	}
	return caps, nil
}

// cpus returns the numbers of the logical CPUs.
func (c capabilities) cpus() []int {
	var numbers []int
	for _, cpu := range c.CPUs {
		numbers = append(numbers, cpu.Number)
	}
	slices.Sort(numbers)
	return numbers
}

// virtualization returns the domain type for the host's own architecture, kvm if possible.
func (c capabilities) virtualization() string {
	other := ""
	for _, guest := range c.Guests {
		for _, domain := range guest.Arch.Domains {
			if guest.Arch.Name != c.Arch {
				continue
			}
			if domain.Type == "kvm" {
				return domain.Type
			}
			other = domain.Type
		}
	}
	return other
}

func (c capabilities) features() []string {
	var features []string
	if c.virtualization() == "kvm" {
		features = append(features, infrav1.HostFeatureKVM)
	}
	for size := range c.hugepages() {
		features = append(features, string(infrav1.HostFeatureHugepagesPrefix+size))
	}
	slices.Sort(features)
	return features
}

// hugepages returns the memory in huge pages. Absurd numbers are ignored.
func (c capabilities) hugepages() map[infrav1.HugepageSize]int64 {
	sizes := map[int64]infrav1.HugepageSize{2 << 10: infrav1.Hugepages2Mi, 1 << 20: infrav1.Hugepages1Gi}
	var all map[infrav1.HugepageSize]int64
	for _, page := range c.Pages {
		size, wanted := sizes[page.Size]
		if !wanted || page.Unit != "KiB" || page.Count <= 0 || page.Count > 1<<30 {
			continue
		}
		if all == nil {
			all = map[infrav1.HugepageSize]int64{}
		}
		all[size] += page.Count * page.Size << 10
	}
	return all
}

// machines has the machine types that domainxml uses.
var machines = map[string]string{"x86_64": "q35", "aarch64": "virt", "s390x": "s390-ccw-virtio", "ppc64le": "pseries"}

// domainFeatures returns the features for domains. The test driver has none.
func domainFeatures(client *golibvirt.Libvirt, caps capabilities) ([]string, error) {
	machine, known := machines[caps.Arch]
	if !known {
		return nil, nil
	}
	text, err := client.ConnectGetDomainCapabilities(nil, golibvirt.OptString{caps.Arch}, golibvirt.OptString{machine},
		golibvirt.OptString{caps.virtualization()}, 0)
	if code(err, golibvirt.ErrNoSupport) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var read domainCapabilities
	if err := xml.Unmarshal([]byte(text), &read); err != nil {
		return nil, fmt.Errorf("%w: reading the domain capabilities: %w", errNonsense, err)
	}
	return read.features(caps.Arch), nil
}

func (c domainCapabilities) features(arch string) []string {
	var features []string
	if arch == "x86_64" {
		// SeaBIOS is part of QEMU, and libvirt doesn't list it.
		features = append(features, infrav1.HostFeatureBIOS)
	}
	if c.OS.has("firmware", "efi") {
		features = append(features, infrav1.HostFeatureUEFI)
		if c.OS.Loader.has("secure", "yes") {
			features = append(features, infrav1.HostFeatureSecureBoot)
		}
	}
	if c.TPM.Supported == "yes" && c.TPM.has("backendModel", "emulator") {
		features = append(features, infrav1.HostFeatureTPM)
	}
	return features
}

func (h *host) PCIDevices(ctx context.Context) ([]hypervisor.PCIDevice, error) {
	const doing = "listing the PCI devices"
	listed, err := get(ctx, &h.calls, doing, "", func(client *golibvirt.Libvirt) ([]golibvirt.NodeDevice, error) {
		devices, _, err := client.ConnectListAllNodeDevices(1, uint32(golibvirt.ConnectListNodeDevicesCapPciDev))
		return devices, err
	})
	if err != nil {
		return nil, err
	}
	devices := make([]hypervisor.PCIDevice, 0, len(listed))
	for _, one := range listed {
		text, err := get(ctx, &h.calls, doing, one.Name, func(client *golibvirt.Libvirt) (string, error) {
			text, err := client.NodeDeviceGetXMLDesc(one.Name, 0)
			if code(err, golibvirt.ErrNoNodeDevice) {
				return "", nil // removed after the list
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
