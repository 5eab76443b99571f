package libvirtmachine

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/exclusive"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

var exclusiveSeeds = flag.Uint64("exclusive.seeds", 10, "number of runs of concurrent managers for each case")

// dedicatesCPUs gives a machine two dedicated CPUs.
func dedicatesCPUs(infra *infrav1.LibvirtMachine) { infra.Spec.CPU.Dedicated = ptr.To(true) }

// assigned lists the exclusive CPUs and devices of the domains on a host as text, by the UUIDs of the domains.
func (w *world) assigned(host string, which func(hypervisor.Domain) bool) map[string][]string {
	connected, err := w.hosts[host].Connect(context.Background())
	w.Expect(err).ToNot(HaveOccurred())
	defer func() { _ = connected.Close() }()
	domains, err := connected.ListDomains(context.Background())
	w.Expect(err).ToNot(HaveOccurred())
	cpus := map[string][]string{}
	for _, domain := range domains {
		if which != nil && !which(domain) {
			continue
		}
		for thing := range exclusive.Of(domain) {
			cpus[domain.UUID] = append(cpus[domain.UUID], strings.TrimPrefix(string(thing), "CPU "))
		}
		slices.Sort(cpus[domain.UUID])
	}
	return cpus
}

// defineForeign defines a domain without an owner that has CPUs or devices of the host.
func (w *world) defineForeign(host, uuid, inside string) {
	connected, err := w.hosts[host].Connect(context.Background())
	w.Expect(err).ToNot(HaveOccurred())
	defer func() { _ = connected.Close() }()
	w.Expect(connected.DefineDomain(context.Background(), hypervisor.Definition{UUID: uuid, Name: uuid,
		XML: fmt.Sprintf("<domain><name>%s</name><uuid>%s</uuid><memory>1</memory><vcpu>1</vcpu>%s</domain>", uuid, uuid, inside)})).To(Succeed())
}

const foreignUUID = "00000000-0000-4000-8000-00000000000f"

// TestDedicatedCPUs: a machine gets dedicated CPUs that no other domain uses, including foreign domains. It keeps them
// after a restart, and releases them. Other machines don't run on dedicated CPUs.
func TestDedicatedCPUs(t *testing.T) {
	w := newWorld(t, dedicatesCPUs, "a")
	m := w.newManager(0)
	w.Expect(w.message(m, infrav1.HostBoundCondition, infrav1.NoHostFitsReason)).To(ContainSubstring("a: no room (dedicated CPUs: 2 needed, 0 free)"))
	w.changeHost("a", func(h *infrav1.LibvirtHost) { h.Spec.DedicatedCPUs = "8-10" })
	w.defineForeign("a", foreignUUID, "<cputune><vcpupin vcpu='0' cpuset='8-9'/></cputune>")
	m = w.until(m, func() bool {
		return strings.Contains(conditions.GetMessage(w.infra(), infrav1.HostBoundCondition), "a: no room (dedicated CPUs: 2 needed, 1 free)")
	})
	w.changeHost("a", func(h *infrav1.LibvirtHost) { h.Spec.DedicatedCPUs = "8-11" })
	m = w.until(m, w.isProvisioned)
	w.Expect(w.assigned("a", nil)[w.uuid()]).To(Equal([]string{"10", "11"}))
	xml, _ := w.hosts["a"].DomainXML(w.uuid())
	w.Expect(xml).To(And(ContainSubstring(`<vcpupin vcpu="0" cpuset="10">`), ContainSubstring(`<vcpupin vcpu="1" cpuset="11">`),
		ContainSubstring(`<emulatorpin cpuset="0-7,12-15">`)))
	w.delete()
	w.until(m, w.isDeleted)
	w.Expect(w.assigned("a", nil)).To(Equal(map[string][]string{foreignUUID: {"8", "9"}}))
}

// TestDedicatedCPUsTakenByOthers: another domain gets the CPUs after the machine was bound.
func TestDedicatedCPUsTakenByOthers(t *testing.T) {
	w := newWorld(t, dedicatesCPUs, "a")
	w.changeHost("a", func(h *infrav1.LibvirtHost) { h.Spec.DedicatedCPUs = "8-9" })
	m := w.newManager(0)
	w.until(m, func() bool { return w.infra().Spec.HostName != "" })
	w.defineForeign("a", foreignUUID, "<cputune><vcpupin vcpu='0' cpuset='9'/></cputune>")
	w.Expect(w.message(m, infrav1.InstanceReadyCondition, infrav1.NotFreeReason)).To(Equal("spec.cpu.dedicated: 2 needed, and 1 are free on host a"))
	w.hosts["a"].RemoveDomain(foreignUUID)
	w.until(m, w.isProvisioned)
	w.Expect(w.assigned("a", nil)).To(Equal(map[string][]string{w.uuid(): {"8", "9"}}))
}

// TestMachinesWithoutDedicatedCPUs: machines without dedicated CPUs run on the other CPUs.
func TestMachinesWithoutDedicatedCPUs(t *testing.T) {
	w := newWorld(t, nil, "a")
	w.changeHost("a", func(h *infrav1.LibvirtHost) { h.Spec.DedicatedCPUs = "0-15" })
	m := w.newManager(0)
	w.Expect(w.message(m, infrav1.HostBoundCondition, infrav1.NoHostFitsReason)).To(ContainSubstring("a: no room (CPUs: 2 needed, 0 free)"))
	w.changeHost("a", func(h *infrav1.LibvirtHost) { h.Spec.DedicatedCPUs = "8-11" })
	w.until(m, w.isProvisioned)
	xml, _ := w.hosts["a"].DomainXML(w.uuid())
	w.Expect(xml).To(ContainSubstring(`<vcpu placement="static" cpuset="0-7,12-15">2</vcpu>`))
	w.Expect(w.assigned("a", nil)).To(BeEmpty())
}

// TestDedicatedCPUsAndKills kills the manager after each of its calls. The machine's CPUs stay the same once they are
// defined, and are free after its deletion.
func TestDedicatedCPUsAndKills(t *testing.T) {
	life := func(t *testing.T, killAt int) int {
		w := newWorld(t, func(infra *infrav1.LibvirtMachine) {
			dedicatesCPUs(infra)
			infra.Spec.BootstrapFormat = infrav1.BootstrapFormatIgnition // which changes the definition of the running domain
		}, "a")
		w.changeHost("a", func(h *infrav1.LibvirtHost) { h.Spec.DedicatedCPUs = "8-11" })
		first := w.newManager(killAt)
		var chosen []string
		w.everyReconcile = func() {
			if infra := w.infra(); infra == nil || infra.Spec.HostName == "" || !infra.DeletionTimestamp.IsZero() {
				return
			}
			if cpus := w.assigned("a", nil)[w.uuid()]; cpus != nil && chosen != nil {
				w.Expect(cpus).To(Equal(chosen))
			} else if cpus != nil {
				chosen = cpus
				w.defineForeign("a", foreignUUID, "<cputune><vcpupin vcpu='0' cpuset='10-11'/></cputune>")
			}
		}
		m := w.until(first, w.isProvisioned)
		w.joinNode()
		m = w.until(m, w.hasCondition(infrav1.SeedRemovedCondition, infrav1.SeedRemovedReason))
		xml, _ := w.hosts["a"].DomainXML(w.uuid())
		w.Expect(xml).To(And(ContainSubstring(`<vcpupin vcpu="0" cpuset="8">`), ContainSubstring(`<vcpupin vcpu="1" cpuset="9">`)))
		w.delete()
		w.until(m, w.isDeleted)
		w.Expect(w.assigned("a", nil)).To(Equal(map[string][]string{foreignUUID: {"10", "11"}}))
		return len(first.calls())
	}
	calls := life(t, 0)
	for killAt := 1; killAt <= calls; killAt++ {
		t.Run(fmt.Sprint(killAt), func(t *testing.T) { life(t, killAt) })
	}
}

const gpuCount = 6

// gpus returns the devices of a host, each in another IOMMU group.
func gpus() []hypervisor.PCIDevice {
	var devices []hypervisor.PCIDevice
	for i := range gpuCount {
		devices = append(devices, hypervisor.PCIDevice{Address: fmt.Sprintf("0000:3b:0%d.0", i), VendorID: "10de", ProductID: "20b5", IOMMUGroup: ptr.To(i)})
	}
	return devices
}

// lends makes some devices of a host available.
func lends(addresses ...string) func(*infrav1.LibvirtHost) {
	return func(h *infrav1.LibvirtHost) {
		h.Spec.HostDevices = []infrav1.LentDevices{{VendorID: "10de", ProductID: "20b5", Addresses: addresses}}
	}
}

// wantsGPUs requests two devices of the host for a machine.
func wantsGPUs(infra *infrav1.LibvirtMachine) {
	infra.Spec.HostDevices = []infrav1.HostDeviceSpec{{Name: "gpu", VendorID: "10de", ProductID: "20b5", Count: 2}}
}

// TestHostDevices: a machine gets devices that the host lends, that can be lent and that no other domain uses, and
// releases them.
func TestHostDevices(t *testing.T) {
	w := newWorld(t, wantsGPUs, "a")
	devices := gpus()
	devices[0].IOMMUGroup = nil
	w.hosts["a"].SetPCIDevices(devices...)
	m := w.newManager(0)
	w.Expect(w.message(m, infrav1.HostBoundCondition, infrav1.NoHostFitsReason)).To(ContainSubstring("a: no room (devices 10de:20b5: 2 needed, 0 free)"))
	w.defineForeign("a", foreignUUID, "<devices><hostdev type='pci'><source><address bus='0x3b' slot='0x01'/></source></hostdev></devices>")
	w.changeHost("a", lends("0000:3b:00.0", "0000:3b:01.0", "0000:3b:02.0"))
	m = w.until(m, func() bool {
		return strings.Contains(conditions.GetMessage(w.infra(), infrav1.HostBoundCondition), "a: no room (devices 10de:20b5: 2 needed, 1 free)")
	})
	w.changeHost("a", lends("0000:3b:00.0", "0000:3b:01.0", "0000:3b:02.0", "0000:3b:05.0"))
	m = w.until(m, w.isProvisioned)
	w.Expect(w.assigned("a", nil)[w.uuid()]).To(Equal([]string{"0000:3b:02.0", "0000:3b:05.0"}))
	w.delete()
	w.until(m, w.isDeleted)
	w.Expect(w.assigned("a", nil)).To(Equal(map[string][]string{foreignUUID: {"0000:3b:01.0"}}))
}

// actor is a manager that creates one machine, one turn at a time.
type actor struct {
	*manager
	key  client.ObjectKey
	uuid string
	// waits receives a value before each call in turns, and turn allows the call.
	waits, turn chan struct{}
	// over is closed when the actor has ended.
	over chan struct{}
}

var turns = []string{"libvirt: list domains", "libvirt: define", "libvirt: start", "libvirt: undefine"}

// newActor creates a machine that is bound to host a with a UUID, and a manager for it that waits for its turns.
func (w *world) newActor(number int, change func(*infrav1.LibvirtMachine), uuid string) *actor {
	a := &actor{key: client.ObjectKey{Namespace: key.Namespace, Name: fmt.Sprintf("pinned-%d", number)}, uuid: uuid}
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: a.key.Namespace, Name: a.key.Name},
		Spec: clusterv1.MachineSpec{ClusterName: "blue", Bootstrap: clusterv1.Bootstrap{DataSecretName: ptr.To("blue-1")}}}
	infra := &infrav1.LibvirtMachine{ObjectMeta: metav1.ObjectMeta{Namespace: a.key.Namespace, Name: a.key.Name,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: a.key.Name, UID: "1"}},
		Labels:          map[string]string{clusterv1.ClusterNameLabel: "blue"}, Finalizers: []string{infrav1.MachineFinalizer}}, Spec: newSpec()}
	change(infra)
	infra.Spec.HostName, infra.Spec.ProviderID = "a", infrav1.ProviderIDPrefix+uuid
	w.Expect(w.api.Create(context.Background(), machine)).To(Succeed())
	w.Expect(w.api.Create(context.Background(), infra)).To(Succeed())
	return a
}

// begin runs the manager until the machine runs or has found too few CPUs or devices several times. The manager is
// killed after killAt turns, or never if killAt is 0.
func (a *actor) begin(w *world, killAt int) {
	a.manager = w.newManager(0)
	a.waits, a.turn, a.over = make(chan struct{}), make(chan struct{}), make(chan struct{})
	waits, turn, over, taken := a.waits, a.turn, a.over, 0
	a.before = func(call string, _ int) {
		if !slices.Contains(turns, call) {
			return
		}
		waits <- struct{}{}
		<-turn
	}
	a.after = func(call string, _ int) {
		if !slices.Contains(turns, call) {
			return
		}
		if taken++; taken == killAt {
			a.kill()
		}
	}
	go func() {
		defer close(over)
		for refused := 0; refused < 5 && !a.isDead() && w.hosts["a"].State(a.uuid) != hypervisor.StateRunning; {
			if result, _ := a.reconcileObject(a.key); result.RequeueAfter == noFitDelay {
				refused++
			} else if result.RequeueAfter == 0 {
				time.Sleep(time.Millisecond) // the image is being transferred
			}
		}
	}()
}

// next waits until the actor has a call to make, and reports whether it has.
func (a *actor) next() bool {
	select {
	case <-a.waits:
		return true
	case <-a.over:
		return false
	}
}

// play gives turns to random actors until all have ended. After each turn, it checks that running domains share
// nothing.
func (w *world) play(chance *rand.Rand, actors []*actor, killed func() int) {
	var playing []*actor
	advance := func(a *actor) {
		for !a.next() {
			if !a.isDead() {
				return
			}
			a.begin(w, killed())
		}
		playing = append(playing, a)
	}
	for _, a := range actors {
		a.begin(w, killed())
		advance(a)
	}
	for deadline := time.Now().Add(patience); len(playing) > 0; {
		w.Expect(time.Now().Before(deadline)).To(BeTrue(), "it doesn't end:\n%s", w.log)
		i := chance.IntN(len(playing))
		a := playing[i]
		playing = slices.Delete(playing, i, i+1)
		a.turn <- struct{}{}
		advance(a)
		w.expectNothingShared()
	}
}

func (w *world) expectNothingShared() {
	owners := map[string]string{}
	for uuid, things := range w.assigned("a", func(d hypervisor.Domain) bool { return d.State.Active() }) {
		for _, thing := range things {
			w.Expect(owners).ToNot(HaveKey(thing), "two running domains have it")
			owners[thing] = uuid
		}
	}
}

// TestManagersChooseAtOnce: several managers without knowledge of each other create machines on one host. With any
// order of their calls, and with any kill, no two machines run with the same CPU or device. All run if there are enough
// of them, and as many as possible if not.
func TestManagersChooseAtOnce(t *testing.T) {
	type way struct {
		name   string
		host   func(*infrav1.LibvirtHost)
		change func(*infrav1.LibvirtMachine)
		run    int
	}
	dedicated := func(set string) func(*infrav1.LibvirtHost) {
		return func(h *infrav1.LibvirtHost) { h.Spec.DedicatedCPUs = set }
	}
	for _, tc := range []way{
		{"enough CPUs", dedicated("4-9"), dedicatesCPUs, 3}, {"too few CPUs", dedicated("4-7"), dedicatesCPUs, 2},
		{"enough devices", lends("0000:3b:00.0", "0000:3b:01.0", "0000:3b:02.0", "0000:3b:03.0", "0000:3b:04.0", "0000:3b:05.0"), wantsGPUs, 3},
		{"too few devices", lends("0000:3b:00.0", "0000:3b:01.0", "0000:3b:02.0", "0000:3b:03.0"), wantsGPUs, 2},
	} {
		for seed := range *exclusiveSeeds {
			t.Run(fmt.Sprintf("%s/%d", tc.name, seed), func(t *testing.T) {
				w := newWorld(t, nil, "a")
				w.hosts["a"].SetPCIDevices(gpus()...)
				w.changeHost("a", tc.host)
				chance := rand.New(rand.NewPCG(seed, 1))
				var actors []*actor
				for i := range 3 {
					actors = append(actors, w.newActor(i, tc.change, fmt.Sprintf("00000000-0000-4000-8000-00000000000%d", i)))
				}
				kills := 2 * len(actors)
				w.play(chance, actors, func() int {
					if kills--; kills < 0 {
						return 0
					}
					return chance.IntN(8) // the creation of a machine takes five calls or more
				})
				running := w.assigned("a", func(d hypervisor.Domain) bool { return d.State.Active() })
				w.Expect(running).To(HaveLen(tc.run), "%v\n%s", w.assigned("a", nil), w.log)
				for _, things := range running {
					w.Expect(things).To(HaveLen(2))
				}
				w.Expect(w.assigned("a", nil)).To(Equal(running), "a machine without resources blocks no other machine")
			})
		}
	}
}
