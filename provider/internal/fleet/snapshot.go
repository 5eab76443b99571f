package fleet

import (
	"maps"
	"path"
	"reflect"
	"slices"
	"time"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// Snapshot is what was last seen of a host. It is never changed once it is published, and readers must
// not change it either. While a host can't be reached it is what was seen before.
type Snapshot struct {
	// Version is another one for each snapshot that is published, of whatever host. 0 for none.
	Version uint64
	// Taken is when all of the host was last read. Zero when it never was.
	Taken time.Time
	// Reachable reports whether there is a connection. It may have been lost since.
	Reachable bool
	// Err says why there is none, without credentials. nil also when the first try hasn't ended.
	Err error
	// Facts are what the host has and can do.
	Facts hypervisor.Facts
	// Pools and Networks are those that the target names, by name, each with an entry.
	Pools    map[string]Pool
	Networks map[string]Network
	// Interfaces are the bridges and devices that the target names, and Filters the network filters, by name, each
	// with an entry.
	Interfaces, Filters map[string]Presence
	// Devices are the PCI devices of the host, if the target wants them, and DevicesErr says why nothing is
	// known of them.
	Devices    []hypervisor.PCIDevice
	DevicesErr error
	// Domains are all domains of the host by UUID, those of others too.
	Domains map[string]hypervisor.Domain
}

// Images lists the volumes in a pool that machines may start from, ordered by name: none that has a name of the
// provider's own, and none that a domain has as a disk.
func (s Snapshot) Images(pool string) []string {
	volumes := maps.Clone(s.Pools[pool].Volumes)
	maps.DeleteFunc(volumes, func(name string, _ hypervisor.Volume) bool { return hypervisor.IsOwnName(name) })
	names := map[string]string{} // by path
	for name, volume := range volumes {
		names[volume.Path] = name
	}
	for _, domain := range s.Domains {
		for _, disk := range domain.Disks {
			if disk.Pool == pool {
				delete(volumes, disk.Name)
			}
		}
		for _, file := range domain.DiskFiles {
			delete(volumes, names[file])
		}
	}
	return slices.Sorted(maps.Keys(volumes))
}

// PoolAt returns the name of a storage pool that has a folder of the host, or nothing. Only those that the target names
// are known.
func (s Snapshot) PoolAt(folder string) string {
	for _, name := range slices.Sorted(maps.Keys(s.Pools)) {
		if at := s.Pools[name].Folder; at != "" && folder != "" && path.Clean(at) == path.Clean(folder) {
			return name
		}
	}
	return ""
}

// Pool is what was last seen of a storage pool.
type Pool struct {
	hypervisor.Pool
	// Volumes of the pool by name. Empty when the pool isn't active.
	Volumes map[string]hypervisor.Volume
	// Err says why nothing is known of the pool: hypervisor.ErrNotFound when it isn't there.
	Err error
}

// Network is what was last seen of a libvirt network.
type Network struct {
	hypervisor.Network
	// Err says why nothing is known of the network: hypervisor.ErrNotFound when it isn't there.
	Err error
}

// Presence is whether the host has something.
type Presence struct {
	// There says that the host has it.
	There bool
	// Err says why that isn't known: hypervisor.ErrUnsupported when the host can't tell.
	Err error
}

// withDomain returns a copy of the snapshot with a domain, or without it when it is nil.
func (s Snapshot) withDomain(uuid string, domain *hypervisor.Domain) Snapshot {
	domains := make(map[string]hypervisor.Domain, len(s.Domains)+1)
	maps.Copy(domains, s.Domains)
	delete(domains, uuid)
	if domain != nil {
		domains[uuid] = *domain
	}
	s.Domains = domains
	return s
}

// change is what differs between two snapshots, as far as anybody wants to know.
type change struct {
	// reachability of the host, and anything of the host besides domains of ours.
	reachability, host bool
	// owners of domains that have changed.
	owners []hypervisor.Owner
}

func compare(before, after Snapshot) change {
	c := change{reachability: before.Reachable != after.Reachable}
	c.host = c.reachability || text(before.Err) != text(after.Err) || before.Taken.IsZero() != after.Taken.IsZero() ||
		!reflect.DeepEqual(before.Facts, after.Facts) || !samePools(before.Pools, after.Pools) || !sameNetworks(before.Networks, after.Networks) ||
		!samePresences(before.Interfaces, after.Interfaces) || !samePresences(before.Filters, after.Filters) || !reflect.DeepEqual(before.Devices, after.Devices) ||
		text(before.DevicesErr) != text(after.DevicesErr)
	returned := after.Reachable && c.reachability
	for uuid, domain := range after.Domains {
		old, there := before.Domains[uuid]
		if there && !returned && reflect.DeepEqual(old, domain) {
			continue
		}
		c.add(domain)
		if there && old.Owner != nil && (domain.Owner == nil || *domain.Owner != *old.Owner) {
			c.add(old)
		}
	}
	for uuid, domain := range before.Domains {
		if _, there := after.Domains[uuid]; !there {
			c.add(domain)
		}
	}
	return c
}

func (c *change) add(domain hypervisor.Domain) {
	if domain.Owner == nil {
		c.host = true
		return
	}
	c.owners = append(c.owners, *domain.Owner)
}

func samePools(a, b map[string]Pool) bool {
	return maps.EqualFunc(a, b, func(a, b Pool) bool {
		return a.Pool == b.Pool && text(a.Err) == text(b.Err) && maps.Equal(a.Volumes, b.Volumes)
	})
}

func sameNetworks(a, b map[string]Network) bool {
	return maps.EqualFunc(a, b, func(a, b Network) bool { return a.Network == b.Network && text(a.Err) == text(b.Err) })
}

func samePresences(a, b map[string]Presence) bool {
	return maps.EqualFunc(a, b, func(a, b Presence) bool { return a.There == b.There && text(a.Err) == text(b.Err) })
}

// text compares errors by what they say: each is a new value.
func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
