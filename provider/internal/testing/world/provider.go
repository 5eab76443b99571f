package world

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/controllers/orphans"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/fleet"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/images"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/placement"
)

// Settings change the managers for the tests of a program.
type Settings struct {
	// Images has the limits for transfers of images.
	Images images.Options
	// Orphans are the options for leftovers of machines. By default hosts are checked each second.
	Orphans orphans.Options
	// Transport wraps the transport of the provider's manager to the API server, if it isn't nil.
	Transport func(http.RoundTripper) http.RoundTripper
	// ClusterAPITransport does the same for Cluster API's manager.
	ClusterAPITransport func(http.RoundTripper) http.RoundTripper
	// CountInterval is the minimum time between updates of the numbers in the status of a LibvirtHost.
	CountInterval time.Duration
}

var settings Settings

// Configure sets the settings of the managers. Call it before the first scene.
func Configure(s Settings) { settings = s }

var errKilled = errors.New("the manager was killed")

// provider is one run of the provider's manager.
type provider struct {
	ctrl.Manager
	// life is the context of the run, and cancel ends it. ended is closed afterwards, with the error in err.
	life   context.Context
	cancel context.CancelFunc
	ended  chan struct{}
	err    error
	// ledger is that of its LibvirtMachine controller.
	ledger *placement.Ledger

	lock        sync.Mutex
	killed      bool
	connections []hypervisor.Hypervisor
}

// newProvider creates a run of the provider's manager.
func (w *World) newProvider() (*provider, error) {
	p := &provider{ended: make(chan struct{}), ledger: &placement.Ledger{}}
	config := rest.CopyConfig(w.own)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		if settings.Transport != nil {
			next = settings.Transport(next)
		}
		return cut{p, next}
	})
	p.life, p.cancel = context.WithCancel(w.life)
	var err error
	p.Manager, err = w.providerManager(p.life, config, p.ledger, func(ctx context.Context, target fleet.Target) (hypervisor.Hypervisor, error) {
		return p.connect(ctx, target, w.hosts.connect)
	})
	if err != nil {
		p.cancel()
		return nil, err
	}
	return p, nil
}

// startProvider starts a run of the provider's manager.
func (w *World) startProvider(p *provider) {
	w.provider = p
	go func() {
		p.err = p.Start(p.life)
		close(p.ended)
	}()
}

// RestartProvider ends the provider's manager as if it was killed, and starts another one: from one moment on, nothing
// of the first one reaches the API server or a host, and no answer reaches it. A manager that can't start, because the
// API server is unreachable, is started again, as a kubelet does.
//
// The first manager is killed only after it has started: controller-runtime's manager waits for its caches even if it
// is stopped, which lasts for ever when the API server is unreachable.
func (w *World) RestartProvider() error {
	select {
	case <-w.provider.Elected():
	case <-w.provider.ended:
	case <-time.After(soon):
		return fmt.Errorf("the provider's manager hasn't started after %s", soon)
	}
	if err := w.provider.killAndWait(); err != nil {
		return err
	}
	for deadline := time.Now().Add(soon); ; time.Sleep(poll) {
		next, err := w.newProvider()
		if err == nil {
			w.startProvider(next)
			return nil
		}
		if time.Now().After(deadline) {
			return err
		}
	}
}

// TakeOver starts another manager of the provider while the existing one continues, like a former leader that doesn't
// know that it has lost the leadership. end ends the older one as if it was killed; call it once.
func (w *World) TakeOver() (end func() error, err error) {
	older := w.provider
	select {
	case <-older.Elected():
	case <-older.ended:
		return func() error { return nil }, w.RestartProvider()
	case <-time.After(soon):
		return nil, fmt.Errorf("the provider's manager hasn't started after %s", soon)
	}
	next, err := w.newProvider()
	if err != nil {
		return func() error { return nil }, nil //nolint:nilerr // the new manager can't start: the older one stays
	}
	w.startProvider(next)
	return older.killAndWait, nil
}

// Ledger returns the ledger of the provider's manager.
func (w *World) Ledger() *placement.Ledger { return w.provider.ledger }

// KeepProvider starts the provider's manager again if it has ended, as a kubelet does.
func (w *World) KeepProvider() error {
	select {
	case <-w.provider.ended:
		return w.RestartProvider()
	default:
		return nil
	}
}

func (p *provider) killAndWait() error {
	p.kill()
	select {
	case <-p.ended:
		return nil
	case <-time.After(soon):
		return fmt.Errorf("the provider's manager hasn't ended %s after it was killed", soon)
	}
}

func (p *provider) kill() {
	p.lock.Lock()
	p.killed = true
	connections := p.connections
	p.lock.Unlock()
	for _, connection := range connections {
		_ = connection.Close()
	}
	p.cancel()
}

func (p *provider) isKilled() bool {
	p.lock.Lock()
	defer p.lock.Unlock()
	return p.killed
}

// connect opens a connection that is lost when the manager is killed.
func (p *provider) connect(ctx context.Context, target fleet.Target, connect fleet.Connect) (hypervisor.Hypervisor, error) {
	connection, err := connect(ctx, target)
	if err != nil {
		return nil, err
	}
	p.lock.Lock()
	defer p.lock.Unlock()
	if p.killed {
		_ = connection.Close()
		return nil, &hypervisor.Error{Operation: "connecting to", Object: target.URI.String(), Reason: hypervisor.ErrUnreachable, Cause: errKilled}
	}
	p.connections = append(p.connections, connection)
	return connection, nil
}

// cut is the transport to the API server, which fails after the manager was killed.
type cut struct {
	*provider
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (c cut) RoundTrip(request *http.Request) (*http.Response, error) {
	if c.isKilled() {
		return nil, errKilled
	}
	response, err := c.next.RoundTrip(request)
	if err == nil && c.isKilled() {
		_ = response.Body.Close()
		return nil, errKilled // the request was processed, but its answer is lost
	}
	return response, err
}
