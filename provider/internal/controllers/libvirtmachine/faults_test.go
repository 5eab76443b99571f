package libvirtmachine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/fake"
)

// seeds is the number of runs of random tests.
const seeds = 25

var errConflict = apierrors.NewConflict(schema.GroupResource{Resource: "libvirtmachines"}, key.Name, errors.New("the object has changed"))

// conflicts makes patches fail with a conflict if often returns true.
func conflicts(often func() bool) interceptor.Funcs {
	return interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			if often() {
				return errConflict
			}
			return c.Patch(ctx, object, patch, options...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, of string, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			if often() {
				return errConflict
			}
			return c.SubResource(of).Patch(ctx, object, patch, options...)
		},
	}
}

// countCalls returns the number of calls in a life without faults: until the machine is provisioned, until the seed is
// removed, and until the end.
func countCalls(t *testing.T, change func(*infrav1.LibvirtMachine)) (provisioned, node, end int) {
	t.Helper()
	w := newWorld(t, change, "a")
	m := w.until(w.newManager(0), w.isProvisioned)
	provisioned = len(m.calls())
	w.joinNode()
	w.until(m, w.hasCondition(infrav1.SeedRemovedCondition, infrav1.SeedRemovedReason))
	node = len(m.calls())
	w.delete()
	w.until(m, w.isDeleted)
	return provisioned, node, len(m.calls())
}

// live runs a machine's life and checks the created objects, the remaining ones, and the output.
func (w *world) live(m *manager, life int) {
	w.t.Helper()
	m = w.until(m, w.isProvisioned)
	w.Expect(w.isBlocked()).To(BeFalse(), "no transfer is running")
	w.Expect(withoutCopyID(w.inventory())).To(Equal(lives[life].provisioned))
	said := w.output()
	w.joinNode()
	m = w.until(m, w.hasCondition(infrav1.SeedRemovedCondition, infrav1.SeedRemovedReason))
	w.Expect(withoutCopyID(w.inventory())).To(Equal(lives[life].node))
	said += w.output()
	for _, host := range w.hosts {
		w.Expect(host.ConsoleLogs()).To(HaveLen(1))
	}
	w.delete()
	w.until(m, w.isDeleted)
	w.Expect(w.inventory()).To(BeEmpty())
	for _, host := range w.hosts {
		w.Expect(host.ConsoleLogs()).To(BeEmpty())
	}
	w.Expect(said + w.output()).ToNot(ContainSubstring(secret))
}

// TestConflictOnEveryPatch: each patch fails once with a conflict.
func TestConflictOnEveryPatch(t *testing.T) {
	for life := range lives {
		t.Run(lives[life].name, func(t *testing.T) {
			w := newWorld(t, lives[life].change, "a")
			var patches atomic.Int32
			w.functions = conflicts(func() bool { return patches.Add(1)%2 == 1 })
			w.live(w.newManager(0), life)
			w.Expect(patches.Load()).To(BeNumerically(">=", 10))
			w.Expect(w.log.String()).ToNot(ContainSubstring("the object has changed"))
		})
	}
}

// TestHostIsLostInAnyPhase disconnects the host before each call and connects it some reconciles later.
func TestHostIsLostInAnyPhase(t *testing.T) {
	for life := range lives {
		_, _, end := countCalls(t, lives[life].change)
		for at := range end {
			t.Run(fmt.Sprintf("%s/%d", lives[life].name, at), func(t *testing.T) {
				w := newWorld(t, lives[life].change, "a")
				m := w.newManager(0)
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
				w.live(m, life)
			})
		}
	}
}

// TestCallsThatFail makes each call to the host fail once, in several ways.
func TestCallsThatFail(t *testing.T) {
	for life := range lives {
		w := newWorld(t, lives[life].change, "a")
		w.live(w.newManager(0), life)
		calls := w.hosts["a"].Calls()
		for i, call := range calls {
			switch call.Operation {
			case fake.Facts, fake.ListDomains, fake.Connect, fake.Pool, fake.PoolVolumes, fake.PCIDevices:
				continue // mostly calls of the fixture
			}
			for name, fault := range map[string]fake.Fault{
				"fails":             {Effect: fake.Fail, Reason: hypervisor.ErrOther},
				"no room":           {Effect: fake.Fail, Reason: hypervisor.ErrNoSpace},
				"done, no answer":   {Effect: fake.Fail, Reason: hypervisor.ErrTimeout, AfterDone: true},
				"connection lost":   {Effect: fake.Disconnect},
				"done and then cut": {Effect: fake.Disconnect, AfterDone: true},
			} {
				t.Run(fmt.Sprintf("%s/%d %s %s", lives[life].name, i, call.Operation, name), func(t *testing.T) {
					w := newWorld(t, lives[life].change, "a")
					fault.Operation = call.Operation
					for _, earlier := range calls[:i] {
						if earlier.Operation == call.Operation {
							fault.Skip++
						}
					}
					w.hosts["a"].Inject(fault)
					w.live(w.newManager(0), life)
				})
			}
		}
	}
}

// TestTwoAtOnce: a manager has lost its leadership during a reconcile without noticing. Before each of its calls,
// another manager does all the work, and then the first one continues.
func TestTwoAtOnce(t *testing.T) {
	for life := range lives {
		provisioned, _, end := countCalls(t, lives[life].change)
		for at := range end {
			t.Run(fmt.Sprintf("%s/both make/%d", lives[life].name, at), func(t *testing.T) {
				w := newWorld(t, lives[life].change, "a")
				old, next := w.newManager(0), w.newManager(0)
				old.before = func(_ string, number int) {
					if number != at {
						return
					}
					switch infra := w.infra(); {
					case infra == nil:
					case !infra.DeletionTimestamp.IsZero():
						w.until(next, w.isDeleted)
					default:
						w.until(next, func() bool { // background work of the old manager may continue
							infra := w.infra()
							return infra == nil || !infra.DeletionTimestamp.IsZero() || w.isProvisioned()
						})
					}
				}
				w.live(old, life)
			})
		}
		for at := range provisioned {
			t.Run(fmt.Sprintf("%s/one makes, one deletes/%d", lives[life].name, at), func(t *testing.T) {
				w := newWorld(t, lives[life].change, "a")
				old, next := w.newManager(0), w.newManager(0)
				var done atomic.Bool
				old.before = func(_ string, number int) {
					if number == at {
						w.delete()
						w.until(next, w.isDeleted)
						done.Store(true)
					}
				}
				w.until(old, done.Load)
				w.until(old, w.isDeleted)
				w.Eventually(func() []string { // a running copy ends
					_, err := old.reconcile()
					w.Expect(err).ToNot(HaveOccurred())
					return w.inventory()
				}).WithTimeout(patience).Should(BeEmpty())
			})
		}
	}
}

// TestDeletedDuringCreation deletes the machine after each call of its creation, with its Machine and Cluster as
// Cluster API does, and without them.
func TestDeletedDuringCreation(t *testing.T) {
	for life := range lives {
		provisioned, _, _ := countCalls(t, lives[life].change)
		for at := range provisioned {
			t.Run(fmt.Sprintf("%s/%d", lives[life].name, at), func(t *testing.T) {
				w := newWorld(t, lives[life].change, "a")
				m := w.newManager(0)
				m.after = func(_ string, number int) {
					if number == at {
						w.delete()
						if at%2 == 0 {
							w.deleteOwners()
						}
					}
				}
				w.until(m, w.isDeleted)
				w.Eventually(func() []string { _, _ = m.reconcile(); return w.inventory() }).WithTimeout(patience).Should(BeEmpty())
			})
		}
	}
}

// TestKilledAndDeleted: the controller is killed after each call of the creation, and the next one finds the machine
// being deleted.
func TestKilledAndDeleted(t *testing.T) {
	for life := range lives {
		provisioned, _, _ := countCalls(t, lives[life].change)
		for killAt := 1; killAt <= provisioned; killAt++ {
			t.Run(fmt.Sprintf("%s/%d", lives[life].name, killAt), func(t *testing.T) {
				w := newWorld(t, lives[life].change, "a")
				first := w.newManager(killAt)
				for !first.isDead() && !w.isProvisioned() {
					_, _ = first.reconcile()
					w.giveAddresses()
				}
				first.end()
				w.delete()
				w.until(w.newManager(0), w.isDeleted)
				w.Expect(w.inventory()).To(BeEmpty())
			})
		}
	}
}

// TestRandomFaults combines random faults in one life: the process is killed, a patch fails with a conflict, the host
// is lost for a while, and a user deletes a volume or the domain before the machine is provisioned.
func TestRandomFaults(t *testing.T) {
	for seed := range uint64(seeds) {
		life := int(seed) % len(lives)
		t.Run(fmt.Sprintf("%d %s", seed, lives[life].name), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			chance := func(percent int) bool { return random.IntN(100) < percent }
			w := newWorld(t, lives[life].change, "a")
			// All faults happen or are chosen between reconciles, so that a seed determines them.
			var conflict atomic.Bool
			w.functions = conflicts(func() bool { return conflict.Swap(false) })
			lost := 0
			w.everyReconcile = func() {
				conflict.Store(chance(20))
				if lost > 0 {
					if lost--; lost == 0 {
						w.hosts["a"].SetReachable(true)
					}
				} else if chance(10) {
					lost = 1 + random.IntN(4)
					w.hosts["a"].SetReachable(false)
				}
				if infra := w.infra(); infra != nil && infra.DeletionTimestamp.IsZero() && !w.isProvisioned() && chance(20) {
					w.deleteByHand(random)
				}
			}
			w.killNext = func() int {
				if chance(50) {
					return 1 + random.IntN(12)
				}
				return 0
			}
			w.live(w.newManager(w.killNext()), life)
			w.hosts["a"].SetReachable(true)
		})
	}
}

// deleteByHand deletes an object of a machine that doesn't run.
func (w *world) deleteByHand(random *rand.Rand) {
	host := w.hosts["a"]
	host.SetReachable(true)
	by, err := host.Connect(context.Background())
	w.Expect(err).ToNot(HaveOccurred())
	defer func() { _ = by.Close() }()
	volumes, domains := host.Left()
	for _, uuid := range domains {
		if host.State(uuid) == hypervisor.StateRunning && random.IntN(2) == 0 {
			return // a running domain has its disks open
		}
		host.RemoveDomain(uuid)
	}
	if len(volumes) > 0 {
		_ = by.DeleteVolume(context.Background(), volumes[random.IntN(len(volumes))])
	}
}

// TestNameIsTaken: a user has defined a domain with the name of the machine's domain. The condition says what to do,
// the domain isn't changed, and the machine is created once the name is free. The machine can be deleted before that.
func TestNameIsTaken(t *testing.T) {
	for _, deleted := range []bool{false, true} {
		w := newWorld(t, nil, "a")
		m := w.until(w.newManager(0), func() bool { return w.infra().Spec.HostName != "" })
		name := "team.blue-1." + w.uuid()[:8]
		w.setForeignDomain("a", name, "52:54:00:00:00:01", true)
		w.Expect(w.message(m, infrav1.InstanceReadyCondition, infrav1.DomainNameTakenReason)).To(HavePrefix(
			"Another domain on host a has the name " + name + " or the UUID of spec.providerID, and isn't changed: rename or undefine it"))
		before := w.infra()
		result, err := m.reconcile()
		w.Expect(err).ToNot(HaveOccurred())
		w.Expect(result.RequeueAfter).To(Equal(noFitDelay))
		w.Expect(w.infra()).To(Equal(before))
		if deleted {
			w.delete()
			w.until(m, w.isDeleted)
			w.Expect(w.inventory()).To(Equal([]string{"a: domain Running"}))
			continue
		}
		w.hosts["a"].RemoveDomain(foreign)
		w.until(m, w.isProvisioned)
	}
}

// TestImageServerFails: a condition has the reason, and machines are created as soon as the server works.
func TestImageServerFails(t *testing.T) {
	for reason, change := range map[string]func(*infrav1.LibvirtMachine){
		infrav1.ImageTransferFailedReason: func(infra *infrav1.LibvirtMachine) { infra.Spec.Image.URL = "http://127.0.0.1:1/image?token=" + secret },
	} {
		t.Run(reason, func(t *testing.T) {
			w := newWorld(t, change, "a")
			m := w.until(w.newManager(0), w.hasCondition(infrav1.ImageReadyCondition, reason))
			w.Expect(w.output()).ToNot(ContainSubstring(secret + "&"))
			w.Expect(w.inventory()).To(BeEmpty())
			w.delete()
			w.until(m, w.isDeleted)
			volumes, _ := w.hosts["a"].Left()
			w.Eventually(func() []hypervisor.VolumeRef { volumes, _ = w.hosts["a"].Left(); return volumes }).WithTimeout(patience).Should(BeEmpty())
		})
	}
}

// TestDiskFull: a condition and an event report the full disk, and the creation is retried.
func TestDiskFull(t *testing.T) {
	w := newWorld(t, nil, "a")
	w.hosts["a"].Inject(fake.Fault{Operation: fake.CreateVolume, Skip: 2, Times: -1, Effect: fake.Fail, Reason: hypervisor.ErrNoSpace})
	m := w.until(w.newManager(0), w.hasCondition(infrav1.DisksReadyCondition, infrav1.NoRoomReason))
	w.Expect(w.output()).To(ContainSubstring("host a has no room: the root disk: creating the volume default/"+w.volumeName("root")+": no room on the host"), "the event names the volume")
	w.hosts["a"].ClearFaults()
	w.until(m, w.isProvisioned)
	w.Expect(strings.Join(w.inventory(), " ")).To(ContainSubstring("domain Running"))
}
