package fake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// Pool implements hypervisor.Volumes.
func (c *connection) Pool(ctx context.Context, name string) (hypervisor.Pool, error) {
	return do(ctx, c, "looking up the storage pool", Pool, name, func() (hypervisor.Pool, error) {
		pool, exists := c.host.pools[name]
		if !exists {
			return pool, refuse(hypervisor.ErrNotFound, "")
		}
		return c.host.seen(pool), nil
	})
}

// Pools implements hypervisor.Volumes.
func (c *connection) Pools(ctx context.Context) ([]hypervisor.Pool, error) {
	return do(ctx, c, "listing the storage pools", Pools, "", func() ([]hypervisor.Pool, error) {
		var pools []hypervisor.Pool
		for _, name := range slices.Sorted(maps.Keys(c.host.pools)) {
			pools = append(pools, c.host.seen(c.host.pools[name]))
		}
		return pools, nil
	})
}

// Volume implements hypervisor.Volumes.
func (c *connection) Volume(ctx context.Context, ref hypervisor.VolumeRef) (hypervisor.Volume, error) {
	return do(ctx, c, "looking up the volume", Volume, ref.String(), func() (hypervisor.Volume, error) {
		volume, exists := c.host.volumes[ref]
		if !exists {
			return hypervisor.Volume{}, refuse(hypervisor.ErrNotFound, "")
		}
		return volume.Volume, nil
	})
}

// PoolVolumes implements hypervisor.Volumes.
func (c *connection) PoolVolumes(ctx context.Context, pool string) ([]hypervisor.Volume, error) {
	return do(ctx, c, "listing the volumes of the storage pool", PoolVolumes, pool, func() ([]hypervisor.Volume, error) {
		if _, exists := c.host.pools[pool]; !exists {
			return nil, refuse(hypervisor.ErrNotFound, "")
		}
		var volumes []hypervisor.Volume
		for _, ref := range slices.SortedFunc(maps.Keys(c.host.volumes), compareRefs) {
			if ref.Pool == pool {
				volumes = append(volumes, c.host.volumes[ref].Volume)
			}
		}
		return volumes, nil
	})
}

// RefreshPool implements hypervisor.Volumes.
func (c *connection) RefreshPool(ctx context.Context, pool string) error {
	return run(ctx, c, "refreshing the storage pool", RefreshPool, pool, func() error {
		if _, exists := c.host.pools[pool]; !exists {
			return refuse(hypervisor.ErrNotFound, "")
		}
		c.host.refresh(pool)
		return nil
	})
}

// CreateVolume implements hypervisor.Volumes.
func (c *connection) CreateVolume(ctx context.Context, spec hypervisor.VolumeSpec) (hypervisor.Volume, error) {
	return do(ctx, c, "creating the volume", CreateVolume, spec.String(), func() (hypervisor.Volume, error) {
		return c.host.create(spec, nil)
	})
}

// CloneVolume implements hypervisor.Volumes.
func (c *connection) CloneVolume(ctx context.Context, spec hypervisor.VolumeSpec, source hypervisor.VolumeRef) (hypervisor.Volume, error) {
	return do(ctx, c, "cloning the volume "+source.String()+" to", CloneVolume, spec.String(), func() (hypervisor.Volume, error) {
		from, exists := c.host.volumes[source]
		if !exists {
			return hypervisor.Volume{}, refuse(hypervisor.ErrNotFound, "there is no volume "+source.String())
		}
		spec.CapacityBytes = max(spec.CapacityBytes, from.CapacityBytes)
		return c.host.create(spec, from.content)
	})
}

// create creates a volume. The lock is held.
func (h *Host) create(spec hypervisor.VolumeSpec, content []byte) (hypervisor.Volume, error) {
	pool, exists := h.pools[spec.Pool]
	if !exists {
		return hypervisor.Volume{}, refuse(hypervisor.ErrNotFound, "there is no storage pool "+spec.Pool)
	}
	if err := spec.Check(); err != nil {
		return hypervisor.Volume{}, refuse(hypervisor.ErrInvalid, err.Error())
	}
	if _, taken := h.volumes[spec.VolumeRef]; taken {
		return hypervisor.Volume{}, refuse(hypervisor.ErrAlreadyExists, "")
	}
	if int64(len(content)) > pool.AvailableBytes {
		return hypervisor.Volume{}, refuse(hypervisor.ErrNoSpace, "")
	}
	created := &volume{Volume: hypervisor.Volume{
		VolumeRef: spec.VolumeRef, Path: "/fake/" + spec.String(), Format: spec.Format, CapacityBytes: spec.CapacityBytes,
	}}
	if spec.Backing != nil {
		if !slices.ContainsFunc(slices.Collect(maps.Values(h.volumes)), func(v *volume) bool { return v.Path == spec.Backing.Path }) {
			return hypervisor.Volume{}, refuse(hypervisor.ErrInvalid, "there is no volume at "+spec.Backing.Path)
		}
		created.BackingPath = spec.Backing.Path
	}
	h.volumes[spec.VolumeRef] = created
	h.fill(created, slices.Clone(content))
	return created.Volume, nil
}

// fill replaces the content of a volume, and updates the space of its pool. The lock is held.
func (h *Host) fill(v *volume, content []byte) {
	pool := h.pools[v.Pool]
	pool.AvailableBytes += v.AllocatedBytes - int64(len(content))
	h.pools[v.Pool] = pool
	v.content, v.AllocatedBytes = content, int64(len(content))
}

// UploadVolume implements hypervisor.Volumes.
func (c *connection) UploadVolume(ctx context.Context, ref hypervisor.VolumeRef, content io.Reader, size int64) error {
	if size != hypervisor.UnknownSize {
		content = io.LimitReader(content, size+1)
	}
	read, readErr := io.ReadAll(content)
	return run(ctx, c, "uploading to the volume", UploadVolume, ref.String(), func() error {
		volume, exists := c.host.volumes[ref]
		if size == hypervisor.UnknownSize && exists && readErr == nil {
			size = int64(len(read))
			if volume.Format == hypervisor.FormatRaw {
				volume.CapacityBytes = max(volume.CapacityBytes, size)
			}
		}
		switch {
		case !exists:
			return refuse(hypervisor.ErrNotFound, "")
		case readErr != nil:
			return &hypervisor.Error{Reason: hypervisor.ErrOther, Cause: fmt.Errorf("reading the content to upload: %w", readErr)}
		case int64(len(read)) < size:
			return &hypervisor.Error{Reason: hypervisor.ErrInvalid, Cause: fmt.Errorf("reading the content to upload: %w", errors.Join(io.ErrUnexpectedEOF,
				fmt.Errorf("%d bytes of %d", len(read), size)))}
		case int64(len(read)) > size:
			return refuse(hypervisor.ErrInvalid, fmt.Sprintf("the content is longer than %d bytes", size))
		case volume.Format == hypervisor.FormatRaw && size > volume.CapacityBytes:
			return refuse(hypervisor.ErrInvalid, fmt.Sprintf("%d bytes don't fit into %d", size, volume.CapacityBytes))
		case size-volume.AllocatedBytes > c.host.pools[ref.Pool].AvailableBytes:
			return refuse(hypervisor.ErrNoSpace, "")
		}
		c.host.fill(volume, read)
		return nil
	})
}

// ResizeVolume implements hypervisor.Volumes.
func (c *connection) ResizeVolume(ctx context.Context, ref hypervisor.VolumeRef, capacity int64) error {
	return run(ctx, c, "resizing the volume", ResizeVolume, ref.String(), func() error {
		volume, exists := c.host.volumes[ref]
		if !exists {
			return refuse(hypervisor.ErrNotFound, "")
		}
		if capacity < volume.CapacityBytes {
			return refuse(hypervisor.ErrInvalid, "it would become smaller")
		}
		volume.CapacityBytes = capacity
		return nil
	})
}

// DeleteVolume implements hypervisor.Volumes.
func (c *connection) DeleteVolume(ctx context.Context, ref hypervisor.VolumeRef) error {
	return run(ctx, c, "deleting the volume", DeleteVolume, ref.String(), func() error {
		volume, exists := c.host.volumes[ref]
		if !exists {
			return refuse(hypervisor.ErrNotFound, "")
		}
		c.host.fill(volume, nil)
		delete(c.host.volumes, ref)
		return nil
	})
}
