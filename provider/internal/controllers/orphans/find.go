package orphans

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// contents has the domains and volumes of a host.
type contents struct {
	domains map[string]hypervisor.Domain
	volumes map[hypervisor.VolumeRef]hypervisor.Volume
}

// orphan has the objects of a missing LibvirtMachine on a host.
type orphan struct {
	uuid string
	// domain is nil if only volumes are left.
	domain *hypervisor.Domain
	// volumes are in the order of their deletion: the seed with its secrets first, and overlays before their backing
	// volumes.
	volumes []hypervisor.VolumeRef
}

// known has the UUIDs of the existing LibvirtMachines.
type known map[string]bool

func knownOf(machines []infrav1.LibvirtMachine) known {
	all := known{}
	for i := range machines {
		if uuid, ours := strings.CutPrefix(machines[i].Spec.ProviderID, infrav1.ProviderIDPrefix); ours {
			all[uuid] = true
		}
	}
	return all
}

// volumeName matches the volumes of LibvirtMachines: UUID, hash of the name (hypervisor.VolumePrefix), and purpose.
var volumeName = regexp.MustCompile(`^([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})-(?:[0-9a-f]{16}-)?(?:seed|root|root\.[0-9a-f]{12}|disk-.+)$`)

// find returns the orphans by UUID. A domain belongs to this provider if its metadata has an owner, and a volume by its
// name, unless a foreign domain has its UUID.
func find(on contents, machines known) []orphan {
	byUUID := map[string]*orphan{}
	for uuid, domain := range on.domains {
		if domain.Owner != nil && !machines[uuid] {
			byUUID[uuid] = &orphan{uuid: uuid, domain: &domain}
		}
	}
	for ref := range on.volumes {
		name := volumeName.FindStringSubmatch(ref.Name)
		if name == nil || machines[name[1]] {
			continue
		}
		uuid := name[1]
		if domain, there := on.domains[uuid]; there && domain.Owner == nil {
			continue
		}
		if byUUID[uuid] == nil {
			byUUID[uuid] = &orphan{uuid: uuid}
		}
		byUUID[uuid].volumes = append(byUUID[uuid].volumes, ref)
	}
	orphans := make([]orphan, 0, len(byUUID))
	for _, uuid := range slices.Sorted(maps.Keys(byUUID)) {
		o := byUUID[uuid]
		slices.SortFunc(o.volumes, func(a, b hypervisor.VolumeRef) int {
			return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Name, b.Name))
		})
		orphans = append(orphans, *o)
	}
	return orphans
}

func rank(ref hypervisor.VolumeRef) int {
	switch {
	case strings.HasSuffix(ref.Name, "-seed"):
		return 0
	case strings.HasSuffix(ref.Name, "-root"):
		return 1
	}
	return 2
}

// usedBy returns the other object on the host that uses a volume of an orphan, if any: a domain with the disk, or an
// overlay.
func (o *orphan) usedBy(on contents) string {
	own, paths := map[hypervisor.VolumeRef]bool{}, map[string]hypervisor.VolumeRef{}
	for _, ref := range o.volumes {
		own[ref] = true
		if path := on.volumes[ref].Path; path != "" {
			paths[path] = ref
		}
	}
	for _, uuid := range slices.Sorted(maps.Keys(on.domains)) {
		for _, disk := range on.domains[uuid].Disks {
			if uuid != o.uuid && own[disk] {
				return fmt.Sprintf("the domain %s uses its volume %s", on.domains[uuid].Name, disk)
			}
		}
	}
	for ref, volume := range on.volumes {
		if below, is := paths[volume.BackingPath]; is && !own[ref] {
			return fmt.Sprintf("the volume %s is an overlay of its volume %s", ref, below)
		}
	}
	return ""
}

// String describes an orphan in messages.
func (o *orphan) String() string {
	if o.domain == nil {
		return fmt.Sprintf("%d volumes of %s", len(o.volumes), o.uuid)
	}
	return fmt.Sprintf("domain %s of LibvirtMachine %s/%s with %d volumes", o.domain.Name, o.domain.Owner.Namespace, o.domain.Owner.Name, len(o.volumes))
}

// markerPrefix is the prefix of the volumes that mark the hosts of a management cluster. The UID of its namespace
// kube-system follows.
const markerPrefix = "caplv-manager-"

const markerBytes = 4096

// keepMarker creates this management cluster's marker in all pools, or deletes it from all. The marker is needed if the
// cluster has machines on the host or may delete orphans.
//
// A new marker is in the snapshot after the next complete read. Until then it isn't created again.
func (v *visit) keepMarker(ctx context.Context, on contents, taken time.Time, wanted bool) error {
	var errs []error
	for _, pool := range v.pools {
		ref := hypervisor.VolumeRef{Pool: pool, Name: markerPrefix + v.self}
		place := markerPool{v.host.Name, pool}
		_, there := on.volumes[ref]
		var err error
		switch {
		case wanted && !there:
			if created, known := v.marked.Load(place); known && created.(time.Time).After(taken) {
				continue
			}
			now := v.time()
			_, err = v.connection.CreateVolume(ctx, hypervisor.VolumeSpec{VolumeRef: ref, Format: hypervisor.FormatRaw, CapacityBytes: markerBytes})
			if errors.Is(err, hypervisor.ErrAlreadyExists) {
				err = nil // the snapshot is older
			}
			if err == nil {
				v.marked.Store(place, now)
			}
		case !wanted && there:
			err = hypervisor.IgnoreNotFound(v.connection.DeleteVolume(ctx, ref))
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

// markers reports whether this management cluster's marker is in all pools, and returns those of others.
func (v *visit) markers(on contents) (own bool, others []string) {
	own = len(v.pools) > 0
	for _, pool := range v.pools {
		_, there := on.volumes[hypervisor.VolumeRef{Pool: pool, Name: markerPrefix + v.self}]
		own = own && there
	}
	for ref := range on.volumes {
		if manager, is := strings.CutPrefix(ref.Name, markerPrefix); is && manager != v.self {
			others = append(others, ref.String())
		}
	}
	slices.Sort(others)
	return own, others
}
