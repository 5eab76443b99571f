package placement_test

import (
	"errors"
	"fmt"
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

func none() ([]placement.Machine, error) { return nil, nil }

func TestLedgerCountsWhatIsNotWrittenYet(t *testing.T) {
	g := NewWithT(t)
	var ledger placement.Ledger
	hosts := []placement.Host{newHost("a")}
	for _, uid := range []string{"1", "2", "3", "4"} {
		host, err := ledger.Place(requestOf(uid), hosts, none)
		g.Expect(err).ToNot(HaveOccurred())
		g.Expect(host).To(Equal("a"))
	}
	_, err := ledger.Place(requestOf("5"), hosts, none)
	g.Expect(err).To(MatchError(ContainSubstring("no room")))
	g.Expect(ledger.Reserved()).To(Equal(4))

	// Once the cache shows them they count once, and their reservations are gone.
	seen := func() ([]placement.Machine, error) {
		return []placement.Machine{newMachine("1", "a"), newMachine("2", "a")}, nil
	}
	_, err = ledger.Place(requestOf("5"), hosts, seen)
	g.Expect(err).To(MatchError(ContainSubstring("no room")))
	g.Expect(ledger.Reserved()).To(Equal(2))

	ledger.Release("3")
	_, err = ledger.Place(requestOf("5"), hosts, seen)
	g.Expect(err).ToNot(HaveOccurred())
}

func TestLedgerKeepsAHost(t *testing.T) {
	g := NewWithT(t)
	var ledger placement.Ledger
	place := func(hosts []placement.Host, bound ...placement.Machine) string {
		host, err := ledger.Place(requestOf("1"), hosts, func() ([]placement.Machine, error) { return bound, nil })
		g.Expect(err).ToNot(HaveOccurred())
		return host
	}
	a, b := newHost("a"), newHost("b")
	g.Expect(place([]placement.Host{a})).To(Equal("a"))
	g.Expect(place([]placement.Host{a, b}, newMachine("2", "a"))).To(Equal("a"), "b is the better one, but a may have been written")
	unbound := newMachine("1", "")
	g.Expect(place([]placement.Host{a, b}, newMachine("2", "a"), unbound)).To(Equal("a"), "listed without a host")
	a.Ready = false
	g.Expect(place([]placement.Host{a, b})).To(Equal("b"), "a no longer fits")
	g.Expect(ledger.Reserved()).To(Equal(1))
	g.Expect(place([]placement.Host{a, b}, newMachine("1", "a"))).To(Equal("a"), "it is bound")
	g.Expect(ledger.Reserved()).To(BeZero())

	broken := errors.New("broken")
	_, err := ledger.Place(requestOf("1"), nil, func() ([]placement.Machine, error) { return nil, broken })
	g.Expect(err).To(MatchError(broken))
}

// TestLedgerRace places machines from many goroutines, whose writes show in the cache some time
// later and sometimes fail, and holds the result against what hosts have room for.
func TestLedgerRace(t *testing.T) {
	const machines, hostCount, perHost = 64, 5, 4
	g := NewWithT(t)
	var hosts []placement.Host
	for i := range hostCount {
		hosts = append(hosts, newHost(fmt.Sprintf("host-%d", i)))
	}

	var ledger placement.Ledger
	var lock sync.Mutex
	var cache []placement.Machine
	list := func() ([]placement.Machine, error) {
		lock.Lock()
		defer lock.Unlock()
		return slices.Clone(cache), nil
	}
	refused := 0
	var group sync.WaitGroup
	for i := range machines {
		group.Go(func() {
			uid := fmt.Sprintf("uid-%d", i)
			host, err := ledger.Place(requestOf(uid), hosts, list)
			if err == nil && i%8 == 0 { // its write fails, and it tries again
				ledger.Release(types.UID(uid))
				host, err = ledger.Place(requestOf(uid), hosts, list)
			}
			lock.Lock()
			defer lock.Unlock()
			if err != nil {
				refused++
				return
			}
			cache = append(cache, newMachine(uid, host))
		})
	}
	group.Wait()

	counts := map[string]int{}
	for _, machine := range cache {
		counts[machine.Host]++
	}
	for _, host := range hosts {
		g.Expect(counts[host.Name]).To(BeNumerically("<=", perHost), host.Name)
	}
	g.Expect(len(cache) + refused).To(Equal(machines))
	g.Expect(len(cache)).To(BeNumerically(">=", hostCount*perHost-machines/8), "at most the machines whose write failed are missing")
}
