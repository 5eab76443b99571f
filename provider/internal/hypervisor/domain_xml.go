package hypervisor

import (
	"encoding/xml"
	"fmt"
	"math"
	"slices"
	"strings"
)

// domainElement has the parts of a domain's XML that this package reads.
type domainElement struct {
	XMLName xml.Name `xml:"domain"`
	Name    string   `xml:"name"`
	UUID    string   `xml:"uuid"`
	VCPU    int32    `xml:"vcpu"`
	Memory  struct {
		Unit  string `xml:"unit,attr"`
		Value int64  `xml:",chardata"`
	} `xml:"memory"`
	Metadata struct {
		Content string `xml:",innerxml"`
	} `xml:"metadata"`
	Pins        []pinElement        `xml:"cputune>vcpupin"`
	Disks       []diskElement       `xml:"devices>disk"`
	HostDevices []hostDeviceElement `xml:"devices>hostdev"`
	Interfaces  []struct {
		hostDeviceElement
		MAC struct {
			Address string `xml:"address,attr"`
		} `xml:"mac"`
	} `xml:"devices>interface"`
	// Consoles has the consoles. On some architectures libvirt defines serial devices for them.
	Consoles []struct {
		Log struct {
			File string `xml:"file,attr"`
		} `xml:"log"`
	} `xml:"devices>console"`
}

// memoryUnits are the units of https://libvirt.org/formatdomain.html#memory-allocation, in bytes.
var memoryUnits = map[string]int64{
	"b": 1, "bytes": 1,
	"KB": 1e3, "": 1 << 10, "k": 1 << 10, "KiB": 1 << 10,
	"MB": 1e6, "M": 1 << 20, "MiB": 1 << 20,
	"GB": 1e9, "G": 1 << 30, "GiB": 1 << 30,
	"TB": 1e12, "T": 1 << 40, "TiB": 1 << 40,
}

// ReadDomainXML parses a domain in libvirt's format, which doesn't have the state. An invalid owner counts as none,
// because this provider hasn't written it.
func ReadDomainXML(text string) (Domain, error) {
	var element domainElement
	if err := xml.Unmarshal([]byte(text), &element); err != nil {
		return Domain{}, fmt.Errorf("reading a domain's XML: %w", err)
	}
	unit, known := memoryUnits[element.Memory.Unit]
	if !known {
		return Domain{}, fmt.Errorf("reading a domain's XML: the memory has the unknown unit %q", element.Memory.Unit)
	}
	if element.Memory.Value < 0 || element.Memory.Value > math.MaxInt64/unit {
		return Domain{}, fmt.Errorf("reading a domain's XML: %d %s of memory is out of range", element.Memory.Value, element.Memory.Unit)
	}
	domain := Domain{
		UUID: strings.ToLower(strings.TrimSpace(element.UUID)), Name: element.Name, State: StateUnknown,
		CPUs: element.VCPU, MemoryBytes: element.Memory.Value * unit,
	}
	if owner, err := ReadOwner(element.Metadata.Content); err == nil {
		domain.Owner = owner
	}
	var devices []*pciElement
	for i := range element.Disks {
		disk := &element.Disks[i]
		devices = append(devices, disk.Source.Address)
		domain.Files = append(domain.Files, disk.files()...)
		domain.DiskFiles = append(domain.DiskFiles, disk.ownFiles()...)
		if disk.Source.Pool != "" && disk.Source.Volume != "" {
			domain.Disks = append(domain.Disks, VolumeRef{Pool: disk.Source.Pool, Name: disk.Source.Volume})
		}
	}
	for _, device := range element.HostDevices {
		devices = append(devices, device.pciAddress())
	}
	for _, nic := range element.Interfaces {
		devices = append(devices, nic.pciAddress())
		if nic.MAC.Address != "" {
			domain.MACs = append(domain.MACs, strings.ToLower(nic.MAC.Address))
		}
	}
	if len(element.Consoles) > 0 {
		domain.ConsoleLog = element.Consoles[0].Log.File
	}
	slices.Sort(domain.Files)
	domain.Files = slices.Compact(domain.Files)
	var err error
	if domain.PinnedCPUs, err = pinnedCPUs(element.Pins); err != nil {
		return Domain{}, fmt.Errorf("reading a domain's XML: %w", err)
	}
	if domain.HostDevices, err = hostDevices(devices); err != nil {
		return Domain{}, fmt.Errorf("reading a domain's XML: %w", err)
	}
	return domain, nil
}

// Check reports whether the XML has the name and UUID of the definition.
func (d Definition) Check() error {
	domain, err := ReadDomainXML(d.XML)
	if err != nil {
		return err
	}
	if domain.UUID == "" || domain.UUID != d.UUID || domain.Name == "" || domain.Name != d.Name {
		return fmt.Errorf("the XML defines domain %q (%s) and not %q (%s)", domain.Name, domain.UUID, d.Name, d.UUID)
	}
	return nil
}

// diskElement is a disk or a backing file.
type diskElement struct {
	Source struct {
		Pool   string `xml:"pool,attr"`
		Volume string `xml:"volume,attr"`
		File   string `xml:"file,attr"`
		Device string `xml:"dev,attr"`
		// Address is that of the PCI device that a disk of type nvme is.
		Address *pciElement `xml:"address"`
	} `xml:"source"`
	Backing *diskElement `xml:"backingStore"`
}

// maxBacking is the maximum length of a backing chain. QEMU itself allows 200.
const maxBacking = 256

// files lists the paths of the disk and of its backing files.
func (d *diskElement) files() []string {
	var files []string
	for range maxBacking {
		if d == nil {
			break
		}
		files = append(files, d.ownFiles()...)
		d = d.Backing
	}
	return files
}

// ownFiles lists the paths of the disk itself: none or one.
func (d *diskElement) ownFiles() []string {
	return slices.DeleteFunc([]string{d.Source.File, d.Source.Device}, func(file string) bool { return file == "" })
}
