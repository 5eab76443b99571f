package libvirt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	golibvirt "github.com/digitalocean/go-libvirt"
	"github.com/google/uuid"
	"libvirt.org/go/libvirtxml"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

func formatUUID(id golibvirt.UUID) string { return uuid.UUID(id).String() }

func parseUUID(text string) (golibvirt.UUID, error) {
	id, err := uuid.Parse(text)
	if err != nil {
		return golibvirt.UUID{}, &hypervisor.Error{Operation: "looking up the domain", Object: text, Reason: hypervisor.ErrInvalid, Cause: errors.New("not a UUID")}
	}
	return golibvirt.UUID(id), nil
}

func lookUpDomain(client *golibvirt.Libvirt, text string) (golibvirt.Domain, error) {
	uuid, err := parseUUID(text)
	if err != nil {
		return golibvirt.Domain{}, err
	}
	return client.DomainLookupByUUID(uuid)
}

// domainOf returns a domain without a look-up: drivers find domains by their UUID.
func domainOf(text string) (golibvirt.Domain, error) {
	uuid, err := parseUUID(text)
	return golibvirt.Domain{Name: text, UUID: uuid, ID: -1}, err
}

// withDomain runs calls for one domain.
func withDomain(ctx context.Context, on *link, doing, uuid string, calls func(client *golibvirt.Libvirt, domain golibvirt.Domain) error) error {
	return run(ctx, on, doing, uuid, func(client *golibvirt.Libvirt) error {
		domain, err := domainOf(uuid)
		if err != nil {
			return err
		}
		return calls(client, domain)
	})
}

func (h *host) Domain(ctx context.Context, uuid string) (hypervisor.Domain, error) {
	return get(ctx, &h.calls, "looking up the domain", uuid, func(client *golibvirt.Libvirt) (hypervisor.Domain, error) {
		domain, err := domainOf(uuid)
		if err != nil {
			return hypervisor.Domain{}, err
		}
		return describeDomain(client, domain, "")
	})
}

func (h *host) ListDomains(ctx context.Context) ([]hypervisor.Domain, error) {
	return h.list(ctx, "listing the domains")
}

func (h *host) list(ctx context.Context, doing string) ([]hypervisor.Domain, error) {
	// One extra call returns the states of most domains, which would be one call for each.
	known := map[golibvirt.UUID]hypervisor.DomainState{}
	listed, err := get(ctx, &h.calls, doing, "", func(client *golibvirt.Libvirt) ([]golibvirt.Domain, error) {
		domains, _, err := client.ConnectListAllDomains(1, golibvirt.ConnectListDomainsRunning)
		if err != nil {
			return nil, err
		}
		for _, domain := range domains {
			known[domain.UUID] = hypervisor.StateRunning
		}
		domains, _, err = client.ConnectListAllDomains(1, 0)
		return domains, err
	})
	if err != nil {
		return nil, err
	}
	domains := make([]hypervisor.Domain, 0, len(listed))
	for _, one := range listed {
		domain, err := get(ctx, &h.calls, doing, formatUUID(one.UUID), func(client *golibvirt.Libvirt) (hypervisor.Domain, error) {
			return describeDomain(client, one, known[one.UUID])
		})
		if errors.Is(err, hypervisor.ErrNotFound) {
			continue // undefined after the list
		}
		if err != nil {
			return nil, err
		}
		domains = append(domains, domain)
	}
	slices.SortFunc(domains, func(a, b hypervisor.Domain) int { return cmp.Compare(a.UUID, b.UUID) })
	return domains, nil
}

// describeDomain reads a domain, with its state unless that is known.
func describeDomain(client *golibvirt.Libvirt, domain golibvirt.Domain, state hypervisor.DomainState) (hypervisor.Domain, error) {
	text, err := client.DomainGetXMLDesc(domain, 0)
	if err != nil {
		return hypervisor.Domain{}, err
	}
	out, err := hypervisor.ReadDomainXML(text)
	if err != nil {
		return hypervisor.Domain{}, fmt.Errorf("%w: %w", errNonsense, err)
	}
	if out.State = state; state == "" {
		out.State, err = stateOf(client, domain)
	}
	return out, err
}

var states = map[golibvirt.DomainState]hypervisor.DomainState{
	golibvirt.DomainRunning: hypervisor.StateRunning, golibvirt.DomainBlocked: hypervisor.StateBlocked,
	golibvirt.DomainPaused: hypervisor.StatePaused, golibvirt.DomainShutdown: hypervisor.StateShuttingDown,
	golibvirt.DomainShutoff: hypervisor.StateShutOff, golibvirt.DomainCrashed: hypervisor.StateCrashed,
	golibvirt.DomainPmsuspended: hypervisor.StateSuspended,
}

func stateOf(client *golibvirt.Libvirt, domain golibvirt.Domain) (hypervisor.DomainState, error) {
	number, reason, err := client.DomainGetState(domain, 0)
	if err != nil {
		return "", err
	}
	return stateFrom(golibvirt.DomainState(number), reason), nil
}

// stateFrom translates a state of libvirt with its reason.
func stateFrom(number golibvirt.DomainState, reason int32) hypervisor.DomainState {
	if number == golibvirt.DomainPaused && golibvirt.DomainPausedReason(reason) == golibvirt.DomainPausedStartingUp {
		return hypervisor.StateStarting
	}
	if state, known := states[number]; known {
		return state
	}
	return hypervisor.StateUnknown
}

// DefineDomain implements hypervisor.Domains. libvirt's error for a used name or UUID isn't specific, so the domain is
// looked up then.
func (h *host) DefineDomain(ctx context.Context, definition hypervisor.Definition) error {
	const doing = "defining the domain"
	if err := definition.Check(); err != nil {
		return &hypervisor.Error{Operation: doing, Object: definition.UUID, Reason: hypervisor.ErrInvalid, Cause: err}
	}
	return run(ctx, &h.calls, doing, definition.UUID, func(client *golibvirt.Libvirt) error {
		_, err := client.DomainDefineXMLFlags(definition.XML, golibvirt.DomainDefineValidate)
		if code(err, golibvirt.ErrOperationFailed) {
			if clashing := clash(client, doing, definition); clashing != nil {
				return clashing
			}
		}
		return err
	})
}

// clash returns an error if another domain has the definition's name or UUID.
func clash(client *golibvirt.Libvirt, doing string, definition hypervisor.Definition) error {
	byUUID, err := lookUpDomain(client, definition.UUID)
	if err != nil && !code(err, golibvirt.ErrNoDomain) {
		return err
	}
	if err == nil && byUUID.Name != definition.Name {
		return taken(doing, definition, byUUID)
	}
	byName, err := client.DomainLookupByName(definition.Name)
	if err != nil && !code(err, golibvirt.ErrNoDomain) {
		return err
	}
	if err == nil && formatUUID(byName.UUID) != definition.UUID {
		return taken(doing, definition, byName)
	}
	return nil
}

func taken(doing string, definition hypervisor.Definition, by golibvirt.Domain) error {
	return &hypervisor.Error{Operation: doing, Object: definition.UUID, Reason: hypervisor.ErrAlreadyExists,
		Cause: fmt.Errorf("domain %s has the UUID %s", by.Name, formatUUID(by.UUID))}
}

func (h *host) SetAutostart(ctx context.Context, uuid string, autostart bool) error {
	return withDomain(ctx, &h.calls, "setting whether the domain starts with its host", uuid, func(client *golibvirt.Libvirt, domain golibvirt.Domain) error {
		value := int32(0)
		if autostart {
			value = 1
		}
		return client.DomainSetAutostart(domain, value)
	})
}

func (h *host) StartDomain(ctx context.Context, uuid string) error {
	const doing = "starting the domain"
	return withDomain(ctx, &h.starts, doing, uuid, func(client *golibvirt.Libvirt, domain golibvirt.Domain) error {
		err := client.DomainCreate(domain)
		if code(err, golibvirt.ErrOperationInvalid) {
			state, stateErr := stateOf(client, domain)
			if stateErr == nil && state.Started() {
				return nil
			}
			if stateErr == nil && state == hypervisor.StateStarting {
				// A daemon that was killed while it started the domain has found its process and will end it.
				return &hypervisor.Error{Operation: doing, Object: uuid, Reason: hypervisor.ErrBusy, Cause: err}
			}
		}
		if code(err, golibvirt.ErrNoStorageVol, golibvirt.ErrNoStoragePool, golibvirt.ErrNoNetwork) {
			// The domain exists, but an object that it needs doesn't.
			_, cause := classify(err)
			return &hypervisor.Error{Operation: doing, Object: uuid, Reason: hypervisor.ErrInvalid, Cause: cause}
		}
		return err
	})
}

func (h *host) ShutdownDomain(ctx context.Context, uuid string) error {
	return withDomain(ctx, &h.calls, "asking the domain to shut down", uuid, func(client *golibvirt.Libvirt, domain golibvirt.Domain) error {
		// Without flags libvirt uses the agent if one answers, and presses the power button otherwise.
		return unlessInactive(client, domain, client.DomainShutdownFlags(domain, golibvirt.DomainShutdownDefault))
	})
}

// ResizeDomain implements hypervisor.Domains. libvirt's own calls would be four: for CPUs and memory, current and
// maximum.
func (h *host) ResizeDomain(ctx context.Context, uuid string, size hypervisor.Size) error {
	return h.edit(ctx, "changing the size of the domain", uuid, func(text string) (string, error) {
		return hypervisor.ResizeDomainXML(text, size)
	})
}

func (h *host) RemoveIgnition(ctx context.Context, uuid string) error {
	return h.edit(ctx, "taking the Ignition configuration from the domain", uuid, hypervisor.RemoveIgnitionXML)
}

// edit changes the current definition of a domain, so that libvirt's additions, such as the version of the machine
// type, stay.
func (h *host) edit(ctx context.Context, doing, uuid string, change func(text string) (string, error)) error {
	return withDomain(ctx, &h.calls, doing, uuid, func(client *golibvirt.Libvirt, domain golibvirt.Domain) error {
		text, err := client.DomainGetXMLDesc(domain, golibvirt.DomainXMLInactive|golibvirt.DomainXMLSecure)
		if err != nil {
			return err
		}
		changed, err := change(text)
		if err != nil {
			return &hypervisor.Error{Operation: doing, Object: uuid, Reason: hypervisor.ErrInvalid, Cause: err}
		}
		_, err = client.DomainDefineXMLFlags(changed, golibvirt.DomainDefineValidate)
		return err
	})
}

func (h *host) StopDomain(ctx context.Context, uuid string) error {
	return withDomain(ctx, &h.calls, "stopping the domain", uuid, func(client *golibvirt.Libvirt, domain golibvirt.Domain) error {
		return unlessInactive(client, domain, client.DomainDestroyFlags(domain, golibvirt.DomainDestroyDefault))
	})
}

// unlessInactive drops the error of stopping a domain that isn't active.
func unlessInactive(client *golibvirt.Libvirt, domain golibvirt.Domain, err error) error {
	if code(err, golibvirt.ErrOperationInvalid) {
		if state, stateErr := stateOf(client, domain); stateErr == nil && !state.Active() {
			return nil
		}
	}
	return err
}

// UndefineDomain implements hypervisor.Domains. libvirt itself would undefine active domains.
func (h *host) UndefineDomain(ctx context.Context, uuid string) error {
	const doing = "undefining the domain"
	return withDomain(ctx, &h.calls, doing, uuid, func(client *golibvirt.Libvirt, domain golibvirt.Domain) error {
		if err := inactive(client, domain, doing, uuid); err != nil {
			return err
		}
		return client.DomainUndefineFlags(domain, golibvirt.DomainUndefineManagedSave|golibvirt.DomainUndefineSnapshotsMetadata|
			golibvirt.DomainUndefineCheckpointsMetadata|golibvirt.DomainUndefineNvram)
	})
}

// inactive returns an error if a domain is active.
func inactive(client *golibvirt.Libvirt, domain golibvirt.Domain, doing, uuid string) error {
	state, err := stateOf(client, domain)
	if err == nil && state.Active() {
		return &hypervisor.Error{Operation: doing, Object: uuid, Reason: hypervisor.ErrBusy, Cause: errors.New("it is active: stop it first")}
	}
	return err
}

func (h *host) DetachDisk(ctx context.Context, uuid string, ref hypervisor.VolumeRef) error {
	doing := "detaching the disk " + ref.String() + " from the domain"
	return withDomain(ctx, &h.calls, doing, uuid, func(client *golibvirt.Libvirt, domain golibvirt.Domain) error {
		// The definition first: it changes at once, and the domain then never starts with the disk again.
		for _, of := range []struct {
			read   golibvirt.DomainXMLFlags
			change golibvirt.DomainDeviceModifyFlags
		}{{golibvirt.DomainXMLInactive, golibvirt.DomainDeviceModifyConfig}, {0, golibvirt.DomainDeviceModifyLive}} {
			disk, err := findDisk(client, domain, of.read, ref)
			if err != nil {
				return err
			}
			if disk == "" {
				continue
			}
			asked := client.DomainDetachDeviceFlags(domain, disk, uint32(of.change)) //nolint:gosec // two small constants
			// Repeating the request while the guest releases the disk is an error of libvirt.
			if asked != nil && !code(asked, golibvirt.ErrOperationInvalid, golibvirt.ErrOperationFailed, golibvirt.ErrDeviceMissing, golibvirt.ErrOperationUnsupported) {
				return asked
			}
			if disk, err = findDisk(client, domain, of.read, ref); err != nil {
				return err
			}
			if disk != "" {
				cause := errors.New("the guest hasn't released it")
				if asked != nil {
					_, cause = classify(asked)
				}
				return &hypervisor.Error{Operation: doing, Object: uuid, Reason: hypervisor.ErrBusy, Cause: cause}
			}
		}
		return nil
	})
}

// findDisk returns the XML that identifies a disk of a domain, or "" if it doesn't exist.
func findDisk(client *golibvirt.Libvirt, domain golibvirt.Domain, flags golibvirt.DomainXMLFlags, ref hypervisor.VolumeRef) (string, error) {
	disk, err := readDisk(client, domain, flags, ref)
	if err != nil || disk == nil {
		return "", err
	}
	short := libvirtxml.DomainDisk{
		Device: disk.Device, Target: disk.Target,
		Source: &libvirtxml.DomainDiskSource{Volume: &libvirtxml.DomainDiskSourceVolume{Pool: ref.Pool, Volume: ref.Name}},
	}
	return short.Marshal()
}

// readDisk returns a disk of a domain, or nil if it doesn't exist.
func readDisk(client *golibvirt.Libvirt, domain golibvirt.Domain, flags golibvirt.DomainXMLFlags, ref hypervisor.VolumeRef) (*libvirtxml.DomainDisk, error) {
	text, err := client.DomainGetXMLDesc(domain, flags)
	if err != nil {
		return nil, err
	}
	var read libvirtxml.Domain
	if err := read.Unmarshal(text); err != nil {
		return nil, fmt.Errorf("%w: reading the XML of domain %s: %w", errNonsense, domain.Name, err)
	}
	if read.Devices == nil {
		return nil, nil
	}
	for i := range read.Devices.Disks {
		disk := &read.Devices.Disks[i]
		if disk.Source != nil && disk.Source.Volume != nil && disk.Source.Volume.Pool == ref.Pool && disk.Source.Volume.Volume == ref.Name {
			return disk, nil
		}
	}
	return nil, nil
}

func (h *host) Addresses(ctx context.Context, uuid string, source hypervisor.AddressSource) ([]hypervisor.InterfaceAddress, error) {
	const doing = "asking for the addresses of the domain"
	from := map[hypervisor.AddressSource]golibvirt.DomainInterfaceAddressesSource{
		hypervisor.SourceLease: golibvirt.DomainInterfaceAddressesSrcLease, hypervisor.SourceAgent: golibvirt.DomainInterfaceAddressesSrcAgent,
	}
	number, known := from[source]
	if !known {
		return nil, &hypervisor.Error{Operation: doing, Object: uuid, Reason: hypervisor.ErrInvalid, Cause: fmt.Errorf("there is no source %q", source)}
	}
	return get(ctx, &h.calls, doing, uuid, func(client *golibvirt.Libvirt) ([]hypervisor.InterfaceAddress, error) {
		domain, err := domainOf(uuid)
		if err != nil {
			return nil, err
		}
		interfaces, err := client.DomainInterfaceAddresses(domain, uint32(number), 0) //nolint:gosec // 0 or 1
		if code(err, golibvirt.ErrOperationInvalid) {                                 // it isn't active
			if source == hypervisor.SourceLease {
				return nil, nil
			}
			return nil, &hypervisor.Error{Operation: doing, Object: uuid, Reason: hypervisor.ErrUnsupported, Cause: errors.New("it isn't active")}
		}
		if err != nil {
			return nil, err
		}
		return addressesOf(interfaces), nil
	})
}

// addressesOf returns the valid addresses except loopback.
func addressesOf(interfaces []golibvirt.DomainInterface) []hypervisor.InterfaceAddress {
	var addresses []hypervisor.InterfaceAddress
	for _, nic := range interfaces {
		if len(nic.Hwaddr) == 0 {
			continue
		}
		for _, text := range nic.Addrs {
			if address, err := netip.ParseAddr(text.Addr); err == nil && !address.IsLoopback() {
				addresses = append(addresses, hypervisor.InterfaceAddress{MAC: strings.ToLower(nic.Hwaddr[0]), Address: address.Unmap().WithZone("")})
			}
		}
	}
	return addresses
}
