package libvirt

import (
	"cmp"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"slices"
	"strings"

	golibvirt "github.com/digitalocean/go-libvirt"
	"golang.org/x/sync/errgroup"
	"libvirt.org/go/libvirtxml"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

func (h *host) Pool(ctx context.Context, name string) (hypervisor.Pool, error) {
	return get(ctx, &h.storage, "looking up the storage pool", name, func(client *golibvirt.Libvirt) (hypervisor.Pool, error) {
		pool, err := client.StoragePoolLookupByName(name)
		if err != nil {
			return hypervisor.Pool{}, err
		}
		return describePool(client, pool)
	})
}

func (h *host) Pools(ctx context.Context) ([]hypervisor.Pool, error) {
	return get(ctx, &h.storage, "listing the storage pools", "", func(client *golibvirt.Libvirt) ([]hypervisor.Pool, error) {
		listed, _, err := client.ConnectListAllStoragePools(1, 0)
		if err != nil {
			return nil, err
		}
		var pools []hypervisor.Pool
		for _, one := range listed {
			pool, err := describePool(client, one)
			if code(err, golibvirt.ErrNoStoragePool) {
				continue // undefined after the list
			}
			if err != nil {
				return nil, err
			}
			pools = append(pools, pool)
		}
		slices.SortFunc(pools, func(a, b hypervisor.Pool) int { return cmp.Compare(a.Name, b.Name) })
		return pools, nil
	})
}

func describePool(client *golibvirt.Libvirt, pool golibvirt.StoragePool) (hypervisor.Pool, error) {
	state, capacity, _, available, err := client.StoragePoolGetInfo(pool)
	if err != nil {
		return hypervisor.Pool{}, err
	}
	text, err := client.StoragePoolGetXMLDesc(pool, 0)
	if err != nil {
		return hypervisor.Pool{}, err
	}
	var element struct {
		Type   string `xml:"type,attr"`
		Folder string `xml:"target>path"`
	}
	if err := xml.Unmarshal([]byte(text), &element); err != nil {
		return hypervisor.Pool{}, fmt.Errorf("%w: reading the XML of storage pool %s: %w", errNonsense, pool.Name, err)
	}
	return hypervisor.Pool{
		Name: pool.Name, Active: golibvirt.StoragePoolState(state) == golibvirt.StoragePoolRunning,
		CapacityBytes: int64(capacity), AvailableBytes: int64(available), //nolint:gosec // no pool has 8 EiB
		Type: element.Type, Folder: element.Folder,
	}, nil
}

func (h *host) Volume(ctx context.Context, ref hypervisor.VolumeRef) (hypervisor.Volume, error) {
	return get(ctx, &h.storage, "looking up the volume", ref.String(), func(client *golibvirt.Libvirt) (hypervisor.Volume, error) {
		return describe(client, volumeOf(ref))
	})
}

// volumeOf returns a volume without a look-up: drivers find volumes by the names of the pool and the volume.
func volumeOf(ref hypervisor.VolumeRef) golibvirt.StorageVol {
	return golibvirt.StorageVol{Pool: ref.Pool, Name: ref.Name}
}

func lookUpVolume(client *golibvirt.Libvirt, ref hypervisor.VolumeRef) (golibvirt.StorageVol, error) {
	pool, err := client.StoragePoolLookupByName(ref.Pool)
	if err != nil {
		return golibvirt.StorageVol{}, err
	}
	return client.StorageVolLookupByName(pool, ref.Name)
}

// describe reads a volume.
func describe(client *golibvirt.Libvirt, volume golibvirt.StorageVol) (hypervisor.Volume, error) {
	text, err := client.StorageVolGetXMLDesc(volume, 0)
	if err != nil {
		return hypervisor.Volume{}, err
	}
	// All sizes in libvirt's output are in bytes.
	var element struct {
		Capacity   int64  `xml:"capacity"`
		Allocation int64  `xml:"allocation"`
		Path       string `xml:"target>path"`
		Format     struct {
			Type string `xml:"type,attr"`
		} `xml:"target>format"`
		Backing string `xml:"backingStore>path"`
	}
	if err := xml.Unmarshal([]byte(text), &element); err != nil {
		return hypervisor.Volume{}, fmt.Errorf("%w: reading the XML of volume %s/%s: %w", errNonsense, volume.Pool, volume.Name, err)
	}
	return hypervisor.Volume{
		VolumeRef: hypervisor.VolumeRef{Pool: volume.Pool, Name: volume.Name},
		Path:      element.Path, Format: hypervisor.VolumeFormat(element.Format.Type),
		CapacityBytes: element.Capacity, AllocatedBytes: element.Allocation, BackingPath: element.Backing,
	}, nil
}

// PoolVolumes implements hypervisor.Volumes. It reads volumes that aren't cached, several at a time.
func (h *host) PoolVolumes(ctx context.Context, name string) ([]hypervisor.Volume, error) {
	const doing = "listing the volumes of the storage pool"
	known, number := h.known.of(name)
	listed, err := get(ctx, &h.storage, doing, name, func(client *golibvirt.Libvirt) ([]golibvirt.StorageVol, error) {
		pool, err := client.StoragePoolLookupByName(name)
		if err != nil {
			return nil, err
		}
		listed, _, err := client.StoragePoolListAllVolumes(pool, 1, 0)
		return listed, err
	})
	if err != nil {
		return nil, err
	}
	described := make([]*hypervisor.Volume, len(listed))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(describedAtOnce)
	for i, one := range listed {
		if volume, ok := known[one.Name]; ok {
			described[i] = &volume
			continue
		}
		group.Go(func() error {
			volume, err := get(ctx, &h.storage, doing, name, func(client *golibvirt.Libvirt) (hypervisor.Volume, error) { return describe(client, one) })
			if errors.Is(err, hypervisor.ErrNotFound) {
				return nil // deleted after the list
			}
			described[i] = &volume
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var volumes []hypervisor.Volume
	for _, volume := range described {
		if volume != nil {
			volumes = append(volumes, *volume)
		}
	}
	h.known.set(name, number, volumes)
	slices.SortFunc(volumes, func(a, b hypervisor.Volume) int { return cmp.Compare(a.Name, b.Name) })
	return volumes, nil
}

func (h *host) RefreshPool(ctx context.Context, name string) error {
	defer h.known.forget(hypervisor.VolumeRef{Pool: name})
	return run(ctx, &h.storage, "refreshing the storage pool", name, func(client *golibvirt.Libvirt) error {
		pool, err := client.StoragePoolLookupByName(name)
		if err != nil {
			return err
		}
		return client.StoragePoolRefresh(pool, 0)
	})
}

func (h *host) CreateVolume(ctx context.Context, spec hypervisor.VolumeSpec) (hypervisor.Volume, error) {
	const doing = "creating the volume"
	text, err := newVolume(doing, spec)
	if err != nil {
		return hypervisor.Volume{}, err
	}
	defer h.known.forget(spec.VolumeRef)
	return get(ctx, &h.storage, doing, spec.String(), func(client *golibvirt.Libvirt) (hypervisor.Volume, error) {
		pool, err := client.StoragePoolLookupByName(spec.Pool)
		if err != nil {
			return hypervisor.Volume{}, err
		}
		volume, err := client.StorageVolCreateXML(pool, text, 0)
		if err != nil {
			return hypervisor.Volume{}, err
		}
		return describe(client, volume)
	})
}

// newVolume checks and writes the description of a new volume, without allocated space.
func newVolume(doing string, spec hypervisor.VolumeSpec) (string, error) {
	invalid := func(err error) (string, error) {
		return "", &hypervisor.Error{Operation: doing, Object: spec.String(), Reason: hypervisor.ErrInvalid, Cause: err}
	}
	if err := spec.Check(); err != nil {
		return invalid(err)
	}
	volume := libvirtxml.StorageVolume{
		Name:       spec.Name,
		Capacity:   &libvirtxml.StorageVolumeSize{Unit: "bytes", Value: uint64(spec.CapacityBytes)}, //nolint:gosec // checked
		Allocation: &libvirtxml.StorageVolumeSize{Unit: "bytes"},
		Target:     &libvirtxml.StorageVolumeTarget{Format: &libvirtxml.StorageVolumeTargetFormat{Type: string(spec.Format)}},
	}
	if spec.Backing != nil {
		volume.BackingStore = &libvirtxml.StorageVolumeBackingStore{
			Path: spec.Backing.Path, Format: &libvirtxml.StorageVolumeTargetFormat{Type: string(spec.Backing.Format)},
		}
	}
	text, err := volume.Marshal()
	if err != nil {
		return invalid(err)
	}
	return text, nil
}

func (h *host) CloneVolume(ctx context.Context, spec hypervisor.VolumeSpec, source hypervisor.VolumeRef) (hypervisor.Volume, error) {
	doing := "cloning the volume " + source.String() + " to"
	from, err := h.Volume(ctx, source)
	if err != nil {
		return hypervisor.Volume{}, failure(doing, spec.String(), err)
	}
	spec.CapacityBytes = max(spec.CapacityBytes, from.CapacityBytes)
	text, err := newVolume(doing, spec)
	if err != nil {
		return hypervisor.Volume{}, err
	}
	defer h.known.forget(spec.VolumeRef)
	// Copying has no time limit, and blocks all other calls on its connection.
	own, err := h.another(ctx)
	if err != nil {
		return hypervisor.Volume{}, failure(doing, spec.String(), err)
	}
	defer own.close()
	clone, err := do(ctx, own, 0, func(client *golibvirt.Libvirt) (hypervisor.Volume, error) {
		original, err := lookUpVolume(client, source)
		if err != nil {
			return hypervisor.Volume{}, err
		}
		pool, err := client.StoragePoolLookupByName(spec.Pool)
		if err != nil {
			return hypervisor.Volume{}, err
		}
		volume, err := client.StorageVolCreateXMLFrom(pool, text, original, 0)
		if err != nil {
			// For a used name, libvirt returns the same code as for any failure.
			if _, lookUpErr := client.StorageVolLookupByName(pool, spec.Name); code(err, golibvirt.ErrInternalError) && lookUpErr == nil {
				_, cause := classify(err)
				err = &hypervisor.Error{Operation: doing, Object: spec.String(), Reason: hypervisor.ErrAlreadyExists, Cause: cause}
			}
			return hypervisor.Volume{}, err
		}
		return describe(client, volume)
	})
	if err != nil {
		return hypervisor.Volume{}, failure(doing, spec.String(), err)
	}
	return clone, nil
}

// another opens a connection to the same hypervisor for a transfer. It ends with the host's.
func (h *host) another(ctx context.Context) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, h.limit)
	defer cancel()
	select {
	case <-h.lost:
		return nil, errLost
	default:
	}
	own, err := openSession(ctx, h.dial, h.uri)
	if err != nil {
		return nil, err
	}
	if err := h.recognize(ctx, own); err != nil {
		own.close()
		return nil, err
	}
	go func() {
		select {
		case <-h.lost:
			own.close()
		case <-own.lost:
		}
	}()
	return own, nil
}

// recognize returns an error if a connection leads to another hypervisor, because a name or an address has changed.
func (h *host) recognize(ctx context.Context, own *session) error {
	uuid, _ := h.uuid.Load().(string)
	if uuid == "" {
		return nil
	}
	caps, err := do(ctx, own, 0, readCapabilities)
	if err == nil && strings.ToLower(caps.UUID) != uuid {
		err = &hypervisor.Error{Operation: "connecting for a transfer", Reason: hypervisor.ErrUnreachable,
			Cause: fmt.Errorf("another hypervisor answers: its UUID is %q and not %s", caps.UUID, uuid)}
	}
	return err
}

func (h *host) ResizeVolume(ctx context.Context, ref hypervisor.VolumeRef, capacity int64) error {
	const doing = "resizing the volume"
	defer h.known.forget(ref)
	return run(ctx, &h.storage, doing, ref.String(), func(client *golibvirt.Libvirt) error {
		volume := volumeOf(ref)
		now, err := describe(client, volume)
		if err != nil {
			return err
		}
		if capacity < now.CapacityBytes {
			return &hypervisor.Error{Operation: doing, Object: ref.String(), Reason: hypervisor.ErrInvalid,
				Cause: fmt.Errorf("%d bytes are less than the %d that it has", capacity, now.CapacityBytes)}
		}
		return client.StorageVolResize(volume, uint64(capacity), 0) //nolint:gosec // not negative: see above
	})
}

func (h *host) DeleteVolume(ctx context.Context, ref hypervisor.VolumeRef) error {
	defer h.known.forget(ref)
	return run(ctx, &h.storage, "deleting the volume", ref.String(), func(client *golibvirt.Libvirt) error {
		return client.StorageVolDelete(volumeOf(ref), golibvirt.StorageVolDeleteNormal)
	})
}

// GrowDisk implements hypervisor.Domains. libvirt's call would also shrink disks. A volume that QEMU uses must not be
// resized directly.
func (h *host) GrowDisk(ctx context.Context, uuid string, ref hypervisor.VolumeRef, capacity int64) error {
	doing := "making the disk " + ref.String() + " of the domain larger"
	return withDomain(ctx, &h.calls, doing, uuid, func(client *golibvirt.Libvirt, domain golibvirt.Domain) error {
		refuse := func(reason, cause error) error {
			return &hypervisor.Error{Operation: doing, Object: uuid, Reason: reason, Cause: cause}
		}
		state, err := stateOf(client, domain)
		if err != nil {
			return err
		}
		if !state.Active() {
			return refuse(hypervisor.ErrBusy, errors.New("it isn't active"))
		}
		disk, err := readDisk(client, domain, 0, ref)
		if err != nil {
			return err
		}
		if disk == nil || disk.Target == nil {
			return refuse(hypervisor.ErrInvalid, errors.New("it has no such disk"))
		}
		_, has, _, err := client.DomainGetBlockInfo(domain, disk.Target.Dev, 0)
		if err != nil {
			return err
		}
		if capacity < 0 || uint64(capacity) < has {
			return refuse(hypervisor.ErrInvalid, fmt.Errorf("%d bytes are less than the %d that it has", capacity, has))
		}
		if uint64(capacity) == has {
			return nil
		}
		return client.DomainBlockResize(domain, disk.Target.Dev, uint64(capacity), golibvirt.DomainBlockResizeBytes)
	})
}
