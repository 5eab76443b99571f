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

// Settings are what a program's tests want to be otherwise in the managers.
type Settings struct {
	// Images are the limits of bringing images to hosts.
	Images images.Options
	// Orphans say what to do about what is left of machines. Hosts are looked at each second if they don't
	// say otherwise.
	Orphans orphans.Options
	// Transport wraps the way from the provider's manager to the API server, if it isn't nil.
	Transport func(http.RoundTripper) http.RoundTripper
	// ClusterAPITransport is the same for Cluster API's manager.
	ClusterAPITransport func(http.RoundTripper) http.RoundTripper
	// CountInterval is how long numbers in the status of a LibvirtHost stay as they are.
	CountInterval time.Duration
}

var settings Settings

// Configure says how the managers are to be. Call it before the first scene.
func Configure(s Settings) { settings = s }

var errKilled = errors.New("the manager was killed")

// provider is one run of the provider's manager.
type provider struct {
	ctrl.Manager
	// life is how long it runs, and cancel ends it. ended is closed when it has, with err.
	life   context.Context
	cancel context.CancelFunc
	ended  chan struct{}
	err    error
	// ledger is the one of its LibvirtMachine controller.
	ledger *placement.Ledger

	lock        sync.Mutex
	killed      bool
	connections []hypervisor.Hypervisor
}

// newProvider makes a run of the provider's manager.
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

// RestartProvider lets the provider's manager end as if it was killed, and starts another one: from one
// moment on, nothing of the first reaches the API server or a host, and no answer reaches it. One that
// can't begin, because the API server can't be reached, is started again, as a kubelet does.
//
// The first is let begin before it is killed: controller-runtime's manager waits for its caches also
// when it is told to end meanwhile, which is for ever when nothing reaches the API server.
func (w *World) RestartProvider() error {
	select {
	case <-w.provider.Elected():
	case <-w.provider.ended:
	case <-time.After(soon):
		return fmt.Errorf("the provider's manager hasn't begun after %s", soon)
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

// TakeOver starts another manager of the provider's while the one that there is goes on, as when that has
// lost the leadership and doesn't know it. The function that is returned lets the older one end, as if it
// was killed; call it once.
func (w *World) TakeOver() (end func() error, err error) {
	older := w.provider
	select {
	case <-older.Elected():
	case <-older.ended:
		return func() error { return nil }, w.RestartProvider()
	case <-time.After(soon):
		return nil, fmt.Errorf("the provider's manager hasn't begun after %s", soon)
	}
	next, err := w.newProvider()
	if err != nil {
		return func() error { return nil }, nil //nolint:nilerr // as with a manager that can't begin: the older one stays
	}
	w.startProvider(next)
	return older.killAndWait, nil
}

// Ledger returns where the provider's manager has placed machines that nobody has seen there so far.
func (w *World) Ledger() *placement.Ledger { return w.provider.ledger }

// KeepProvider starts the provider's manager again if it has ended by itself, as a kubelet does.
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

// cut is the way to the API server, until the manager is killed.
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
		return nil, errKilled // it was carried out, and nobody hears of it
	}
	return response, err
}
