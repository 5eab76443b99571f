package placement_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/placement"
)

// FuzzPlacement places machines on random hosts. No host gets more than its resources, only fitting hosts are chosen, a
// fitting host is always found, and the order of hosts and machines doesn't matter.
func FuzzPlacement(f *testing.F) {
	for seed := range uint64(50) {
		f.Add(seed, uint8(seed%9), uint8(3+seed%40))
	}
	f.Fuzz(func(t *testing.T, seed uint64, hostCount, machineCount uint8) {
		g := NewWithT(t)
		random := rand.New(rand.NewPCG(seed, 0))
		hosts := randomHosts(random, int(hostCount)%16)
		var bound []placement.Machine
		for i := range int(machineCount) % 64 {
			request := randomRequest(random, i)
			chosen, err := placement.Choose(request, hosts, bound)
			again, errAgain := placement.Choose(request, shuffled(random, hosts), shuffled(random, bound))
			g.Expect(again).To(Equal(chosen))

			fits := slices.ContainsFunc(hosts, func(h placement.Host) bool { return hasRoom(request, h, bound) })
			g.Expect(err == nil).To(Equal(fits), "%v", err)
			if err != nil {
				g.Expect(errAgain).To(MatchError(err.Error()))
				var noFit *placement.NoFitError
				g.Expect(errors.As(err, &noFit)).To(BeTrue())
				g.Expect(noFit.Hosts).To(HaveLen(len(hosts)))
				continue
			}
			at := slices.IndexFunc(hosts, func(h placement.Host) bool { return h.Name == chosen })
			g.Expect(hasRoom(request, hosts[at], bound)).To(BeTrue())
			request.Machine.Host = chosen
			bound = append(bound, request.Machine)
		}
	})
}

// hasRoom is an independent implementation of the filters, for the values of randomHosts and randomRequest.
func hasRoom(request placement.Request, host placement.Host, bound []placement.Machine) bool {
	if !host.Ready || host.Maintenance != nil || request.FailureDomain != "" && request.FailureDomain != host.FailureDomain {
		return false
	}
	for _, kind := range []placement.Resource{{Kind: placement.CPU}, {Kind: placement.Memory}, {Kind: placement.Disk, Name: "fast"}, {Kind: placement.Disk, Name: "slow"}} {
		takes := func(machine placement.Machine) int64 {
			if kind.Kind == placement.Disk && kind.Name == host.Pools[0] {
				return machine.Needs[kind] + machine.Needs[placement.Resource{Kind: placement.Disk}]
			}
			return machine.Needs[kind]
		}
		used := host.Foreign[kind]
		for _, machine := range bound {
			if machine.Host == host.Name {
				used += takes(machine)
			}
		}
		// A machine that doesn't need the resource fits even if too much of it is allocated.
		if needed := takes(request.Machine); needed > 0 && used+needed > host.Room[kind] {
			return false
		}
	}
	return true
}

func randomHosts(random *rand.Rand, count int) []placement.Host {
	var hosts []placement.Host
	for i := range count {
		hosts = append(hosts, newHost(fmt.Sprintf("host-%02d", i), func(h *placement.Host) {
			h.FailureDomain = fmt.Sprintf("rack-%d", random.IntN(3))
			h.Ready = random.IntN(8) > 0
			if random.IntN(8) == 0 {
				h.Maintenance = &infrav1.HostMaintenance{}
			}
			if random.IntN(2) == 0 {
				slices.Reverse(h.Pools)
			}
			for key := range h.Room {
				h.Room[key] = random.Int64N(20)
			}
			h.Foreign = placement.Resources{{Kind: placement.CPU}: random.Int64N(4), {Kind: placement.Memory}: random.Int64N(4)}
		}))
	}
	return hosts
}

func randomRequest(random *rand.Rand, number int) placement.Request {
	request := newRequest()
	request.Machine.UID = types.UID(fmt.Sprintf("uid-%d", number))
	request.Machine.Cluster.Name = fmt.Sprintf("cluster-%d", random.IntN(3))
	request.Machine.Owner = []string{"", "control-plane", "workers"}[random.IntN(3)]
	request.FailureDomain = []string{"", "", "rack-0", "rack-1"}[random.IntN(4)]
	request.Machine.Needs = placement.Resources{
		{Kind: placement.CPU}: 1 + random.Int64N(6), {Kind: placement.Memory}: random.Int64N(6), {Kind: placement.Disk}: random.Int64N(6),
	}
	if random.IntN(2) == 0 {
		request.Machine.Needs[placement.Resource{Kind: placement.Disk, Name: "slow"}] = random.Int64N(6)
	}
	return request
}

func shuffled[T any](random *rand.Rand, values []T) []T {
	values = slices.Clone(values)
	random.Shuffle(len(values), func(i, j int) { values[i], values[j] = values[j], values[i] })
	return values
}
