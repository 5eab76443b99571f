package libvirthost

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/fleet"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

func TestDedicatedCPUsInTheStatus(t *testing.T) {
	g := NewWithT(t)
	host := &infrav1.LibvirtHost{Spec: infrav1.LibvirtHostSpec{DedicatedCPUs: "4-7,64"}}
	host.Name = "h"
	machine := infrav1.LibvirtMachine{Spec: infrav1.LibvirtMachineSpec{HostName: "h", CPUs: 2, CPU: infrav1.CPUSpec{Dedicated: ptr.To(true)}}}
	snapshot := fleet.Snapshot{Facts: hypervisor.Facts{CPUs: 8}, Domains: map[string]hypervisor.Domain{"foreign": {PinnedCPUs: []int{7}}}}
	setCounts(host, snapshot, nil)
	g.Expect(host.Status.DedicatedCPUs).To(BeNil(), "the host wasn't seen")

	snapshot.Taken = time.Now()
	setCounts(host, snapshot, []infrav1.LibvirtMachine{machine})
	g.Expect(host.Status.DedicatedCPUs).To(Equal(&infrav1.HostDedicatedCPUs{Count: ptr.To[int32](4), Free: ptr.To[int32](1),
		Message: "The host has no CPUs 64: correct spec.dedicatedCPUs"}))
	g.Expect(host.Status.Allocated.CPUs).To(HaveValue(BeEquivalentTo(3)))
	setCounts(host, snapshot, []infrav1.LibvirtMachine{machine, machine})
	g.Expect(host.Status.DedicatedCPUs.Free).To(HaveValue(BeZero()))

	host.Spec.DedicatedCPUs = ""
	setCounts(host, snapshot, nil)
	g.Expect(host.Status.DedicatedCPUs).To(BeNil())
}
