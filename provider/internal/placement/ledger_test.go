package placement_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/placement"
)

func requestOf(uid string) placement.Request {
	request := newRequest()
	request.Machine.UID = types.UID(uid)
	return request
}

// newLedger returns a ledger that has loaded these machines.
func newLedger(t *testing.T, bound ...placement.Machine) *placement.Ledger {
	t.Helper()
	ledger := &placement.Ledger{}
	NewWithT(t).Expect(ledger.Load(func() ([]placement.Machine, error) { return bound, nil })).To(Succeed())
	return ledger
}

func TestLedgerCountsReservations(t *testing.T) {
	g := NewWithT(t)
	ledger := newLedger(t)
	hosts := []placement.Host{newHost("a")}
	for _, uid := range []string{"1", "2", "3", "4"} {
		host, err := ledger.Place(requestOf(uid), hosts)
		g.Expect(err).ToNot(HaveOccurred())
		g.Expect(host).To(Equal("a"))
	}
	_, err := ledger.Place(requestOf("5"), hosts)
	g.Expect(err).To(MatchError(ContainSubstring("no room")))
	g.Expect(ledger.Reserved()).To(Equal(4))

	// After the cache has them they count once, without reservations.
	ledger.See(newMachine("1", "a"))
	ledger.See(newMachine("2", "a"))
	ledger.See(newMachine("2", ""))
	_, err = ledger.Place(requestOf("5"), hosts)
	g.Expect(err).To(MatchError(ContainSubstring("no room")))
	g.Expect(ledger.Reserved()).To(Equal(2))

	ledger.Release("2")
	_, err = ledger.Place(requestOf("5"), hosts)
	g.Expect(err).To(MatchError(ContainSubstring("no room")), "it is bound and has no reservation to release")
	ledger.Release("3")
	g.Expect(ledger.Place(requestOf("5"), hosts)).To(Equal("a"))
	_, err = ledger.Place(requestOf("6"), hosts)
	g.Expect(err).To(MatchError(ContainSubstring("no room")))
	ledger.Gone("2")
	g.Expect(ledger.Place(requestOf("6"), hosts)).To(Equal("a"))
}

func TestLedgerKeepsAHost(t *testing.T) {
	g := NewWithT(t)
	ledger := newLedger(t)
	a, b := newHost("a"), newHost("b")
	place := func(hosts ...placement.Host) string {
		host, err := ledger.Place(requestOf("1"), hosts)
		g.Expect(err).ToNot(HaveOccurred())
		return host
	}
	g.Expect(place(a)).To(Equal("a"))
	ledger.See(newMachine("2", "a"))
	g.Expect(place(a, b)).To(Equal("a"), "b is better, but a may have been written")
	ledger.See(newMachine("1", ""))
	g.Expect(place(a, b)).To(Equal("a"), "seen without a host")
	a.Ready = false
	_, err := ledger.Place(requestOf("1"), []placement.Host{a})
	g.Expect(err).To(MatchError(ContainSubstring("not ready")))
	g.Expect(ledger.Reserved()).To(Equal(1), "the reservation stays as it is")
	g.Expect(place(a, b)).To(Equal("b"), "a no longer fits")
	g.Expect(ledger.Reserved()).To(Equal(1))
	ledger.See(newMachine("1", "a"))
	g.Expect(place(a, b)).To(Equal("a"), "it is bound")
	g.Expect(ledger.Reserved()).To(BeZero())
}

func TestLedgerIsLoadedOnce(t *testing.T) {
	g := NewWithT(t)
	ledger := &placement.Ledger{}
	hosts := []placement.Host{newHost("a")}
	_, err := ledger.Place(requestOf("1"), hosts)
	g.Expect(err).To(HaveOccurred(), "the placed machines aren't known")
	broken := errors.New("broken")
	g.Expect(ledger.Load(func() ([]placement.Machine, error) { return nil, broken })).To(MatchError(broken))
	_, err = ledger.Place(requestOf("1"), hosts)
	g.Expect(err).To(HaveOccurred())

	ledger.See(newMachine("1", "a")) // may be called before Load, and twice
	bound := func() ([]placement.Machine, error) {
		return []placement.Machine{newMachine("1", "a"), newMachine("2", "a"), newMachine("3", "a"), newMachine("4", "a"), newMachine("5", "")}, nil
	}
	g.Expect(ledger.Load(bound)).To(Succeed())
	_, err = ledger.Place(requestOf("5"), hosts)
	g.Expect(err).To(MatchError(ContainSubstring("no room")))
	ledger.Gone("1")
	g.Expect(ledger.Load(bound)).To(Succeed())
	g.Expect(ledger.Place(requestOf("5"), hosts)).To(Equal("a"), "the ledger loads once")
}

func TestLedgerDomains(t *testing.T) {
	g := NewWithT(t)
	ledger := newLedger(t)
	with := func(uid, host, domain string) placement.Machine {
		machine := newMachine(uid, host)
		machine.Domain = domain
		return machine
	}
	place := func(domain string) {
		request := requestOf("1")
		request.Machine.Domain = domain
		g.Expect(ledger.Place(request, []placement.Host{newHost("a")})).To(Equal("a"))
	}
	version := ledger.Version("a")
	changed := func() bool {
		before := version
		version = ledger.Version("a")
		return version != before
	}
	g.Expect(ledger.Domains("a")).To(BeEmpty())
	place("x")
	g.Expect(ledger.Domains("a")).To(Equal(map[string]bool{"x": true}))
	g.Expect(changed()).To(BeTrue())
	place("y")
	g.Expect(ledger.Domains("a")).To(Equal(map[string]bool{"y": true}), "a retry with another UUID")
	g.Expect(changed()).To(BeTrue())
	ledger.See(with("1", "a", "y"))
	ledger.See(with("2", "b", "z"))
	g.Expect(changed()).To(BeFalse(), "the placed domain was written")
	ledger.See(with("1", "a", "x"))
	g.Expect(ledger.Domains("a")).To(Equal(map[string]bool{"x": true}), "the written UUID counts")
	g.Expect(changed()).To(BeTrue())
	ledger.See(with("3", "a", "x"))
	ledger.Gone("3")
	g.Expect(ledger.Domains("a")).To(HaveKey("x"), "two machines have this UUID")
	ledger.Gone("1")
	g.Expect(changed()).To(BeTrue())
	g.Expect(ledger.Domains("a")).To(BeEmpty())
	g.Expect(ledger.Domains("b")).To(Equal(map[string]bool{"z": true}))
}

// TestLedgerCountsAsChooseDoes applies random events of machines, and compares the choices of a ledger, which updates
// its sums, with those of Choose, which adds up all machines.
func TestLedgerCountsAsChooseDoes(t *testing.T) {
	const seeds, steps = 40, 200
	for seed := range uint64(seeds) {
		g := NewWithT(t)
		random := rand.New(rand.NewPCG(seed, 1))
		ledger, hosts, taken := newLedger(t), randomHosts(random, 1+random.IntN(6)), map[types.UID]placement.Machine{}
		reserved := map[types.UID]bool{}
		machines := func(but types.UID) []placement.Machine {
			return slices.Collect(func(yield func(placement.Machine) bool) {
				for uid, machine := range taken {
					if uid != but && !yield(machine) {
						return
					}
				}
			})
		}
		for range steps {
			request := randomRequest(random, random.IntN(25))
			uid := request.Machine.UID
			switch random.IntN(4) {
			case 0:
				ledger.Gone(uid)
				delete(taken, uid)
				delete(reserved, uid)
			case 1:
				ledger.Release(uid)
				if reserved[uid] {
					delete(taken, uid)
					delete(reserved, uid)
				}
			case 2:
				machine := request.Machine
				if before, exists := taken[uid]; exists && random.IntN(2) == 0 {
					machine = before
				} else {
					machine.Host = hosts[random.IntN(len(hosts))].Name
				}
				ledger.See(machine)
				taken[uid] = machine
				delete(reserved, uid)
			case 3:
				got, err := ledger.Place(request, hosts)
				before, exists := taken[uid]
				among := hosts
				if exists && !reserved[uid] {
					if covers(before.Needs, request.Machine.Needs) {
						g.Expect(got).To(Equal(before.Host))
						continue
					}
					among = slices.DeleteFunc(slices.Clone(hosts), func(h placement.Host) bool { return h.Name != before.Host })
				}
				want, wantErr := placement.Choose(request, among, machines(uid))
				if wantErr != nil {
					g.Expect(err).To(MatchError(wantErr.Error()))
					continue
				}
				g.Expect(err).ToNot(HaveOccurred())
				if exists {
					kept, keptErr := placement.Choose(request, slices.DeleteFunc(slices.Clone(hosts), func(h placement.Host) bool { return h.Name != before.Host }), machines(uid))
					if keptErr == nil {
						want = kept
					}
				}
				g.Expect(got).To(Equal(want))
				request.Machine.Host = got
				taken[uid] = request.Machine
				if !exists || reserved[uid] {
					reserved[uid] = true
				}
			}
		}
		g.Expect(ledger.Reserved()).To(Equal(len(reserved)))
	}
}

func covers(has, needs placement.Resources) bool {
	for key, value := range needs {
		if has[key] < value {
			return false
		}
	}
	return true
}

// TestLedgerRace places machines from many goroutines, whose writes are seen later and sometimes fail, and compares the
// result with the resources of the hosts.
func TestLedgerRace(t *testing.T) {
	const machines, hostCount, perHost = 64, 5, 4
	g := NewWithT(t)
	var hosts []placement.Host
	for i := range hostCount {
		hosts = append(hosts, newHost(fmt.Sprintf("host-%d", i)))
	}
	ledger := newLedger(t)
	var lock sync.Mutex
	var written []placement.Machine
	refused := 0
	var group sync.WaitGroup
	for i := range machines {
		group.Go(func() {
			uid := fmt.Sprintf("uid-%d", i)
			host, err := ledger.Place(requestOf(uid), hosts)
			if err == nil && i%8 == 0 { // its write fails and is retried
				ledger.Release(types.UID(uid))
				host, err = ledger.Place(requestOf(uid), hosts)
			}
			if err == nil && i%3 > 0 { // the cache may have it
				ledger.See(newMachine(uid, host))
			}
			lock.Lock()
			defer lock.Unlock()
			if err != nil {
				refused++
				return
			}
			written = append(written, newMachine(uid, host))
		})
	}
	group.Wait()

	counts := map[string]int{}
	for _, machine := range written {
		counts[machine.Host]++
	}
	for _, host := range hosts {
		g.Expect(counts[host.Name]).To(BeNumerically("<=", perHost), host.Name)
	}
	g.Expect(len(written) + refused).To(Equal(machines))
	g.Expect(len(written)).To(BeNumerically(">=", hostCount*perHost-machines/8), "at most the machines whose write failed are missing")
}
