package fake

import (
	"context"
	"path"
	"slices"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// Domain implements hypervisor.Domains.
func (c *connection) Domain(ctx context.Context, uuid string) (hypervisor.Domain, error) {
	return do(ctx, c, "looking up the domain", Domain, uuid, func() (hypervisor.Domain, error) {
		domain, exists := c.host.domains[uuid]
		if !exists {
			return hypervisor.Domain{}, refuse(hypervisor.ErrNotFound, "")
		}
		return domain.snapshot(), nil
	})
}

// ListDomains implements hypervisor.Domains.
func (c *connection) ListDomains(ctx context.Context) ([]hypervisor.Domain, error) {
	return do(ctx, c, "listing the domains", ListDomains, "", func() ([]hypervisor.Domain, error) {
		return c.host.list(), nil
	})
}

// DefineDomain implements hypervisor.Domains.
func (c *connection) DefineDomain(ctx context.Context, definition hypervisor.Definition) error {
	return run(ctx, c, "defining the domain", DefineDomain, definition.UUID, func() error {
		if err := definition.Check(); err != nil {
			return refuse(hypervisor.ErrInvalid, err.Error())
		}
		for uuid, other := range c.host.domains {
			if (uuid == definition.UUID) != (other.Name == definition.Name) {
				return refuse(hypervisor.ErrAlreadyExists, "domain "+other.Name+" has the UUID "+uuid)
			}
		}
		read, err := hypervisor.ReadDomainXML(definition.XML)
		if err != nil {
			return refuse(hypervisor.ErrInvalid, err.Error())
		}
		old, exists := c.host.domains[definition.UUID]
		if !exists {
			old = &domain{
				addresses: map[hypervisor.AddressSource][]hypervisor.InterfaceAddress{},
				holds:     map[hypervisor.VolumeRef]bool{},
			}
			read.State = hypervisor.StateShutOff
			c.host.domains[definition.UUID] = old
		} else {
			read.State = old.State
		}
		old.xml = definition.XML
		if old.pending = read.State.Active(); !old.pending {
			old.Domain = read
		}
		c.host.notify(definition.UUID)
		return nil
	})
}

// change runs a call that may change a domain, and notifies watches if it reports a change.
func (c *connection) change(ctx context.Context, doing string, operation Operation, uuid string, act func(d *domain) (bool, error)) error {
	return run(ctx, c, doing, operation, uuid, func() error {
		domain, exists := c.host.domains[uuid]
		if !exists {
			return refuse(hypervisor.ErrNotFound, "")
		}
		changed, err := act(domain)
		if changed {
			c.host.notify(uuid)
		}
		return err
	})
}

// SetAutostart implements hypervisor.Domains.
func (c *connection) SetAutostart(ctx context.Context, uuid string, autostart bool) error {
	return c.change(ctx, "setting whether the domain starts with its host", SetAutostart, uuid, func(d *domain) (bool, error) {
		d.autostart = autostart
		return false, nil
	})
}

// StartDomain implements hypervisor.Domains.
func (c *connection) StartDomain(ctx context.Context, uuid string) error {
	return c.change(ctx, "starting the domain", StartDomain, uuid, func(d *domain) (bool, error) {
		if d.State == hypervisor.StateStarting {
			return false, refuse(hypervisor.ErrBusy, "it is being started")
		}
		if d.State.Active() {
			return false, nil
		}
		for _, disk := range d.Disks {
			if _, exists := c.host.volumes[disk]; !exists {
				return false, refuse(hypervisor.ErrInvalid, "there is no volume "+disk.String())
			}
		}
		if address := c.host.deviceInUse(d); address != "" {
			return false, refuse(hypervisor.ErrInvalid, "PCI device "+address+" is in use")
		}
		d.State = hypervisor.StateRunning
		err := d.readSize()
		if d.ConsoleLog != "" {
			c.host.consoleLogs[d.ConsoleLog] = true
		}
		return true, err
	})
}

// readSize applies the size in the definition, or the whole definition if it was replaced while the domain was active.
func (d *domain) readSize() error {
	read, err := hypervisor.ReadDomainXML(d.xml)
	if err != nil {
		return refuse(hypervisor.ErrInvalid, err.Error())
	}
	if d.pending {
		read.State = d.State
		d.Domain, d.pending = read, false
	}
	d.CPUs, d.MemoryBytes = read.CPUs, read.MemoryBytes
	return nil
}

// ShutdownDomain implements hypervisor.Domains. The guest shuts down at once, or never.
func (c *connection) ShutdownDomain(ctx context.Context, uuid string) error {
	return c.change(ctx, "asking the domain to shut down", ShutdownDomain, uuid, func(d *domain) (bool, error) {
		if !d.State.Active() || d.deaf {
			return false, nil
		}
		d.State = hypervisor.StateShutOff
		return true, d.readSize()
	})
}

// ResizeDomain implements hypervisor.Domains.
func (c *connection) ResizeDomain(ctx context.Context, uuid string, size hypervisor.Size) error {
	return c.edit(ctx, "changing the size of the domain", ResizeDomain, uuid, func(xml string) (string, error) {
		return hypervisor.ResizeDomainXML(xml, size)
	})
}

// RemoveIgnition implements hypervisor.Domains.
func (c *connection) RemoveIgnition(ctx context.Context, uuid string) error {
	return c.edit(ctx, "taking the Ignition configuration from the domain", RemoveIgnition, uuid, hypervisor.RemoveIgnitionXML)
}

func (c *connection) edit(ctx context.Context, doing string, operation Operation, uuid string, change func(xml string) (string, error)) error {
	return c.change(ctx, doing, operation, uuid, func(d *domain) (bool, error) {
		xml, err := change(d.xml)
		if err != nil {
			return false, refuse(hypervisor.ErrInvalid, err.Error())
		}
		d.xml = xml
		if d.State.Active() {
			return true, nil
		}
		return true, d.readSize()
	})
}

// StopDomain implements hypervisor.Domains.
func (c *connection) StopDomain(ctx context.Context, uuid string) error {
	return c.change(ctx, "stopping the domain", StopDomain, uuid, func(d *domain) (bool, error) {
		if !d.State.Active() {
			return false, nil
		}
		d.State = hypervisor.StateShutOff
		return true, d.readSize()
	})
}

// RemoveConsoleLog implements hypervisor.Domains.
func (c *connection) RemoveConsoleLog(ctx context.Context, uuid string) error {
	return c.change(ctx, "deleting the console log of the domain", RemoveConsoleLog, uuid, func(d *domain) (bool, error) {
		if d.State.Active() {
			return false, refuse(hypervisor.ErrBusy, "it is active: stop it first")
		}
		if path.Base(d.ConsoleLog) == hypervisor.ConsoleLogName(d.Name) {
			delete(c.host.consoleLogs, d.ConsoleLog)
		}
		return false, nil
	})
}

// UndefineDomain implements hypervisor.Domains.
func (c *connection) UndefineDomain(ctx context.Context, uuid string) error {
	return c.change(ctx, "undefining the domain", UndefineDomain, uuid, func(d *domain) (bool, error) {
		if d.State.Active() {
			return false, refuse(hypervisor.ErrBusy, "it is active: stop it first")
		}
		delete(c.host.domains, uuid)
		return true, nil
	})
}

// DetachDisk implements hypervisor.Domains.
func (c *connection) DetachDisk(ctx context.Context, uuid string, ref hypervisor.VolumeRef) error {
	return c.change(ctx, "detaching the disk "+ref.String()+" from the domain", DetachDisk, uuid, func(d *domain) (bool, error) {
		if !slices.Contains(d.Disks, ref) {
			return false, nil
		}
		if d.State.Active() && d.holds[ref] {
			return false, refuse(hypervisor.ErrBusy, "the guest hasn't released it")
		}
		d.Disks = slices.DeleteFunc(d.Disks, func(disk hypervisor.VolumeRef) bool { return disk == ref })
		return true, nil
	})
}

// GrowDisk implements hypervisor.Domains.
func (c *connection) GrowDisk(ctx context.Context, uuid string, ref hypervisor.VolumeRef, capacity int64) error {
	return c.change(ctx, "making the disk "+ref.String()+" of the domain larger", GrowDisk, uuid, func(d *domain) (bool, error) {
		volume, exists := c.host.volumes[ref]
		switch {
		case !d.State.Active():
			return false, refuse(hypervisor.ErrBusy, "it isn't active")
		case !exists || !slices.Contains(d.Disks, ref):
			return false, refuse(hypervisor.ErrInvalid, "it has no such disk")
		case capacity < volume.CapacityBytes:
			return false, refuse(hypervisor.ErrInvalid, "it would become smaller")
		}
		volume.CapacityBytes = capacity
		return false, nil
	})
}

// Addresses implements hypervisor.Domains.
func (c *connection) Addresses(ctx context.Context, uuid string, source hypervisor.AddressSource) ([]hypervisor.InterfaceAddress, error) {
	return do(ctx, c, "asking for the addresses of the domain", DomainAddresses, uuid, func() ([]hypervisor.InterfaceAddress, error) {
		domain, exists := c.host.domains[uuid]
		if !exists {
			return nil, refuse(hypervisor.ErrNotFound, "")
		}
		addresses, known := domain.addresses[source]
		if source == hypervisor.SourceAgent && !known {
			return nil, refuse(hypervisor.ErrUnsupported, "no guest agent answers")
		}
		return slices.Clone(addresses), nil
	})
}
