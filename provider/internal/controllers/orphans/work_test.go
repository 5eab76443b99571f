package orphans

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/fleet"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/fake"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/indextest"
)

// steady are hosts without changes.
type steady struct {
	Hosts
	snapshot   fleet.Snapshot
	connection hypervisor.Hypervisor
}

func (s steady) Snapshot(string) (fleet.Snapshot, bool)           { return s.snapshot, true }
func (s steady) Hypervisor(string) (hypervisor.Hypervisor, error) { return s.connection, nil }

// lookedAt returns a reconciler, its cache with machines, and a host with 50 of them. One of these is being bound to it
// from another host in the cache.
func lookedAt(tb testing.TB, machines int) (*Reconciler, *indextest.Cache, *infrav1.LibvirtHost) {
	tb.Helper()
	const here = 50
	snapshot := fleet.Snapshot{Reachable: true, Domains: map[string]hypervisor.Domain{}}
	var objects []client.Object
	for i := range machines {
		uuid, name := fmt.Sprintf("%08x-0000-4000-8000-000000000000", i), fmt.Sprintf("m-%d", i)
		infra := &infrav1.LibvirtMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name},
			Spec: infrav1.LibvirtMachineSpec{HostName: fmt.Sprintf("host-%d", i/here), ProviderID: infrav1.ProviderIDPrefix + uuid}}
		if i < here {
			snapshot.Domains[uuid] = hypervisor.Domain{UUID: uuid, Name: name, Owner: &hypervisor.Owner{Namespace: "team", Name: name}}
		}
		if i == 0 {
			infra.Spec.HostName = "host-1"
		}
		objects = append(objects, infra)
	}
	connection, err := fake.NewHost().Connect(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = connection.Close() })
	cache := indextest.New(objects)
	return &Reconciler{Client: cache, self: "self", Hosts: steady{snapshot: snapshot, connection: connection}}, cache,
		&infrav1.LibvirtHost{ObjectMeta: metav1.ObjectMeta{Name: "host-0"}}
}

// TestWorkOfALook: a reconcile of a host reads only the machines of this host, independent of the number of other
// machines.
func TestWorkOfALook(t *testing.T) {
	read := func(machines int) int {
		r, cache, host := lookedAt(t, machines)
		NewWithT(t).Expect(r.findOrphans(t.Context(), host)).To(Succeed())
		NewWithT(t).Expect(host.Status.Orphans).To(BeEmpty())
		return cache.Read
	}
	NewWithT(t).Expect(read(4000)).To(Equal(read(250)))
}

func BenchmarkLook(b *testing.B) {
	for _, machines := range []int{250, 1000, 4000} {
		b.Run(fmt.Sprintf("machines=%d", machines), func(b *testing.B) {
			r, _, host := lookedAt(b, machines)
			for b.Loop() {
				if err := r.findOrphans(b.Context(), host); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
