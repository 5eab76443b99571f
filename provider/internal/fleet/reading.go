package fleet

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// limited makes a call that ends when its time is over.
func limited[T any](ctx context.Context, s *session, call func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, s.fleet.options.CallLimit)
	defer cancel()
	return call(ctx)
}

// beginReading numbers a reading. Call it before anything is asked for.
func (s *session) beginReading() uint64 {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.begun++
	return s.begun
}

// readDomain reads one domain and publishes it.
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

// publishDomain publishes a reading of one domain, which is nil when it isn't there.
func (s *session) publishDomain(number uint64, uuid string, domain *hypervisor.Domain) {
	s.publish(func(snapshot Snapshot) Snapshot {
		if number < max(s.listed, s.read[uuid]) {
			return snapshot // news of what has changed since come yet
		}
		s.read[uuid] = number
		return snapshot.withDomain(uuid, domain)
	})
}

// readAllButDomains reads what a snapshot has besides domains. That a pool or network isn't there, or
// can't be read, is part of the result; that the host doesn't answer is an error.
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

// lookFor asks for each of names whether the host has it.
func lookFor(ctx context.Context, s *session, names []string, has func(context.Context, string) (bool, error)) (map[string]Presence, error) {
	all := map[string]Presence{}
	for _, name := range names {
		there, err := limited(ctx, s, func(ctx context.Context) (bool, error) { return has(ctx, name) })
		if hypervisor.Uncertain(err) {
			return nil, err
		}
		all[name] = Presence{There: there, Err: err}
	}
	return all, nil
}

// publishAll publishes a reading of all of the host. Domains that were read one by one since it began
// stay as they were found then, there or not.
func (s *session) publishAll(connection hypervisor.Hypervisor, number uint64, rest Snapshot, domains []hypervisor.Domain) {
	s.publish(func(snapshot Snapshot) Snapshot {
		rest.Domains = make(map[string]hypervisor.Domain, len(domains))
		for _, domain := range domains {
			rest.Domains[domain.UUID] = domain
		}
		maps.DeleteFunc(s.read, func(_ string, read uint64) bool { return read < number })
		for uuid := range s.read {
			delete(rest.Domains, uuid)
			if domain, there := snapshot.Domains[uuid]; there {
				rest.Domains[uuid] = domain
			}
		}
		s.listed = number
		s.connection = connection
		rest.Taken, rest.Reachable, rest.Err = time.Now(), s.refused == nil, s.refused
		return rest
	})
}
