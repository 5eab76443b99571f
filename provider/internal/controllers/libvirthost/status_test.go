package libvirthost

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/fleet"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

func TestIsNegligible(t *testing.T) {
	for name, tc := range map[string]struct {
		before, after, capacity string
		want                    bool
	}{
		"first":                {after: "1Gi", capacity: "100Gi"},
		"same":                 {before: "1Gi", after: "1Gi", capacity: "100Gi", want: true},
		"a little more":        {before: "1Gi", after: "1.9Gi", capacity: "100Gi", want: true},
		"a little less":        {before: "1.9Gi", after: "1Gi", capacity: "100Gi", want: true},
		"a hundredth":          {before: "1Gi", after: "2Gi", capacity: "100Gi"},
		"a hundredth less":     {before: "2Gi", after: "1Gi", capacity: "100Gi"},
		"capacity isn't known": {before: "1Gi", after: "1Gi"},
	} {
		quantity := func(text string) *resource.Quantity {
			if text == "" {
				return nil
			}
			return ptr.To(resource.MustParse(text))
		}
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(isNegligible(quantity(tc.before), quantity(tc.after), quantity(tc.capacity))).To(Equal(tc.want))
		})
	}
}

func TestIsUrgent(t *testing.T) {
	condition := func(reason, message string) []metav1.Condition {
		return []metav1.Condition{{Type: infrav1.ReachableCondition, Status: metav1.ConditionFalse, Reason: reason, Message: message}}
	}
	base := infrav1.LibvirtHostStatus{Conditions: condition("A", "x"), Arch: infrav1.ArchitectureAmd64}
	for name, tc := range map[string]struct {
		change func(*infrav1.LibvirtHost)
		want   bool
	}{
		"nothing":             {change: func(*infrav1.LibvirtHost) {}},
		"a message":           {change: func(h *infrav1.LibvirtHost) { h.Status.Conditions = condition("A", "y") }},
		"a count":             {change: func(h *infrav1.LibvirtHost) { h.Status.Machines = ptr.To[int32](1) }},
		"allocated resources": {change: func(h *infrav1.LibvirtHost) { h.Status.Allocated.CPUs = ptr.To[int32](1) }},
		"a reason":            {change: func(h *infrav1.LibvirtHost) { h.Status.Conditions = condition("B", "x") }, want: true},
		"a new condition": {change: func(h *infrav1.LibvirtHost) {
			h.Status.Conditions = append(condition("A", "x"), condition("A", "x")...)
		}, want: true},
		"the generation": {change: func(h *infrav1.LibvirtHost) {
			h.Status.Conditions = condition("A", "x")
			h.Status.Conditions[0].ObservedGeneration = 2
		}, want: true},
		"the capacity": {change: func(h *infrav1.LibvirtHost) { h.Status.Capacity.CPUs = ptr.To[int32](1) }, want: true},
		"the version":  {change: func(h *infrav1.LibvirtHost) { h.Status.LibvirtVersion = "10.0.0" }, want: true},
		"a feature":    {change: func(h *infrav1.LibvirtHost) { h.Status.Features = []string{"kvm"} }, want: true},
		"architecture": {change: func(h *infrav1.LibvirtHost) { h.Status.Arch = "" }, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			before := &infrav1.LibvirtHost{Status: *base.DeepCopy()}
			after := before.DeepCopy()
			tc.change(after)
			NewWithT(t).Expect(isUrgent(before, after)).To(Equal(tc.want))
		})
	}
}

// TestLimitsOfTheStatus: any answer of a host fits into the limits of the status.
func TestLimitsOfTheStatus(t *testing.T) {
	g := NewWithT(t)
	host, snapshot := &infrav1.LibvirtHost{}, fleet.Snapshot{Reachable: true, Taken: metav1.Now().Time}
	snapshot.Facts = hypervisor.Facts{Architecture: "riscv64"}
	for i := range 2 * maxFeatures {
		snapshot.Facts.Features = append(snapshot.Facts.Features, fmt.Sprint(i))
	}
	setSeen(host, snapshot)
	g.Expect(host.Status.Arch).To(BeEmpty())
	g.Expect(host.Status.Features).To(HaveLen(maxFeatures))

	var machines []infrav1.LibvirtMachine
	for i := range 2 * 10 {
		machines = append(machines, infrav1.LibvirtMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: fmt.Sprintf("%02d", i)}})
	}
	host.DeletionTimestamp = ptr.To(metav1.Now())
	setReady(host, machines)
	listed := conditions.GetMessage(host, infrav1.ReadyCondition)
	g.Expect(strings.Count(listed, ",")).To(Equal(10))
	g.Expect(listed).To(HaveSuffix("n/09, and 10 more"))
}
