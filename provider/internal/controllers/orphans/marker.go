package orphans

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// markerPrefix begins the names of the volumes by which management clusters that share a host know of
// each other. The UID of the management cluster's namespace kube-system follows.
const markerPrefix = "caplv-manager-"

// markerBytes is how large a marker is. Nothing is written to it.
const markerBytes = 4096

// keepMarker sees to it that this management cluster's marker is in all pools, or in none. It has one
// where it has machines, and where it may delete something.
//
// A marker that was made shows when all of the host is read again, which is done every so often. Until then
// it isn't made once more: hosts are looked at each time that something of them changes.
func (r *Reconciler) keepMarker(ctx context.Context, connection hypervisor.Hypervisor, host, self string, pools []string, on contents, taken time.Time, wanted bool) error {
	var errs []error
	for _, pool := range pools {
		ref := hypervisor.VolumeRef{Pool: pool, Name: markerPrefix + self}
		_, there := on.volumes[ref]
		var err error
		switch {
		case wanted && !there:
			if created, known := r.marked.Load(markerPool{host, pool}); known && created.(time.Time).After(taken) {
				continue
			}
			now := r.time()
			_, err = connection.CreateVolume(ctx, hypervisor.VolumeSpec{VolumeRef: ref, Format: hypervisor.FormatRaw, CapacityBytes: markerBytes})
			if errors.Is(err, hypervisor.ErrAlreadyExists) {
				err = nil // what was seen is older
			}
			if err == nil {
				r.marked.Store(markerPool{host, pool}, now)
			}
		case !wanted && there:
			err = connection.DeleteVolume(ctx, ref)
			if errors.Is(err, hypervisor.ErrNotFound) {
				err = nil
			}
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// markerPool is a storage pool in which this manager has created its marker.
type markerPool struct{ host, pool string }

// forgetMarkers removes the creation times of the markers on a deleted host.
func (r *Reconciler) forgetMarkers(host string) {
	r.marked.Range(func(key, _ any) bool {
		if key.(markerPool).host == host {
			r.marked.Delete(key)
		}
		return true
	})
}

// markers returns whether this management cluster's own marker is in each of the pools, and those of
// others in any, sorted.
func markers(self string, pools []string, on contents) (own bool, others []string) {
	own = len(pools) > 0
	for _, pool := range pools {
		_, there := on.volumes[hypervisor.VolumeRef{Pool: pool, Name: markerPrefix + self}]
		own = own && there
	}
	for ref := range on.volumes {
		if manager, is := strings.CutPrefix(ref.Name, markerPrefix); is && manager != self {
			others = append(others, ref.String())
		}
	}
	slices.Sort(others)
	return own, others
}
