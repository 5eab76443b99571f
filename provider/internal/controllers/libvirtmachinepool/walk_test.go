package libvirtmachinepool

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

var (
	walkSeeds = flag.Uint64("walk.seeds", 20, "number of walks")
	walkSeed  = flag.Uint64("walk.seed", 0, "seed of the only walk, if it isn't 0")
)

// walk scales and rolls out a pool with faults: writes are refused or their answers lost, the controller is killed, its
// cache is old, and machines fail and are deleted. All of these also happen during a reconcile.
type walk struct {
	*management
	random *rand.Rand
	cache  *lateCache
	judge  *Judge
	// process is the controller that runs until it is killed. Without troubled there are no more faults, and the pool
	// must settle.
	process          *Reconciler
	troubled, killed bool
	faults           map[string]int
	uids             int
}

func newWalk(t *testing.T, seed uint64, strategy infrav1.MachinePoolStrategy) *walk {
	w := &walk{management: newManagement(t), random: rand.New(rand.NewPCG(seed, 1)),
		judge: &Judge{}, troubled: true, faults: map[string]int{}}
	infra, owner := w.infra(), w.owner()
	infra.Generation, infra.Spec.Strategy, infra.Spec.Template.Spec.CPUs, owner.Spec.Replicas = 1, strategy, 1, ptr.To[int32](0)
	for _, object := range []client.Object{infra, owner} {
		w.Expect(w.api.Update(context.Background(), object)).To(Succeed())
		w.judge.Happened(object, false, false)
	}
	w.restart()
	return w
}

func (w *walk) infra() *infrav1.LibvirtMachinePool {
	infra := &infrav1.LibvirtMachinePool{}
	w.Expect(w.api.Get(context.Background(), poolKey, infra)).To(Succeed())
	return infra
}

func (w *walk) owner() *clusterv1.MachinePool {
	owner := &clusterv1.MachinePool{}
	w.Expect(w.api.Get(context.Background(), poolKey, owner)).To(Succeed())
	return owner
}

// restart starts a controller with an up-to-date cache.
func (w *walk) restart() {
	w.cache, w.killed = newLateCache(), false
	for _, list := range []client.ObjectList{&clusterv1.ClusterList{}, &clusterv1.MachinePoolList{}, &clusterv1.MachineList{},
		&infrav1.LibvirtMachinePoolList{}, &infrav1.LibvirtMachineList{}} {
		w.Expect(w.api.List(context.Background(), list)).To(Succeed())
		items := reflect.ValueOf(list).Elem().FieldByName("Items")
		for i := range items.Len() {
			w.cache.record(items.Index(i).Addr().Interface().(client.Object), false)
		}
	}
	w.cache.receive(nil)
	writes := interceptor.Funcs{
		Get: w.cache.Get, List: w.cache.List,
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			return w.attempt("create", func() error { return w.write(o, true, func() error { return c.Create(ctx, o, options...) }) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
			return w.attempt("delete", func() error { return w.write(o, true, func() error { return c.Delete(ctx, o, options...) }) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
			return w.attempt("patch", func() error { return w.write(o, true, func() error { return c.Patch(ctx, o, patch, options...) }) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, of string, o client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			return w.attempt("patch", func() error {
				return w.write(o, true, func() error { return c.SubResource(of).Patch(ctx, o, patch, options...) })
			})
		},
	}
	reads := interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			return w.attempt("read", func() error { return c.Get(ctx, key, o, options...) })
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			return w.attempt("read", func() error { return c.List(ctx, list, options...) })
		},
	}
	w.process = &Reconciler{Client: interceptor.NewClient(w.api, writes), APIReader: interceptor.NewClient(w.api, reads), recorder: events.NewFakeRecorder(100000)}
}

// attempt executes a request of the controller to the API server, or makes it fail. Others act in between.
func (w *walk) attempt(what string, do func() error) error {
	if w.killed {
		return errKilled
	}
	resource := schema.GroupResource{Resource: "pretended"}
	if w.troubled && w.random.IntN(3) == 0 {
		w.actAsOthers()
	}
	fault := "none"
	if w.troubled && w.random.IntN(8) == 0 {
		fault = []string{"refused", "lost", "killed before", "killed after", "conflict"}[w.random.IntN(5)]
		if what == "read" || what == "create" || what == "delete" {
			fault = []string{"refused", "lost", "killed before", "killed after"}[w.random.IntN(4)]
		}
		w.faults[what+" "+fault]++
	}
	switch fault {
	case "refused":
		return apierrors.NewInternalError(errors.New("pretended"))
	case "conflict":
		return apierrors.NewConflict(resource, "", errors.New("pretended"))
	case "killed before":
		w.killed = true
		return errKilled
	}
	err := do()
	switch {
	case apierrors.IsConflict(err):
		w.faults["real conflict"]++
	case fault == "killed after":
		w.killed = true
		return errKilled
	case fault == "lost":
		return apierrors.NewServerTimeout(resource, what, 1)
	}
	return err
}

// write writes an object with UIDs and generations as an API server does, and sends the event to all watchers.
func (w *walk) write(object client.Object, byPool bool, do func() error) error {
	ctx, before := context.Background(), object.DeepCopyObject().(client.Object)
	isNew := w.api.Get(ctx, client.ObjectKeyFromObject(object), before) != nil
	if isNew {
		w.uids++
		object.SetUID(types.UID(fmt.Sprint("made-", w.uids)))
	}
	if err := do(); err != nil {
		return err
	}
	after := object.DeepCopyObject().(client.Object)
	gone := w.api.Get(ctx, client.ObjectKeyFromObject(object), after) != nil
	if pool, is := after.(*infrav1.LibvirtMachinePool); is && !reflect.DeepEqual(pool.Spec, before.(*infrav1.LibvirtMachinePool).Spec) {
		pool.Generation++
		w.Expect(w.api.Update(ctx, pool)).To(Succeed())
		pool.DeepCopyInto(object.(*infrav1.LibvirtMachinePool))
	}
	w.judge.Happened(after, gone, byPool)
	w.cache.record(after, gone)
	return nil
}

// reconcile runs the controller once.
func (w *walk) reconcile() {
	w.judge.Begin()
	_, err := w.process.Reconcile(ctrl.LoggerInto(context.Background(), logr.Discard()), ctrl.Request{NamespacedName: poolKey})
	if !w.troubled {
		w.Expect(err).ToNot(HaveOccurred())
	}
	if w.killed {
		w.restart()
	}
}

// until continues with faults for a while, and then without faults until the pool is in the desired state.
func (w *walk) until(replicas int, meanwhile func(step int)) {
	w.troubled = true
	for step := range 120 {
		meanwhile(step)
		w.actAsOthers()
		w.cache.receive(w.random)
		if w.random.IntN(2) == 0 {
			w.reconcile()
		}
	}
	w.troubled = false
	for range 100 * (replicas + 6) {
		w.actAsOthers()
		w.cache.receive(nil)
		w.reconcile()
		w.cache.receive(nil)
		if w.isSettled(replicas) {
			return
		}
	}
	infra := w.infra()
	w.Expect(infra.Status).To(BeZero(), "it doesn't reach %d replicas: %d machines, %v", replicas, len(w.machines()), w.judge.Problems)
}

// isSettled reports whether the desired state, the pool's lists and the existing objects agree.
func (w *walk) isSettled(replicas int) bool {
	if len(w.judge.ready()) != replicas || len(w.judge.machines) != replicas {
		return false
	}
	infra, machines, ids := w.infra(), &clusterv1.MachineList{}, []string{}
	w.Expect(w.api.List(context.Background(), machines)).To(Succeed())
	all := w.machines()
	for _, machine := range all {
		ids = append(ids, machine.Spec.ProviderID)
		if machine.Spec.CPUs != infra.Spec.Template.Spec.CPUs {
			return false
		}
	}
	slices.Sort(ids)
	claims := w.judge.Claims
	w.judge.claim()
	return w.judge.Claims > claims && len(all) == replicas && len(machines.Items) == replicas &&
		int(ptr.Deref(infra.Status.Replicas, -1)) == replicas && slices.Equal(ids, append([]string{}, infra.Spec.ProviderIDList...))
}

func (w *walk) scale(replicas int32) {
	owner := w.owner()
	owner.Spec.Replicas = ptr.To(replicas)
	w.Expect(w.write(owner, false, func() error { return w.api.Update(context.Background(), owner) })).To(Succeed())
}

func (w *walk) roll(cpus int32) {
	infra := w.infra()
	infra.Spec.Template.Spec.CPUs = cpus
	w.Expect(w.write(infra, false, func() error { return w.api.Update(context.Background(), infra) })).To(Succeed())
}

// runAll runs the walk.
func (w *walk) runAll() {
	nothing := func(int) {}
	scaleAt := func(at int, replicas int32) func(int) {
		return func(step int) {
			if step == at {
				w.scale(replicas)
			}
		}
	}
	w.until(0, nothing)
	w.scale(6)
	w.until(6, nothing)
	w.scale(2)
	w.until(2, nothing)
	w.roll(2)
	w.until(6, scaleAt(40, 6))
	w.roll(3)
	w.until(6, nothing)
	w.scale(3)
	w.roll(4)
	w.until(4, scaleAt(30, 4))
	w.Expect(w.judge.Problems).To(BeEmpty())
}

// TestWalks walks pools from 0 to 6, 2 and 6 machines, with rollouts in between and during scaling, and random
// deletions of machines. At each event, the number of machines is within maxSurge, and the number of ready ones within
// maxUnavailable.
func TestWalks(t *testing.T) {
	percent, number := intstr.FromString, func(n int) intstr.IntOrString { return intstr.FromInt32(int32(n)) }
	strategies := [][2]intstr.IntOrString{{number(1), number(0)}, {number(0), number(1)}, {number(2), number(1)}, {percent("50%"), percent("34%")}, {number(0), percent("10%")}}
	var lock sync.Mutex
	faults, sum := map[string]int{}, &Judge{}
	t.Run("seeds", func(t *testing.T) {
		for seed := uint64(1); seed <= *walkSeeds; seed++ {
			if *walkSeed != 0 && seed != *walkSeed {
				continue
			}
			strategy := strategies[seed%uint64(len(strategies))]
			t.Run(fmt.Sprintf("%d, maxSurge %s, maxUnavailable %s", seed, strategy[0].String(), strategy[1].String()), func(t *testing.T) {
				t.Parallel() // Cluster API's patch helper sleeps between attempts
				w := newWalk(t, seed, infrav1.MachinePoolStrategy{MaxSurge: &strategy[0], MaxUnavailable: &strategy[1]})
				w.runAll()
				lock.Lock()
				defer lock.Unlock()
				for fault, times := range w.faults {
					faults[fault] += times
				}
				sum.Add(w.judge)
			})
		}
	})
	t.Logf("%d events, %d claims, %d machines created, %d deleted, %d of them at a limit; %v", sum.Events, sum.Claims, sum.Made, sum.Taken, sum.Tight, faults)
	if *walkSeed == 0 && *walkSeeds >= 20 {
		for _, fault := range []string{"real conflict", "create lost", "create refused", "create killed after", "delete lost", "patch conflict", "patch lost", "patch killed after", "read refused"} {
			NewWithT(t).Expect(faults[fault]).To(BeNumerically(">", 0), fault)
		}
	}
}
