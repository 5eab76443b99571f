package libvirtmachinepool

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/intstr"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// pool returns machines for letters: o outdated, r ready, c chosen, u unhealthy, d deleting. The first one is the
// oldest, and the names count from 0.
func pool(letters string) []planned {
	var machines []planned
	for i, word := range strings.Fields(letters) {
		machines = append(machines, planned{
			name: fmt.Sprint(i), created: time.Unix(int64(i), 0), outdated: strings.Contains(word, "o"), ready: strings.Contains(word, "r"),
			chosen: strings.Contains(word, "c"), unhealthy: strings.Contains(word, "u"), deleting: strings.Contains(word, "d")})
	}
	return machines
}

func TestMakePlan(t *testing.T) {
	for _, tt := range []struct {
		name     string
		desired  int
		bounds   bounds
		machines string
		want     plan
	}{
		{name: "nothing to do", desired: 2, bounds: bounds{surge: 1}, machines: "r r"},
		{name: "from zero, all at once", desired: 30, bounds: bounds{surge: 1}, want: plan{creates: 30}},
		{name: "waits for machines that aren't ready", desired: 2, bounds: bounds{surge: 1}, machines: "r -"},
		{name: "a deleted one is replaced", desired: 2, bounds: bounds{surge: 1}, machines: "r rd", want: plan{creates: 1}},
		{name: "those on a lost host are replaced", desired: 3, bounds: bounds{surge: 1}, machines: "r d d", want: plan{creates: 2}},
		{name: "to zero", desired: 0, bounds: bounds{surge: 1}, machines: "r -", want: plan{deletes: []string{"1", "0"}}},
		{name: "chosen, then unready, then outdated, then oldest", desired: 1, bounds: bounds{unavailable: 1}, machines: "r ro - rc r",
			want: plan{deletes: []string{"3", "2", "1", "0"}}},
		{name: "chosen has no effect without scaling down", desired: 2, bounds: bounds{surge: 1}, machines: "rc r"},
		{name: "all unhealthy ones are deleted", desired: 3, bounds: bounds{surge: 1}, machines: "u r u", want: plan{deletes: []string{"0", "2"}}},
		{name: "unhealthy ones are deleted once", desired: 3, bounds: bounds{surge: 1}, machines: "ud r ud", want: plan{creates: 2}},
		{name: "unhealthy ones before a rollout", desired: 2, bounds: bounds{surge: 1}, machines: "ro uo", want: plan{deletes: []string{"1"}}},

		{name: "surge: first one more", desired: 2, bounds: bounds{surge: 1}, machines: "ro ro", want: plan{creates: 1}},
		{name: "surge: waits for it", desired: 2, bounds: bounds{surge: 1}, machines: "ro ro -"},
		{name: "surge: the oldest is deleted", desired: 2, bounds: bounds{surge: 1}, machines: "ro ro r", want: plan{deletes: []string{"0"}}},
		{name: "surge: waits for the deletion", desired: 2, bounds: bounds{surge: 1}, machines: "rod ro r"},
		{name: "surge: and the next", desired: 2, bounds: bounds{surge: 1}, machines: "ro r", want: plan{creates: 1}},
		{name: "surge: not more than outdated ones", desired: 3, bounds: bounds{surge: 3}, machines: "ro r r", want: plan{creates: 1}},
		{name: "unavailable: first one less", desired: 2, bounds: bounds{unavailable: 1}, machines: "ro ro", want: plan{deletes: []string{"0"}}},
		{name: "unavailable: waits for the deletion", desired: 2, bounds: bounds{unavailable: 1}, machines: "rod ro"},
		{name: "unavailable: then one more", desired: 2, bounds: bounds{unavailable: 1}, machines: "ro", want: plan{creates: 1}},
		{name: "unavailable: waits for it", desired: 2, bounds: bounds{unavailable: 1}, machines: "ro -"},
		{name: "both", desired: 4, bounds: bounds{surge: 1, unavailable: 1}, machines: "ro ro ro ro", want: plan{deletes: []string{"0"}}},
		{name: "an outdated one that isn't ready is deleted first", desired: 2, bounds: bounds{surge: 1}, machines: "ro o -", want: plan{deletes: []string{"1"}}},
		{name: "too few ready ones: waits", desired: 3, bounds: bounds{unavailable: 1}, machines: "ro ro -"},
		{name: "a chosen one is replaced first", desired: 2, bounds: bounds{surge: 1}, machines: "ro roc r", want: plan{deletes: []string{"1"}}},
		{name: "scaling down in a rollout", desired: 1, bounds: bounds{surge: 1}, machines: "ro ro r r", want: plan{deletes: []string{"0", "1"}}},
		{name: "scaling up in a rollout", desired: 5, bounds: bounds{surge: 1}, machines: "ro ro r", want: plan{creates: 3}},
		{name: "a template that never worked", desired: 2, bounds: bounds{surge: 1}, machines: "o o -", want: plan{deletes: []string{"0"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			NewWithT(t).Expect(makePlan(tt.desired, tt.bounds, pool(tt.machines))).To(Equal(tt.want))
		})
	}
}

func TestBoundsOf(t *testing.T) {
	number, percent := func(n int) *intstr.IntOrString { v := intstr.FromInt(n); return &v }, func(s string) *intstr.IntOrString { v := intstr.FromString(s); return &v }
	for _, tt := range []struct {
		name     string
		strategy infrav1.MachinePoolStrategy
		desired  int
		want     bounds
	}{
		{name: "defaults", desired: 3, want: bounds{surge: 1}},
		{name: "numbers", strategy: infrav1.MachinePoolStrategy{MaxSurge: number(0), MaxUnavailable: number(2)}, desired: 3, want: bounds{unavailable: 2}},
		{name: "percentages: up and down", strategy: infrav1.MachinePoolStrategy{MaxSurge: percent("10%"), MaxUnavailable: percent("25%")}, desired: 7,
			want: bounds{surge: 1, unavailable: 1}},
		{name: "percentages that round to 0", strategy: infrav1.MachinePoolStrategy{MaxSurge: percent("0%"), MaxUnavailable: percent("25%")}, desired: 3,
			want: bounds{unavailable: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			NewWithT(t).Expect(boundsOf(tt.strategy, tt.desired)).To(Equal(tt.want))
		})
	}
}

func TestShare(t *testing.T) {
	g := NewWithT(t)
	g.Expect(share(nil, nil)).To(BeEmpty())
	g.Expect(share([]string{"b", "a"}, nil)).To(Equal("b"))
	g.Expect(share([]string{"b", "a", "c"}, map[string]int{"b": 2, "a": 1, "c": 1})).To(Equal("a"))
}

// FuzzRollout simulates a pool from a seed: machines are created, become ready, fail, are deleted by others, and finish
// their deletion; templates and replicas change. The bounds hold after each plan, and without further changes the pool
// reaches the desired state.
func FuzzRollout(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		random := rand.New(rand.NewPCG(seed, 7))
		p := &play{t: t, random: random, desired: random.IntN(12), bounds: bounds{surge: random.IntN(4), unavailable: random.IntN(4)}}
		if p.bounds == (bounds{}) {
			p.bounds.surge = 1
		}
		for range 60 {
			p.disturb()
			p.step()
		}
		for range 400 {
			p.finish()
			if p.step().isEmpty() && p.isDone() {
				return
			}
		}
		t.Fatalf("it doesn't reach %d machines: %+v", p.desired, p.machines)
	})
}

// play is a simulated pool.
type play struct {
	t        *testing.T
	random   *rand.Rand
	desired  int
	bounds   bounds
	machines []planned
	made     int
}

func (p *play) disturb() {
	switch p.random.IntN(8) {
	case 0:
		p.desired = p.random.IntN(12)
	case 1:
		for i := range p.machines {
			p.machines[i].outdated = true
		}
	}
	for i := range p.machines {
		m := &p.machines[i]
		switch p.random.IntN(10) {
		case 0:
			m.deleting = true
		case 1, 2, 3:
			m.ready = true
		case 4:
			m.ready = false
		case 5:
			m.chosen = p.random.IntN(3) == 0
		case 6:
			if m.deleting {
				m.name = ""
			}
		}
	}
	p.drop()
}

// finish completes all running creations and deletions.
func (p *play) finish() {
	for i := range p.machines {
		p.machines[i].ready = true
		if p.machines[i].deleting {
			p.machines[i].name = ""
		}
	}
	p.drop()
}

func (p *play) drop() {
	var left []planned
	for _, m := range p.machines {
		if m.name != "" {
			left = append(left, m)
		}
	}
	p.machines = left
}

func (p *play) isDone() bool {
	return len(p.machines) == p.desired && count(p.machines, func(m planned) bool { return m.outdated || m.deleting }) == 0
}

func alive(m planned) bool { return !m.deleting }

// step makes a plan, executes it, and checks the bounds.
func (p *play) step() plan {
	todo := makePlan(p.desired, p.bounds, p.machines)
	before := count(p.machines, alive)
	readyBefore := count(p.machines, func(m planned) bool { return alive(m) && m.ready })
	wasRollout := count(p.machines, func(m planned) bool { return alive(m) && m.outdated }) > 0
	for _, name := range todo.deletes {
		for i := range p.machines {
			if m := &p.machines[i]; m.name == name {
				if m.deleting {
					p.t.Fatalf("%s is deleted twice", name)
				}
				m.deleting = true
				if m.chosen && m.ready {
					readyBefore-- // a user has chosen it
				}
			}
		}
	}
	ready := count(p.machines, func(m planned) bool { return alive(m) && m.ready })
	for range todo.creates {
		p.machines = append(p.machines, planned{name: fmt.Sprintf("m%d", p.made), created: time.Unix(int64(p.made), 0)})
		p.made++
	}
	after := count(p.machines, alive)
	surge := p.bounds.surge
	if !wasRollout {
		surge = 0
	}
	if todo.creates > 0 && (len(todo.deletes) > 0 || after > p.desired+surge) {
		p.t.Fatalf("%d of %d machines after %+v, with %+v", after, p.desired, todo, p.bounds)
	}
	if after < before && after < p.desired-p.bounds.unavailable {
		p.t.Fatalf("only %d of %d machines after %+v, with %+v", after, p.desired, todo, p.bounds)
	}
	if ready < readyBefore && ready < p.desired-p.bounds.unavailable {
		p.t.Fatalf("only %d of %d machines are ready after %+v, with %+v", ready, p.desired, todo, p.bounds)
	}
	return todo
}
