// Package fake implements hypervisor.Hypervisor in memory for tests, with a log of calls and faults on demand.
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

// Host is a fake host. It outlives connections to it.
type Host struct {
	lock       sync.Mutex
	facts      hypervisor.Facts
	pools      map[string]hypervisor.Pool
	networks   map[string]hypervisor.Network
	interfaces []string
	filters    []string
	devices    []hypervisor.PCIDevice
	volumes    map[hypervisor.VolumeRef]*volume
	// files are the files that were put into pools since their last refresh. unseen is the space of each pool that was
	// taken since then.
	files   map[hypervisor.VolumeRef]*volume
	unseen  map[string]int64
	domains map[string]*domain
	// consoleLogs are the paths of the files with output of guests.
	consoleLogs map[string]bool
	connections map[*connection]bool
	// observers are the channels that Observe has returned.
	observers   map[chan string]bool
	unreachable bool
	faults      []*Fault
	calls       []*Call
	hanging     int
	// frozen, if not nil, is closed when the host answers again. latency delays each answer. limit is the time limit of
	// calls on new connections.
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
	// holds has the disks that the guest doesn't release.
	holds map[hypervisor.VolumeRef]bool
	// pending says that the domain was redefined while it was active: the definition applies after it stops.
	pending bool
	// deaf says that the guest ignores shutdown requests.
	deaf bool
}

// NewHost returns a host with 16 CPUs, 64 GiB of memory including 4 GiB of huge pages of each size, all features, a
// pool of 1 TiB and a network, both called default, the network interfaces lo, eth0 and br0, and the network filter
// clean-traffic.
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

// SetReachable sets whether the host is reachable. An unreachable host loses all connections.
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

// Freeze delays all answers until thaw is called. Pending calls are processed then.
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

// SetLatency sets the delay of each answer.
func (h *Host) SetLatency(latency time.Duration) {
	h.lock.Lock()
	defer h.lock.Unlock()
	h.latency = latency
}

// SetCallLimit sets the time limit of calls on new connections, after which a connection is closed. The default is a
// minute.
func (h *Host) SetCallLimit(limit time.Duration) {
	h.lock.Lock()
	defer h.lock.Unlock()
	h.limit = limit
}

// Connections returns the number of open connections to the host.
func (h *Host) Connections() int {
	h.lock.Lock()
	defer h.lock.Unlock()
	return len(h.connections)
}

// SetFacts replaces the facts of the host. The UUID of the hypervisor stays unless facts has one.
func (h *Host) SetFacts(facts hypervisor.Facts) {
	h.lock.Lock()
	defer h.lock.Unlock()
	facts.UUID = cmp.Or(facts.UUID, h.facts.UUID)
	h.facts = facts
}

// UUID returns the UUID of the hypervisor, without a call.
func (h *Host) UUID() string {
	h.lock.Lock()
	defer h.lock.Unlock()
	return h.facts.UUID
}

// Pool returns the current state of a storage pool, without a call. It returns a zero Pool if the pool doesn't exist.
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

// PutFile puts a file into a storage pool. The host sees it after the pool is refreshed.
func (h *Host) PutFile(ref hypervisor.VolumeRef, content []byte) {
	h.lock.Lock()
	defer h.lock.Unlock()
	h.files[ref] = &volume{content: content, Volume: hypervisor.Volume{VolumeRef: ref, Path: "/fake/" + ref.String(), Format: hypervisor.FormatRaw,
		CapacityBytes: int64(len(content)), AllocatedBytes: int64(len(content))}}
	h.take(ref.Pool, int64(len(content)))
}

// take takes space in a pool, which the host sees after the pool is refreshed. The lock is held.
func (h *Host) take(name string, bytes int64) {
	pool, exists := h.pools[name]
	if !exists {
		panic("there is no storage pool " + name)
	}
	pool.AvailableBytes -= bytes
	h.pools[name] = pool
	h.unseen[name] += bytes
}

// refresh updates the host's view of a pool. The lock is held.
func (h *Host) refresh(name string) {
	delete(h.unseen, name)
	for ref, file := range h.files {
		if ref.Pool == name {
			h.volumes[ref] = file
			delete(h.files, ref)
		}
	}
}

// seen returns the host's view of a storage pool. The lock is held.
func (h *Host) seen(pool hypervisor.Pool) hypervisor.Pool {
	pool.AvailableBytes += h.unseen[pool.Name]
	return pool
}

// FillPool takes all free space of a storage pool, as files of others do, and returns a function that frees it. The
// host reports the change after the pool is refreshed. FillPool panics if the pool doesn't exist.
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

// SetInterfaces sets the network interfaces of the host. Without any the host can't list interfaces.
func (h *Host) SetInterfaces(names ...string) {
	h.lock.Lock()
	defer h.lock.Unlock()
	h.interfaces = names
}

// SetFilters sets the network filters of the host.
func (h *Host) SetFilters(names ...string) {
	h.lock.Lock()
	defer h.lock.Unlock()
	h.filters = names
}

// SetState changes the state of a domain, like its guest, a user or a crash. It panics if the domain doesn't exist.
func (h *Host) SetState(uuid string, state hypervisor.DomainState) {
	h.lock.Lock()
	defer h.lock.Unlock()
	h.domains[uuid].State = state
	h.notify(uuid)
}

// State returns the state of a domain, without a call, or "" if the domain doesn't exist.
func (h *Host) State(uuid string) hypervisor.DomainState {
	h.lock.Lock()
	defer h.lock.Unlock()
	if domain, exists := h.domains[uuid]; exists {
		return domain.State
	}
	return ""
}

// SetAddresses sets the addresses of a domain from a source. It panics if the domain doesn't exist.
func (h *Host) SetAddresses(uuid string, source hypervisor.AddressSource, addresses ...hypervisor.InterfaceAddress) {
	h.lock.Lock()
	defer h.lock.Unlock()
	h.domains[uuid].addresses[source] = addresses
}

// Lease gives a domain an address by DHCP, and reports whether the domain exists.
func (h *Host) Lease(uuid string, address hypervisor.InterfaceAddress) bool {
	h.lock.Lock()
	defer h.lock.Unlock()
	domain, exists := h.domains[uuid]
	if exists {
		domain.addresses[hypervisor.SourceLease] = []hypervisor.InterfaceAddress{address}
	}
	return exists
}

// HoldDisk sets whether the guest of a running domain refuses to release a disk. It panics if the domain doesn't exist.
func (h *Host) HoldDisk(uuid string, ref hypervisor.VolumeRef, hold bool) {
	h.lock.Lock()
	defer h.lock.Unlock()
	h.domains[uuid].holds[ref] = hold
}

// IgnoreShutdown sets whether the guest of a domain ignores shutdown requests. It panics if the domain doesn't exist.
func (h *Host) IgnoreShutdown(uuid string, ignore bool) {
	h.lock.Lock()
	defer h.lock.Unlock()
	h.domains[uuid].deaf = ignore
}

// RemoveDomain removes a domain, like a user of the host.
func (h *Host) RemoveDomain(uuid string) {
	h.lock.Lock()
	defer h.lock.Unlock()
	delete(h.domains, uuid)
	h.notify(uuid)
}

// DomainXML returns the XML of a domain's last definition, and whether it starts with its host. It returns "" if the
// domain doesn't exist.
func (h *Host) DomainXML(uuid string) (xml string, autostart bool) {
	h.lock.Lock()
	defer h.lock.Unlock()
	if domain, exists := h.domains[uuid]; exists {
		return domain.xml, domain.autostart
	}
	return "", false
}

// Content returns the uploaded content of a volume, or nil.
func (h *Host) Content(ref hypervisor.VolumeRef) []byte {
	h.lock.Lock()
	defer h.lock.Unlock()
	if volume, exists := h.volumes[ref]; exists {
		return slices.Clone(volume.content)
	}
	return nil
}

// Backing returns the path of an overlay's backing volume, or "".
func (h *Host) Backing(ref hypervisor.VolumeRef) string {
	h.lock.Lock()
	defer h.lock.Unlock()
	if volume, exists := h.volumes[ref]; exists {
		return volume.BackingPath
	}
	return ""
}

// Left returns the names of all volumes and the UUIDs of all domains, ordered, for tests that nothing is left.
func (h *Host) Left() (volumes []hypervisor.VolumeRef, domains []string) {
	h.lock.Lock()
	defer h.lock.Unlock()
	volumes = slices.SortedFunc(maps.Keys(h.volumes), compareRefs)
	return volumes, slices.Sorted(maps.Keys(h.domains))
}

// ConsoleLogs returns the paths of the files with output of guests, ordered.
func (h *Host) ConsoleLogs() []string {
	h.lock.Lock()
	defer h.lock.Unlock()
	return slices.Sorted(maps.Keys(h.consoleLogs))
}

// notify notifies all watches of a change of a domain. The lock is held.
func (h *Host) notify(uuid string) {
	for c := range h.connections {
		for news := range c.watches {
			news <- uuid // never blocks: hypervisor.Coalesce reads
		}
	}
	for news := range h.observers {
		news <- uuid
	}
}

// Observe returns a channel with the UUIDs of all domains, and then of changed ones, until the context ends. It isn't a
// call, and works for unreachable hosts.
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
