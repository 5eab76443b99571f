package fake

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// connection is one connection to a Host.
type connection struct {
	host *Host
	// lost is closed when the connection is.
	lost chan struct{}
	// limit is the time limit of a call.
	limit time.Duration
	// watches are the channels of watches. Guarded by the host's lock.
	watches map[chan string]bool
}

var _ hypervisor.Hypervisor = &connection{}

// refuse returns the failure of a call, without the operation and the object. cause may be empty.
func refuse(reason error, cause string) error {
	if cause == "" {
		return &hypervisor.Error{Reason: reason}
	}
	return &hypervisor.Error{Reason: reason, Cause: errors.New(cause)}
}

// do logs a call, applies faults to it, and runs it while the host's lock is held.
func do[T any](ctx context.Context, c *connection, doing string, operation Operation, object string, act func() (T, error)) (T, error) {
	h := c.host
	var none T
	call := &Call{Operation: operation, Object: object}
	finish := func(err error) error {
		var refused *hypervisor.Error
		if errors.As(err, &refused) {
			err = &hypervisor.Error{Operation: doing, Object: object, Reason: refused.Reason, Cause: refused.Cause}
		}
		h.lock.Lock()
		call.Err = err
		h.lock.Unlock()
		return err
	}

	h.lock.Lock()
	h.calls = append(h.calls, call)
	fault := h.fault(operation, object)
	unreachable := h.unreachable
	h.lock.Unlock()

	if fault != nil && !fault.AfterDone {
		return none, finish(c.happen(ctx, operation, fault))
	}
	if c.isLost() || unreachable {
		return none, finish(refuse(hypervisor.ErrUnreachable, ""))
	}
	if err := ctx.Err(); err != nil {
		return none, finish(&hypervisor.Error{Reason: hypervisor.ErrTimeout, Cause: err})
	}
	result, err := answer(ctx, c, operation, act)
	if fault != nil {
		return none, finish(c.happen(ctx, operation, fault))
	}
	if err != nil {
		return none, finish(err)
	}
	return result, nil
}

// answer runs a call when the host answers, while the host's lock is held. It runs even without a waiting caller,
// unless the connection is lost by then.
func answer[T any](ctx context.Context, c *connection, operation Operation, act func() (T, error)) (result T, err error) {
	h := c.host
	carryOut := func() (T, error) {
		h.lock.Lock()
		defer h.lock.Unlock()
		return act()
	}
	h.lock.Lock()
	frozen, latency := h.frozen, h.latency
	h.lock.Unlock()
	if frozen == nil && latency == 0 {
		return carryOut()
	}
	answered := make(chan struct{})
	var late T
	var lateErr error
	go func() {
		defer close(answered)
		time.Sleep(latency)
		if frozen != nil {
			<-frozen
		}
		if !c.isLost() {
			late, lateErr = carryOut()
		}
	}()
	if err := c.wait(ctx, operation, answered); err != nil {
		return result, err
	}
	return late, lateErr
}

// wait waits for an answer, and returns a refusal if there is none in time. As with libvirt, this closes the
// connection, unless the call has a separate one.
func (c *connection) wait(ctx context.Context, operation Operation, answered <-chan struct{}) error {
	limit, own := operation.limit(c.limit)
	past := make(<-chan time.Time)
	if limit > 0 {
		past = time.After(limit)
	}
	select {
	case <-answered:
		return nil
	case <-ctx.Done():
		return &hypervisor.Error{Reason: hypervisor.ErrTimeout, Cause: ctx.Err()}
	case <-c.lost:
		return refuse(hypervisor.ErrUnreachable, "")
	case <-past:
		if !own {
			c.lose()
		}
		return &hypervisor.Error{Reason: hypervisor.ErrTimeout, Cause: context.DeadlineExceeded}
	}
}

// run is do for calls without a result.
func run(ctx context.Context, c *connection, doing string, operation Operation, object string, act func() error) error {
	_, err := do(ctx, c, doing, operation, object, func() (struct{}, error) { return struct{}{}, act() })
	return err
}

func (c *connection) isLost() bool {
	select {
	case <-c.lost:
		return true
	default:
		return false
	}
}

// lose ends the connection and its watches.
func (c *connection) lose() {
	c.host.lock.Lock()
	defer c.host.lock.Unlock()
	if c.isLost() {
		return
	}
	close(c.lost)
	for news := range c.watches {
		close(news)
	}
	c.watches = nil
	delete(c.host.connections, c)
}

// Close implements hypervisor.Hypervisor.
func (c *connection) Close() error {
	c.lose()
	return nil
}

// Facts implements hypervisor.Hypervisor.
func (c *connection) Facts(ctx context.Context) (hypervisor.Facts, error) {
	return do(ctx, c, "asking for the host's facts", Facts, "", func() (hypervisor.Facts, error) {
		facts := c.host.facts
		facts.Features, facts.HugepageBytes = slices.Clone(facts.Features), maps.Clone(facts.HugepageBytes)
		facts.CPUNumbers = slices.Clone(facts.CPUNumbers)
		return facts, nil
	})
}

// Network implements hypervisor.Hypervisor.
func (c *connection) Network(ctx context.Context, name string) (hypervisor.Network, error) {
	return do(ctx, c, "looking up the network", Network, name, func() (hypervisor.Network, error) {
		network, exists := c.host.networks[name]
		if !exists {
			return network, refuse(hypervisor.ErrNotFound, "")
		}
		return network, nil
	})
}

// HasInterface implements hypervisor.Hypervisor.
func (c *connection) HasInterface(ctx context.Context, name string) (bool, error) {
	return do(ctx, c, "looking up the network interface", HasInterface, name, func() (bool, error) {
		if len(c.host.interfaces) == 0 {
			return false, refuse(hypervisor.ErrUnsupported, "the daemon lists no network interfaces, not even lo")
		}
		return slices.Contains(c.host.interfaces, name), nil
	})
}

// HasFilter implements hypervisor.Hypervisor.
func (c *connection) HasFilter(ctx context.Context, name string) (bool, error) {
	return do(ctx, c, "looking up the network filter", HasFilter, name, func() (bool, error) {
		return slices.Contains(c.host.filters, name), nil
	})
}

// Watch implements hypervisor.Hypervisor.
func (c *connection) Watch(ctx context.Context) (hypervisor.Watch, error) {
	return do(ctx, c, "watching the domains", NewWatch, "", func() (hypervisor.Watch, error) {
		if c.isLost() {
			return hypervisor.Watch{}, refuse(hypervisor.ErrUnreachable, "")
		}
		news := make(chan string)
		if c.watches == nil {
			c.watches = map[chan string]bool{}
		}
		c.watches[news] = true
		go func() {
			select {
			case <-c.lost: // which closes the channel
			case <-ctx.Done():
				c.host.lock.Lock()
				defer c.host.lock.Unlock()
				if c.watches[news] {
					delete(c.watches, news)
					close(news)
				}
			}
		}()
		return hypervisor.Watch{Domains: c.host.list(), Changed: hypervisor.Coalesce(news)}, nil
	})
}

// list returns all domains. The lock is held.
func (h *Host) list() []hypervisor.Domain {
	domains := make([]hypervisor.Domain, 0, len(h.domains))
	for _, uuid := range slices.Sorted(maps.Keys(h.domains)) {
		domains = append(domains, h.domains[uuid].snapshot())
	}
	return domains
}

func (d *domain) snapshot() hypervisor.Domain {
	out := d.Domain
	out.Disks, out.MACs = slices.Clone(d.Disks), slices.Clone(d.MACs)
	out.PinnedCPUs, out.HostDevices = slices.Clone(d.PinnedCPUs), slices.Clone(d.HostDevices)
	if d.Owner != nil {
		owner := *d.Owner
		out.Owner = &owner
	}
	return out
}

func compareRefs(a, b hypervisor.VolumeRef) int {
	return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Name, b.Name))
}
