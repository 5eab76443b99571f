package placement_test

import (
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/resource"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/placement"
)

// needing is what newSpec says with as many CPUs.
func needing(cpus int32) placement.Resources {
	return placement.Needs(newSpec(func(spec *infrav1.LibvirtMachineSpec) { spec.CPUs = cpus }))
}

// TestGrowth: the host has 8 CPUs, and each of its two machines has two.
func TestGrowth(t *testing.T) {
	g := NewWithT(t)
	ledger := newLedger(t, newMachine("1", "a"), newMachine("2", "a"))
	host := newHost("a")

	g.Expect(ledger.Grow("1", needing(6), host)).To(Succeed())
	g.Expect(ledger.Grow("1", needing(6), host)).To(Succeed(), "again: its own room isn't taken by itself")
	g.Expect(ledger.Covers("1", needing(6))).To(BeTrue())
	err := ledger.Grow("2", needing(4), host)
	var noFit *placement.NoFitError
	g.Expect(errors.As(err, &noFit)).To(BeTrue())
	g.Expect(noFit.Hosts).To(Equal([]placement.Unfit{{Host: "a", Reason: placement.NoRoom, Message: "no room (CPUs: 4 needed, 2 free)"}}))
	g.Expect(ledger.Covers("2", needing(2))).To(BeTrue(), "it keeps what it has")
	_, err = ledger.Place(requestOf("3"), []placement.Host{host})
	g.Expect(err).To(MatchError(ContainSubstring("no room")), "what a machine grows to is counted for all")

	// What it was given counts once, and not less than what is on its way.
	ledger.Give("1", needing(4))
	g.Expect(ledger.Grow("2", needing(4), host)).To(MatchError(ContainSubstring("2 free")))
	ledger.EndGrowth("1")
	g.Expect(ledger.Grow("2", needing(4), host)).To(Succeed())
	g.Expect(ledger.Covers("1", needing(5))).To(BeFalse())

	// A machine that is gone has no room any more, and neither has one that gave it up.
	ledger.Gone("2")
	g.Expect(ledger.Grow("1", needing(8), host)).To(Succeed())
	ledger.Release("1")
	g.Expect(ledger.Grows("1")).To(BeFalse())
	g.Expect(ledger.Place(requestOf("4"), []placement.Host{host})).To(Equal("a"))
}

// TestGrowthOfNobody: a machine that isn't placed on the host has nothing to grow from.
func TestGrowthOfNobody(t *testing.T) {
	g := NewWithT(t)
	ledger := newLedger(t, newMachine("1", "b"))
	for _, uid := range []string{"1", "2"} {
		g.Expect(ledger.Grow(newMachine(uid, "").UID, needing(1), newHost("a"))).To(MatchError(ContainSubstring("isn't placed on it")))
	}
}

// TestEndOfGrowth: the room for more is given back, and the room of what is placed isn't.
func TestEndOfGrowth(t *testing.T) {
	g := NewWithT(t)
	ledger, host := newLedger(t, newMachine("1", "a"), newMachine("2", "a")), newHost("a")
	g.Expect(ledger.Grow("1", needing(6), host)).To(Succeed())
	g.Expect(ledger.Grows("1")).To(BeTrue())
	ledger.EndGrowth("1")
	g.Expect(ledger.Grows("1")).To(BeFalse())
	g.Expect(ledger.Grow("2", needing(4), host)).To(Succeed())
	_, err := ledger.Place(requestOf("3"), []placement.Host{host})
	g.Expect(err).ToNot(HaveOccurred())
	ledger.EndGrowth("3")
	g.Expect(ledger.Reserved()).To(Equal(1))
}

// TestGrowthOfAFullHost: what doesn't become more needs no room, however little there is.
func TestGrowthOfAFullHost(t *testing.T) {
	g := NewWithT(t)
	ledger := newLedger(t, newMachine("1", "a"))
	full := newHost("a", func(h *placement.Host) { h.Room[placement.Resource{Kind: placement.Memory}] = gib })
	g.Expect(ledger.Grow("1", needing(4), full)).To(Succeed())
	g.Expect(ledger.Grow("1", placement.Needs(newSpec(func(spec *infrav1.LibvirtMachineSpec) { spec.Memory = resource.MustParse("2Gi") })), full)).To(Succeed(), "less")
	wanted := placement.Needs(newSpec(func(spec *infrav1.LibvirtMachineSpec) { spec.RootDisk.Size = resource.MustParse("90Gi") }))
	g.Expect(ledger.Grow("1", wanted, full)).To(MatchError(ContainSubstring("storage in pool fast: 90Gi needed, 80Gi free")))
}

// TestGrowthLeavesRoomForWhatIsPlaced: a machine that was placed and isn't seen so far has its room.
func TestGrowthLeavesRoomForWhatIsPlaced(t *testing.T) {
	g := NewWithT(t)
	ledger, host := newLedger(t, newMachine("1", "a")), newHost("a")
	_, err := ledger.Place(requestOf("2"), []placement.Host{host})
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(ledger.Grow("1", needing(7), host)).To(MatchError(ContainSubstring("6 free")))
}

// TestClaimsTakeNoRoom: neither from machines that are placed nor from those that grow, until they are placed
// themselves.
func TestClaimsTakeNoRoom(t *testing.T) {
	g := NewWithT(t)
	claim := newMachine("claim", "a")
	claim.Claimed, claim.Estimated, claim.Needs = true, true, needing(7)
	ledger := newLedger(t, claim)
	ledger.See(newMachine("1", "a"))
	g.Expect(ledger.Counts("claim")).To(BeFalse())
	g.Expect(ledger.Grow("1", needing(4), newHost("a"))).To(Succeed())
	ledger.EndGrowth("1")

	request := newRequest(func(s *infrav1.LibvirtMachineSpec) { s.CPUs = 4 })
	request.Machine.UID = "claim"
	g.Expect(ledger.Place(request, []placement.Host{newHost("a")})).To(Equal("a"))
	ledger.See(claim)
	g.Expect(ledger.Counts("claim")).To(BeTrue(), "it was placed there")
	g.Expect(ledger.Reserved()).To(BeZero())
	g.Expect(ledger.Grow("1", needing(5), newHost("a"))).To(MatchError(ContainSubstring("5 needed, 4 free")), "with 4, not the 7 that it asks for now")
}

// TestWhatWasGivenCounts: a machine that is placed takes what it was placed with or was seen to have, and not what its spec says
// later. When it needs more before it is made, its host has to have room.
func TestWhatWasGivenCounts(t *testing.T) {
	g := NewWithT(t)
	ledger, host := newLedger(t), newHost("a")
	g.Expect(ledger.Place(requestOf("1"), []placement.Host{host})).To(Equal("a"))
	estimate := newMachine("1", "a")
	for _, cpus := range []int32{1, 8} {
		estimate.Estimated, estimate.Needs = true, needing(cpus)
		ledger.See(estimate)
		g.Expect(ledger.Covers("1", needing(2))).To(BeTrue())
		g.Expect(ledger.Covers("1", needing(3))).To(BeFalse())
	}
	more := func(cpus int32) placement.Request {
		request := newRequest(func(s *infrav1.LibvirtMachineSpec) { s.CPUs = cpus })
		request.Machine.UID = "1"
		return request
	}
	b := newHost("b")
	_, err := ledger.Place(more(9), []placement.Host{host, b})
	g.Expect(err).To(MatchError(HaveSuffix("a: no room (CPUs: 9 needed, 8 free)")), "it can't move")
	g.Expect(ledger.Covers("1", needing(2))).To(BeTrue())
	g.Expect(ledger.Place(more(7), []placement.Host{host, b})).To(Equal("a"))
	g.Expect(ledger.Covers("1", needing(7))).To(BeTrue())
	g.Expect(ledger.Reserved()).To(BeZero(), "it is bound")
	ledger.Give("1", needing(5))
	g.Expect(ledger.Covers("1", needing(5))).To(BeTrue())
	g.Expect(ledger.Covers("1", needing(6))).To(BeFalse())
	ledger.Give("2", needing(5))
	g.Expect(ledger.Counts("2")).To(BeFalse())
}
