package fleet

import (
	"maps"
	"slices"
	"testing"

	. "github.com/onsi/gomega"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// TestOrderOfReadings checks that the result of overlapping readings is that of the one that began last, in whatever
// order they end.
func TestOrderOfReadings(t *testing.T) {
	domains := func(uuids ...string) []hypervisor.Domain {
		var list []hypervisor.Domain
		for _, uuid := range uuids {
			list = append(list, hypervisor.Domain{UUID: uuid, Name: "listed"})
		}
		return list
	}
	read := func(uuid string) *hypervisor.Domain { return &hypervisor.Domain{UUID: uuid, Name: "read"} }
	for name, tc := range map[string]struct {
		// act gets the numbers of three readings in the order of their beginnings.
		act  func(s *session, first, second, third uint64)
		want map[string]string
	}{
		"an older list knows nothing of a new domain": {
			act: func(s *session, first, second, _ uint64) {
				s.publishDomain(second, "new", read("new"))
				s.publishAll(nil, first, Snapshot{}, domains("old"))
			},
			want: map[string]string{"old": "listed", "new": "read"},
		},
		"an older list has a deleted domain": {
			act: func(s *session, first, second, _ uint64) {
				s.publishDomain(second, "gone", nil)
				s.publishAll(nil, first, Snapshot{}, domains("old", "gone"))
			},
			want: map[string]string{"old": "listed"},
		},
		"a newer list replaces": {
			act: func(s *session, first, second, _ uint64) {
				s.publishDomain(first, "gone", read("gone"))
				s.publishDomain(first, "old", read("old"))
				s.publishAll(nil, second, Snapshot{}, domains("old"))
			},
			want: map[string]string{"old": "listed"},
		},
		"an older reading comes after a newer list": {
			act: func(s *session, first, second, _ uint64) {
				s.publishAll(nil, second, Snapshot{}, domains("old"))
				s.publishDomain(first, "gone", read("gone"))
				s.publishDomain(first, "old", nil)
			},
			want: map[string]string{"old": "listed"},
		},
		"an older reading comes after a newer reading": {
			act: func(s *session, first, second, _ uint64) {
				s.publishDomain(second, "a", nil)
				s.publishDomain(first, "a", read("a"))
			},
			want: map[string]string{},
		},
		"a domain that was kept at one list is replaced by the next": {
			act: func(s *session, first, second, third uint64) {
				s.publishDomain(second, "a", read("a"))
				s.publishAll(nil, first, Snapshot{}, nil)
				s.publishAll(nil, third, Snapshot{}, domains("a"))
			},
			want: map[string]string{"a": "listed"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := newSession("host", Target{}, New(nil, Options{}))
			tc.act(s, s.beginReading(), s.beginReading(), s.beginReading())
			got := map[string]string{}
			for uuid, domain := range s.snapshot.Domains {
				got[uuid] = domain.Name
			}
			g.Expect(got).To(Equal(tc.want))
			g.Expect(len(s.read)).To(BeNumerically("<=", len(tc.want)+1), "readings are never dropped: %v", slices.Collect(maps.Keys(s.read)))
		})
	}
}

func TestCompare(t *testing.T) {
	ours := hypervisor.Owner{Namespace: "n", Name: "ours"}
	other := hypervisor.Owner{Namespace: "n", Name: "other"}
	domain := func(state hypervisor.DomainState, owner *hypervisor.Owner) map[string]hypervisor.Domain {
		return map[string]hypervisor.Domain{"u": {UUID: "u", State: state, Owner: owner}}
	}
	for name, tc := range map[string]struct {
		before, after Snapshot
		want          change
	}{
		"nothing": {before: Snapshot{Domains: domain(hypervisor.StateRunning, &ours)},
			after: Snapshot{Domains: domain(hypervisor.StateRunning, &hypervisor.Owner{Namespace: "n", Name: "ours"})}},
		"lost": {before: Snapshot{Reachable: true, Domains: domain(hypervisor.StateRunning, &ours)},
			after: Snapshot{Err: hypervisor.ErrTimeout, Domains: domain(hypervisor.StateRunning, &ours)}, want: change{reachability: true, host: true}},
		"returned": {before: Snapshot{Domains: domain(hypervisor.StateRunning, &ours)},
			after: Snapshot{Reachable: true, Domains: domain(hypervisor.StateRunning, &ours)},
			want:  change{reachability: true, host: true, owners: []hypervisor.Owner{ours}}},
		"another error": {before: Snapshot{Err: hypervisor.ErrTimeout}, after: Snapshot{Err: hypervisor.ErrDenied}, want: change{host: true}},
		"same error":    {before: Snapshot{Err: unreachable("x", nil)}, after: Snapshot{Err: unreachable("x", nil)}},
		"new state": {before: Snapshot{Domains: domain(hypervisor.StateRunning, &ours)},
			after: Snapshot{Domains: domain(hypervisor.StateShutOff, &ours)}, want: change{owners: []hypervisor.Owner{ours}}},
		"new domain":    {after: Snapshot{Domains: domain(hypervisor.StateRunning, &ours)}, want: change{owners: []hypervisor.Owner{ours}}},
		"gone":          {before: Snapshot{Domains: domain(hypervisor.StateRunning, &ours)}, want: change{owners: []hypervisor.Owner{ours}}},
		"theirs, gone":  {before: Snapshot{Domains: domain(hypervisor.StateRunning, nil)}, want: change{host: true}},
		"another owner": {before: Snapshot{Domains: domain("", &ours)}, after: Snapshot{Domains: domain("", &other)}, want: change{owners: []hypervisor.Owner{other, ours}}},
		"a volume": {before: Snapshot{Pools: map[string]Pool{"p": {}}},
			after: Snapshot{Pools: map[string]Pool{"p": {Volumes: map[string]hypervisor.Volume{"v": {}}}}}, want: change{host: true}},
		"a network": {before: Snapshot{Networks: map[string]Network{"n": {Err: hypervisor.ErrNotFound}}},
			after: Snapshot{Networks: map[string]Network{"n": {}}}, want: change{host: true}},
		"an interface": {before: Snapshot{Interfaces: map[string]Presence{"br0": {There: true}}},
			after: Snapshot{Interfaces: map[string]Presence{"br0": {}}}, want: change{host: true}},
		"a filter": {before: Snapshot{Filters: map[string]Presence{"clean-traffic": {There: true}}},
			after: Snapshot{Filters: map[string]Presence{"clean-traffic": {}}}, want: change{host: true}},
		"a fact": {after: Snapshot{Facts: hypervisor.Facts{Features: []string{infrav1.HostFeatureKVM}}}, want: change{host: true}},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(compare(tc.before, tc.after)).To(Equal(tc.want))
		})
	}
}
