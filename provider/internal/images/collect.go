package images

import (
	"context"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// Deleting an image must not remove the backing volume of a machine that is being created at the same time, by this
// or another manager. The order of calls ensures this, without clocks or locks:
//
//   - deletion: delete the marker, list the overlays of the content, and delete the content only if there are none;
//   - creation of a machine: read the marker, create the overlay, and read the marker again (Confirm). If it has
//     changed, the overlay isn't used.
//
// If the marker still exists at the second read, the overlay was created before the marker was deleted, and so before
// the listing. A content whose marker was deleted never gets a new one.

// volumeName matches the names of this package's volumes: the marker, and the suffix of a content.
var volumeName = regexp.MustCompile(`^(` + namePrefix + `(?:sha256-[0-9a-f]{64}|sha512-[0-9a-f]{128})(?:-[0-9a-f]{32})?\.(?:qcow2|raw))(\.[0-9a-f]{12})?$`)

// Collection describes one collection on a host.
type Collection struct {
	// Host is the name of the LibvirtHost.
	Host string
	// Pools are the storage pools that may have images.
	Pools []string
	// Age is how long this store must have seen an image unused.
	Age time.Duration
	// Wanted has the images of machines that are being created on the host. They count as used.
	Wanted []Wish
	// Volumes and Domains are from the snapshot of the host. Collect reads the host itself only if there may be
	// something to delete.
	Volumes []hypervisor.Volume
	Domains []hypervisor.Domain
}

// Collected describes the deleted images.
type Collected struct {
	// Images has the names of the deleted markers without their prefix.
	Images []string
	// HalfImages is the number of deleted contents without a marker.
	HalfImages int
	// Bytes is the freed space.
	Bytes int64
}

// unused is an image, or a part of one, that may be deleted after some time.
type unused struct {
	// marker of the image, or nil.
	marker *hypervisor.VolumeRef
	// content of the image, or nil if the marker has none.
	content *hypervisor.Volume
}

// key identifies an unused image. Names of contents are unique.
func (u unused) key() hypervisor.VolumeRef {
	if u.content != nil {
		return u.content.VolumeRef
	}
	return *u.marker
}

// Confirm reports whether an image still exists after an overlay of it was created. If not, request the image again.
// Errors are of package hypervisor.
func Confirm(ctx context.Context, host hypervisor.Volumes, wish Wish, image Image) (bool, error) {
	marker, err := host.Volume(ctx, wish.markerRef())
	if errors.Is(err, hypervisor.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking for the image again: %w", err)
	}
	return marker.BackingPath == image.Path, nil
}

// Collect deletes the unused images of a host and abandoned incomplete images. An image is unused if it has no
// overlays, domains or waiting machines. The result is valid even with an error. Errors are of package hypervisor, or
// name an inactive pool: its volumes may need any image, so Collect deletes none.
func (s *Store) Collect(ctx context.Context, c Collection) (Collected, error) {
	due := s.due(c, newUsage(c.Volumes, c.Domains))
	if len(due) == 0 {
		return Collected{}, nil
	}
	connected, err := s.hosts(c.Host)
	if err != nil {
		return Collected{}, err
	}
	host := volumes{connected}
	before, err := readUsage(ctx, connected)
	if err != nil {
		return Collected{}, err
	}
	// The snapshot may be old. An image is deleted only if the host itself shows it as unused too.
	var deletable []unused
	for _, u := range before.unused(c.Pools, wantedMarkers(c.Wanted)) {
		if due[u.key()] {
			deletable = append(deletable, u)
		}
	}
	var collected Collected
	for _, u := range deletable {
		if u.marker == nil {
			continue
		}
		if err := host.remove(ctx, *u.marker); err != nil {
			return collected, err
		}
		collected.Images = append(collected.Images, u.marker.Name[len(namePrefix):])
	}
	after, err := readUsage(ctx, connected)
	if err != nil {
		return collected, err
	}
	for _, u := range deletable {
		if u.content == nil || after.isUsed(*u.content) || after.isMarked(*u.content) {
			continue
		}
		if err := host.remove(ctx, u.content.VolumeRef); err != nil {
			return collected, err
		}
		collected.Bytes += u.content.AllocatedBytes
		if u.marker == nil {
			collected.HalfImages++
		}
	}
	if len(collected.Images)+collected.HalfImages > 0 {
		klog.FromContext(ctx).Info("Deleted images that no machine has used", "images", collected.Images, "halfImages", collected.HalfImages, "bytes", collected.Bytes)
	}
	return collected, nil
}

// due returns what has been unused for long enough, and records the time for the rest.
func (s *Store) due(c Collection, seen usage) map[hypervisor.VolumeRef]bool {
	s.lock.Lock()
	defer s.lock.Unlock()
	known, now := s.unused[c.Host], s.now()
	still, due := map[hypervisor.VolumeRef]observation{}, map[hypervisor.VolumeRef]bool{}
	for _, u := range seen.unused(c.Pools, wantedMarkers(c.Wanted)) {
		age, bytes := c.Age, int64(0)
		if u.marker == nil {
			age, bytes = max(c.Age, strayAge), u.content.AllocatedBytes // an upload may be filling it
		}
		at, exists := known[u.key()]
		if !exists || at.bytes != bytes {
			at = observation{bytes: bytes, since: now}
		}
		still[u.key()] = at
		if now.Sub(at.since) >= age {
			due[u.key()] = true
		}
	}
	if s.unused == nil {
		s.unused = map[string]map[hypervisor.VolumeRef]observation{}
	}
	s.unused[c.Host] = still
	return due
}

// ForgetHost drops the state of a deleted host.
func (s *Store) ForgetHost(host string) {
	s.lock.Lock()
	defer s.lock.Unlock()
	delete(s.unused, host)
}

func wantedMarkers(wishes []Wish) map[string]bool {
	wanted := map[string]bool{}
	for _, wish := range wishes {
		wanted[wish.marker()] = true
	}
	return wanted
}

// usage has the volumes of a host and the paths in use.
type usage struct {
	volumes []hypervisor.Volume
	// paths has the backing volumes of overlays other than markers, and the disks of domains.
	paths map[string]bool
	// marked has the backing volumes of markers.
	marked map[string]bool
}

func newUsage(volumes []hypervisor.Volume, domains []hypervisor.Domain) usage {
	u := usage{volumes: volumes, paths: map[string]bool{}, marked: map[string]bool{}}
	disks := map[hypervisor.VolumeRef]bool{}
	for _, domain := range domains {
		for _, ref := range domain.Disks {
			disks[ref] = true
		}
		for _, file := range domain.Files {
			u.paths[file] = true
		}
	}
	for _, volume := range volumes {
		if disks[volume.VolumeRef] {
			u.paths[volume.Path] = true
		}
		switch {
		case volume.BackingPath == "":
		case isMarker(volume.Name):
			u.marked[volume.BackingPath] = true
		default:
			u.paths[volume.BackingPath] = true
		}
	}
	// Users of a marker use the marker's backing volume.
	for _, volume := range volumes {
		if isMarker(volume.Name) && u.paths[volume.Path] {
			u.paths[volume.BackingPath] = true
		}
	}
	return u
}

// readUsage reads all volumes and domains of a host.
func readUsage(ctx context.Context, host hypervisor.Hypervisor) (usage, error) {
	pools, err := inTime(ctx, host.Pools)
	if err != nil {
		return usage{}, err
	}
	var volumes []hypervisor.Volume
	for _, pool := range pools {
		if !pool.Active {
			return usage{}, fmt.Errorf("no image is deleted: storage pool %s is inactive and its volumes may need an image: start the pool or undefine it", pool.Name)
		}
		listed, err := inTime(ctx, func(ctx context.Context) ([]hypervisor.Volume, error) { return host.PoolVolumes(ctx, pool.Name) })
		if err != nil {
			return usage{}, err
		}
		volumes = append(volumes, listed...)
	}
	domains, err := inTime(ctx, host.ListDomains)
	return newUsage(volumes, domains), err
}

func isMarker(name string) bool {
	parts := volumeName.FindStringSubmatch(name)
	return parts != nil && parts[2] == ""
}

func (u usage) isUsed(volume hypervisor.Volume) bool   { return u.paths[volume.Path] }
func (u usage) isMarked(volume hypervisor.Volume) bool { return u.marked[volume.Path] }

// unused lists the images in pools that nothing uses, and unused contents without a marker. A wanted marker stays, with
// its content.
func (u usage) unused(pools []string, wanted map[string]bool) []unused {
	var all []unused
	for i := range u.volumes {
		volume := u.volumes[i]
		parts := volumeName.FindStringSubmatch(volume.Name)
		if parts == nil || !slices.Contains(pools, volume.Pool) || u.isUsed(volume) {
			continue
		}
		if parts[2] != "" {
			if !u.isMarked(volume) {
				all = append(all, unused{content: &volume})
			}
			continue
		}
		if wanted[volume.Name] || u.paths[volume.BackingPath] {
			continue
		}
		image := unused{marker: &volume.VolumeRef}
		if at := slices.IndexFunc(u.volumes, func(v hypervisor.Volume) bool {
			return v.Pool == volume.Pool && v.Path == volume.BackingPath && v.Name == path.Base(v.Path)
		}); at >= 0 {
			image.content = &u.volumes[at]
		}
		all = append(all, image)
	}
	return all
}
