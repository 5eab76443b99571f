package libvirtmachine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/fake"
)

// cache is a manager's cache of LibvirtMachines. It is older than the API server while it has an old machine.
type cache struct {
	lock sync.Mutex
	old  map[client.ObjectKey]*infrav1.LibvirtMachine
}

// keep makes the cache return the machine in its current state from now on.
func (c *cache) keep(infra *infrav1.LibvirtMachine) {
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.old == nil {
		c.old = map[client.ObjectKey]*infrav1.LibvirtMachine{}
	}
	c.old[client.ObjectKeyFromObject(infra)] = infra.DeepCopy()
}

func (c *cache) of(key client.ObjectKey) *infrav1.LibvirtMachine {
	c.lock.Lock()
	defer c.lock.Unlock()
	return c.old[key]
}

// intercept returns interceptors for reads of the cache.
func (c *cache) intercept() interceptor.Funcs {
	return interceptor.Funcs{
		Get: func(ctx context.Context, api client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			err := api.Get(ctx, key, object, options...)
			infra, is := object.(*infrav1.LibvirtMachine)
			if old := c.of(key); is && old != nil && client.IgnoreNotFound(err) == nil {
				old.DeepCopyInto(infra)
				return nil
			}
			return err
		},
		List: func(ctx context.Context, api client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			err := api.List(ctx, list, options...)
			if machines, is := list.(*infrav1.LibvirtMachineList); is {
				for i := range machines.Items {
					if old := c.of(client.ObjectKeyFromObject(&machines.Items[i])); old != nil {
						machines.Items[i] = *old.DeepCopy()
					}
				}
			}
			return err
		},
	}
}

// changes returns the calls since the last ForgetCalls that created, changed or deleted an object on a host.
func changes(host *fake.Host) []fake.Operation {
	var operations []fake.Operation
	for _, call := range host.Calls() {
		if !slices.Contains([]fake.Operation{fake.Connect, fake.Facts, fake.Domain, fake.ListDomains, fake.DomainAddresses, fake.Pool, fake.Pools,
			fake.PoolVolumes, fake.Volume, fake.Network, fake.HasInterface, fake.PCIDevices}, call.Operation) {
			operations = append(operations, call.Operation)
		}
	}
	return operations
}

// TestBindingWithAnOldCache: the answer to the write of a host is lost, and the cache doesn't have the write. The
// reservation stays: the next machine must not get the room.
func TestBindingWithAnOldCache(t *testing.T) {
	w := newWorld(t, nil, "a")
	m := w.newManager(0)
	var unbound *infrav1.LibvirtMachine
	m.before = func(string, int) {
		if infra := w.infra(); infra.Spec.HostName == "" {
			unbound = infra
		}
	}
	m.lost = func(string, int) error {
		if w.infra().Spec.HostName == "" || m.cache.of(key) != nil {
			return nil
		}
		m.cache.keep(unbound)
		return errors.New("the connection was reset")
	}
	w.until(m, func() bool { return m.cache.of(key) != nil })
	m.lost = nil
	w.Expect(m.Scheduler.Reserved()).To(Equal(1))
	calls := len(m.calls())
	_, err := m.reconcile()
	w.Expect(err).ToNot(HaveOccurred(), "a conflict isn't an error")
	w.Expect(m.calls()[calls:]).To(ContainElement("api: patch"), "it tries to bind the machine again")
	w.Expect(m.Scheduler.Reserved()).To(Equal(1))
}

// TestMakingWithAnOldCache: a manager with an old cache doesn't create the deleted domain of a provisioned machine
// again.
func TestMakingWithAnOldCache(t *testing.T) {
	w := newWorld(t, nil, "a")
	m := w.until(w.newManager(0), func() bool { return w.infra().Spec.HostName != "" })
	bound := w.infra()
	w.until(m, w.isProvisioned)
	w.hosts["a"].RemoveDomain(w.uuid())
	w.hosts["a"].ForgetCalls()
	behind := w.newManager(0)
	behind.cache.keep(bound)
	_, err := behind.reconcile()
	w.Expect(err).ToNot(HaveOccurred())
	w.Expect(changes(w.hosts["a"])).To(BeEmpty())
}

// TestUpdatingWithAnOldCache: a guest isn't shut down for an update that was cancelled in the meantime.
func TestUpdatingWithAnOldCache(t *testing.T) {
	w, m := newWorldWithNode(t, nil)
	spec := w.infra().Spec
	w.requestUpdate(larger)
	w.until(m, func() bool { _, started := isChanging(w.infra()); return started })
	started := w.infra()
	change(w, &infrav1.LibvirtMachine{}, key.Name, func(infra *infrav1.LibvirtMachine) {
		infra.Spec = spec
		delete(infra.Annotations, infrav1.UpdateStartedAnnotation)
		delete(infra.Annotations, clusterv1.UpdateInProgressAnnotation)
	})
	w.hosts["a"].ForgetCalls()
	behind := w.newManager(0)
	behind.cache.keep(started)
	_, err := behind.reconcile()
	w.Expect(err).ToNot(HaveOccurred())
	w.Expect(changes(w.hosts["a"])).To(BeEmpty())
}

// TestDeletedWhileMadeWithAnOldCache: a manager with an old cache creates objects of a machine that another manager has
// deleted in the meantime. It deletes these objects again.
func TestDeletedWhileMadeWithAnOldCache(t *testing.T) {
	w := newWorld(t, nil, "a")
	behind, next := w.newManager(0), w.newManager(0)
	behind.before = func(call string, _ int) {
		if strings.HasSuffix(call, "define") && behind.cache.of(key) == nil {
			behind.cache.keep(w.infra())
			w.delete()
			w.until(next, w.isDeleted)
		}
	}
	w.until(behind, w.isDeleted)
	w.Expect(w.inventory()).To(BeEmpty())
}
