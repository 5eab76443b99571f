package orphans

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// markerPrefix begins the names of the volumes by which management clusters that share a host know of
// each other. The UID of the management cluster's namespace kube-system follows.
const markerPrefix = "caplv-manager-"

// markerBytes is how large a marker is. Nothing is written to it.
const markerBytes = 4096

// keepMarker sees to it that this management cluster's marker is in all pools, or in none. It has one
// where it has machines, and where it may delete something.
func keepMarker(ctx context.Context, connection hypervisor.Hypervisor, self string, pools []string, on contents, wanted bool) error {
	var errs []error
	for _, pool := range pools {
		ref := hypervisor.VolumeRef{Pool: pool, Name: markerPrefix + self}
		_, there := on.volumes[ref]
		var err error
		switch {
		case wanted && !there:
			_, err = connection.CreateVolume(ctx, hypervisor.VolumeSpec{VolumeRef: ref, Format: hypervisor.FormatRaw, CapacityBytes: markerBytes})
			if errors.Is(err, hypervisor.ErrAlreadyExists) {
				err = nil // what was seen is older
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
