package placement_test

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/placement"
)

// TestQuota checks that only the machines of a namespace on the hosts of a quota count. A machine of newSpec needs 2
// CPUs and 4Gi.
func TestQuota(t *testing.T) {
	ofOthers := newMachine("4", "b")
	ofOthers.Cluster.Namespace = "others"
	bound := []placement.Machine{newMachine("1", "a"), newMachine("2", "b"), newMachine("3", "c"), ofOthers}
	for name, tc := range map[string]struct {
		limits  map[placement.Kind]int64
		spec    func(*infrav1.LibvirtMachineSpec)
		message string
	}{
		"no limits":  {},
		"just fits":  {limits: map[placement.Kind]int64{placement.CPU: 6, placement.Memory: 12 * gib}},
		"CPUs":       {limits: map[placement.Kind]int64{placement.CPU: 5}, message: "CPUs: 5 allowed, 4 used, 2 needed"},
		"memory":     {limits: map[placement.Kind]int64{placement.Memory: 11 * gib}, message: "memory: 11Gi allowed, 8Gi used, 4Gi needed"},
		"disks":      {limits: map[placement.Kind]int64{placement.Disk: gib}, message: "storage: 1Gi allowed, "},
		"of several": {limits: map[placement.Kind]int64{placement.CPU: 5, placement.Memory: 1 << 50}, message: "quota on the hosts with its identity (CPUs: 5 allowed, 4 used, 2 needed)"},
		"dedicated CPUs": {limits: map[placement.Kind]int64{placement.CPU: 5}, message: "CPUs: 5 allowed, 4 used, 2 needed",
			spec: func(s *infrav1.LibvirtMachineSpec) { s.CPU.Dedicated = ptr.To(true) }},
		"huge pages": {limits: map[placement.Kind]int64{placement.Memory: 11 * gib}, message: "memory: 11Gi allowed, 8Gi used, 4Gi needed",
			spec: func(s *infrav1.LibvirtMachineSpec) {
				s.Hugepages, s.Memory = &infrav1.HugepagesSpec{PageSize: infrav1.Hugepages2Mi}, resource.MustParse("4Gi")
			}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			quota := &placement.Quota{Hosts: []string{"a", "b"}, Limits: tc.limits}
			with := func(h *placement.Host) {
				h.Quota = quota
				h.Room[placement.Resource{Kind: placement.DedicatedCPU}] = 8
				h.Room[placement.Resource{Kind: placement.Hugepages, Name: "2Mi"}] = 8 * gib
				h.Features = append(h.Features, infrav1.HostFeatureHugepagesPrefix+"2Mi")
			}
			request := newRequest()
			if tc.spec != nil {
				request = newRequest(tc.spec)
			}
			host, err := placement.Choose(request, []placement.Host{newHost("a", with), newHost("b", with)}, bound)
			if tc.message == "" {
				g.Expect(err).ToNot(HaveOccurred())
				return
			}
			g.Expect(host).To(BeEmpty())
			g.Expect(err).To(MatchError(ContainSubstring(tc.message)))
			c, err := placement.Choose(newRequest(), []placement.Host{newHost("a", with), newHost("c")}, bound)
			g.Expect(err).ToNot(HaveOccurred())
			g.Expect(c).To(Equal("c"), "c has no quota")
		})
	}
}

// TestQuotaIsCountedInTheLedger checks that reservations count before they are written, and that growth counts.
func TestQuotaIsCountedInTheLedger(t *testing.T) {
	g := NewWithT(t)
	quota := &placement.Quota{Hosts: []string{"a", "b"}, Limits: map[placement.Kind]int64{placement.CPU: 4}}
	with := func(h *placement.Host) { h.Quota = quota }
	hosts := []placement.Host{newHost("a", with), newHost("b", with)}
	ledger := newLedger(t)
	first, err := ledger.Place(requestOf("1"), hosts)
	g.Expect(err).ToNot(HaveOccurred())
	second, err := ledger.Place(requestOf("2"), hosts)
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(second).ToNot(Equal(first))
	_, err = ledger.Place(requestOf("3"), hosts)
	g.Expect(err).To(MatchError(ContainSubstring("CPUs: 4 allowed, 4 used, 2 needed")))

	ledger.See(newMachine("1", first))
	ledger.See(newMachine("2", second))
	g.Expect(ledger.Grow("1", needing(3), newHost(first, with))).To(MatchError(ContainSubstring("CPUs: 4 allowed, 2 used, 3 needed")))
	g.Expect(ledger.Grow("1", needing(2), newHost(first, with))).To(Succeed(), "its needs don't grow")

	ledger.Gone("2")
	g.Expect(ledger.Place(requestOf("3"), hosts)).To(Equal(second))
}
