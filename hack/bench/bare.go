package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/digitalocean/go-libvirt"
	"github.com/digitalocean/go-libvirt/socket/dialers"
	"golang.org/x/sync/errgroup"
)

func (d *libvirtd) connect() (*libvirt.Libvirt, error) {
	connection := libvirt.NewWithDialer(dialers.NewLocal(dialers.WithSocket(d.socket)))
	return connection, connection.ConnectToURI(libvirt.TestDefault)
}

const poolOfHosts = "default-pool"

// prepare puts the image into the pool, and removes the domain that the driver starts with. The connection stays open:
// the driver forgets everything when the last one closes.
func (d *libvirtd) prepare() error {
	connection, err := d.connect()
	if err != nil {
		return err
	}
	d.kept = connection
	pool, err := connection.StoragePoolLookupByName(poolOfHosts)
	if err != nil {
		return err
	}
	if _, err := connection.StorageVolCreateXML(pool, volumeXML("image.qcow2", false), 0); err != nil {
		return err
	}
	return d.empty()
}

// empty removes all domains, and all volumes except the image.
func (d *libvirtd) empty() error {
	connection := d.kept
	domains, _, err := connection.ConnectListAllDomains(1, 0)
	if err != nil {
		return err
	}
	for _, domain := range domains {
		if err := connection.DomainDestroy(domain); err != nil {
			return err
		}
		if err := connection.DomainUndefine(domain); err != nil {
			return err
		}
	}
	pool, err := connection.StoragePoolLookupByName(poolOfHosts)
	if err != nil {
		return err
	}
	volumes, _, err := connection.StoragePoolListAllVolumes(pool, 1, 0)
	if err != nil {
		return err
	}
	for _, volume := range volumes {
		if volume.Name != "image.qcow2" {
			if err := connection.StorageVolDelete(volume, 0); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *plant) empty() error {
	for _, host := range p.hosts {
		if err := host.empty(); err != nil {
			return err
		}
	}
	return nil
}

func volumeXML(name string, overlay bool) string {
	backing := ""
	if overlay {
		backing = `<backingStore><path>/default-pool/image.qcow2</path><format type="qcow2"/></backingStore>`
	}
	return fmt.Sprintf(`<volume><name>%s</name><capacity unit="bytes">1073741824</capacity><allocation unit="bytes">0</allocation><target><format type="qcow2"/></target>%s</volume>`, name, backing)
}

// bareCalls creates machines with only the necessary calls to libvirt.
func (p *plant) bareCalls(ctx context.Context, machines int) (time.Duration, error) {
	start := time.Now()
	connections := make([]*libvirt.Libvirt, len(p.hosts))
	for i, host := range p.hosts {
		connection, err := host.connect()
		if err != nil {
			return 0, err
		}
		defer func() { _ = connection.Disconnect() }()
		connections[i] = connection
	}
	group, _ := errgroup.WithContext(ctx)
	group.SetLimit(reconcilesAtOnce)
	for i := range machines {
		group.Go(func() error {
			host := i % len(p.hosts)
			return bareMachine(connections[host], p.hosts[host], i)
		})
	}
	err := group.Wait()
	return time.Since(start), err
}

func bareMachine(connection *libvirt.Libvirt, host *libvirtd, number int) error {
	pool, err := connection.StoragePoolLookupByName(poolOfHosts)
	if err != nil {
		return err
	}
	if _, err := connection.StorageVolLookupByName(pool, "image.qcow2"); err != nil {
		return err
	}
	if _, err := connection.StorageVolCreateXML(pool, volumeXML(fmt.Sprintf("%d-root", number), true), 0); err != nil {
		return err
	}
	seed, err := connection.StorageVolCreateXML(pool, volumeXML(fmt.Sprintf("%d-seed", number), false), 0)
	if err != nil {
		return err
	}
	// An upload needs its own connection: a failed one can block the whole connection.
	own, err := host.connect()
	if err != nil {
		return err
	}
	content := bytes.Repeat([]byte{1}, 400<<10)
	if err := errors.Join(own.StorageVolUpload(seed, bytes.NewReader(content), 0, uint64(len(content)), 0), own.Disconnect()); err != nil {
		return err
	}
	domain, err := connection.DomainDefineXMLFlags(fmt.Sprintf(`<domain type="test"><name>m-%d</name><memory unit="MiB">512</memory><vcpu>1</vcpu>
<os><type arch="x86_64">hvm</type></os><devices>
<disk type="volume" device="disk"><source pool="default-pool" volume="%[1]d-root"/><target dev="vda" bus="virtio"/></disk>
<disk type="volume" device="disk"><source pool="default-pool" volume="%[1]d-seed"/><target dev="vdb" bus="virtio"/></disk>
<interface type="network"><source network="default"/></interface></devices></domain>`, number), libvirt.DomainDefineValidate)
	if err != nil {
		return err
	}
	if err := connection.DomainSetAutostart(domain, 1); err != nil {
		return err
	}
	if err := connection.DomainCreate(domain); err != nil {
		return err
	}
	_, err = connection.DomainInterfaceAddresses(domain, uint32(libvirt.DomainInterfaceAddressesSrcLease), 0)
	return err
}
