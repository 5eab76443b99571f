package libvirtmachine

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/fleet"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/placement"
)

func machineOn(host, uid, domain string) *infrav1.LibvirtMachine {
	infra := &infrav1.LibvirtMachine{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "m", UID: types.UID(uid)}, Spec: newSpec()}
	infra.Spec.HostName = host
	if domain != "" {
		infra.Spec.ProviderID = infrav1.ProviderIDPrefix + domain
	}
	return infra
}

// TestLedgerIsKept: what happens to machines is told, in whichever way it is seen.
func TestLedgerIsKept(t *testing.T) {
	g := NewWithT(t)
	owner := &hypervisor.Owner{Cluster: "blue", Namespace: key.Namespace, Name: "m"}
	seen := snapshots{"a": {Domains: map[string]hypervisor.Domain{"x": {Owner: owner}, "y": {Owner: owner}}}}
	r := &Reconciler{Ledger: &placement.Ledger{}, Hosts: seen}
	told := r.keepLedger()
	update := func(before, after client.Object) {
		told.Update(t.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: after}, nil)
	}
	domains := func() map[string]bool { return r.Ledger.Domains("a") }
	unbound, bound := machineOn("", "1", ""), machineOn("a", "1", "x")
	told.Create(t.Context(), event.CreateEvent{Object: unbound}, nil)
	g.Expect(domains()).To(BeEmpty())
	update(unbound, bound)
	g.Expect(domains()).To(HaveKey("x"))
	again := machineOn("a", "2", "y")
	update(bound, again)
	g.Expect(domains()).To(Equal(map[string]bool{"y": true}), "deleted and made again meanwhile")
	told.Delete(t.Context(), event.DeleteEvent{Object: again}, nil)
	g.Expect(domains()).To(BeEmpty())
	told.Create(t.Context(), event.CreateEvent{Object: bound}, nil)
	g.Expect(domains()).To(HaveKey("x"))

	for uid, theirs := range map[string]hypervisor.Domain{"3": {Owner: &hypervisor.Owner{Namespace: "others", Name: "m"}}, "4": {Name: "m"}} {
		seen["a"].Domains[uuidOfOthers] = theirs
		claimed := machineOn("a", uid, uuidOfOthers)
		told.Create(t.Context(), event.CreateEvent{Object: claimed}, nil)
		r.told.again(r)
		g.Expect(domains()).ToNot(HaveKey(uuidOfOthers), "the domain isn't the machine's")
		seen["a"].Domains[uuidOfOthers] = hypervisor.Domain{Owner: owner}
		r.told.again(r)
		g.Expect(domains()).To(HaveKey(uuidOfOthers), "its domain has been seen")
		told.Delete(t.Context(), event.DeleteEvent{Object: claimed}, nil)
		g.Expect(domains()).ToNot(HaveKey(uuidOfOthers))
		g.Expect(r.told.claimed).To(BeEmpty())
	}
}

// snapshots are what was seen of hosts, by name, and no way to them.
type snapshots map[string]fleet.Snapshot

var _ Hosts = snapshots{}

// Snapshot implements Hosts.
func (s snapshots) Snapshot(host string) (fleet.Snapshot, bool) {
	snapshot, known := s[host]
	return snapshot, known
}

// Hypervisor implements Hosts.
func (s snapshots) Hypervisor(string) (hypervisor.Hypervisor, error) {
	return nil, hypervisor.ErrUnreachable
}

// Refresh implements Hosts.
func (s snapshots) Refresh(context.Context, string, string) error { return nil }

// RefreshPool implements Hosts.
func (s snapshots) RefreshPool(string, string) {}

// TestPlaces: what is remembered of a host is what would be made anew, whatever has changed.
func TestPlaces(t *testing.T) {
	const theirs, ours = "22222222-2222-4222-8222-222222222222", "11111111-1111-4111-8111-111111111111"
	domains := func(uuids ...string) map[string]hypervisor.Domain {
		all := map[string]hypervisor.Domain{}
		for _, uuid := range uuids {
			all[uuid] = hypervisor.Domain{UUID: uuid, CPUs: 2, State: hypervisor.StateRunning}
		}
		return all
	}
	g := NewWithT(t)
	var known places
	var ledger placement.Ledger
	snapshot := fleet.Snapshot{Version: 1, Domains: domains(theirs)}
	host := &infrav1.LibvirtHost{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "1"}}
	foreign := func() int64 {
		return known.of(host, snapshot, &ledger).Foreign[placement.Resource{Kind: placement.CPU}]
	}
	g.Expect(foreign()).To(BeEquivalentTo(2))
	g.Expect(foreign()).To(BeEquivalentTo(2))

	snapshot = fleet.Snapshot{Version: 2, Domains: domains(theirs, ours)}
	g.Expect(foreign()).To(BeEquivalentTo(4), "a new snapshot")
	ledger.See(placed(machineOn("a", "1", ours)))
	g.Expect(foreign()).To(BeEquivalentTo(2), "it is a machine's")
	ledger.Gone("1")
	g.Expect(foreign()).To(BeEquivalentTo(4))
	host.ResourceVersion, host.Spec.FailureDomain = "2", "rack"
	g.Expect(known.of(host, snapshot, &ledger).FailureDomain).To(Equal("rack"))

	snapshot = fleet.Snapshot{Domains: domains(theirs)}
	g.Expect(foreign()).To(BeEquivalentTo(2), "of no version")
	snapshot = fleet.Snapshot{Domains: domains()}
	g.Expect(foreign()).To(BeZero(), "of no version")

	known.keep([]infrav1.LibvirtHost{*host})
	g.Expect(known.known).To(HaveKey("a"))
	known.keep(nil)
	g.Expect(known.known).To(BeEmpty())
}
