package libvirthost

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	golibvirt "github.com/digitalocean/go-libvirt"
)

// poolFolder is where the volumes of a pool are.
func (h *Host) poolFolder(pool string) string { return filepath.Join(h.path("pools"), pool) }

// AddPool makes one more storage pool, and starts it whenever the daemon starts.
func (h *Host) AddPool(name string) error {
	client, err := h.Connect()
	if err != nil {
		return err
	}
	defer func() { _ = client.Disconnect() }()
	if err := h.addPool(client, name); err != nil {
		return fmt.Errorf("making the pool %s of the host %s: %w", name, h.options.Name, err)
	}
	return nil
}

func (h *Host) addPool(client *golibvirt.Libvirt, name string) error {
	folder := h.poolFolder(name)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	pool, err := client.StoragePoolDefineXML(fmt.Sprintf("<pool type='dir'><name>%s</name><target><path>%s</path></target></pool>", name, folder), 0)
	if err != nil {
		return err
	}
	return errors.Join(client.StoragePoolCreate(pool, 0), client.StoragePoolSetAutostart(pool, 1))
}

// Volumes are the names of all files in the folders of the host's pools.
func (h *Host) Volumes() ([]string, error) {
	files, err := filepath.Glob(h.poolFolder("*/*"))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, file := range files {
		names = append(names, filepath.Base(file))
	}
	return names, nil
}

// Capacity is how large a volume of the host's default pool is for a guest, in bytes.
func (h *Host) Capacity(volume string) (capacity uint64, err error) {
	err = h.withVolume(volume, func(client *golibvirt.Libvirt, found golibvirt.StorageVol) error {
		_, capacity, _, err = client.StorageVolGetInfo(found)
		return err
	})
	return capacity, err
}

// VolumeXML is how the daemon describes a volume of the host's default pool.
func (h *Host) VolumeXML(volume string) (text string, err error) {
	err = h.withVolume(volume, func(client *golibvirt.Libvirt, found golibvirt.StorageVol) error {
		text, err = client.StorageVolGetXMLDesc(found, 0)
		return err
	})
	return text, err
}

func (h *Host) withVolume(name string, do func(*golibvirt.Libvirt, golibvirt.StorageVol) error) error {
	client, err := h.Connect()
	if err != nil {
		return err
	}
	defer func() { _ = client.Disconnect() }()
	pool, err := client.StoragePoolLookupByName(Pool)
	if err != nil {
		return err
	}
	volume, err := client.StorageVolLookupByName(pool, name)
	if err != nil {
		return err
	}
	return do(client, volume)
}
