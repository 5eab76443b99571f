package orphans

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// contents are what is on a host, as far as it matters here.
type contents struct {
	domains map[string]hypervisor.Domain
	volumes map[hypervisor.VolumeRef]hypervisor.Volume
}

// orphan is what is left on a host of one LibvirtMachine that doesn't exist.
type orphan struct {
	uuid string
	// domain is nil when only volumes are left.
	domain *hypervisor.Domain
	// volumes are in the order in which they are to be deleted: the seed with its secrets first, and what
	// is an overlay before what it is an overlay of.
	volumes []hypervisor.VolumeRef
}

// known are the UUIDs of the LibvirtMachines that exist.
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

// volumeName is how the controller of LibvirtMachines names volumes: by the machine's UUID, whose it is
// (hypervisor.VolumePrefix), and what the volume is.
var volumeName = regexp.MustCompile(`^([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})-(?:[0-9a-f]{16}-)?(?:seed|root|root\.[0-9a-f]{12}|disk-.+)$`)

// find returns what is ours and has no machine, ordered by UUID. A domain is ours by the owner in its
// metadata, and a volume by its name. A volume that has the UUID of a domain which isn't ours is its.
func find(on contents, machines known) []orphan {
	found := map[string]*orphan{}
	for uuid, domain := range on.domains {
		if domain.Owner != nil && !machines[uuid] {
			found[uuid] = &orphan{uuid: uuid, domain: &domain}
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
		if found[uuid] == nil {
			found[uuid] = &orphan{uuid: uuid}
		}
		found[uuid].volumes = append(found[uuid].volumes, ref)
	}
	orphans := make([]orphan, 0, len(found))
	for _, uuid := range slices.Sorted(maps.Keys(found)) {
		o := found[uuid]
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

// usedBy says what else on the host uses a volume of an orphan: a domain has it as a disk, or a volume is
// an overlay of it. Empty when nothing does.
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

// String names an orphan for people.
func (o *orphan) String() string {
	if o.domain == nil {
		return fmt.Sprintf("%d volumes of %s", len(o.volumes), o.uuid)
	}
	return fmt.Sprintf("domain %s of LibvirtMachine %s/%s with %d volumes", o.domain.Name, o.domain.Owner.Namespace, o.domain.Owner.Name, len(o.volumes))
}
