// Package fake pretends to be a libvirt host, in memory, for tests of what uses hypervisor.Hypervisor.
// It keeps a log of calls and lets things go wrong on demand.
package fake

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// Host is a pretended host. It lives on when connections to it are lost.
type Host struct {
	lock       sync.Mutex
	facts      hypervisor.Facts
	pools      map[string]hypervisor.Pool
	networks   map[string]hypervisor.Network
	interfaces []string
	filters    []string
	devices    []hypervisor.PCIDevice
	volumes    map[hypervisor.VolumeRef]*volume
	// files are those that somebody has put into pools since they were last refreshed, and unseen how much of each
	// pool others have taken since.
	files   map[hypervisor.VolumeRef]*volume
	unseen  map[string]int64
	domains map[string]*domain
	// consoleLogs are the paths of files that guests have written to.
	consoleLogs map[string]bool
	connections map[*connection]bool
	// observers are the channels that Observe has given.
	observers   map[chan string]bool
	unreachable bool
	faults      []*Fault
	calls       []*Call
	hanging     int
	// frozen, if not nil, is closed when the host answers again. latency is how late each answer comes, and limit how
	// long calls of new connections may take.
	frozen         chan struct{}
	latency, limit time.Duration
}

type volume struct {
	hypervisor.Volume
	content []byte
}

type domain struct {
	hypervisor.Domain
	xml       string
	autostart bool
	addresses map[hypervisor.AddressSource][]hypervisor.InterfaceAddress
	// holds are disks that the guest doesn't let go of.
	holds map[hypervisor.VolumeRef]bool
	// pending says that the domain was defined anew while it ran: it is like that when it has ended.
	pending bool
	// deaf says that the guest ignores that it is asked to shut down.
	deaf bool
}

// NewHost returns a host with 16 CPUs, 64 GiB of memory of which 4 GiB are huge pages of each size, all
// features, a pool of 1 TiB and a network, both called default, the network interfaces lo, eth0 and br0, and the
// network filter clean-traffic.
func NewHost() *Host {
	return &Host{
		facts: hypervisor.Facts{
			UUID: uuid.NewString(), LibvirtVersion: "9.0.0", Architecture: "amd64", CPUs: 16, MemoryBytes: 64 << 30,
			HugepageBytes: map[infrav1.HugepageSize]int64{infrav1.Hugepages2Mi: 4 << 30, infrav1.Hugepages1Gi: 4 << 30},
			Features: []string{
				infrav1.HostFeatureBIOS, string(infrav1.HostFeatureHugepagesPrefix + infrav1.Hugepages1Gi), string(infrav1.HostFeatureHugepagesPrefix + infrav1.Hugepages2Mi), infrav1.HostFeatureKVM,
				infrav1.HostFeatureSecureBoot, infrav1.HostFeatureTPM, infrav1.HostFeatureUEFI,
			},
		},
		pools:       map[string]hypervisor.Pool{"default": {Name: "default", Active: true, CapacityBytes: 1 << 40, AvailableBytes: 1 << 40, Type: "dir", Folder: "/fake/default"}},
		networks:    map[string]hypervisor.Network{"default": {Name: "default", Active: true, LinuxBridge: true}},
		interfaces:  []string{"lo", "eth0", "br0"},
		filters:     []string{"clean-traffic"},
		volumes:     map[hypervisor.VolumeRef]*volume{},
		files:       map[hypervisor.VolumeRef]*volume{},
		unseen:      map[string]int64{},
		domains:     map[string]*domain{},
		consoleLogs: map[string]bool{},
		connections: map[*connection]bool{},
		observers:   map[chan string]bool{},
		limit:       callLimit,
	}
}

// Connect opens a connection.
func (h *Host) Connect(ctx context.Context) (hypervisor.Hypervisor, error) {
	h.lock.Lock()
	c := &connection{host: h, lost: make(chan struct{}), limit: h.limit}
	h.connections[c] = true
	h.lock.Unlock()
	_, err := do(ctx, c, "connecting to the host", Connect, "", func() (struct{}, error) { return struct{}{}, nil })
	if err != nil {
		c.lose()
		return nil, err
	}
	return c, nil
}

// SetReachable says whether the host can be reached. When it no longer can, all connections are lost.
func (h *Host) SetReachable(reachable bool) {
	h.lock.Lock()
	h.unreachable = !reachable
	connections := slices.Collect(maps.Keys(h.connections))
	h.lock.Unlock()
	if !reachable {
		for _, c := range connections {
			c.lose()
		}
	}
}

// Freeze makes the host hold back all answers, until thaw is called. What it was asked for is done then.
func (h *Host) Freeze() (thaw func()) {
	frozen := make(chan struct{})
	h.lock.Lock()
	defer h.lock.Unlock()
	h.frozen = frozen
	return sync.OnceFunc(func() {
		h.lock.Lock()
		defer h.lock.Unlock()
		h.frozen = nil
		close(frozen)
	})
}

// SetLatency says how late each answer comes.
func (h *Host) SetLatency(latency time.Duration) {
	h.lock.Lock()
	defer h.lock.Unlock()
	h.latency = latency
}

// SetCallLimit says how long calls of new connections may take before the connection is given up. It is a minute
// when it isn't set.
func (h *Host) SetCallLimit(limit time.Duration) {
	h.lock.Lock()
	defer h.lock.Unlock()
	h.limit = limit
}

// Connections returns how many connections to the host are open.
func (h *Host) Connections() int {
	h.lock.Lock()
	defer h.lock.Unlock()
	return len(h.connections)
}

// SetFacts replaces what the host has and can do. It stays the hypervisor that it is, unless the facts
// have a UUID.
func (h *Host) SetFacts(facts hypervisor.Facts) {
	h.lock.Lock()
	defer h.lock.Unlock()
	facts.UUID = cmp.Or(facts.UUID, h.facts.UUID)
	h.facts = facts
}

// UUID says which hypervisor the host is, without a call.
func (h *Host) UUID() string {
	h.lock.Lock()
	defer h.lock.Unlock()
	return h.facts.UUID
}

// Pool returns a storage pool as it is, without a call. Zero when there is no such pool.
func (h *Host) Pool(name string) hypervisor.Pool {
	h.lock.Lock()
	defer h.lock.Unlock()
	return h.pools[name]
}

// SetPool adds or replaces a storage pool.
func (h *Host) SetPool(pool hypervisor.Pool) {
	h.lock.Lock()
	defer h.lock.Unlock()
	h.pools[pool.Name] = pool
}

// PutFile puts a file into a storage pool, as somebody does by hand: the host knows it once the pool is refreshed.
func (h *Host) PutFile(ref hypervisor.VolumeRef, content []byte) {
	h.lock.Lock()
	defer h.lock.Unlock()
	h.files[ref] = &volume{content: content, Volume: hypervisor.Volume{VolumeRef: ref, Path: "/fake/" + ref.String(), Format: hypervisor.FormatRaw,
		CapacityBytes: int64(len(content)), AllocatedBytes: int64(len(content))}}
	h.take(ref.Pool, int64(len(content)))
}

// take takes room in a pool that the host doesn't know to be taken until the pool is refreshed. The lock is held.
func (h *Host) take(name string, bytes int64) {
	pool, there := h.pools[name]
	if !there {
		panic("there is no storage pool " + name)
	}
	pool.AvailableBytes -= bytes
	h.pools[name] = pool
	h.unseen[name] += bytes
}

// refresh lets the host see what is in a pool. The lock is held.
func (h *Host) refresh(name string) {
	delete(h.unseen, name)
	for ref, file := range h.files {
		if ref.Pool == name {
			h.volumes[ref] = file
			delete(h.files, ref)
		}
	}
}

// seen is a storage pool as the host knows it. The lock is held.
func (h *Host) seen(pool hypervisor.Pool) hypervisor.Pool {
	pool.AvailableBytes += h.unseen[pool.Name]
	return pool
}

// FillPool takes all that is free in a storage pool, as files of others do, and returns what gives it back. What the
// host says to be free changes when the pool is refreshed. It panics when there is no such pool.
func (h *Host) FillPool(name string) func() {
	h.lock.Lock()
	defer h.lock.Unlock()
	free := h.pools[name].AvailableBytes
	h.take(name, free)
	return func() {
		h.lock.Lock()
		defer h.lock.Unlock()
		h.take(name, -free)
	}
}

// SetNetwork adds or replaces a network.
func (h *Host) SetNetwork(network hypervisor.Network) {
	h.lock.Lock()
	defer h.lock.Unlock()
	h.networks[network.Name] = network
}

// SetInterfaces says which network interfaces the host has. It can't tell when there is none.
func (h *Host) SetInterfaces(names ...string) {
	h.lock.Lock()
	defer h.lock.Unlock()
	h.interfaces = names
}

// SetFilters says which network filters the host has.
func (h *Host) SetFilters(names ...string) {
	h.lock.Lock()
	defer h.lock.Unlock()
	h.filters = names
}

// SetState changes the state of a domain, as its guest, its user or a crash would. It panics when
// there is no such domain.
func (h *Host) SetState(uuid string, state hypervisor.DomainState) {
	h.lock.Lock()
	defer h.lock.Unlock()
	h.domains[uuid].State = state
	h.notify(uuid)
}

// State returns the state of a domain, without a call. Empty when there is no such domain.
func (h *Host) State(uuid string) hypervisor.DomainState {
	h.lock.Lock()
	defer h.lock.Unlock()
	if domain, there := h.domains[uuid]; there {
		return domain.State
	}
	return ""
}

// SetAddresses says which addresses a source knows of a domain. It panics when there is no such domain.
func (h *Host) SetAddresses(uuid string, source hypervisor.AddressSource, addresses ...hypervisor.InterfaceAddress) {
	h.lock.Lock()
	defer h.lock.Unlock()
	h.domains[uuid].addresses[source] = addresses
}

// Lease gives a domain an address by DHCP, if there is such a domain, and says whether there is.
func (h *Host) Lease(uuid string, address hypervisor.InterfaceAddress) bool {
	h.lock.Lock()
	defer h.lock.Unlock()
	domain, there := h.domains[uuid]
	if there {
		domain.addresses[hypervisor.SourceLease] = []hypervisor.InterfaceAddress{address}
	}
	return there
}

// HoldDisk says whether the guest of a running domain keeps a disk that is to be detached. It panics
// when there is no such domain.
func (h *Host) HoldDisk(uuid string, ref hypervisor.VolumeRef, hold bool) {
	h.lock.Lock()
	defer h.lock.Unlock()
	h.domains[uuid].holds[ref] = hold
}

// IgnoreShutdown lets the guest of a domain ignore that it is asked to shut down. It panics when there is
// no such domain.
func (h *Host) IgnoreShutdown(uuid string, ignore bool) {
	h.lock.Lock()
	defer h.lock.Unlock()
	h.domains[uuid].deaf = ignore
}

// RemoveDomain makes a domain disappear, as by hand.
func (h *Host) RemoveDomain(uuid string) {
	h.lock.Lock()
	defer h.lock.Unlock()
	delete(h.domains, uuid)
	h.notify(uuid)
}

// DomainXML returns the XML that a domain was last defined with, and whether it starts with its host.
// Empty when there is no such domain.
func (h *Host) DomainXML(uuid string) (xml string, autostart bool) {
	h.lock.Lock()
	defer h.lock.Unlock()
	if domain, there := h.domains[uuid]; there {
		return domain.xml, domain.autostart
	}
	return "", false
}

// Content returns what was uploaded to a volume, or nil.
func (h *Host) Content(ref hypervisor.VolumeRef) []byte {
	h.lock.Lock()
	defer h.lock.Unlock()
	if volume, there := h.volumes[ref]; there {
		return slices.Clone(volume.content)
	}
	return nil
}

// Backing returns the path of the volume that a volume is an overlay of, or nothing.
func (h *Host) Backing(ref hypervisor.VolumeRef) string {
	h.lock.Lock()
	defer h.lock.Unlock()
	if volume, there := h.volumes[ref]; there {
		return volume.BackingPath
	}
	return ""
}

// Left returns the names of all volumes and the UUIDs of all domains, ordered: what tests look at to
// see that nothing was left behind.
func (h *Host) Left() (volumes []hypervisor.VolumeRef, domains []string) {
	h.lock.Lock()
	defer h.lock.Unlock()
	volumes = slices.SortedFunc(maps.Keys(h.volumes), compareRefs)
	return volumes, slices.Sorted(maps.Keys(h.domains))
}

// ConsoleLogs returns the paths of the files that guests have written to their consoles, ordered.
func (h *Host) ConsoleLogs() []string {
	h.lock.Lock()
	defer h.lock.Unlock()
	return slices.Sorted(maps.Keys(h.consoleLogs))
}

// notify tells all watches that something happened to a domain. The lock is held.
func (h *Host) notify(uuid string) {
	for c := range h.connections {
		for news := range c.watches {
			news <- uuid // never waits: hypervisor.Coalesce reads
		}
	}
	for news := range h.observers {
		news <- uuid
	}
}

// Observe gives the UUIDs of all domains, and from then on of those that something happens to, until
// the context ends: what goes on inside of a host, without a call and whether it can be reached or not.
func (h *Host) Observe(ctx context.Context) <-chan string {
	news := make(chan string)
	out := hypervisor.Coalesce(news)
	h.lock.Lock()
	defer h.lock.Unlock()
	h.observers[news] = true
	for uuid := range h.domains {
		news <- uuid
	}
	context.AfterFunc(ctx, func() {
		h.lock.Lock()
		defer h.lock.Unlock()
		delete(h.observers, news)
		close(news)
	})
	return out
}
