package fleet_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/fleet"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/fake"
)

// TestSnapshotAgreesInTheEnd changes a host and its connection in random order, and checks that the snapshot equals the
// host's state once the host is reachable. Complete readings are rare, so changes must come by events and by the list
// at the beginning of each connection.
func TestSnapshotAgreesInTheEnd(t *testing.T) {
	const seeds, steps, domains = 30, 120, 5
	reasons := []error{hypervisor.ErrOther, hypervisor.ErrTimeout, hypervisor.ErrUnreachable, hypervisor.ErrDenied}
	operations := []fake.Operation{fake.Connect, fake.NewWatch, fake.Facts, fake.Pool, fake.PoolVolumes, fake.Network, fake.Domain, fake.ListDomains}
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			options := quick
			options.CallLimit = 10 * time.Millisecond
			f := newFixture(t, options, "a")
			random := rand.New(rand.NewPCG(seed, 0))
			host := f.hosts["a"]
			f.Ensure("a", target("a"))
			direct := func(act func(context.Context, hypervisor.Hypervisor) error) {
				// The host may be unreachable or have a fault: then the change is skipped.
				ctx, cancel := context.WithTimeout(t.Context(), options.CallLimit)
				defer cancel()
				if connection, err := host.Connect(ctx); err == nil {
					_ = act(ctx, connection)
					_ = connection.Close()
				}
			}
			for range steps {
				number := random.IntN(domains)
				uuid := fmt.Sprintf("00000000-0000-4000-8000-%012d", number)
				switch random.IntN(10) {
				case 0:
					host.SetReachable(random.IntN(2) == 0)
				case 1:
					fault := fake.Fault{Operation: operations[random.IntN(len(operations))], Skip: random.IntN(3), AfterDone: random.IntN(2) == 0,
						Effect: []fake.Effect{fake.Fail, fake.Hang, fake.Disconnect}[random.IntN(3)]}
					if fault.Effect == fake.Fail {
						fault.Reason = reasons[random.IntN(len(reasons))]
					}
					host.Inject(fault)
				case 2, 3, 4:
					owner := &hypervisor.Owner{Cluster: "c", Namespace: "n", Name: fmt.Sprint(number)}
					direct(func(ctx context.Context, h hypervisor.Hypervisor) error {
						return h.DefineDomain(ctx, define(uuid, owner.Name, owner))
					})
				case 5, 6:
					direct(func(ctx context.Context, h hypervisor.Hypervisor) error { return h.StartDomain(ctx, uuid) })
				case 7:
					host.RemoveDomain(uuid)
				case 8:
					ctx, cancel := context.WithTimeout(t.Context(), options.CallLimit)
					_ = f.Refresh(ctx, "a", uuid)
					cancel()
				case 9:
					time.Sleep(time.Duration(random.IntN(3)) * time.Millisecond)
				}
			}
			host.ClearFaults()
			host.SetReachable(true)
			agrees := func(g Gomega, snapshot fleet.Snapshot) {
				reachable(g, snapshot)
				_, uuids := host.Left()
				g.Expect(snapshot.Domains).To(HaveLen(len(uuids)))
				for _, uuid := range uuids {
					g.Expect(snapshot.Domains[uuid].State).To(Equal(host.State(uuid)), uuid)
				}
			}
			f.snapshot("a", agrees)
			// From here on there are no faults, and all changes come by events.
			connection := f.direct("a")
			for number := range domains {
				uuid := fmt.Sprintf("00000000-0000-4000-8000-%012d", number)
				f.Expect(connection.DefineDomain(t.Context(), define(uuid, fmt.Sprint(number), &hypervisor.Owner{Cluster: "c", Namespace: "n", Name: fmt.Sprint(number)}))).To(Succeed())
				f.Expect(connection.StartDomain(t.Context(), uuid)).To(Succeed())
				if random.IntN(2) == 0 {
					host.RemoveDomain(uuid)
				}
			}
			f.snapshot("a", agrees)
		})
	}
}
