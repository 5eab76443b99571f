package hypervisor

import "slices"

// diskElement is a disk, or what a disk is an overlay of.
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

// maxBacking is how many overlays a disk may have one above the other to be looked at: QEMU itself
// allows 200.
const maxBacking = 256

// files lists the paths that the disk itself and what it is an overlay of are given by.
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

// ownFiles lists the paths that the disk itself is given by: one or none.
func (d *diskElement) ownFiles() []string {
	return slices.DeleteFunc([]string{d.Source.File, d.Source.Device}, func(file string) bool { return file == "" })
}
