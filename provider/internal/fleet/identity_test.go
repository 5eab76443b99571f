package fleet_test

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/fleet"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/fake"
)

// TestAnotherHypervisor checks that neither the connection nor the state of another hypervisor is published, whether
// the connection was lost, the target has changed, or the fleet was started again.
func TestAnotherHypervisor(t *testing.T) {
	f := newFixture(t, quick, "a", "b")
	first, other := f.hosts["a"].UUID(), f.hosts["b"].UUID()
	isOther := func(g Gomega, snapshot fleet.Snapshot) {
		g.Expect(snapshot.Reachable).To(BeFalse())
		var mistaken *fleet.OtherHypervisorError
		g.Expect(snapshot.Err).To(BeAssignableToTypeOf(mistaken))
		g.Expect(snapshot.Err).To(MatchError("another hypervisor answers: its UUID is " + other + " and not " + first))
		_, err := f.Hypervisor("a")
		g.Expect(err).To(MatchError(hypervisor.ErrUnreachable))
	}
	f.Ensure("a", target("a"))
	seen := f.snapshot("a", reachable)
	f.Expect(seen.Facts.UUID).To(Equal(first))
	f.Expect(f.HypervisorUUID("a")).To(Equal(first))

	// The name leads to another hypervisor.
	own := f.hosts["a"]
	f.swap("a", f.hosts["b"])
	own.SetReachable(false)
	f.Expect(f.snapshot("a", isOther).Domains).To(Equal(seen.Domains), "the last state stays")
	f.swap("a", own)
	own.SetReachable(true)
	f.snapshot("a", reachable)

	// The target has changed.
	elsewhere := target("b")
	f.Ensure("a", elsewhere)
	f.snapshot("a", isOther)
	f.Ensure("a", target("a"))
	f.snapshot("a", reachable)

	// The fleet knows only the target.
	f.Forget("a")
	elsewhere.UUID = first
	f.Ensure("a", elsewhere)
	f.snapshot("a", isOther)

	// The new hypervisor is accepted.
	elsewhere.UUID = other
	f.Ensure("a", elsewhere)
	f.snapshot("a", reachable)
}

// TestRefusedHost checks that no machine is placed on a refused host, and that machines on it can be deleted.
func TestRefusedHost(t *testing.T) {
	f := newFixture(t, quick, "a", "b")
	f.Ensure("a", target("a"))
	f.snapshot("a", reachable)
	why := &fleet.DuplicateHypervisorError{UUID: "u", Host: "b"}
	f.Refuse("a", why)
	f.Refuse("missing", why)
	refused := f.snapshot("a", func(g Gomega, snapshot fleet.Snapshot) {
		g.Expect([]any{snapshot.Reachable, snapshot.Err}).To(Equal([]any{false, why}))
	})
	f.Refuse("a", &fleet.DuplicateHypervisorError{UUID: "u", Host: "b"})
	again, _ := f.Snapshot("a")
	f.Expect(again.Version).To(Equal(refused.Version), "the same refusal publishes nothing")
	_, err := f.Hypervisor("a")
	f.Expect(err).ToNot(HaveOccurred())
	f.Refuse("a", nil)
	f.snapshot("a", reachable)

	f.Refuse("a", why)
	f.Ensure("a", target("b")) // the right target
	f.Expect(f.snapshot("a", reachable).Facts.UUID).To(Equal(f.hosts["b"].UUID()))
}

// swap connects the name of a host to another fake host.
func (f *fixture) swap(name string, host *fake.Host) {
	f.lock.Lock()
	defer f.lock.Unlock()
	f.hosts[name] = host
}
