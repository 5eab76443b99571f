package exclusive_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/exclusive"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

func cpus(numbers ...int) []exclusive.Resource {
	var resources []exclusive.Resource
	for _, number := range numbers {
		resources = append(resources, exclusive.CPU(number))
	}
	return resources
}

func devices(addresses ...string) []exclusive.Resource {
	var resources []exclusive.Resource
	for _, address := range addresses {
		resources = append(resources, exclusive.Device(address))
	}
	return resources
}

func pinned(uuid string, cpus ...int) hypervisor.Domain {
	return hypervisor.Domain{UUID: uuid, Owner: &hypervisor.Owner{}, State: hypervisor.StateShutOff, PinnedCPUs: cpus}
}

func TestChoose(t *testing.T) {
	two := []exclusive.Request{{Name: "cpus", From: cpus(8, 9, 10, 11), Count: 2}}
	gpus := devices("0000:3b:00.0", "0000:af:00.0", "0000:d8:00.0")
	for _, tc := range []struct {
		name     string
		requests []exclusive.Request
		domains  []hypervisor.Domain
		want     exclusive.Chosen
		failure  string
	}{
		{name: "no request"},
		{name: "the first free ones", requests: two, want: exclusive.Chosen{"cpus": cpus(8, 9)}},
		{name: "not those of other domains", requests: two, domains: []hypervisor.Domain{pinned("a", 8), pinned("b", 10, 99)},
			want: exclusive.Chosen{"cpus": cpus(9, 11)}},
		{name: "it keeps its resources, in the order of the list", requests: two, domains: []hypervisor.Domain{pinned("me", 9, 11)},
			want: exclusive.Chosen{"cpus": cpus(9, 11)}},
		{name: "it keeps those that no other domain has", requests: two, domains: []hypervisor.Domain{pinned("me", 9, 11), pinned("a", 9)},
			want: exclusive.Chosen{"cpus": cpus(8, 11)}},
		{name: "it gives up those that aren't lent any more", requests: two, domains: []hypervisor.Domain{pinned("me", 4, 5)},
			want: exclusive.Chosen{"cpus": cpus(8, 9)}},
		{name: "too few", requests: two, domains: []hypervisor.Domain{pinned("a", 8, 9, 10)}, failure: "cpus: 2 needed, and 1 are free"},
		{name: "none lent", requests: []exclusive.Request{{Name: "cpus", Count: 1}}, failure: "cpus: 1 needed, and 0 are free"},
		{name: "devices of two requests are different ones",
			requests: []exclusive.Request{{Name: "a", From: gpus, Count: 1}, {Name: "b", From: gpus, Count: 1}},
			domains:  []hypervisor.Domain{{UUID: "other", HostDevices: []string{"0000:3b:00.0"}}},
			want:     exclusive.Chosen{"a": devices("0000:af:00.0"), "b": devices("0000:d8:00.0")}},
		{name: "too few for the second of two requests",
			requests: []exclusive.Request{{Name: "a", From: gpus, Count: 2}, {Name: "b", From: gpus, Count: 2}},
			failure:  "b: 2 needed, and 1 are free"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := NewWithT(t)
			got, err := exclusive.Choose("me", tc.requests, tc.domains)
			if tc.failure != "" {
				g.Expect(err).To(BeAssignableToTypeOf(&exclusive.NotFreeError{}))
				g.Expect(err).To(MatchError(tc.failure))
				return
			}
			g.Expect(err).ToNot(HaveOccurred())
			if len(tc.want) == 0 {
				g.Expect(got).To(BeEmpty())
				return
			}
			g.Expect(got).To(Equal(tc.want))
		})
	}
}

func TestRivalsAndYields(t *testing.T) {
	running := pinned("z", 8)
	running.State = hypervisor.StateRunning
	foreign := pinned("z", 8)
	foreign.Owner = nil
	for _, tc := range []struct {
		name   string
		others []hypervisor.Domain
		rivals int
		yields bool
	}{
		{name: "no other domain"},
		{name: "different resources", others: []hypervisor.Domain{pinned("a", 9), {UUID: "b", HostDevices: []string{"8"}}}},
		{name: "a smaller UUID", others: []hypervisor.Domain{pinned("a", 8)}, rivals: 1, yields: true},
		{name: "a larger UUID", others: []hypervisor.Domain{pinned("z", 7, 8)}, rivals: 1},
		{name: "a larger UUID, running", others: []hypervisor.Domain{running}, rivals: 1, yields: true},
		{name: "a foreign domain", others: []hypervisor.Domain{foreign}, rivals: 1, yields: true},
		{name: "a larger and a smaller UUID", others: []hypervisor.Domain{pinned("z", 8), pinned("a", 8)}, rivals: 2, yields: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := NewWithT(t)
			rivals := exclusive.Rivals("me", append(tc.others, pinned("me", 8)))
			g.Expect(rivals).To(HaveLen(tc.rivals))
			g.Expect(exclusive.Yields("me", rivals)).To(Equal(tc.yields))
		})
	}
}

func TestCPUsOf(t *testing.T) {
	for _, tc := range []struct {
		set   string
		facts hypervisor.Facts
		want  exclusive.CPUs
	}{
		{facts: hypervisor.Facts{CPUs: 4}},
		{set: "2-3", facts: hypervisor.Facts{CPUs: 4}, want: exclusive.CPUs{Dedicated: []int{2, 3}, Shared: "0-1"}},
		{set: "0-3", facts: hypervisor.Facts{CPUs: 4}, want: exclusive.CPUs{Dedicated: []int{0, 1, 2, 3}}},
		{set: "1,3-9", facts: hypervisor.Facts{CPUs: 4}, want: exclusive.CPUs{Dedicated: []int{1, 3}, Shared: "0,2", Missing: "4-9"}},
		{set: "1,3", facts: hypervisor.Facts{CPUs: 3, CPUNumbers: []int{0, 2, 3}}, want: exclusive.CPUs{Dedicated: []int{3}, Shared: "0,2", Missing: "1"}},
		{set: "3-2", facts: hypervisor.Facts{CPUs: 4}},
	} {
		got := exclusive.CPUsOf(&infrav1.LibvirtHostSpec{DedicatedCPUs: tc.set}, tc.facts)
		if len(got.Dedicated) == 0 {
			got.Dedicated = nil
		}
		NewWithT(t).Expect(got).To(Equal(tc.want), tc.set)
	}
}

func TestReadCPUs(t *testing.T) {
	for text, failure := range map[string]string{
		"":                        "",
		"4-15,20":                 "",
		"5-4":                     "isn't a set of CPUs such as 4-15,20",
		"0-99999":                 "up to 9999",
		"^4":                      "up to 9999",
		"1,,2":                    "up to 9999",
		strings.Repeat("1,", 200): "at most 256 characters",
	} {
		_, err := exclusive.ReadCPUs(text)
		if failure == "" {
			NewWithT(t).Expect(err).ToNot(HaveOccurred(), text)
			continue
		}
		NewWithT(t).Expect(err).To(MatchError(ContainSubstring(failure)), text)
	}
}
