package libvirtmachine

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/fleet"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/fake"
)

var errKilled = errors.New("the process was killed")

// process is a manager that may be killed after any of its calls to libvirt or the API server. The last call is
// executed, its answer is lost, and no further call is made.
type process struct {
	lock   sync.Mutex
	names  []string
	killAt int
	dead   bool
	// before and after are called around each call, if they are set.
	before, after func(call string, number int)
	// lost, if it is set, is called after each call. If it returns an error, the error replaces the answer.
	lost func(call string, number int) error
}

// call executes a call of a process.
func call[T any](p *process, name string, do func() (T, error)) (T, error) {
	var none T
	p.lock.Lock()
	if p.dead {
		p.lock.Unlock()
		return none, errKilled
	}
	number, before, after, lost := len(p.names), p.before, p.after, p.lost
	p.names = append(p.names, name)
	p.lock.Unlock()
	if before != nil {
		before(name, number)
	}
	result, err := do()
	if after != nil {
		after(name, number)
	}
	if lost != nil {
		if lostErr := lost(name, number); lostErr != nil {
			result, err = none, lostErr
		}
	}
	p.lock.Lock()
	defer p.lock.Unlock()
	if p.killAt == number+1 {
		p.dead = true
	}
	if p.dead {
		return none, errKilled
	}
	return result, err
}

func run(p *process, name string, do func() error) error {
	_, err := call(p, name, func() (struct{}, error) { return struct{}{}, do() })
	return err
}

func (p *process) kill() {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.dead = true
}

func (p *process) isDead() bool {
	p.lock.Lock()
	defer p.lock.Unlock()
	return p.dead
}

func (p *process) calls() []string {
	p.lock.Lock()
	defer p.lock.Unlock()
	return slices.Clone(p.names)
}

// intercept returns interceptors for a client's writes and uncached reads.
func (p *process) intercept() interceptor.Funcs {
	return interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			return run(p, "api: create", func() error { return c.Create(ctx, object, options...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			return run(p, "api: delete", func() error { return c.Delete(ctx, object, options...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			return run(p, "api: patch", func() error { return c.Patch(ctx, object, patch, options...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, of string, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			return run(p, "api: patch "+of, func() error { return c.SubResource(of).Patch(ctx, object, patch, options...) })
		},
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if p.isDead() {
				return errKilled
			}
			return c.Get(ctx, key, object, options...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if p.isDead() {
				return errKilled
			}
			return c.List(ctx, list, options...)
		},
	}
}

// hosts are fake hosts, as seen by one process.
type hosts struct {
	process *process
	hosts   map[string]*fake.Host
	// connecting are the names of hosts that are being connected to for the first time.
	connecting *sync.Map

	lock sync.Mutex
	open map[string]hypervisor.Hypervisor
}

var _ Hosts = &hosts{}

func (h *hosts) connect(host string) (hypervisor.Hypervisor, error) {
	h.lock.Lock()
	defer h.lock.Unlock()
	if connected, exists := h.open[host]; exists {
		if _, err := connected.Facts(context.Background()); err == nil {
			return connected, nil
		}
		_ = connected.Close()
		delete(h.open, host)
	}
	connected, err := h.hosts[host].Connect(context.Background())
	if err == nil {
		h.open[host] = connected
	}
	return connected, err
}

// Hypervisor implements Hosts.
func (h *hosts) Hypervisor(host string) (hypervisor.Hypervisor, error) {
	if h.process.isDead() {
		return nil, errKilled
	}
	connected, err := h.connect(host)
	if err != nil {
		return nil, err
	}
	return &killable{Hypervisor: connected, process: h.process}, nil
}

// RefreshPool implements Hosts.
func (h *hosts) RefreshPool(host, pool string) {
	if connected, err := h.connect(host); err == nil {
		_ = connected.RefreshPool(context.Background(), pool)
	}
}

// Snapshot implements Hosts. It returns the current state.
func (h *hosts) Snapshot(host string) (fleet.Snapshot, bool) {
	if _, known := h.hosts[host]; !known {
		return fleet.Snapshot{}, false
	}
	if _, connecting := h.connecting.Load(host); connecting {
		return fleet.Snapshot{}, true
	}
	ctx := context.Background()
	connected, err := h.connect(host)
	if err != nil {
		return fleet.Snapshot{Err: err}, true
	}
	snapshot := fleet.Snapshot{Reachable: true, Pools: map[string]fleet.Pool{}, Networks: map[string]fleet.Network{}, Domains: map[string]hypervisor.Domain{}}
	facts, factsErr := connected.Facts(ctx)
	domains, domainsErr := connected.ListDomains(ctx)
	if err := errors.Join(factsErr, domainsErr); err != nil {
		return fleet.Snapshot{Err: err}, true
	}
	snapshot.Facts = facts
	snapshot.Devices, snapshot.DevicesErr = connected.PCIDevices(ctx)
	for _, domain := range domains {
		snapshot.Domains[domain.UUID] = domain
	}
	for _, name := range []string{"default", "fast"} {
		if pool, err := connected.Pool(ctx, name); err == nil {
			volumes := map[string]hypervisor.Volume{}
			listed, _ := connected.PoolVolumes(ctx, name)
			for _, volume := range listed {
				volumes[volume.Name] = volume
			}
			snapshot.Pools[name] = fleet.Pool{Pool: pool, Volumes: volumes}
		}
	}
	return snapshot, true
}

// Refresh implements Hosts. The snapshot is always new.
func (h *hosts) Refresh(context.Context, string, string) error {
	return run(h.process, "libvirt: refresh", func() error { return nil })
}

// killable is the connection of a process that may be killed.
type killable struct {
	hypervisor.Hypervisor
	process *process
}

func (k *killable) Volume(ctx context.Context, ref hypervisor.VolumeRef) (hypervisor.Volume, error) {
	return call(k.process, "libvirt: look up volume", func() (hypervisor.Volume, error) { return k.Hypervisor.Volume(ctx, ref) })
}

func (k *killable) Pool(ctx context.Context, name string) (hypervisor.Pool, error) {
	return call(k.process, "libvirt: look up pool", func() (hypervisor.Pool, error) { return k.Hypervisor.Pool(ctx, name) })
}

func (k *killable) PoolVolumes(ctx context.Context, pool string) ([]hypervisor.Volume, error) {
	return call(k.process, "libvirt: list volumes", func() ([]hypervisor.Volume, error) { return k.Hypervisor.PoolVolumes(ctx, pool) })
}

func (k *killable) CreateVolume(ctx context.Context, spec hypervisor.VolumeSpec) (hypervisor.Volume, error) {
	return call(k.process, "libvirt: create volume", func() (hypervisor.Volume, error) { return k.Hypervisor.CreateVolume(ctx, spec) })
}

func (k *killable) CloneVolume(ctx context.Context, spec hypervisor.VolumeSpec, source hypervisor.VolumeRef) (hypervisor.Volume, error) {
	return call(k.process, "libvirt: clone volume", func() (hypervisor.Volume, error) { return k.Hypervisor.CloneVolume(ctx, spec, source) })
}

func (k *killable) UploadVolume(ctx context.Context, ref hypervisor.VolumeRef, content io.Reader, size int64) error {
	return run(k.process, "libvirt: upload", func() error { return k.Hypervisor.UploadVolume(ctx, ref, content, size) })
}

func (k *killable) ResizeVolume(ctx context.Context, ref hypervisor.VolumeRef, capacity int64) error {
	return run(k.process, "libvirt: resize volume", func() error { return k.Hypervisor.ResizeVolume(ctx, ref, capacity) })
}

func (k *killable) DeleteVolume(ctx context.Context, ref hypervisor.VolumeRef) error {
	return run(k.process, "libvirt: delete volume", func() error { return k.Hypervisor.DeleteVolume(ctx, ref) })
}

func (k *killable) Domain(ctx context.Context, uuid string) (hypervisor.Domain, error) {
	return call(k.process, "libvirt: look up domain", func() (hypervisor.Domain, error) { return k.Hypervisor.Domain(ctx, uuid) })
}

func (k *killable) ListDomains(ctx context.Context) ([]hypervisor.Domain, error) {
	return call(k.process, "libvirt: list domains", func() ([]hypervisor.Domain, error) { return k.Hypervisor.ListDomains(ctx) })
}

func (k *killable) DefineDomain(ctx context.Context, definition hypervisor.Definition) error {
	return run(k.process, "libvirt: define", func() error { return k.Hypervisor.DefineDomain(ctx, definition) })
}

func (k *killable) SetAutostart(ctx context.Context, uuid string, autostart bool) error {
	return run(k.process, "libvirt: set autostart", func() error { return k.Hypervisor.SetAutostart(ctx, uuid, autostart) })
}

func (k *killable) StartDomain(ctx context.Context, uuid string) error {
	return run(k.process, "libvirt: start", func() error { return k.Hypervisor.StartDomain(ctx, uuid) })
}

func (k *killable) StopDomain(ctx context.Context, uuid string) error {
	return run(k.process, "libvirt: stop", func() error { return k.Hypervisor.StopDomain(ctx, uuid) })
}

func (k *killable) ShutdownDomain(ctx context.Context, uuid string) error {
	return run(k.process, "libvirt: shut down", func() error { return k.Hypervisor.ShutdownDomain(ctx, uuid) })
}

func (k *killable) ResizeDomain(ctx context.Context, uuid string, size hypervisor.Size) error {
	return run(k.process, "libvirt: resize domain", func() error { return k.Hypervisor.ResizeDomain(ctx, uuid, size) })
}

func (k *killable) RemoveConsoleLog(ctx context.Context, uuid string) error {
	return run(k.process, "libvirt: remove console log", func() error { return k.Hypervisor.RemoveConsoleLog(ctx, uuid) })
}

func (k *killable) RemoveIgnition(ctx context.Context, uuid string) error {
	return run(k.process, "libvirt: remove Ignition", func() error { return k.Hypervisor.RemoveIgnition(ctx, uuid) })
}

func (k *killable) GrowDisk(ctx context.Context, uuid string, ref hypervisor.VolumeRef, capacity int64) error {
	return run(k.process, "libvirt: grow disk", func() error { return k.Hypervisor.GrowDisk(ctx, uuid, ref, capacity) })
}

func (k *killable) UndefineDomain(ctx context.Context, uuid string) error {
	return run(k.process, "libvirt: undefine", func() error { return k.Hypervisor.UndefineDomain(ctx, uuid) })
}

func (k *killable) DetachDisk(ctx context.Context, uuid string, ref hypervisor.VolumeRef) error {
	return run(k.process, "libvirt: detach", func() error { return k.Hypervisor.DetachDisk(ctx, uuid, ref) })
}

func (k *killable) Addresses(ctx context.Context, uuid string, source hypervisor.AddressSource) ([]hypervisor.InterfaceAddress, error) {
	return call(k.process, "libvirt: addresses", func() ([]hypervisor.InterfaceAddress, error) { return k.Hypervisor.Addresses(ctx, uuid, source) })
}
