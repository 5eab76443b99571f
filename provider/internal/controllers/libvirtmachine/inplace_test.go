package libvirtmachine

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/placement"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/fake"
)

// larger is the spec after an update in place: more of each resource.
func larger(infra *infrav1.LibvirtMachine) {
	infra.Spec.CPUs, infra.Spec.Memory = 4, resource.MustParse("8Gi")
	infra.Spec.RootDisk.Size = resource.MustParse("30Gi")
	for i := range infra.Spec.ExtraDisks {
		infra.Spec.ExtraDisks[i].Size = resource.MustParse("50Gi")
	}
}

// requestUpdate writes a spec and the annotation for an update in one write, as the controllers of Cluster API do.
func (w *world) requestUpdate(how func(*infrav1.LibvirtMachine)) {
	w.t.Helper()
	change(w, &infrav1.LibvirtMachine{}, key.Name, func(infra *infrav1.LibvirtMachine) {
		how(infra)
		if infra.Annotations == nil {
			infra.Annotations = map[string]string{}
		}
		infra.Annotations[clusterv1.UpdateInProgressAnnotation] = ""
	})
}

// newWorldWithNode returns a world with a machine that has a node and no seed, and its manager.
func newWorldWithNode(t *testing.T, change func(*infrav1.LibvirtMachine)) (*world, *manager) {
	t.Helper()
	w := newWorld(t, change, "a")
	w.inPlace = true
	m := w.until(w.newManager(0), w.isProvisioned)
	w.joinNode()
	m = w.until(m, w.hasCondition(infrav1.SeedRemovedCondition, infrav1.SeedRemovedReason))
	w.hosts["a"].ForgetCalls()
	return w, m
}

// isUpdated reports whether the machine is updated according to its status, and no update is running.
func (w *world) isUpdated() bool {
	infra := w.infra()
	_, started := isChanging(infra)
	return conditions.IsTrue(infra, infrav1.UpdatedInPlaceCondition) && !started
}

func (w *world) domain() hypervisor.Domain {
	w.t.Helper()
	connection, err := w.hosts["a"].Connect(w.t.Context())
	w.Expect(err).ToNot(HaveOccurred())
	defer func() { _ = connection.Close() }()
	domain, err := connection.Domain(w.t.Context(), w.uuid())
	w.Expect(err).ToNot(HaveOccurred())
	return domain
}

// checkUpdated compares the objects on the host with the spec, and with the objects before the update.
func (w *world) checkUpdated(before hypervisor.Domain, xmlBefore string, left []string) {
	w.t.Helper()
	spec := w.infra().Spec
	before.CPUs, before.MemoryBytes = spec.CPUs, spec.Memory.Value()
	w.Expect(w.domain()).To(Equal(before), "the domain runs, and its other fields are unchanged")
	xml, _ := w.hosts["a"].DomainXML(w.uuid())
	want, err := hypervisor.ResizeDomainXML(xmlBefore, hypervisor.Size{CPUs: spec.CPUs, MemoryBytes: spec.Memory.Value()})
	w.Expect(err).ToNot(HaveOccurred())
	w.Expect(xml).To(Equal(want), "the rest of the definition is unchanged")
	w.Expect(w.inventory()).To(Equal(left), "no object is created or deleted")
	connection, err := w.hosts["a"].Connect(w.t.Context())
	w.Expect(err).ToNot(HaveOccurred())
	defer func() { _ = connection.Close() }()
	for _, ref := range before.Disks {
		volume, err := connection.Volume(w.t.Context(), ref)
		w.Expect(err).ToNot(HaveOccurred())
		wanted := spec.RootDisk.Size
		for _, disk := range spec.ExtraDisks {
			if strings.HasSuffix(ref.Name, "-disk-"+disk.Name) {
				wanted = disk.Size
			}
		}
		w.Expect(volume.CapacityBytes).To(Equal(wanted.Value()), ref.Name)
	}
}

// update runs an update in place of a machine with a node, and checks the result. disturb, if it isn't nil, changes the
// world before: it is called without a manager, and with the one that starts the update.
func update(t *testing.T, life int, killAt int, disturb func(w *world, m *manager)) (calls []string) {
	t.Helper()
	w, m := newWorldWithNode(t, lives[life].change)
	xml, _ := w.hosts["a"].DomainXML(w.uuid())
	before, left := w.domain(), w.inventory()
	w.requestUpdate(larger)
	m.end()
	if disturb == nil {
		disturb = func(*world, *manager) {}
	}
	disturb(w, nil)
	first := w.newManager(killAt)
	disturb(w, first)
	w.until(first, w.isUpdated)
	w.hosts["a"].SetReachable(true)
	w.checkUpdated(before, xml, left)
	return first.calls()
}

// TestUpdateInPlace: an update increases each resource of a machine, and the machine stays the same. After a kill at
// any of its calls, the controller reaches the same end.
func TestUpdateInPlace(t *testing.T) {
	for life := range lives {
		t.Run(lives[life].name, func(t *testing.T) {
			calls := update(t, life, 0, nil)
			t.Logf("%d calls: %v", len(calls), calls)
			for killAt := 1; killAt <= len(calls); killAt++ {
				t.Run(fmt.Sprintf("%d %s", killAt, calls[killAt-1]), func(t *testing.T) { update(t, life, killAt, nil) })
			}
		})
	}
}

// TestUpdateInPlaceDisturbed: each call to the host fails once in several ways, the host is lost at each call, and each
// patch fails with a conflict.
func TestUpdateInPlaceDisturbed(t *testing.T) {
	const life = 1 // with all kinds of disks
	var calls []fake.Call
	number := len(update(t, life, 0, func(w *world, _ *manager) {
		w.everyReconcile = func() { calls = w.hosts["a"].Calls() }
	}))
	for i, call := range calls {
		if slices.Contains(fixtureCalls, call.Operation) {
			continue
		}
		for name, fault := range map[string]fake.Fault{
			"fails":             {Effect: fake.Fail, Reason: hypervisor.ErrOther},
			"done, no answer":   {Effect: fake.Fail, Reason: hypervisor.ErrTimeout, AfterDone: true},
			"done and then cut": {Effect: fake.Disconnect, AfterDone: true},
		} {
			fault.Operation = call.Operation
			for _, earlier := range calls[:i] {
				if earlier.Operation == call.Operation {
					fault.Skip++
				}
			}
			t.Run(fmt.Sprintf("%d %s %s", i, call.Operation, name), func(t *testing.T) {
				update(t, life, 0, func(w *world, m *manager) {
					if m == nil {
						w.hosts["a"].Inject(fault)
					}
				})
			})
		}
	}
	for at := range number {
		t.Run(fmt.Sprintf("the host is lost/%d", at), func(t *testing.T) {
			update(t, life, 0, func(w *world, m *manager) {
				if m == nil {
					return
				}
				var since atomic.Int32
				since.Store(-1)
				m.before = func(_ string, number int) {
					if number == at {
						w.hosts["a"].SetReachable(false)
						since.Store(0)
					}
				}
				w.everyReconcile = func() {
					if since.Load() >= 0 && since.Add(1) == 5 {
						w.hosts["a"].SetReachable(true)
					}
				}
			})
		})
	}
	t.Run("conflicts", func(t *testing.T) {
		var patches atomic.Int32
		update(t, life, 0, func(w *world, _ *manager) { w.functions = conflicts(func() bool { return patches.Add(1)%2 == 1 }) })
		NewWithT(t).Expect(patches.Load()).To(BeNumerically(">=", 6))
	})
}

// TestUpdateInPlaceHappensOnce: the guest gets one shutdown request, isn't powered off, and is started once.
func TestUpdateInPlaceHappensOnce(t *testing.T) {
	w, m := newWorldWithNode(t, nil)
	w.requestUpdate(larger)
	m = w.until(m, w.isUpdated)
	for range 3 {
		_, err := m.reconcile()
		w.Expect(err).ToNot(HaveOccurred())
	}
	count := map[fake.Operation]int{}
	for _, call := range w.hosts["a"].Calls() {
		count[call.Operation]++
	}
	w.Expect(count).To(And(HaveKeyWithValue(fake.ShutdownDomain, 1), HaveKeyWithValue(fake.ResizeDomain, 1), HaveKeyWithValue(fake.ResizeVolume, 1),
		HaveKeyWithValue(fake.StartDomain, 1), Not(HaveKey(fake.StopDomain)), Not(HaveKey(fake.DefineDomain))))

	// An update may also decrease resources. The end of the update by Cluster API changes nothing.
	change(w, &infrav1.LibvirtMachine{}, key.Name, func(infra *infrav1.LibvirtMachine) { delete(infra.Annotations, clusterv1.UpdateInProgressAnnotation) })
	_, err := m.reconcile()
	w.Expect(err).ToNot(HaveOccurred())
	w.Expect(w.isUpdated()).To(BeTrue())
	w.requestUpdate(func(infra *infrav1.LibvirtMachine) { infra.Spec.CPUs, infra.Spec.Memory = 1, resource.MustParse("1Gi") })
	w.until(m, func() bool { return w.isUpdated() && w.domain().CPUs == 1 })
	w.Expect(w.domain().MemoryBytes).To(BeEquivalentTo(1 << 30))
	w.Expect(w.domain().State).To(Equal(hypervisor.StateRunning))
}

// TestUpdateInPlaceWithoutRoom: the machine continues to run unchanged, a condition names the missing resources, and
// the machine is updated when there is room.
func TestUpdateInPlaceWithoutRoom(t *testing.T) {
	w, m := newWorldWithNode(t, nil)
	w.changeHost("a", func(h *infrav1.LibvirtHost) { h.Spec.Reserved.CPUs = new(int32(13)) })
	w.requestUpdate(larger)
	w.Expect(w.message(m, infrav1.UpdatedInPlaceCondition, infrav1.NoRoomReason)).To(
		Equal("Host a has no room (CPUs: 4 needed, 3 free): the update waits for room"))
	infra := w.infra()
	w.Expect(conditions.IsFalse(infra, infrav1.UpdatedInPlaceCondition)).To(BeTrue())
	w.Expect(conditions.IsTrue(infra, infrav1.ReadyCondition)).To(BeTrue(), "the machine still works")
	w.Expect(infra.Annotations).ToNot(HaveKey(infrav1.UpdateStartedAnnotation))
	w.Expect(w.domain()).To(And(HaveField("CPUs", BeEquivalentTo(2)), HaveField("State", hypervisor.StateRunning)))
	w.Expect(w.output()).To(ContainSubstring("Warning NoRoom"), "there is an event")

	w.changeHost("a", func(h *infrav1.LibvirtHost) { h.Spec.Reserved.CPUs = nil })
	w.until(m, w.isUpdated)
	w.Expect(w.domain().CPUs).To(BeEquivalentTo(4))
}

// TestGuestThatDoesNotShutDown: a guest that doesn't shut down in time is powered off.
func TestGuestThatDoesNotShutDown(t *testing.T) {
	w, m := newWorldWithNode(t, nil)
	w.hosts["a"].IgnoreShutdown(w.uuid(), true)
	w.requestUpdate(larger)
	w.Expect(w.message(m, infrav1.UpdatedInPlaceCondition, infrav1.RestartingReason)).To(ContainSubstring("It is powered off at 2"))
	w.Expect(conditions.IsUnknown(w.infra(), infrav1.UpdatedInPlaceCondition)).To(BeTrue())
	w.Expect(w.domain()).To(And(HaveField("CPUs", BeEquivalentTo(2)), HaveField("State", hypervisor.StateRunning)))

	change(w, &infrav1.LibvirtMachine{}, key.Name, func(infra *infrav1.LibvirtMachine) {
		infra.Annotations[infrav1.UpdateStartedAnnotation] = time.Now().Add(-shutdownGrace).UTC().Format(time.RFC3339)
	})
	w.until(m, w.isUpdated)
	w.Expect(w.domain()).To(And(HaveField("CPUs", BeEquivalentTo(4)), HaveField("State", hypervisor.StateRunning)))
}

// TestNotUpdatedInPlace: a machine isn't updated without a request, or if the feature is off.
func TestNotUpdatedInPlace(t *testing.T) {
	for name, prepare := range map[string]func(w *world, m *manager){
		"changed by hand": func(w *world, _ *manager) { change(w, &infrav1.LibvirtMachine{}, key.Name, larger) },
		"the feature is off": func(w *world, m *manager) {
			m.InPlaceUpdates = false
			w.requestUpdate(larger)
		},
		"there is no node": func(w *world, _ *manager) {
			change(w, &clusterv1.Machine{}, key.Name, func(m *clusterv1.Machine) { m.Status.NodeRef = clusterv1.MachineNodeReference{} })
			w.requestUpdate(larger)
		},
		"the Machine is being deleted": func(w *world, _ *manager) {
			change(w, &clusterv1.Machine{}, key.Name, func(m *clusterv1.Machine) { m.Finalizers = []string{"test/kept"} })
			w.Expect(w.api.Delete(w.t.Context(), &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}})).To(Succeed())
			w.requestUpdate(larger)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, m := newWorldWithNode(t, nil)
			prepare(w, m)
			for range 5 {
				_, err := m.reconcile()
				w.Expect(err).ToNot(HaveOccurred())
			}
			w.Expect(w.domain()).To(And(HaveField("CPUs", BeEquivalentTo(2)), HaveField("State", hypervisor.StateRunning)))
			w.Expect(conditions.Has(w.infra(), infrav1.UpdatedInPlaceCondition)).To(BeFalse())
			w.Expect(slices.ContainsFunc(w.hosts["a"].Calls(), func(c fake.Call) bool {
				return c.Operation == fake.ShutdownDomain || c.Operation == fake.ResizeDomain || c.Operation == fake.ResizeVolume
			})).To(BeFalse())
		})
	}
}

// TestUpdateInPlaceCancelled: an update that is cancelled before it starts leaves no trace. A started update is
// finished, also if the feature was turned off in the meantime.
func TestUpdateInPlaceCancelled(t *testing.T) {
	cancelUpdate := func(infra *infrav1.LibvirtMachine) { delete(infra.Annotations, clusterv1.UpdateInProgressAnnotation) }
	t.Run("before", func(t *testing.T) {
		w, m := newWorldWithNode(t, nil)
		w.changeHost("a", func(h *infrav1.LibvirtHost) { h.Spec.Reserved.CPUs = new(int32(13)) })
		w.requestUpdate(larger)
		w.until(m, w.hasCondition(infrav1.UpdatedInPlaceCondition, infrav1.NoRoomReason))
		change(w, &infrav1.LibvirtMachine{}, key.Name, cancelUpdate)
		w.until(m, func() bool { return !conditions.Has(w.infra(), infrav1.UpdatedInPlaceCondition) })
		w.Expect(w.domain().CPUs).To(BeEquivalentTo(2))
	})
	t.Run("afterwards", func(t *testing.T) {
		w, m := newWorldWithNode(t, nil)
		w.requestUpdate(larger)
		m.after = func(call string, _ int) {
			if call == "libvirt: shut down" {
				change(w, &infrav1.LibvirtMachine{}, key.Name, cancelUpdate)
				m.InPlaceUpdates = false
			}
		}
		w.until(m, func() bool {
			_, started := isChanging(w.infra())
			return !started && w.domain().CPUs == 4
		})
		w.Expect(w.domain().State).To(Equal(hypervisor.StateRunning))
	})
}

// TestReservationOfCancelledUpdate: the reservation ends when the old spec is restored, with or without the
// annotation for the update.
func TestReservationOfCancelledUpdate(t *testing.T) {
	for name, cancelUpdate := range map[string]func(*infrav1.LibvirtMachine){
		"the spec is restored": func(*infrav1.LibvirtMachine) {},
		"and the annotation removed": func(infra *infrav1.LibvirtMachine) {
			delete(infra.Annotations, clusterv1.UpdateInProgressAnnotation)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, m := newWorldWithNode(t, nil)
			// The machine has 2 of 16 CPUs and requests 4: 14 are free for another one, or 12 while 4 are reserved.
			fits := func() error {
				host := &infrav1.LibvirtHost{}
				w.Expect(w.api.Get(t.Context(), client.ObjectKey{Name: "a"}, host)).To(Succeed())
				snapshot, _ := m.Hosts.Snapshot("a")
				m.Scheduler.See(placement.Machine{UID: "other", Host: "a"})
				defer m.Scheduler.Gone("other")
				return m.Scheduler.Ledger.Grow("other", placement.Resources{{Kind: placement.CPU}: 14}, placement.HostOf(host, snapshot, map[string]bool{w.uuid(): true}))
			}
			w.Expect(fits()).To(Succeed())
			before := w.infra().Spec.DeepCopy()
			w.hosts["a"].IgnoreShutdown(w.uuid(), true)
			w.requestUpdate(larger)
			w.until(m, w.hasCondition(infrav1.UpdatedInPlaceCondition, infrav1.RestartingReason))
			w.Expect(fits()).ToNot(Succeed())
			change(w, &infrav1.LibvirtMachine{}, key.Name, func(infra *infrav1.LibvirtMachine) {
				infra.Spec = *before
				cancelUpdate(infra)
			})
			w.until(m, func() bool {
				_, started := isChanging(w.infra())
				return !started && fits() == nil
			})
			w.Expect(w.domain()).To(And(HaveField("CPUs", BeEquivalentTo(2)), HaveField("State", hypervisor.StateRunning)))
		})
	}
}
