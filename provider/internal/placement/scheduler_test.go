package placement

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/fleet"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

func machineOn(host, uid, domain string) *infrav1.LibvirtMachine {
	infra := &infrav1.LibvirtMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "m", UID: types.UID(uid)},
		Spec: infrav1.LibvirtMachineSpec{HostName: host, CPUs: 2, Memory: resource.MustParse("4Gi"), RootDisk: infrav1.RootDiskSpec{Size: resource.MustParse("20Gi")}}}
	if domain != "" {
		infra.Spec.ProviderID = infrav1.ProviderIDPrefix + domain
	}
	return infra
}

// TestHandler checks that every kind of event changes the counted machines.
func TestHandler(t *testing.T) {
	const uuidOfOthers = "33333333-3333-4333-8333-333333333333"
	g := NewWithT(t)
	owner := &hypervisor.Owner{Cluster: "blue", Namespace: "team", Name: "m"}
	seen := snapshots{"a": {Domains: map[string]hypervisor.Domain{"x": {Owner: owner}, "y": {Owner: owner}}}}
	scheduler := &Scheduler{Ledger: &Ledger{}, Hosts: seen}
	handler := scheduler.Handler()
	update := func(before, after client.Object) {
		handler.Update(t.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: after}, nil)
	}
	domains := func() map[string]bool { return scheduler.Domains("a") }
	unbound, bound := machineOn("", "1", ""), machineOn("a", "1", "x")
	handler.Create(t.Context(), event.CreateEvent{Object: unbound}, nil)
	g.Expect(domains()).To(BeEmpty())
	update(unbound, bound)
	g.Expect(domains()).To(HaveKey("x"))
	again := machineOn("a", "2", "y")
	update(bound, again)
	g.Expect(domains()).To(Equal(map[string]bool{"y": true}), "deleted and created again before the event")
	handler.Delete(t.Context(), event.DeleteEvent{Object: again}, nil)
	g.Expect(domains()).To(BeEmpty())
	handler.Create(t.Context(), event.CreateEvent{Object: bound}, nil)
	g.Expect(domains()).To(HaveKey("x"))

	for uid, theirs := range map[string]hypervisor.Domain{"3": {Owner: &hypervisor.Owner{Namespace: "others", Name: "m"}}, "4": {Name: "m"}} {
		seen["a"].Domains[uuidOfOthers] = theirs
		claimed := machineOn("a", uid, uuidOfOthers)
		handler.Create(t.Context(), event.CreateEvent{Object: claimed}, nil)
		scheduler.observeClaimed()
		g.Expect(domains()).ToNot(HaveKey(uuidOfOthers), "the domain isn't the machine's")
		seen["a"].Domains[uuidOfOthers] = hypervisor.Domain{Owner: owner}
		scheduler.observeClaimed()
		g.Expect(domains()).To(HaveKey(uuidOfOthers), "its domain is in the snapshot")
		handler.Delete(t.Context(), event.DeleteEvent{Object: claimed}, nil)
		g.Expect(domains()).ToNot(HaveKey(uuidOfOthers))
		g.Expect(scheduler.claimed).To(BeEmpty())
	}
}

// snapshots are the snapshots of hosts, by name.
type snapshots map[string]fleet.Snapshot

var _ fleet.Snapshots = snapshots{}

// Snapshot implements fleet.Snapshots.
func (s snapshots) Snapshot(host string) (fleet.Snapshot, bool) {
	snapshot, known := s[host]
	return snapshot, known
}

// TestPlaces checks that a cached host equals a newly computed one after any change.
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
	var ledger Ledger
	snapshot := fleet.Snapshot{Version: 1, Domains: domains(theirs)}
	host := &infrav1.LibvirtHost{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "1"}}
	foreign := func() int64 {
		return known.of(host, snapshot, &ledger).Foreign[Resource{Kind: CPU}]
	}
	g.Expect(foreign()).To(BeEquivalentTo(2))
	g.Expect(foreign()).To(BeEquivalentTo(2))

	snapshot = fleet.Snapshot{Version: 2, Domains: domains(theirs, ours)}
	g.Expect(foreign()).To(BeEquivalentTo(4), "a new snapshot")
	ledger.See(machineOf(machineOn("a", "1", ours)))
	g.Expect(foreign()).To(BeEquivalentTo(2), "it is a machine's")
	ledger.Gone("1")
	g.Expect(foreign()).To(BeEquivalentTo(4))
	host.ResourceVersion, host.Spec.FailureDomain = "2", "rack"
	g.Expect(known.of(host, snapshot, &ledger).FailureDomain).To(Equal("rack"))

	snapshot = fleet.Snapshot{Domains: domains(theirs)}
	g.Expect(foreign()).To(BeEquivalentTo(2), "without a version")
	snapshot = fleet.Snapshot{Domains: domains()}
	g.Expect(foreign()).To(BeZero(), "without a version")

	known.keep([]infrav1.LibvirtHost{*host})
	_, cached := known.Load("a")
	g.Expect(cached).To(BeTrue())
	known.keep(nil)
	_, cached = known.Load("a")
	g.Expect(cached).To(BeFalse())
}

// TestNewHosts checks that each host is waited for from its first connection, and again when it is recreated.
func TestNewHosts(t *testing.T) {
	g, n, start := NewWithT(t), &newHosts{}, time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	wait := func(after time.Duration, hosts ...string) time.Duration {
		return n.wait(hosts, 5*time.Second, start.Add(after))
	}
	n.see("a", true, start)
	n.see("a", true, start.Add(3*time.Second))
	n.see("b", true, start.Add(3*time.Second))
	n.see("c", false, start)
	g.Expect(wait(3*time.Second, "a")).To(Equal(2 * time.Second))
	g.Expect(wait(3*time.Second, "a", "b", "c")).To(Equal(5 * time.Second))
	g.Expect(wait(6*time.Second, "a", "c")).To(BeZero())
	n.see("b", false, start.Add(4*time.Second))
	g.Expect(wait(4*time.Second, "b")).To(BeZero())
	n.see("b", true, start.Add(time.Hour))
	g.Expect(wait(time.Hour, "b")).To(Equal(5 * time.Second))
}
