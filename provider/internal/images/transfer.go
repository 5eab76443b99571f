package images

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/bytesize"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/metrics"
)

const (
	// callTimeout limits a call to a host other than an upload.
	callTimeout = time.Minute
	// strayAge is how long a content without a marker must not have grown before it counts as abandoned. The watchdogs
	// of its creator end sooner.
	strayAge = 10 * time.Minute
	// forgetAge is how long the size of a content is remembered.
	forgetAge = 24 * time.Hour
)

// volumes is a host with a time limit for each call except the upload.
type volumes struct{ hypervisor.Volumes }

func inTime[T any](ctx context.Context, call func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return call(ctx)
}

func (v volumes) look(ctx context.Context, wish Wish) (Image, error) {
	return inTime(ctx, func(ctx context.Context) (Image, error) { return look(ctx, v.Volumes, wish) })
}

func (v volumes) create(ctx context.Context, spec hypervisor.VolumeSpec) (hypervisor.Volume, error) {
	return inTime(ctx, func(ctx context.Context) (hypervisor.Volume, error) { return v.CreateVolume(ctx, spec) })
}

// remove deletes a volume if it exists.
func (v volumes) remove(ctx context.Context, ref hypervisor.VolumeRef) error {
	_, err := inTime(ctx, func(ctx context.Context) (struct{}, error) { return struct{}{}, v.DeleteVolume(ctx, ref) })
	return hypervisor.IgnoreNotFound(err)
}

// transfer is one attempt to download an image to its host, unless it exists there. Metrics count only downloads.
func (t *task) transfer(ctx context.Context) (err error) {
	connected, err := t.store.hosts(t.wish.Host)
	if err != nil {
		return err
	}
	host := volumes{connected}
	if _, err := host.look(ctx, t.wish); !errors.Is(err, errMissing) {
		return err
	}
	ended := metrics.Transfer(t.wish.Host)
	defer func() { ended(t.done.Load(), err) }()
	if err := t.removeLeft(ctx, host); err != nil {
		return err
	}
	t.store.removeStrays(ctx, host, t.wish)

	client, end, err := t.store.clientFor(ctx, t.wish)
	if err != nil {
		return err
	}
	defer end()
	source, err := open(ctx, client, t.wish, t.store.options, &t.done)
	if err != nil {
		return err
	}
	defer source.Close()
	t.total.Store(source.size)
	if source.fits, err = room(ctx, host, t.wish.Pool, t.store.options.MaxBytes); err != nil {
		return err
	}
	if err := source.fits(source.size); err != nil {
		return err
	}
	image, err := t.fill(ctx, host, source)
	if err == nil {
		err = mark(ctx, host, t.wish, image)
	}
	if err != nil {
		t.removeAfter(ctx, host, image.VolumeRef, err)
		return err
	}
	t.store.removeStrays(ctx, host, t.wish)
	return nil
}

// room returns a function that refuses images larger than maxBytes or the free space of a pool. So uploads that can't
// succeed don't start, and decompression stops in time.
func room(ctx context.Context, host volumes, name string, maxBytes int64) (fits func(size int64) error, err error) {
	pool, err := inTime(ctx, func(ctx context.Context) (hypervisor.Pool, error) { return host.Pool(ctx, name) })
	return func(size int64) error {
		if pool.AvailableBytes >= size {
			return checkSize(size, maxBytes)
		}
		return &hypervisor.Error{Operation: "storing the image in pool", Object: name, Reason: hypervisor.ErrNoSpace,
			Cause: fmt.Errorf("the image is larger than the %s that are free", bytesize.UnitFor(pool.AvailableBytes).Down(pool.AvailableBytes))}
	}, err
}

// fill creates and uploads the content of this attempt. The image names the volume, also after an error.
func (t *task) fill(ctx context.Context, host volumes, source *download) (Image, error) {
	var id [6]byte
	_, _ = rand.Read(id[:]) // never fails
	image := Image{
		VolumeRef: hypervisor.VolumeRef{Pool: t.wish.Pool, Name: t.wish.marker() + "." + hex.EncodeToString(id[:])},
		Format:    t.wish.format(), CapacityBytes: source.capacity,
	}
	content, err := host.create(ctx, hypervisor.VolumeSpec{VolumeRef: image.VolumeRef, Format: image.Format, CapacityBytes: image.CapacityBytes})
	if err != nil {
		return image, err
	}
	image.Path = content.Path
	if err := host.UploadVolume(ctx, image.VolumeRef, source, source.length()); err != nil {
		return image, err
	}
	if source.compressed && image.Format == hypervisor.FormatRaw {
		image.CapacityBytes = source.contentBytes
	}
	return image, source.verify()
}

// mark marks a content as the image. If another manager was faster, its image stays, and the error is nil.
func mark(ctx context.Context, host volumes, wish Wish, image Image) error {
	spec := hypervisor.VolumeSpec{VolumeRef: wish.markerRef(), Format: hypervisor.FormatQCOW2, CapacityBytes: image.CapacityBytes,
		Backing: &hypervisor.Backing{Path: image.Path, Format: image.Format}}
	_, err := host.create(ctx, spec)
	if !errors.Is(err, hypervisor.ErrAlreadyExists) {
		return err
	}
	_, err = host.look(ctx, wish)
	if !errors.Is(err, errBroken) {
		return err
	}
	if err := host.remove(ctx, wish.markerRef()); err != nil {
		return err
	}
	_, err = host.create(ctx, spec)
	return err
}

// removeAfter deletes the content of a failed attempt. If that isn't possible now, or the content may be marked, the
// next attempt does it.
func (t *task) removeAfter(ctx context.Context, host volumes, ref hypervisor.VolumeRef, why error) {
	t.left = append(t.left, ref)
	if hypervisor.Uncertain(why) && ctx.Err() == nil {
		return
	}
	// The context of the attempt may be cancelled.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.store.options.CleanUpTimeout)
	defer cancel()
	if _, err := host.look(ctx, t.wish); !errors.Is(err, errMissing) {
		return // the volume is marked, or its state is unknown
	}
	if err := t.removeLeft(ctx, host); err != nil {
		klog.FromContext(ctx).Info("An incomplete image stays on the host until the next attempt", "volume", ref.String(), "err", err)
	}
}

// removeLeft deletes the contents of earlier attempts of this task. The image isn't marked.
func (t *task) removeLeft(ctx context.Context, host volumes) error {
	for len(t.left) > 0 {
		if err := host.remove(ctx, t.left[0]); err != nil {
			return err
		}
		t.left = t.left[1:]
	}
	return nil
}

// removeStrays deletes abandoned contents: if the image exists, all others, and otherwise those that don't grow.
// Backing volumes of overlays stay. Errors are only logged.
func (s *Store) removeStrays(ctx context.Context, host volumes, wish Wish) {
	log := klog.FromContext(ctx)
	all, err := inTime(ctx, func(ctx context.Context) ([]hypervisor.Volume, error) { return host.PoolVolumes(ctx, wish.Pool) })
	if err != nil {
		log.Info("Incomplete images can't be listed", "err", err)
		return
	}
	image, lookErr := host.look(ctx, wish)
	var strays []hypervisor.Volume
	for _, volume := range all {
		if !wish.isContent(volume.Name) || volume.Name == image.Name {
			continue
		}
		if lookErr == nil || errors.Is(lookErr, errMissing) && s.stoppedGrowing(wish.Host, volume) {
			strays = append(strays, volume)
		}
	}
	for _, stray := range strays {
		used, err := s.isUsed(ctx, host, wish, stray, all)
		if err == nil && !used {
			err = host.remove(ctx, stray.VolumeRef)
		}
		if err != nil {
			log.Info("An incomplete image stays on the host", "volume", stray.String(), "err", err)
		}
	}
}

// isUsed reports whether a content has overlays, of machines that were created when it was the image.
func (s *Store) isUsed(ctx context.Context, host volumes, wish Wish, content hypervisor.Volume, inPool []hypervisor.Volume) (bool, error) {
	isOverlay := func(volume hypervisor.Volume) bool {
		return volume.BackingPath == content.Path
	}
	if slices.ContainsFunc(inPool, isOverlay) {
		return true, nil
	}
	for _, pool := range s.pools(wish.Host) {
		if pool == wish.Pool {
			continue
		}
		volumes, err := inTime(ctx, func(ctx context.Context) ([]hypervisor.Volume, error) { return host.PoolVolumes(ctx, pool) })
		if errors.Is(err, hypervisor.ErrNotFound) {
			continue
		}
		if err != nil || slices.ContainsFunc(volumes, isOverlay) {
			return true, err
		}
	}
	return false, nil
}

// observation is the size of a content, and since when it is unchanged.
type observation struct {
	bytes int64
	since time.Time
}

// stoppedGrowing reports whether a content was unchanged for strayAge.
func (s *Store) stoppedGrowing(host string, volume hypervisor.Volume) bool {
	s.lock.Lock()
	defer s.lock.Unlock()
	name := path.Join(host, volume.String())
	seen, known := s.observed[name]
	if !known || seen.bytes != volume.AllocatedBytes {
		// There are no events for deleted hosts and contents: old observations are removed.
		maps.DeleteFunc(s.observed, func(_ string, o observation) bool { return s.now().Sub(o.since) > forgetAge })
		s.observed[name] = observation{bytes: volume.AllocatedBytes, since: s.now()}
		return false
	}
	if s.now().Sub(seen.since) < strayAge {
		return false
	}
	delete(s.observed, name)
	return true
}
