package world

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/fleet"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/fake"
)

// Host is a fake host with a LibvirtHost.
type Host struct {
	*fake.Host
	// Name of the LibvirtHost.
	Name string
	// NoProviderIDs lets nodes on the host join without their provider IDs, as some bootstrap providers do.
	NoProviderIDs atomic.Bool
}

// uri returns the URI of a fake host. In place of a socket it has the host's name.
func (h *Host) uri() string { return "test:///default?socket=/" + h.Name }

// hosts has all fake hosts of all tests.
type hosts struct {
	lock   sync.Mutex
	byName map[string]*Host
}

func newHosts() *hosts { return &hosts{byName: map[string]*Host{}} }

func (h *hosts) add(host *Host) {
	h.lock.Lock()
	defer h.lock.Unlock()
	h.byName["/"+host.Name] = host
}

// connect connects the provider to a host.
func (h *hosts) connect(ctx context.Context, target fleet.Target) (hypervisor.Hypervisor, error) {
	h.lock.Lock()
	host := h.byName[target.URI.Socket]
	h.lock.Unlock()
	if host == nil {
		return nil, &hypervisor.Error{Operation: "connecting to", Object: target.URI.String(), Reason: hypervisor.ErrUnreachable,
			Cause: errors.New("no test has this host")}
	}
	return host.Connect(ctx)
}
