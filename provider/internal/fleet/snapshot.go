package fleet

import (
	"maps"
	"path"
	"reflect"
	"slices"
	"time"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// Snapshot is the last known state of a host. A published snapshot never changes. While a host is unreachable, the
// last state before stays.
type Snapshot struct {
	// Version is different for each published snapshot of any host, and 0 for none.
	Version uint64
	// Taken is the time of the last complete reading, or zero.
	Taken time.Time
	// Reachable says that there is a connection. It may have been lost since.
	Reachable bool
	// Err is why there is no connection, without credentials. It is nil until the first attempt has ended.
	Err   error
	Facts hypervisor.Facts
	// Pools and Networks have an entry for each name in the target.
	Pools    map[string]Pool
	Networks map[string]Network
	// Interfaces has the bridges and devices in the target, and Filters the network filters.
	Interfaces, Filters map[string]Presence
	// Devices has the PCI devices, if the target wants them. DevicesErr is why they are unknown.
	Devices    []hypervisor.PCIDevice
	DevicesErr error
	// Domains has all domains by UUID, including foreign ones.
	Domains map[string]hypervisor.Domain
}

// Snapshots has the snapshots of hosts. Fleet implements it.
type Snapshots interface {
	// Snapshot returns the last snapshot of a host, and false if there is no session with it.
	Snapshot(host string) (Snapshot, bool)
}

// Images lists the volumes of a pool that machines may start from, sorted. It excludes volumes with a name of this
// provider and disks of domains.
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

// PoolAt returns the name of the target's storage pool with a folder of the host, or nothing.
func (s Snapshot) PoolAt(folder string) string {
	for _, name := range slices.Sorted(maps.Keys(s.Pools)) {
		if at := s.Pools[name].Folder; at != "" && folder != "" && path.Clean(at) == path.Clean(folder) {
			return name
		}
	}
	return ""
}

// Pool is the last known state of a storage pool.
type Pool struct {
	hypervisor.Pool
	// Volumes of the pool by name. It is empty for an inactive pool.
	Volumes map[string]hypervisor.Volume
	// Err is why the pool is unknown: hypervisor.ErrNotFound if it doesn't exist.
	Err error
}

// Network is the last known state of a libvirt network.
type Network struct {
	hypervisor.Network
	// Err is why the network is unknown: hypervisor.ErrNotFound if it doesn't exist.
	Err error
}

// Presence says whether something exists on a host.
type Presence struct {
	// There says that it exists.
	There bool
	// Err is why the presence is unknown: hypervisor.ErrUnsupported if the host can't list these objects.
	Err error
}

// withDomain returns a copy of the snapshot with a domain, or without it if domain is nil.
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

// change has the differences between two snapshots for subscribers.
type change struct {
	// reachability says that the connection differs, and host that anything but domains of this provider does.
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
		old, exists := before.Domains[uuid]
		if exists && !returned && reflect.DeepEqual(old, domain) {
			continue
		}
		c.add(domain)
		if exists && old.Owner != nil && (domain.Owner == nil || *domain.Owner != *old.Owner) {
			c.add(old)
		}
	}
	for uuid, domain := range before.Domains {
		if _, exists := after.Domains[uuid]; !exists {
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

// text returns the text of an error, to compare errors.
func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
