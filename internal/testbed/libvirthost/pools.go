package libvirthost

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	golibvirt "github.com/digitalocean/go-libvirt"
)

// poolFolder returns the folder of a pool's volumes.
func (h *Host) poolFolder(pool string) string { return filepath.Join(h.path("pools"), pool) }

// AddPool creates another storage pool, which starts with the daemon.
func (h *Host) AddPool(name string) error {
	client, err := h.Connect()
	if err != nil {
		return err
	}
	defer func() { _ = client.Disconnect() }()
	if err := h.addPool(client, name); err != nil {
		return fmt.Errorf("creating the pool %s of the host %s: %w", name, h.options.Name, err)
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

// Volumes returns the names of all files in the folders of the host's pools.
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

// Capacity returns the size of a volume of the host's default pool for a guest, in bytes.
func (h *Host) Capacity(volume string) (capacity uint64, err error) {
	err = h.withVolume(volume, func(client *golibvirt.Libvirt, found golibvirt.StorageVol) error {
		_, capacity, _, err = client.StorageVolGetInfo(found)
		return err
	})
	return capacity, err
}

// VolumeXML returns libvirt's XML of a volume of the host's default pool.
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
