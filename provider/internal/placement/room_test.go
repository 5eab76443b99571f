package placement_test

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/fleet"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/placement"
)

const (
	boundUUID  = "00000000-0000-4000-8000-000000000001"
	orphanUUID = "00000000-0000-4000-8000-000000000002"
	othersUUID = "00000000-0000-4000-8000-000000000003"
	madeUUID   = "00000000-0000-4000-8000-000000000004"
)

func resources(cpus, memory int64, disks map[string]int64) placement.Resources {
	all := placement.Resources{{Kind: placement.CPU}: cpus, {Kind: placement.Memory}: memory}
	for pool, bytes := range disks {
		all[placement.Resource{Kind: placement.Disk, Name: pool}] = bytes
	}
	return all
}

// busy is a host with the domain of a bound machine, the domain of a deleted machine, two foreign domains, and the disk
// of a bound machine without a domain.
func busy() fleet.Snapshot {
	volume := func(allocated int64) hypervisor.Volume { return hypervisor.Volume{AllocatedBytes: allocated} }
	return fleet.Snapshot{
		Reachable: true,
		Facts: hypervisor.Facts{Architecture: "amd64", CPUs: 16, MemoryBytes: 64 << 30, Features: []string{infrav1.HostFeatureKVM},
			HugepageBytes: map[infrav1.HugepageSize]int64{infrav1.Hugepages2Mi: 4 << 30}},
		Pools: map[string]fleet.Pool{
			"disks": {Pool: hypervisor.Pool{Active: true, CapacityBytes: 1000, AvailableBytes: 700}, Volumes: map[string]hypervisor.Volume{
				"root-of-the-first": volume(100), "image": volume(50), madeUUID + "-root": volume(20), orphanUUID + "-root": volume(30)}},
			"images": {Pool: hypervisor.Pool{Active: true, CapacityBytes: 500, AvailableBytes: 500},
				Volumes: map[string]hypervisor.Volume{"z": {Path: "/images/z"}, "a": {Path: "/images/a"},
					// Volumes of machines aren't images.
					othersUUID + "-seed": {}, "caplv-image-x": {}, "root-of-others": {}, "file-of-others": {Path: "/images/file-of-others"}}},
			"off": {Pool: hypervisor.Pool{CapacityBytes: 99}},
		},
		Domains: map[string]hypervisor.Domain{
			boundUUID: {State: hypervisor.StateRunning, CPUs: 8, MemoryBytes: 8 << 30, Owner: &hypervisor.Owner{Name: "m"},
				Disks: []hypervisor.VolumeRef{{Pool: "disks", Name: "root-of-the-first"}}},
			orphanUUID: {State: hypervisor.StateRunning, CPUs: 4, MemoryBytes: 4 << 30, Owner: &hypervisor.Owner{Name: "gone"},
				Disks: []hypervisor.VolumeRef{{Pool: "disks", Name: orphanUUID + "-root"}}},
			// A domain of a namespace that this manager doesn't watch, while it is created.
			"begun": {State: hypervisor.StateShutOff, CPUs: 1, MemoryBytes: 1 << 30, Owner: &hypervisor.Owner{Namespace: "other", Name: "m"}},
			othersUUID: {State: hypervisor.StatePaused, CPUs: 2, MemoryBytes: 2 << 30, Files: []string{"/images/a", "/images/file-of-others"},
				Disks: []hypervisor.VolumeRef{{Pool: "images", Name: "root-of-others"}, {Pool: "disks", Name: "a"}}, DiskFiles: []string{"/images/file-of-others"}},
			"off": {State: hypervisor.StateShutOff, CPUs: 99, MemoryBytes: 99 << 30},
		},
	}
}

func boundMachines() placement.Bound { return placement.Bound{boundUUID: true, madeUUID: true} }

func TestForeign(t *testing.T) {
	g := NewWithT(t)
	// Of the 300 used bytes, 100 and 20 belong to bound machines.
	g.Expect(placement.Foreign(&infrav1.LibvirtHostSpec{}, busy(), boundMachines())).To(Equal(resources(7, 7<<30, map[string]int64{"disks": 180})))
	g.Expect(placement.Foreign(&infrav1.LibvirtHostSpec{}, fleet.Snapshot{}, nil)).To(BeEmpty())
}

func TestHostOf(t *testing.T) {
	host := func(change func(*infrav1.LibvirtHost)) *infrav1.LibvirtHost {
		host := &infrav1.LibvirtHost{ObjectMeta: metav1.ObjectMeta{Name: "h"}, Spec: infrav1.LibvirtHostSpec{
			FailureDomain: "rack", StoragePools: infrav1.HostStoragePools{Images: "images", Disks: []string{"disks"}},
			Networks: []infrav1.HostNetwork{{Name: "lan", Bridge: "br0"}, {Name: "nat", LibvirtNetwork: "default"}},
			Reserved: infrav1.HostReserved{CPUs: ptr.To[int32](1)}, Overcommit: infrav1.HostOvercommit{CPUPercent: 200},
		}}
		for _, condition := range []string{infrav1.ReadyCondition, infrav1.ReachableCondition} {
			conditions.Set(host, metav1.Condition{Type: condition, Status: metav1.ConditionTrue, Reason: condition})
		}
		if change != nil {
			change(host)
		}
		return host
	}
	g := NewWithT(t)
	room := resources(30, 60<<30, map[string]int64{"disks": 1000})
	room[placement.Resource{Kind: placement.Hugepages, Name: "2Mi"}] = 4 << 30
	g.Expect(placement.HostOf(host(nil), busy(), boundMachines())).To(Equal(placement.Host{
		Name: "h", FailureDomain: "rack", Ready: true, Architecture: infrav1.ArchitectureAmd64, Features: []string{"kvm"},
		Pools: []string{"disks"}, Networks: []string{"lan", "nat"}, ImageVolumes: []string{"a", "z"},
		Room: room, Foreign: resources(7, 7<<30, map[string]int64{"disks": 180}),
	}))

	down := func(generation int64) func(*infrav1.LibvirtHost) {
		return func(h *infrav1.LibvirtHost) {
			for _, condition := range []string{infrav1.ReadyCondition, infrav1.ReachableCondition} {
				conditions.Set(h, metav1.Condition{Type: condition, Status: metav1.ConditionFalse, Reason: "X", Message: "not reachable"})
			}
			h.Generation = generation
		}
	}
	for name, tc := range map[string]struct {
		host     func(*infrav1.LibvirtHost)
		snapshot func(*fleet.Snapshot)
		message  string
		// connecting says that the host may still turn out to be usable.
		connecting bool
	}{
		"not connected": {snapshot: func(s *fleet.Snapshot) { s.Reachable = false }, connecting: true},
		"never seen": {host: func(h *infrav1.LibvirtHost) { h.Status = infrav1.LibvirtHostStatus{} },
			snapshot: func(s *fleet.Snapshot) { *s = fleet.Snapshot{} }, connecting: true},
		"not reachable before":            {host: down(0), snapshot: func(s *fleet.Snapshot) { s.Reachable = false }, message: "not reachable"},
		"not reachable by its older spec": {host: down(1), snapshot: func(s *fleet.Snapshot) { s.Reachable = false }, connecting: true},
		"connected, before the status":    {host: down(0), connecting: true},
		"paused": {host: func(h *infrav1.LibvirtHost) {
			down(0)(h)
			h.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
		}, message: "not reachable"},
		"lost": {snapshot: func(s *fleet.Snapshot) { s.Reachable, s.Err = false, hypervisor.ErrTimeout },
			message: hypervisor.ErrTimeout.Error()},
		"deleted": {host: func(h *infrav1.LibvirtHost) { h.DeletionTimestamp = ptr.To(metav1.Now()) }, message: "being deleted"},
		"paused before its first status": {host: func(h *infrav1.LibvirtHost) {
			h.Status, h.Annotations = infrav1.LibvirtHostStatus{}, map[string]string{clusterv1.PausedAnnotation: ""}
		}, message: "not looked at so far"},
		"not ready": {host: func(h *infrav1.LibvirtHost) {
			conditions.Set(h, metav1.Condition{Type: infrav1.ReadyCondition, Status: metav1.ConditionFalse, Reason: "X", Message: "no pool"})
		}, message: "no pool"},
	} {
		t.Run(name, func(t *testing.T) {
			snapshot := busy()
			if tc.snapshot != nil {
				tc.snapshot(&snapshot)
			}
			got := placement.HostOf(host(tc.host), snapshot, nil)
			NewWithT(t).Expect(got.Ready).To(BeFalse())
			NewWithT(t).Expect(got.Message).To(Equal(tc.message))
			NewWithT(t).Expect(got.Connecting).To(Equal(tc.connecting))
		})
	}
}
