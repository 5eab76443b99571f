package libvirtmachine

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

func TestLifeOfAMachine(t *testing.T) {
	w := newWorld(t, nil, "a")
	m := w.until(w.newManager(0), w.isProvisioned)
	infra, uuid := w.infra(), w.uuid()
	w.Expect(infra.Finalizers).To(ConsistOf(infrav1.MachineFinalizer))
	w.Expect(infra.Labels).To(HaveKeyWithValue(infrav1.HostLabel, "a"))
	w.Expect(infra.Spec.HostName).To(Equal("a"))
	w.Expect(infra.Status.FailureDomain).To(Equal("rack-a"))
	w.Expect(infra.Status.InstanceState).To(Equal(infrav1.InstanceRunning))
	w.Expect(infra.Status.Addresses).To(Equal(clusterv1.MachineAddresses{
		{Type: clusterv1.MachineHostName, Address: key.Name}, {Type: clusterv1.MachineInternalIP, Address: "192.0.2.7"}}))
	for _, condition := range append(summarized, infrav1.ReadyCondition) {
		w.Expect(conditions.IsTrue(infra, condition)).To(BeTrue(), condition)
	}
	w.Expect(conditions.IsFalse(infra, infrav1.PausedCondition)).To(BeTrue())
	w.Expect(conditions.GetReason(infra, infrav1.SeedRemovedCondition)).To(Equal(infrav1.WaitingForNodeReason))
	w.Expect(w.inventory()).To(Equal([]string{"a: domain Running", "a: volume uuid-root", "a: volume uuid-seed"}))
	seed := w.hosts["a"].Content(hypervisor.VolumeRef{Pool: "default", Name: w.volumeName("seed")})
	w.Expect(string(seed)).To(And(ContainSubstring(secret), ContainSubstring("instance-id: "+uuid), ContainSubstring("local-hostname: "+key.Name),
		ContainSubstring("availability-zone: rack-a\n"), ContainSubstring("libvirt-host: a\n")))
	xml, autostart := w.hosts["a"].DomainXML(uuid)
	w.Expect(autostart).To(BeTrue())
	w.Expect(xml).To(And(ContainSubstring(`cluster="blue" namespace="team" name="blue-1"`), ContainSubstring("<name>team.blue-1."+uuid[:8]+"</name>")))

	// The number of calls is limited.
	api, libvirt := 0, 0
	for _, call := range m.calls() {
		if strings.HasPrefix(call, "api: patch") {
			api++
		} else {
			libvirt++
		}
	}
	eventCount := len(w.events.Events)
	t.Logf("%d API writes, %d events, %d libvirt calls including the transfer of the image", api, eventCount, libvirt)
	w.Expect(api+eventCount).To(BeNumerically("<=", 8), "%v; two of them set and remove the annotation that blocks a move", m.calls())
	w.Expect(libvirt).To(BeNumerically("<=", 26), "%v", m.calls())

	// A reconcile without changes writes nothing.
	before := w.infra()
	_, err := m.reconcile()
	w.Expect(err).ToNot(HaveOccurred())
	w.Expect(w.infra()).To(Equal(before))

	w.joinNode()
	w.until(m, w.hasCondition(infrav1.SeedRemovedCondition, infrav1.SeedRemovedReason))
	w.Expect(w.inventory()).To(Equal([]string{"a: domain Running", "a: volume uuid-root"}))
	w.Expect(w.hosts["a"].Content(hypervisor.VolumeRef{Pool: "default", Name: w.volumeName("seed")})).To(BeNil())

	said := w.output()
	w.delete()
	w.until(m, w.isDeleted)
	w.Expect(w.inventory()).To(BeEmpty())
	w.Expect(m.Scheduler.Reserved()).To(BeZero())
	w.Expect(said + w.output()).ToNot(ContainSubstring(secret))
}

// lives are specs of machines with different lives, each with the objects on the host once it is provisioned.
var lives = []struct {
	name        string
	change      func(*infrav1.LibvirtMachine)
	provisioned []string
	node        []string
}{
	{name: "overlay, address from a pool",
		change:      func(infra *infrav1.LibvirtMachine) { fromPools(infra, "v4") },
		provisioned: []string{"a: domain Running", "a: volume uuid-root", "a: volume uuid-seed", "claim blue-1-0-0"},
		node:        []string{"a: domain Running", "a: volume uuid-root", "claim blue-1-0-0"}},
	{name: "full copy, extra disks, ignition",
		change: func(infra *infrav1.LibvirtMachine) {
			infra.Spec.RootDisk.Clone = infrav1.CloneFull
			infra.Spec.BootstrapFormat = infrav1.BootstrapFormatIgnition
			infra.Spec.ExtraDisks = []infrav1.ExtraDiskSpec{{Name: "etcd", Size: infra.Spec.RootDisk.Size}, {Name: "data", Size: infra.Spec.RootDisk.Size}}
			infra.Spec.Interfaces = []infrav1.InterfaceSpec{{Network: "default"}, {Network: "bridged"}, {Network: "tapped"}}
		},
		provisioned: []string{"a: domain Running", "a: volume uuid-disk-data", "a: volume uuid-disk-etcd", "a: volume uuid-root", "a: volume uuid-root.copy", "a: volume uuid-seed"},
		node:        []string{"a: domain Running", "a: volume uuid-disk-data", "a: volume uuid-disk-etcd", "a: volume uuid-root", "a: volume uuid-root.copy"}},
}

// withoutCopyID replaces the random parts of the names of copies.
func withoutCopyID(left []string) []string {
	for i, what := range left {
		if at := strings.Index(what, "-root."); at >= 0 {
			left[i] = what[:at] + "-root.copy"
		}
	}
	return left
}

// TestKilledAfterEachCall kills the controller after each of its calls to libvirt and the API server, one life for each
// call. Another controller continues, and the end is always the same.
func TestKilledAfterEachCall(t *testing.T) {
	for _, life := range lives {
		t.Run(life.name, func(t *testing.T) {
			whole := func(t *testing.T, killAt int) []string {
				w := newWorld(t, life.change, "a", "b")
				w.hosts["b"].SetReachable(false)
				first := w.newManager(killAt)
				m := w.until(first, w.isProvisioned)
				w.Expect(w.isBlocked()).To(BeFalse(), "no transfer is running")
				w.Expect(withoutCopyID(w.inventory())).To(Equal(life.provisioned))
				said := w.output()
				w.joinNode()
				m = w.until(m, w.hasCondition(infrav1.SeedRemovedCondition, infrav1.SeedRemovedReason))
				w.Expect(withoutCopyID(w.inventory())).To(Equal(life.node))
				w.Expect(w.isProvisioned()).To(BeTrue())
				said += w.output()
				w.delete()
				w.until(m, w.isDeleted)
				w.Expect(w.inventory()).To(BeEmpty())
				w.Expect(said + w.output()).ToNot(ContainSubstring(secret))
				return first.calls()
			}
			calls := whole(t, 0)
			t.Logf("%d calls: %v", len(calls), calls)
			for killAt := 1; killAt <= len(calls); killAt++ {
				t.Run(fmt.Sprintf("%d %s", killAt, calls[killAt-1]), func(t *testing.T) { whole(t, killAt) })
			}
		})
	}
}
