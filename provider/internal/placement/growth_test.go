package placement_test

import (
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/resource"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/placement"
)

// growing is a machine that has what newSpec says, and is to have as many CPUs.
func growing(uid string, cpus int32) (wanted placement.Machine, has placement.Resources) {
	wanted = newMachine(uid, "a")
	wanted.Needs = placement.Needs(newSpec(func(spec *infrav1.LibvirtMachineSpec) { spec.CPUs = cpus }))
	return wanted, placement.Needs(newSpec())
}

func bound(machines ...placement.Machine) func() ([]placement.Machine, error) {
	return func() ([]placement.Machine, error) { return machines, nil }
}

// TestGrowth: the host has 8 CPUs, and each of its two machines has two.
func TestGrowth(t *testing.T) {
	g := NewWithT(t)
	var ledger placement.Ledger
	host, both := newHost("a"), bound(newMachine("1", "a"), newMachine("2", "a"))

	one, has := growing("1", 6)
	other, _ := growing("2", 4)
	g.Expect(ledger.Grow(one, has, host, both)).To(Succeed())
	g.Expect(ledger.Grow(one, has, host, both)).To(Succeed(), "again: its own room isn't taken by itself")
	err := ledger.Grow(other, has, host, both)
	var noFit *placement.NoFitError
	g.Expect(errors.As(err, &noFit)).To(BeTrue())
	g.Expect(noFit.Hosts).To(Equal([]placement.Unfit{{Host: "a", Reason: placement.NoRoom, Message: "no room (CPUs: 4 needed, 2 free)"}}))

	// What the cache shows later counts once.
	seen := bound(one, newMachine("2", "a"))
	g.Expect(ledger.Grow(other, has, host, seen)).To(MatchError(ContainSubstring("2 free")))
	less, _ := growing("1", 3)
	g.Expect(ledger.Grow(other, has, host, bound(less, newMachine("2", "a")))).To(Succeed(), "the reservation has ended with what was seen")

	// A machine that is gone has no room any more, and neither has one that gave it up.
	ledger = placement.Ledger{}
	g.Expect(ledger.Grow(one, has, host, both)).To(Succeed())
	g.Expect(ledger.Grow(other, has, host, bound(newMachine("2", "a")))).To(Succeed())
	ledger = placement.Ledger{}
	g.Expect(ledger.Grow(one, has, host, both)).To(Succeed())
	ledger.Release("1")
	g.Expect(ledger.Grow(other, has, host, both)).To(Succeed())
}

// TestEndOfGrowth: the room for more is given back, and the room of what is placed isn't.
func TestEndOfGrowth(t *testing.T) {
	g := NewWithT(t)
	ledger, host, both := newLedger(t, newMachine("1", "a"), newMachine("2", "a")), newHost("a"), bound(newMachine("1", "a"), newMachine("2", "a"))
	one, has := growing("1", 6)
	other, _ := growing("2", 4)
	g.Expect(ledger.Grow(one, has, host, both)).To(Succeed())
	ledger.EndGrowth("1")
	g.Expect(ledger.Grow(other, has, host, both)).To(Succeed())
	_, err := ledger.Place(requestOf("3"), []placement.Host{host})
	g.Expect(err).ToNot(HaveOccurred())
	ledger.EndGrowth("3")
	g.Expect(ledger.Reserved()).To(Equal(1))
}

// TestGrowthOfAFullHost: what doesn't become more needs no room, however little there is.
func TestGrowthOfAFullHost(t *testing.T) {
	g := NewWithT(t)
	var ledger placement.Ledger
	full := newHost("a", func(h *placement.Host) { h.Room[placement.Resource{Kind: placement.Memory}] = gib })
	wanted, has := growing("1", 4)
	g.Expect(ledger.Grow(wanted, has, full, bound(newMachine("1", "a")))).To(Succeed())
	wanted.Needs = placement.Needs(newSpec(func(spec *infrav1.LibvirtMachineSpec) { spec.Memory = resource.MustParse("2Gi") }))
	g.Expect(ledger.Grow(wanted, has, full, bound(newMachine("1", "a")))).To(Succeed(), "less")
	wanted.Needs = placement.Needs(newSpec(func(spec *infrav1.LibvirtMachineSpec) { spec.RootDisk.Size = resource.MustParse("90Gi") }))
	g.Expect(ledger.Grow(wanted, has, full, bound(newMachine("1", "a")))).To(MatchError(ContainSubstring("storage in pool fast: 90Gi needed, 80Gi free")))
}

// TestGrowthLeavesRoomForWhatIsPlaced: a machine that was placed and isn't seen so far has its room.
func TestGrowthLeavesRoomForWhatIsPlaced(t *testing.T) {
	g := NewWithT(t)
	ledger := newLedger(t, newMachine("1", "a"))
	host, alone := newHost("a"), bound(newMachine("1", "a"))
	_, err := ledger.Place(requestOf("2"), []placement.Host{host})
	g.Expect(err).ToNot(HaveOccurred())
	wanted, has := growing("1", 7)
	g.Expect(ledger.Grow(wanted, has, host, alone)).To(MatchError(ContainSubstring("6 free")))
	broken := errors.New("broken")
	g.Expect(ledger.Grow(wanted, has, host, func() ([]placement.Machine, error) { return nil, broken })).To(MatchError(broken))
}

// TestClaimsTakeNoRoom: neither from machines that are placed nor from those that grow, until they are placed
// themselves.
func TestClaimsTakeNoRoom(t *testing.T) {
	g := NewWithT(t)
	claim := newMachine("claim", "a")
	claim.Claimed = true
	claim.Needs = placement.Needs(newSpec(func(s *infrav1.LibvirtMachineSpec) { s.CPUs = 7 }))
	ledger := newLedger(t, claim)
	has := newMachine("1", "a")
	ledger.See(has)
	g.Expect(ledger.Counts("claim")).To(BeFalse())
	more := newMachine("1", "a")
	more.Needs = placement.Needs(newSpec(func(s *infrav1.LibvirtMachineSpec) { s.CPUs = 4 }))
	bound := func() ([]placement.Machine, error) { return []placement.Machine{has, claim}, nil }
	g.Expect(ledger.Grow(more, has.Needs, newHost("a"), bound)).To(Succeed())
	ledger.EndGrowth("1")

	request := newRequest(func(s *infrav1.LibvirtMachineSpec) { s.CPUs = 4 })
	request.Machine.UID = "claim"
	g.Expect(ledger.Place(request, []placement.Host{newHost("a")})).To(Equal("a"))
	ledger.See(claim)
	g.Expect(ledger.Counts("claim")).To(BeTrue(), "it was placed there")
	g.Expect(ledger.Reserved()).To(BeZero())
	g.Expect(ledger.Grow(more, has.Needs, newHost("a"), bound)).To(MatchError(ContainSubstring("no room")))
}
