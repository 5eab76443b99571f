package libvirthost

import (
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/fleet"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/placement"
)

// count sets the numbers in the status of a host with placed machines.
func count(t *testing.T, host *infrav1.LibvirtHost, snapshot fleet.Snapshot, machines ...infrav1.LibvirtMachine) {
	t.Helper()
	r := &Reconciler{Scheduler: &placement.Scheduler{Ledger: &placement.Ledger{}}}
	for i := range machines {
		machines[i].UID = types.UID(fmt.Sprint(i))
		r.Scheduler.See(placement.Machine{UID: machines[i].UID, Host: host.Name, Needs: placement.Needs(&machines[i].Spec)})
	}
	setCounts(host, snapshot, len(machines), r.Scheduler.Allocated(host, snapshot, machines))
}

func TestDedicatedCPUsInTheStatus(t *testing.T) {
	g := NewWithT(t)
	host := &infrav1.LibvirtHost{Spec: infrav1.LibvirtHostSpec{DedicatedCPUs: "4-7,64"}}
	host.Name = "h"
	machine := infrav1.LibvirtMachine{Spec: infrav1.LibvirtMachineSpec{HostName: "h", CPUs: 2, CPU: infrav1.CPUSpec{Dedicated: ptr.To(true)}}}
	snapshot := fleet.Snapshot{Facts: hypervisor.Facts{CPUs: 8}, Domains: map[string]hypervisor.Domain{"foreign": {PinnedCPUs: []int{7}}}}
	count(t, host, snapshot)
	g.Expect(host.Status.DedicatedCPUs).To(BeNil(), "the host's state isn't known")

	snapshot.Taken = time.Now()
	count(t, host, snapshot, machine)
	g.Expect(host.Status.DedicatedCPUs).To(Equal(&infrav1.HostDedicatedCPUs{Count: ptr.To[int32](4), Free: ptr.To[int32](1),
		Message: "The host has no CPUs 64: correct spec.dedicatedCPUs"}))
	g.Expect(host.Status.Allocated.CPUs).To(HaveValue(BeEquivalentTo(3)))
	count(t, host, snapshot, machine, machine)
	g.Expect(host.Status.DedicatedCPUs.Free).To(HaveValue(BeZero()))

	host.Spec.DedicatedCPUs = ""
	count(t, host, snapshot)
	g.Expect(host.Status.DedicatedCPUs).To(BeNil())
}

func TestHostDevicesInTheStatus(t *testing.T) {
	g := NewWithT(t)
	host := &infrav1.LibvirtHost{Spec: infrav1.LibvirtHostSpec{HostDevices: []infrav1.LentDevices{
		{VendorID: "10de", ProductID: "20b5", Addresses: []string{"0000:3b:00.0", "0000:3c:00.0", "0000:3f:00.0"}}, {VendorID: "8086", ProductID: "0001"}}}}
	host.Name = "h"
	machine := infrav1.LibvirtMachine{Spec: infrav1.LibvirtMachineSpec{HostName: "h", HostDevices: []infrav1.HostDeviceSpec{{VendorID: "10de", ProductID: "20b5", Count: 1}}}}
	snapshot := fleet.Snapshot{Taken: time.Now(), Devices: []hypervisor.PCIDevice{
		{Address: "0000:3b:00.0", VendorID: "10de", ProductID: "20b5", IOMMUGroup: ptr.To(1)}, {Address: "0000:3c:00.0", VendorID: "10de", ProductID: "20b5"}}}
	count(t, host, snapshot, machine)
	g.Expect(host.Status.HostDevices).To(Equal([]infrav1.HostDevices{
		{VendorID: "10de", ProductID: "20b5", Count: ptr.To[int32](1), Free: ptr.To[int32](0),
			Message: "0000:3c:00.0 has no IOMMU group: enable the IOMMU of the host; 0000:3f:00.0 doesn't exist, or is of another model"},
		{VendorID: "8086", ProductID: "0001", Count: ptr.To[int32](0), Free: ptr.To[int32](0)}}))

	snapshot.Devices, snapshot.DevicesErr = nil, hypervisor.ErrDenied
	count(t, host, snapshot)
	g.Expect(host.Status.HostDevices[1].Message).To(Equal("the devices can't be listed: " + hypervisor.ErrDenied.Error()))
	g.Expect(shortened([]string{strings.Repeat("x", 2000)})).To(HaveLen(1024))
}
