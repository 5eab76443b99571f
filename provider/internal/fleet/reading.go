package fleet

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// limited limits the time of a call.
func limited[T any](ctx context.Context, s *session, call func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, s.fleet.options.CallLimit)
	defer cancel()
	return call(ctx)
}

// beginReading returns the number of a reading. Call it before the first call.
func (s *session) beginReading() uint64 {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.begun++
	return s.begun
}

// readDomain reads and publishes a domain.
func (s *session) readDomain(ctx context.Context, connection hypervisor.Hypervisor, uuid string) error {
	number := s.beginReading()
	read, err := limited(ctx, s, func(ctx context.Context) (hypervisor.Domain, error) { return connection.Domain(ctx, uuid) })
	domain := &read
	if errors.Is(err, hypervisor.ErrNotFound) {
		domain, err = nil, nil
	}
	if err != nil {
		return err
	}
	s.publishDomain(number, uuid, domain)
	return nil
}

// publishDomain publishes a reading of a domain, which is nil if it doesn't exist.
func (s *session) publishDomain(number uint64, uuid string, domain *hypervisor.Domain) {
	s.publish(func(snapshot Snapshot) Snapshot {
		if number < max(s.listed, s.read[uuid]) {
			return snapshot // the domain was read later
		}
		s.read[uuid] = number
		return snapshot.withDomain(uuid, domain)
	})
}

// readAllButDomains reads the rest of a snapshot. A missing or unreadable pool or network is part of the result. An
// unresponsive host is an error.
func (s *session) readAllButDomains(ctx context.Context, connection hypervisor.Hypervisor) (Snapshot, error) {
	facts, err := limited(ctx, s, connection.Facts)
	if err == nil {
		err = s.recognize(facts.UUID)
	}
	if err != nil {
		return Snapshot{}, err
	}
	snapshot := Snapshot{Facts: facts, Networks: map[string]Network{}}
	if snapshot.Pools, err = s.readPools(ctx, connection); err != nil {
		return Snapshot{}, err
	}
	for _, name := range s.target.Networks {
		network, err := limited(ctx, s, func(ctx context.Context) (hypervisor.Network, error) { return connection.Network(ctx, name) })
		if hypervisor.Uncertain(err) {
			return Snapshot{}, err
		}
		network.Name = name
		snapshot.Networks[name] = Network{Network: network, Err: err}
	}
	if snapshot.Interfaces, err = lookFor(ctx, s, s.target.Interfaces, connection.HasInterface); err != nil {
		return Snapshot{}, err
	}
	if snapshot.Filters, err = lookFor(ctx, s, s.target.Filters, connection.HasFilter); err != nil {
		return Snapshot{}, err
	}
	if s.target.Devices {
		snapshot.Devices, snapshot.DevicesErr = limited(ctx, s, connection.PCIDevices)
		if hypervisor.Uncertain(snapshot.DevicesErr) {
			return Snapshot{}, snapshot.DevicesErr
		}
	}
	return snapshot, nil
}

// lookFor reads for each name whether it exists on the host.
func lookFor(ctx context.Context, s *session, names []string, has func(context.Context, string) (bool, error)) (map[string]Presence, error) {
	all := map[string]Presence{}
	for _, name := range names {
		exists, err := limited(ctx, s, func(ctx context.Context) (bool, error) { return has(ctx, name) })
		if hypervisor.Uncertain(err) {
			return nil, err
		}
		all[name] = Presence{There: exists, Err: err}
	}
	return all, nil
}

// publishAll publishes a complete reading. Domains that were read since it began keep their state.
func (s *session) publishAll(connection hypervisor.Hypervisor, number uint64, rest Snapshot, domains []hypervisor.Domain) {
	s.publish(func(snapshot Snapshot) Snapshot {
		rest.Domains = make(map[string]hypervisor.Domain, len(domains))
		for _, domain := range domains {
			rest.Domains[domain.UUID] = domain
		}
		maps.DeleteFunc(s.read, func(_ string, read uint64) bool { return read < number })
		for uuid := range s.read {
			delete(rest.Domains, uuid)
			if domain, exists := snapshot.Domains[uuid]; exists {
				rest.Domains[uuid] = domain
			}
		}
		s.listed = number
		s.connection = connection
		rest.Taken, rest.Reachable, rest.Err = time.Now(), s.refused == nil, s.refused
		return rest
	})
}

// readPools reads all pools concurrently. A pool that doesn't answer keeps its previous state, with the error, so that
// hanging storage affects nothing else. The error means that the host itself doesn't answer.
func (s *session) readPools(ctx context.Context, connection hypervisor.Hypervisor) (map[string]Pool, error) {
	var lock sync.Mutex
	var group sync.WaitGroup
	pools, silent := map[string]Pool{}, false
	for _, name := range s.target.Pools {
		group.Go(func() {
			pool := s.readPool(ctx, connection, name)
			lock.Lock()
			defer lock.Unlock()
			pools[name], silent = pool, silent || hypervisor.Uncertain(pool.Err)
		})
	}
	group.Wait()
	if !silent {
		return pools, nil
	}
	_, err := limited(ctx, s, connection.Facts)
	return pools, err
}

// readPool reads a pool. A missing or unreadable pool is part of the result.
func (s *session) readPool(ctx context.Context, connection hypervisor.Hypervisor, name string) (read Pool) {
	ctx, cancel := context.WithTimeout(ctx, s.fleet.options.PoolLimit)
	defer cancel()
	err := guarded(func() error {
		pool, err := connection.Pool(ctx, name)
		if err != nil {
			return err
		}
		read.Pool = pool
		if !pool.Active {
			return nil
		}
		volumes, err := connection.PoolVolumes(ctx, name)
		read.Volumes = make(map[string]hypervisor.Volume, len(volumes))
		for _, volume := range volumes {
			read.Volumes[volume.Name] = volume
		}
		return err
	})
	switch {
	case hypervisor.Uncertain(err):
		s.lock.Lock()
		defer s.lock.Unlock()
		read = s.snapshot.Pools[name]
	case err != nil:
		read = Pool{}
	}
	read.Name, read.Err = name, err
	return read
}

// refreshes has the times of the last refreshes of pools, and the requested ones.
type refreshes struct {
	wake chan struct{}

	lock   sync.Mutex
	wanted map[string]bool
	// last is used by the refreshing goroutine only.
	last map[string]time.Time
}

func newRefreshes() refreshes {
	return refreshes{wake: make(chan struct{}, 1), wanted: map[string]bool{}, last: map[string]time.Time{}}
}

// RefreshPool makes a host refresh a storage pool soon, because the caller misses a volume in it. It doesn't wait, and
// does nothing if the pool was refreshed a moment ago.
func (f *Fleet) RefreshPool(host, pool string) {
	s := f.session(host)
	if s == nil || !slices.Contains(s.target.Pools, pool) {
		return
	}
	s.refreshes.lock.Lock()
	defer s.refreshes.lock.Unlock()
	s.refreshes.wanted[pool] = true
	select {
	case s.refreshes.wake <- struct{}{}:
	default:
	}
}

// refreshWanted refreshes and reads the requested pools, unless that was done a moment ago.
func (s *session) refreshWanted(ctx context.Context, connection hypervisor.Hypervisor) {
	s.refreshes.lock.Lock()
	wanted := slices.Sorted(maps.Keys(s.refreshes.wanted))
	clear(s.refreshes.wanted)
	s.refreshes.lock.Unlock()
	for _, name := range wanted {
		if time.Since(s.refreshes.last[name]) < s.fleet.options.MinRefresh {
			continue
		}
		s.refresh(ctx, connection, name)
		read := s.readPool(ctx, connection, name)
		s.publish(func(snapshot Snapshot) Snapshot {
			snapshot.Pools = maps.Clone(snapshot.Pools)
			snapshot.Pools[name] = read
			return snapshot
		})
	}
}

// refreshNext refreshes the pool that has waited longest, if it is due. The caller reads it afterwards.
func (s *session) refreshNext(ctx context.Context, connection hypervisor.Hypervisor) {
	var next string
	for _, name := range s.target.Pools {
		if next == "" || s.refreshes.last[name].Before(s.refreshes.last[next]) {
			next = name
		}
	}
	if next != "" && time.Since(s.refreshes.last[next]) >= s.fleet.options.RefreshInterval {
		s.refresh(ctx, connection, next)
	}
}

// refresh refreshes a pool. A pool that is being written refuses, and is refreshed later.
func (s *session) refresh(ctx context.Context, connection hypervisor.Hypervisor, name string) {
	ctx, cancel := context.WithTimeout(ctx, s.fleet.options.PoolLimit)
	defer cancel()
	s.refreshes.last[name] = time.Now()
	if err := connection.RefreshPool(ctx, name); err != nil {
		ctrl.LoggerFrom(ctx).V(4).Info("The storage pool wasn't refreshed", "pool", name, "err", err)
	}
}
