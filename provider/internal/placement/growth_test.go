package placement_test

import (
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/resource"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/placement"
)

// needing returns the resources of newSpec with the given number of CPUs.
func needing(cpus int32) placement.Resources {
	return placement.Needs(newSpec(func(spec *infrav1.LibvirtMachineSpec) { spec.CPUs = cpus }))
}

// TestGrowth checks reservations on a host with 8 CPUs and two machines of two CPUs.
func TestGrowth(t *testing.T) {
	g := NewWithT(t)
	ledger := newLedger(t, newMachine("1", "a"), newMachine("2", "a"))
	host := newHost("a")

	g.Expect(ledger.Grow("1", needing(6), host)).To(Succeed())
	g.Expect(ledger.Grow("1", needing(6), host)).To(Succeed(), "again: its own reservation doesn't block it")
	g.Expect(ledger.Covers("1", needing(6))).To(BeTrue())
	err := ledger.Grow("2", needing(4), host)
	var noFit *placement.NoFitError
	g.Expect(errors.As(err, &noFit)).To(BeTrue())
	g.Expect(noFit.Hosts).To(Equal([]placement.Unfit{{Host: "a", Reason: placement.NoRoom, Message: "no room (CPUs: 4 needed, 2 free)"}}))
	g.Expect(ledger.Covers("2", needing(2))).To(BeTrue(), "it keeps its resources")
	_, err = ledger.Place(requestOf("3"), []placement.Host{host})
	g.Expect(err).To(MatchError(ContainSubstring("no room")), "the reservation for growth counts for other machines")

	// The observed resources count once, and never less than the reservation.
	ledger.Give("1", needing(4))
	g.Expect(ledger.Grow("2", needing(4), host)).To(MatchError(ContainSubstring("2 free")))
	ledger.EndGrowth("1")
	g.Expect(ledger.Grow("2", needing(4), host)).To(Succeed())
	g.Expect(ledger.Covers("1", needing(5))).To(BeFalse())

	// A deleted machine has no reservation, and neither has a machine that released it.
	ledger.Gone("2")
	g.Expect(ledger.Grow("1", needing(8), host)).To(Succeed())
	ledger.Release("1")
	g.Expect(ledger.Grows("1")).To(BeFalse())
	g.Expect(ledger.Place(requestOf("4"), []placement.Host{host})).To(Equal("a"))
}

// TestGrowthOfUnplacedMachine checks that a machine can't grow on a host where it isn't placed.
func TestGrowthOfUnplacedMachine(t *testing.T) {
	g := NewWithT(t)
	ledger := newLedger(t, newMachine("1", "b"))
	for _, uid := range []string{"1", "2"} {
		g.Expect(ledger.Grow(newMachine(uid, "").UID, needing(1), newHost("a"))).To(MatchError(ContainSubstring("isn't placed on this host")))
	}
}

// TestEndOfGrowth checks that the reservation for growth is released, and that the resources of the machine stay.
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

// TestGrowthOfAFullHost checks that resources that don't grow need no room.
func TestGrowthOfAFullHost(t *testing.T) {
	g := NewWithT(t)
	ledger := newLedger(t, newMachine("1", "a"))
	full := newHost("a", func(h *placement.Host) { h.Room[placement.Resource{Kind: placement.Memory}] = gib })
	g.Expect(ledger.Grow("1", needing(4), full)).To(Succeed())
	g.Expect(ledger.Grow("1", placement.Needs(newSpec(func(spec *infrav1.LibvirtMachineSpec) { spec.Memory = resource.MustParse("2Gi") })), full)).To(Succeed(), "less")
	wanted := placement.Needs(newSpec(func(spec *infrav1.LibvirtMachineSpec) { spec.RootDisk.Size = resource.MustParse("90Gi") }))
	g.Expect(ledger.Grow("1", wanted, full)).To(MatchError(ContainSubstring("storage in pool fast: 90Gi needed, 80Gi free")))
}

// TestGrowthLeavesRoomForWhatIsPlaced checks that a placed machine counts before it is in the cache.
func TestGrowthLeavesRoomForWhatIsPlaced(t *testing.T) {
	g := NewWithT(t)
	ledger, host := newLedger(t, newMachine("1", "a")), newHost("a")
	_, err := ledger.Place(requestOf("2"), []placement.Host{host})
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(ledger.Grow("1", needing(7), host)).To(MatchError(ContainSubstring("6 free")))
}

// TestClaimsTakeNoRoom checks that claimed machines block neither new nor growing machines until they are placed.
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
	g.Expect(ledger.Grow("1", needing(5), newHost("a"))).To(MatchError(ContainSubstring("5 needed, 4 free")), "the 4 that it was placed with, not the 7 in its spec")
}

// TestGivenResourcesCount checks that a placed machine counts with the resources at its placement or from its host, not
// with later changes of its spec. If it needs more before it is created, its host must have room.
func TestGivenResourcesCount(t *testing.T) {
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
