package fleet

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// readPools reads all pools at once. Of one that doesn't answer what was seen before stays, with the error: storage
// that hangs takes nothing else of the host away. The error says that the host itself doesn't answer.
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

// readPool reads one pool. That it isn't there, or can't be read, is part of the result.
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

// refreshes are when pools were last refreshed, and which ones are to be.
type refreshes struct {
	wake chan struct{}

	lock   sync.Mutex
	wanted map[string]bool
	// last is known to the goroutine only that refreshes.
	last map[string]time.Time
}

func newRefreshes() refreshes {
	return refreshes{wake: make(chan struct{}, 1), wanted: map[string]bool{}, last: map[string]time.Time{}}
}

// RefreshPool asks a host to look soon at what is in a storage pool, for callers that miss something there which
// somebody may have put into it. It doesn't wait, and nothing happens when the host did so a moment ago.
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

// refreshWanted refreshes the pools that somebody has asked for, unless they were a moment ago, and reads them.
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

// refreshNext refreshes the pool whose turn it is, if it is time for one. It is read afterwards, with the others.
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

// refresh lets the host look at what is in a pool. A pool that is being written to refuses, and its turn comes again.
func (s *session) refresh(ctx context.Context, connection hypervisor.Hypervisor, name string) {
	ctx, cancel := context.WithTimeout(ctx, s.fleet.options.PoolLimit)
	defer cancel()
	s.refreshes.last[name] = time.Now()
	if err := connection.RefreshPool(ctx, name); err != nil {
		ctrl.LoggerFrom(ctx).V(4).Info("The storage pool wasn't refreshed", "pool", name, "err", err)
	}
}
