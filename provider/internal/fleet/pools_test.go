package fleet_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/fleet"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/fake"
)

// TestPoolThatHangs checks that a hanging pool ends neither the connection nor its last state, and that the rest of the
// host is read as before.
func TestPoolThatHangs(t *testing.T) {
	for name, operation := range map[string]fake.Operation{"the pool": fake.Pool, "its volumes": fake.PoolVolumes, "its refresh": fake.RefreshPool} {
		t.Run(name, func(t *testing.T) {
			options := quick
			options.ListInterval, options.PoolLimit, options.RefreshInterval = 5*time.Millisecond, 20*time.Millisecond, time.Millisecond
			f := newFixture(t, options, "a")
			f.hosts["a"].SetPool(hypervisor.Pool{Name: "slow", Active: true, CapacityBytes: 5})
			f.hosts["a"].PutFile(hypervisor.VolumeRef{Pool: "slow", Name: "v"}, []byte("x"))
			to := target("a")
			to.Pools = append(to.Pools, "slow")
			f.Ensure("a", to)
			f.snapshot("a", func(g Gomega, s fleet.Snapshot) { g.Expect(s.Pools["slow"].Volumes).To(HaveKey("v")) })
			connection, err := f.Hypervisor("a")
			f.Expect(err).ToNot(HaveOccurred())

			f.hosts["a"].Inject(fake.Fault{Operation: operation, Object: "slow", Effect: fake.Hang, Times: -1})
			f.Eventually(f.hosts["a"].Hanging).WithTimeout(soon).WithPolling(time.Millisecond).Should(Equal(1))
			f.Expect(f.direct("a").DefineDomain(t.Context(), define(uuid, "m", nil))).To(Succeed())
			f.hosts["a"].SetFacts(hypervisor.Facts{LibvirtVersion: "10.0.0"})
			seen := f.snapshot("a", func(g Gomega, s fleet.Snapshot) {
				g.Expect(s.Facts.LibvirtVersion).To(Equal("10.0.0"))
				if operation != fake.RefreshPool {
					g.Expect(s.Pools["slow"].Err).To(MatchError(hypervisor.ErrTimeout))
				}
			})
			f.Expect(seen.Reachable).To(BeTrue())
			f.Expect(seen.Domains).To(HaveKey(uuid))
			f.Expect(seen.Pools["slow"].Volumes).To(HaveKey("v"))
			f.Expect(seen.Pools["slow"].CapacityBytes).To(BeEquivalentTo(5))
			f.Expect(seen.Pools["default"].Err).ToNot(HaveOccurred())
			now, err := f.Hypervisor("a")
			f.Expect(err).ToNot(HaveOccurred())
			f.Expect(now).To(BeIdenticalTo(connection))
			f.hosts["a"].ClearFaults()
			f.snapshot("a", func(g Gomega, s fleet.Snapshot) { g.Expect(s.Pools["slow"].Err).ToNot(HaveOccurred()) })
		})
	}
}

// TestPoolsAreRefreshed checks that files of others in a pool are found after some time, and soon on request. One pool
// is refreshed at a time, in turn.
func TestPoolsAreRefreshed(t *testing.T) {
	file := hypervisor.VolumeRef{Pool: "default", Name: "by-hand.qcow2"}
	hasFile := func(g Gomega, s fleet.Snapshot) {
		g.Expect(s.Pools["default"].Volumes).To(HaveKey(file.Name))
		g.Expect(s.Pools["default"].AvailableBytes).To(BeEquivalentTo(1<<40 - 3))
	}
	refreshed := func(f *fixture) []string {
		var pools []string
		for _, call := range f.hosts["a"].Calls() {
			if call.Operation == fake.RefreshPool {
				pools = append(pools, call.Object)
			}
		}
		return pools
	}
	t.Run("in turn", func(t *testing.T) {
		options := quick
		options.ListInterval, options.RefreshInterval = 5*time.Millisecond, time.Millisecond
		f := newFixture(t, options, "a")
		f.hosts["a"].SetPool(hypervisor.Pool{Name: "other", Active: true})
		to := target("a")
		to.Pools = append(to.Pools, "other")
		f.Ensure("a", to)
		f.snapshot("a", reachable)
		f.hosts["a"].PutFile(file, []byte("abc"))
		f.snapshot("a", hasFile)
		f.Eventually(func() int { return len(refreshed(f)) }).WithTimeout(soon).Should(BeNumerically(">=", 4))
		f.Expect(refreshed(f)[:4]).To(Equal([]string{"default", "other", "default", "other"}))
	})
	t.Run("on request", func(t *testing.T) {
		f := newFixture(t, quick, "a")
		f.Ensure("a", target("a"))
		f.snapshot("a", reachable)
		f.hosts["a"].PutFile(file, []byte("abc"))
		f.RefreshPool("a", "missing")
		f.RefreshPool("missing", "default")
		f.RefreshPool("a", "default")
		f.snapshot("a", hasFile)
		for range 100 { // many machines wait for the same image
			f.RefreshPool("a", "default")
		}
		f.Expect(f.direct("a").DefineDomain(t.Context(), define(uuid, "m", nil))).To(Succeed())
		f.snapshot("a", func(g Gomega, s fleet.Snapshot) { g.Expect(s.Domains).To(HaveKey(uuid)) })
		f.Expect(refreshed(f)).To(HaveLen(1))
	})
}
