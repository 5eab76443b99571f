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

// seeds is how many times what is left to chance is tried.
const seeds = 25

var errConflict = apierrors.NewConflict(schema.GroupResource{Resource: "libvirtmachines"}, key.Name, errors.New("somebody was faster"))

// conflicts makes patches fail with a conflict when often says so.
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

// countCalls returns the calls of a life without faults, up to being provisioned, to the seed's
// removal, and to the end.
func countCalls(t *testing.T, change func(*infrav1.LibvirtMachine)) (provisioned, node, end int) {
	t.Helper()
	w := newWorld(t, change, "a")
	m := w.until(w.newManager(0), w.isProvisioned)
	provisioned = len(m.calls())
	w.joinNode()
	w.until(m, w.hasCondition(infrav1.SeedRemovedCondition, infrav1.SeedRemovedReason))
	node = len(m.calls())
	w.delete()
	w.until(m, w.isGone)
	return provisioned, node, len(m.calls())
}

// live goes through a machine's life and checks it: what is made, what is left, what is said.
func (w *world) live(m *manager, life int) {
	w.t.Helper()
	m = w.until(m, w.isProvisioned)
	w.Expect(w.isBlocked()).To(BeFalse(), "nothing is transferred any more")
	w.Expect(withoutCopyID(w.left())).To(Equal(lives[life].made))
	said := w.said()
	w.joinNode()
	m = w.until(m, w.hasCondition(infrav1.SeedRemovedCondition, infrav1.SeedRemovedReason))
	w.Expect(withoutCopyID(w.left())).To(Equal(lives[life].node))
	said += w.said()
	for _, host := range w.hosts {
		w.Expect(host.ConsoleLogs()).To(HaveLen(1))
	}
	w.delete()
	w.until(m, w.isGone)
	w.Expect(w.left()).To(BeEmpty())
	for _, host := range w.hosts {
		w.Expect(host.ConsoleLogs()).To(BeEmpty())
	}
	w.Expect(said + w.said()).ToNot(ContainSubstring(secret))
}

// TestConflictOnEveryPatch: each patch meets somebody faster, once.
func TestConflictOnEveryPatch(t *testing.T) {
	for life := range lives {
		t.Run(lives[life].name, func(t *testing.T) {
			w := newWorld(t, lives[life].change, "a")
			var patches atomic.Int32
			w.functions = conflicts(func() bool { return patches.Add(1)%2 == 1 })
			w.live(w.newManager(0), life)
			w.Expect(patches.Load()).To(BeNumerically(">=", 10))
			w.Expect(w.log.String()).ToNot(ContainSubstring("somebody was faster"))
		})
	}
}

// TestHostIsLostInAnyPhase loses the host before each call and gives it back some reconciles later.
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

// TestCallsThatFail lets each call to the host fail once, in several ways.
func TestCallsThatFail(t *testing.T) {
	for life := range lives {
		w := newWorld(t, lives[life].change, "a")
		w.live(w.newManager(0), life)
		calls := w.hosts["a"].Calls()
		for i, call := range calls {
			switch call.Operation {
			case fake.Facts, fake.ListDomains, fake.Connect, fake.Pool, fake.PoolVolumes, fake.PCIDevices:
				continue // of the fixture, for the most part
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

// TestTwoAtOnce: a manager lost its leadership in the middle of a reconcile and doesn't know it. Before
// each of its calls another one does all that there is to do, and then it goes on.
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
						w.until(next, w.isGone)
					default:
						w.until(next, func() bool { // also when the rest of the old one, in the background, goes on without it
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
						w.until(next, w.isGone)
						done.Store(true)
					}
				}
				w.until(old, done.Load)
				w.until(old, w.isGone)
				w.Eventually(func() []string { // a copy that was under way ends
					_, err := old.reconcile()
					w.Expect(err).ToNot(HaveOccurred())
					return w.left()
				}).WithTimeout(patience).Should(BeEmpty())
			})
		}
	}
}

// TestDeletedWhileMade deletes the machine after each call of its making, with its Machine and Cluster
// as Cluster API does and without them.
func TestDeletedWhileMade(t *testing.T) {
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
				w.until(m, w.isGone)
				w.Eventually(func() []string { _, _ = m.reconcile(); return w.left() }).WithTimeout(patience).Should(BeEmpty())
			})
		}
	}
}

// TestKilledAndDeleted: the controller is killed after each call of the making, and when another one
// comes the machine is being deleted.
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
				w.until(w.newManager(0), w.isGone)
				w.Expect(w.left()).To(BeEmpty())
			})
		}
	}
}

// TestChance: anything may happen at any call, several times in one life: the process is killed, a patch
// meets a conflict, the host is lost for a while, somebody deletes a volume or the domain by hand before
// the machine is provisioned.
func TestChance(t *testing.T) {
	for seed := range uint64(seeds) {
		life := int(seed) % len(lives)
		t.Run(fmt.Sprintf("%d %s", seed, lives[life].name), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			chance := func(percent int) bool { return random.IntN(100) < percent }
			w := newWorld(t, lives[life].change, "a")
			// All of it happens between reconciles or is decided there, so that a seed tells what happens.
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

// deleteByHand deletes something that a machine is made of while it doesn't run.
func (w *world) deleteByHand(random *rand.Rand) {
	host := w.hosts["a"]
	host.SetReachable(true)
	by, err := host.Connect(context.Background())
	w.Expect(err).ToNot(HaveOccurred())
	defer func() { _ = by.Close() }()
	volumes, domains := host.Left()
	for _, uuid := range domains {
		if host.State(uuid) == hypervisor.StateRunning && random.IntN(2) == 0 {
			return // what runs has its disks open
		}
		host.RemoveDomain(uuid)
	}
	if len(volumes) > 0 {
		_ = by.DeleteVolume(context.Background(), volumes[random.IntN(len(volumes))])
	}
}

// TestNameIsTaken by a domain that somebody has made by hand: it is said whose it is and what to do, the
// domain is left alone, and the machine is made when the name is free. Also when the machine is deleted.
func TestNameIsTaken(t *testing.T) {
	for _, deleted := range []bool{false, true} {
		w := newWorld(t, nil, "a")
		m := w.until(w.newManager(0), func() bool { return w.infra().Spec.HostName != "" })
		name := "team.blue-1." + w.uuid()[:8]
		w.others("a", name, "52:54:00:00:00:01", true)
		w.Expect(w.message(m, infrav1.InstanceReadyCondition, infrav1.DomainNameTakenReason)).To(HavePrefix(
			"Another domain on host a has the name " + name + " or the UUID of spec.providerID, and isn't changed: rename or undefine it"))
		before := w.infra()
		result, err := m.reconcile()
		w.Expect(err).ToNot(HaveOccurred())
		w.Expect(result.RequeueAfter).To(Equal(noFitDelay))
		w.Expect(w.infra()).To(Equal(before))
		if deleted {
			w.delete()
			w.until(m, w.isGone)
			w.Expect(w.left()).To(Equal([]string{"a: domain Running"}))
			continue
		}
		w.hosts["a"].RemoveDomain(theirs)
		w.until(m, w.isProvisioned)
	}
}

// TestImageServerFails: its conditions say how, and machines are made as soon as it does better.
func TestImageServerFails(t *testing.T) {
	for reason, change := range map[string]func(*infrav1.LibvirtMachine){
		infrav1.ImageTransferFailedReason: func(infra *infrav1.LibvirtMachine) { infra.Spec.Image.URL = "http://127.0.0.1:1/image?token=" + secret },
	} {
		t.Run(reason, func(t *testing.T) {
			w := newWorld(t, change, "a")
			m := w.until(w.newManager(0), w.hasCondition(infrav1.ImageReadyCondition, reason))
			w.Expect(w.said()).ToNot(ContainSubstring(secret + "&"))
			w.Expect(w.left()).To(BeEmpty())
			w.delete()
			w.until(m, w.isGone)
			volumes, _ := w.hosts["a"].Left()
			w.Eventually(func() []hypervisor.VolumeRef { volumes, _ = w.hosts["a"].Left(); return volumes }).WithTimeout(patience).Should(BeEmpty())
		})
	}
}

// TestDiskFull: it is said, and tried again.
func TestDiskFull(t *testing.T) {
	w := newWorld(t, nil, "a")
	w.hosts["a"].Inject(fake.Fault{Operation: fake.CreateVolume, Skip: 2, Times: -1, Effect: fake.Fail, Reason: hypervisor.ErrNoSpace})
	m := w.until(w.newManager(0), w.hasCondition(infrav1.DisksReadyCondition, infrav1.NoRoomReason))
	w.Expect(w.said()).To(ContainSubstring("host a has no room: the root disk: creating the volume default/"+w.volumeName("root")+": no room on the host"), "the event says which")
	w.hosts["a"].ClearFaults()
	w.until(m, w.isProvisioned)
	w.Expect(strings.Join(w.left(), " ")).To(ContainSubstring("domain Running"))
}
