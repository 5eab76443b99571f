package placement_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/placement"
)

const gib = 1 << 30

// newHost returns a host that fits newRequest, with room for four such machines.
func newHost(name string, changes ...func(*placement.Host)) placement.Host {
	host := placement.Host{
		Name: name, Selected: true, NamespaceAllowed: true, Ready: true,
		Architecture: infrav1.ArchitectureAmd64,
		Features:     []string{infrav1.HostFeatureUEFI},
		Pools:        []string{"fast", "slow"},
		Networks:     []string{"default", "storage"},
		ImageVolumes: []string{"ubuntu-2404"},
		Room: placement.Resources{
			{Kind: placement.CPU}: 8, {Kind: placement.Memory}: 16 * gib,
			{Kind: placement.Disk, Name: "fast"}: 80 * gib, {Kind: placement.Disk, Name: "slow"}: 80 * gib,
		},
	}
	for _, change := range changes {
		change(&host)
	}
	return host
}

func newSpec(changes ...func(*infrav1.LibvirtMachineSpec)) *infrav1.LibvirtMachineSpec {
	spec := &infrav1.LibvirtMachineSpec{
		CPUs: 2, Memory: resource.MustParse("4Gi"),
		Image:      infrav1.ImageSpec{Volume: "ubuntu-2404"},
		RootDisk:   infrav1.RootDiskSpec{Size: resource.MustParse("20Gi")},
		Interfaces: []infrav1.InterfaceSpec{{Network: "default"}},
	}
	for _, change := range changes {
		change(spec)
	}
	return spec
}

func newMachine(uid, host string) placement.Machine {
	return placement.Machine{
		UID: types.UID(uid), Host: host,
		Cluster: types.NamespacedName{Namespace: "team", Name: "blue"}, Owner: "workers",
		Needs: placement.Needs(newSpec()),
	}
}

func newRequest(changes ...func(*infrav1.LibvirtMachineSpec)) placement.Request {
	return placement.NewRequest(newMachine("new", ""), newSpec(changes...), "")
}

func TestFilters(t *testing.T) {
	yes := true
	for _, tc := range []struct {
		name    string
		host    func(*placement.Host)
		spec    func(*infrav1.LibvirtMachineSpec)
		domain  string
		reason  placement.Reason // empty where the host fits
		message string
	}{
		{name: "fits"},
		{name: "not selected", host: func(h *placement.Host) { h.Selected = false },
			reason: placement.NotSelected, message: "the cluster's hostSelector doesn't select it"},
		{name: "namespace", host: func(h *placement.Host) { h.NamespaceAllowed = false },
			reason: placement.NamespaceNotAllowed, message: "its identity doesn't allow the namespace"},
		{name: "cordoned", host: func(h *placement.Host) {
			h.Ready, h.Maintenance = false, &infrav1.HostMaintenance{Reason: "new memory"}
		}, reason: placement.InMaintenance, message: "in maintenance: new memory"},
		{name: "cordoned, still Ready", host: func(h *placement.Host) { h.Maintenance = &infrav1.HostMaintenance{} },
			reason: placement.InMaintenance, message: "in maintenance"},
		{name: "not ready", host: func(h *placement.Host) { h.Ready, h.Message = false, "no route to host" },
			reason: placement.NotReady, message: "not ready: no route to host"},
		{name: "not seen", host: func(h *placement.Host) { h.Ready, h.Connecting, h.Architecture = false, true, "" },
			reason: placement.NotSeen, message: "connecting"},
		{name: "not seen, cordoned", host: func(h *placement.Host) {
			h.Ready, h.Connecting, h.Maintenance = false, true, &infrav1.HostMaintenance{}
		}, reason: placement.InMaintenance, message: "in maintenance"},
		{name: "not seen, failure domain", host: func(h *placement.Host) { h.Ready, h.Connecting = false, true }, domain: "rack-2",
			reason: placement.WrongFailureDomain, message: "in failure domain a, not rack-2"},
		{name: "failure domain", host: func(h *placement.Host) { h.FailureDomain = "rack-1" }, domain: "rack-2",
			reason: placement.WrongFailureDomain, message: "in failure domain rack-1, not rack-2"},
		{name: "right failure domain", host: func(h *placement.Host) { h.FailureDomain = "rack-1" }, domain: "rack-1"},
		{name: "failure domain is the name", domain: "a"},
		{name: "architecture", spec: func(s *infrav1.LibvirtMachineSpec) { s.CPU.Architecture = infrav1.ArchitectureArm64 },
			reason: placement.WrongArchitecture, message: "has architecture amd64, not arm64"},
		{name: "architecture unknown", host: func(h *placement.Host) { h.Architecture = "" },
			reason: placement.WrongArchitecture, message: "has architecture unknown, not amd64"},
		{name: "no UEFI", host: func(h *placement.Host) { h.Features = nil },
			reason: placement.MissingFeature, message: "lacks feature uefi"},
		{name: "BIOS needs no UEFI", host: func(h *placement.Host) { h.Features = nil },
			spec: func(s *infrav1.LibvirtMachineSpec) { s.Firmware.Type = infrav1.FirmwareBIOS }},
		{name: "all features", spec: func(s *infrav1.LibvirtMachineSpec) {
			s.CPU.Mode, s.Firmware.SecureBoot = infrav1.CPUModeHostPassthrough, &yes
			s.TPM, s.Hugepages = &infrav1.TPMSpec{}, &infrav1.HugepagesSpec{}
		}, reason: placement.MissingFeature, message: "lacks feature hugepages-2Mi, kvm, secure-boot, tpm"},
		{name: "pool", spec: func(s *infrav1.LibvirtMachineSpec) { s.RootDisk.Pool = "tape" },
			reason: placement.MissingPool, message: "lacks storage pool tape"},
		{name: "no pool at all", host: func(h *placement.Host) { h.Pools = nil },
			reason: placement.MissingPool, message: "has no storage pool for disks"},
		{name: "full", host: func(h *placement.Host) { h.Full = true },
			reason: placement.NoRoom, message: "no room (a machine on the host ran out of room, although enough should be free)"},
		{name: "image", spec: func(s *infrav1.LibvirtMachineSpec) { s.Image.Volume = "other" },
			reason: placement.MissingImage, message: "lacks image volume other"},
		{name: "network", spec: func(s *infrav1.LibvirtMachineSpec) {
			s.Interfaces = []infrav1.InterfaceSpec{{Network: "dmz"}, {}, {Network: "dmz"}}
		}, reason: placement.MissingNetwork, message: "lacks network dmz"},
		{name: "exactly full", spec: func(s *infrav1.LibvirtMachineSpec) { s.CPUs, s.Memory = 8, resource.MustParse("16Gi") }},
		{name: "CPUs and memory", spec: func(s *infrav1.LibvirtMachineSpec) { s.CPUs, s.Memory = 9, resource.MustParse("17Gi") },
			reason: placement.NoRoom, message: "no room (CPUs: 9 needed, 8 free, memory: 17Gi needed, 16Gi free)"},
		{name: "default pool is the first", spec: func(s *infrav1.LibvirtMachineSpec) {
			s.ExtraDisks = []infrav1.ExtraDiskSpec{{Size: resource.MustParse("61Gi")}}
		}, reason: placement.NoRoom, message: "no room (storage in pool fast: 81Gi needed, 80Gi free)"},
		{name: "other pool has room", spec: func(s *infrav1.LibvirtMachineSpec) {
			s.ExtraDisks = []infrav1.ExtraDiskSpec{{Size: resource.MustParse("61Gi"), Pool: "slow"}}
		}},
		{name: "foreign domains", host: func(h *placement.Host) { h.Foreign = placement.Resources{{Kind: placement.CPU}: 7} },
			reason: placement.NoRoom, message: "no room (CPUs: 2 needed, 1 free)"},
		{name: "allocated too much already", host: func(h *placement.Host) { h.Foreign = placement.Resources{{Kind: placement.CPU}: 9} },
			reason: placement.NoRoom, message: "no room (CPUs: 2 needed, 0 free)"},
		{name: "huge pages", host: func(h *placement.Host) { h.Features = append(h.Features, "hugepages-1Gi") },
			spec:   func(s *infrav1.LibvirtMachineSpec) { s.Hugepages = &infrav1.HugepagesSpec{PageSize: "1Gi"} },
			reason: placement.NoRoom, message: "no room (huge pages of 1Gi: 4Gi needed, 0 free)"},
		{name: "dedicated CPUs", host: func(h *placement.Host) { h.Room[placement.Resource{Kind: placement.DedicatedCPU}] = 1 },
			spec:   func(s *infrav1.LibvirtMachineSpec) { s.CPU.Dedicated = &yes },
			reason: placement.NoRoom, message: "no room (dedicated CPUs: 2 needed, 1 free)"},
		{name: "dedicated CPUs need no others", host: func(h *placement.Host) {
			h.Room[placement.Resource{Kind: placement.DedicatedCPU}] = 2
			delete(h.Room, placement.Resource{Kind: placement.CPU})
		}, spec: func(s *infrav1.LibvirtMachineSpec) { s.CPU.Dedicated = &yes }},
		{name: "devices", host: func(h *placement.Host) { h.Room[placement.DeviceResource("10de", "20b5")] = 1 },
			spec: func(s *infrav1.LibvirtMachineSpec) {
				s.HostDevices = []infrav1.HostDeviceSpec{{VendorID: "10de", ProductID: "20b5"}, {VendorID: "10de", ProductID: "20b5", Count: 2}}
			}, reason: placement.NoRoom, message: "no room (devices 10de:20b5: 3 needed, 1 free)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := NewWithT(t)
			host := newHost("a")
			if tc.host != nil {
				tc.host(&host)
			}
			request := newRequest()
			if tc.spec != nil {
				request = newRequest(tc.spec)
			}
			request.FailureDomain = tc.domain

			chosen, err := placement.Choose(request, []placement.Host{host}, nil)
			if tc.reason == "" {
				g.Expect(err).ToNot(HaveOccurred())
				g.Expect(chosen).To(Equal("a"))
				return
			}
			var noFit *placement.NoFitError
			g.Expect(errors.As(err, &noFit)).To(BeTrue())
			g.Expect(noFit.ForNow()).To(Equal(tc.reason == placement.NotSeen))
			g.Expect(noFit.Hosts).To(ConsistOf(placement.Unfit{Host: "a", Reason: tc.reason, Message: tc.message}))
			g.Expect(chosen).To(BeEmpty())
		})
	}
}

func TestScores(t *testing.T) {
	ofOther := func(m placement.Machine) placement.Machine {
		m.Owner = "control-plane"
		return m
	}
	ofOtherCluster := func(m placement.Machine) placement.Machine {
		m.Cluster.Name = "red"
		return m
	}
	more := func(memory int64) func(*placement.Host) {
		return func(h *placement.Host) { h.Room[placement.Resource{Kind: placement.Memory}] += memory }
	}
	for _, tc := range []struct {
		name  string
		hosts []placement.Host
		bound []placement.Machine
		want  string
	}{
		{name: "first by name where all is equal", hosts: []placement.Host{newHost("b"), newHost("a")}, want: "a"},
		{name: "most free memory", hosts: []placement.Host{newHost("a"), newHost("b", more(1))}, want: "b"},
		{name: "fewest of the cluster before memory", hosts: []placement.Host{newHost("a", more(64*gib)), newHost("b")},
			bound: []placement.Machine{ofOther(newMachine("1", "a"))}, want: "b"},
		{name: "fewest siblings before the cluster", hosts: []placement.Host{newHost("a"), newHost("b")},
			bound: []placement.Machine{newMachine("1", "a"), ofOther(newMachine("2", "b")), ofOther(newMachine("3", "b"))}, want: "b"},
		{name: "an owner of the same name in another cluster", hosts: []placement.Host{newHost("a", more(64*gib)), newHost("b")},
			bound: []placement.Machine{ofOtherCluster(newMachine("1", "a"))}, want: "a"},
		{name: "a machine is listed twice", hosts: []placement.Host{newHost("a"), newHost("b")},
			bound: []placement.Machine{newMachine("1", "a"), newMachine("1", "a"), newMachine("2", "b"), newMachine("3", "b")}, want: "a"},
		{name: "the machine itself isn't counted", hosts: []placement.Host{newHost("a"), newHost("b")},
			bound: []placement.Machine{newMachine("new", "a")}, want: "a"},
		{name: "a machine on an unknown host isn't counted", hosts: []placement.Host{newHost("a")},
			bound: []placement.Machine{newMachine("1", "gone")}, want: "a"},
		{name: "an unreachable host doesn't block others", want: "b",
			hosts: []placement.Host{newHost("a", func(h *placement.Host) { h.Ready = false }), newHost("b")}},
		{name: "a full host is not chosen", hosts: []placement.Host{newHost("a"), newHost("b", more(-13*gib))}, want: "a",
			bound: []placement.Machine{newMachine("1", "a")}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := NewWithT(t)
			for range 2 {
				chosen, err := placement.Choose(newRequest(), tc.hosts, tc.bound)
				g.Expect(err).ToNot(HaveOccurred())
				g.Expect(chosen).To(Equal(tc.want))
				slices.Reverse(tc.hosts)
				slices.Reverse(tc.bound)
			}
		})
	}
}

func TestMachinesWithoutOwnerHaveNoSiblings(t *testing.T) {
	g := NewWithT(t)
	alone, request := newMachine("1", "a"), newRequest()
	alone.Owner, request.Machine.Owner = "", ""
	other := newMachine("2", "b")
	other.Owner = "workers"
	third := newMachine("3", "b")
	chosen, err := placement.Choose(request, []placement.Host{newHost("a"), newHost("b")}, []placement.Machine{alone, other, third})
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(chosen).To(Equal("a"))
}

// TestNoFitErrorIsBounded checks that hosts with the same message share an entry, Ready hosts first, on one line.
func TestNoFitErrorIsBounded(t *testing.T) {
	g := NewWithT(t)
	_, err := placement.Choose(newRequest(), nil, nil)
	g.Expect(err).To(MatchError("no host fits: no LibvirtHost exists"))

	var hosts []placement.Host
	for i := range 26 {
		hosts = append(hosts, newHost(string(rune('z'-i)), func(h *placement.Host) {
			h.Ready, h.Message = false, "* PoolsReady: Storage pool fast isn't active\n* NetworksReady: Network lan isn't active"
		}))
	}
	for i := range 8 {
		hosts = append(hosts, newHost(fmt.Sprintf("zz-%d", i), func(h *placement.Host) { h.Room[placement.Resource{Kind: placement.CPU}] = int64(i) / 7 }))
	}
	_, err = placement.Choose(newRequest(), hosts, nil)
	g.Expect(err).To(MatchError("no host fits (8 of 34 Ready and selected): " +
		"7 hosts (zz-0, zz-1, zz-2, zz-3, zz-4, zz-5, zz-6): no room (CPUs: 2 needed, 0 free); zz-7: no room (CPUs: 2 needed, 1 free); " +
		"26 hosts (a, b, c, d, e, f, g, h, i, j, ...): not ready: PoolsReady: Storage pool fast isn't active, NetworksReady: Network lan isn't active"))
	var noFit *placement.NoFitError
	g.Expect(errors.As(err, &noFit)).To(BeTrue())
	g.Expect(noFit.Hosts).To(HaveLen(34))

	each := &placement.NoFitError{Unlisted: true}
	for i := range 9 {
		each.Hosts = append(each.Hosts, placement.Unfit{Host: fmt.Sprint(i), Reason: placement.NoRoom, Message: fmt.Sprintf("%d free", i)})
	}
	g.Expect(each).To(MatchError("no host fits (9 of 9 Ready and selected): 0: 0 free; 1: 1 free; 2: 2 free; 3: 3 free; 4: 4 free; 4 more hosts: NoRoom; " +
		"hosts that the namespace may not use are not listed"))
}

// TestUnits checks that compared amounts have one unit in which the shortage is visible.
func TestUnits(t *testing.T) {
	for name, tc := range map[string]struct {
		needed string
		free   int64
		want   string
	}{
		"odd bytes":           {needed: "60Gi", free: 6089644 << 10, want: "memory: 60Gi needed, 5.8Gi free"},
		"nothing":             {needed: "60Gi", want: "memory: 60Gi needed, 0 free"},
		"a byte":              {needed: "16Gi", free: 16*gib - 1, want: "memory: 16Gi needed, 15.99Gi free"},
		"much less":           {needed: "16Ti", free: 56 * gib, want: "memory: 16384Gi needed, 56Gi free"},
		"almost nothing":      {needed: "60Gi", free: 600 << 10, want: "memory: 61440Mi needed, 0.58Mi free"},
		"needed in odd bytes": {needed: "1000000001", free: 1 << 20, want: "memory: 953.68Mi needed, 1Mi free"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := placement.Choose(newRequest(func(s *infrav1.LibvirtMachineSpec) { s.Memory = resource.MustParse(tc.needed) }),
				[]placement.Host{newHost("a", func(h *placement.Host) { h.Room[placement.Resource{Kind: placement.Memory}] = tc.free })}, nil)
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring("(" + tc.want + ")")))
		})
	}
}

// TestReasonsAreShown checks that the text includes each reason.
func TestReasonsAreShown(t *testing.T) {
	for _, reason := range []placement.Reason{placement.NotSelected, placement.NamespaceNotAllowed, placement.InMaintenance, placement.NotReady,
		placement.WrongFailureDomain, placement.NotSeen, placement.WrongArchitecture, placement.MissingFeature, placement.MissingPool,
		placement.MissingImage, placement.MissingNetwork, placement.QuotaExceeded, placement.NoRoom} {
		NewWithT(t).Expect(&placement.NoFitError{Hosts: []placement.Unfit{{Host: "a", Reason: reason, Message: "why"}}}).
			To(MatchError(HaveSuffix("a: why")), string(reason))
	}
}

func TestRoom(t *testing.T) {
	g := NewWithT(t)
	cpus, memory, storage := int32(1), resource.MustParse("2Gi"), resource.MustParse("10Gi")
	capacity := placement.Resources{
		{Kind: placement.CPU}: 9, {Kind: placement.Memory}: 66 * gib, {Kind: placement.Hugepages, Name: "2Mi"}: 4 * gib,
		{Kind: placement.Disk, Name: "fast"}: 100 * gib, {Kind: placement.Disk, Name: "tiny"}: gib, {Kind: placement.Disk, Name: "private"}: 100 * gib,
		placement.DeviceResource("10de", "20b5"): 2,
	}
	spec := &infrav1.LibvirtHostSpec{
		StoragePools: infrav1.HostStoragePools{Disks: []string{"fast", "tiny"}},
		Reserved:     infrav1.HostReserved{CPUs: &cpus, Memory: &memory, Storage: &storage},
		Overcommit:   infrav1.HostOvercommit{CPUPercent: 450, MemoryPercent: 150},
	}
	g.Expect(placement.Room(capacity, spec)).To(Equal(placement.Resources{
		{Kind: placement.CPU}: 36, {Kind: placement.Memory}: 96 * gib, {Kind: placement.Hugepages, Name: "2Mi"}: 4 * gib,
		{Kind: placement.Disk, Name: "fast"}: 90 * gib, {Kind: placement.Disk, Name: "tiny"}: 0,
		placement.DeviceResource("10de", "20b5"): 2,
	}))
	g.Expect(capacity).To(HaveLen(7), "the capacity doesn't change")

	g.Expect(placement.Room(placement.Resources{{Kind: placement.Memory}: gib}, spec)).
		To(HaveKeyWithValue(placement.Resource{Kind: placement.Memory}, BeZero()), "less than the reservation")
	g.Expect(placement.Room(capacity, &infrav1.LibvirtHostSpec{})).
		To(HaveKeyWithValue(placement.Resource{Kind: placement.CPU}, BeEquivalentTo(9)), "nothing said")
	g.Expect(placement.Room(nil, spec)).To(HaveKeyWithValue(placement.Resource{Kind: placement.CPU}, BeZero()))
	huge := placement.Room(placement.Resources{{Kind: placement.Memory}: 1 << 60}, &infrav1.LibvirtHostSpec{Overcommit: infrav1.HostOvercommit{MemoryPercent: 400}})
	g.Expect(huge).To(HaveKeyWithValue(placement.Resource{Kind: placement.Memory}, BeEquivalentTo(1<<62)))
}

// TestUnseen checks that only connecting hosts may turn out to fit, and only if their known properties fit.
func TestUnseen(t *testing.T) {
	connecting := func(name string, change func(*placement.Host)) placement.Host {
		host := placement.Host{Name: name, FailureDomain: "rack-1", Selected: true, NamespaceAllowed: true, Connecting: true}
		change(&host)
		return host
	}
	hosts := []placement.Host{
		connecting("new", func(*placement.Host) {}),
		connecting("seen", func(h *placement.Host) { h.Connecting, h.Ready = false, true }),
		connecting("not selected", func(h *placement.Host) { h.Selected = false }),
		connecting("of others", func(h *placement.Host) { h.NamespaceAllowed = false }),
		connecting("in maintenance", func(h *placement.Host) { h.Maintenance = &infrav1.HostMaintenance{} }),
		connecting("elsewhere", func(h *placement.Host) { h.FailureDomain = "rack-2" }),
		connecting("new, too", func(*placement.Host) {}),
	}
	NewWithT(t).Expect(placement.Unseen(placement.Request{FailureDomain: "rack-1"}, hosts)).To(Equal([]string{"new", "new, too"}))
	NewWithT(t).Expect(placement.Unseen(placement.Request{}, hosts)).To(Equal([]string{"new", "elsewhere", "new, too"}))
}
