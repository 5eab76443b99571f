package libvirtmachinepool_test

import (
	"cmp"
	"context"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/controllers/libvirtmachinepool"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/world"
)

// late delays the watch events of the provider's manager.
var late world.LateWatches

func TestMain(m *testing.M) {
	world.Configure(world.Settings{Transport: late.Wrap})
	os.Exit(world.Main(m))
}

// delayEvents delays the watch events of some of a pool's objects for the provider's manager, repeatedly until the test
// ends.
func delayEvents(t *testing.T, random *rand.Rand) {
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() {
		for ctx.Err() == nil {
			for _, resource := range []string{"machinepools", "libvirtmachinepools", "machines", "libvirtmachines"} {
				if random.IntN(2) == 0 {
					late.Hold(resource)
				}
			}
			for range 2 {
				select {
				case <-ctx.Done():
				case <-time.After(time.Duration(random.IntN(1000)) * time.Millisecond):
				}
				late.Release()
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		ended.Wait()
	})
}

// watched has all watch events of a pool, from before its creation.
type watched struct {
	s     *world.Scene
	infra client.ObjectKey
	lock  sync.Mutex
	all   []event
	// deleted has the names of machines that the test deletes, and not the pool.
	deleted map[string]bool
	// stopped is true when the test has ended: a stopped watch sends an error event.
	stopped bool
}

type event struct {
	version uint64
	object  client.Object
	gone    bool
}

// observe watches all objects of a pool. At the end of the test it sorts the events in the order of the API server, and
// passes each to the Judge.
func observe(t *testing.T, s *world.Scene, infra client.ObjectKey) *watched {
	w := &watched{s: s, infra: infra, deleted: map[string]bool{}}
	c, err := client.NewWithWatch(s.Config, client.Options{Scheme: s.Client.Scheme()})
	s.Expect(err).ToNot(HaveOccurred())
	var ended sync.WaitGroup
	var watches []watch.Interface
	for _, list := range []client.ObjectList{&clusterv1.MachinePoolList{}, &infrav1.LibvirtMachinePoolList{}, &clusterv1.MachineList{}, &infrav1.LibvirtMachineList{}} {
		one, err := c.Watch(context.Background(), list, client.InNamespace(s.Namespace))
		s.Expect(err).ToNot(HaveOccurred())
		watches = append(watches, one)
		ended.Go(func() {
			for e := range one.ResultChan() {
				w.record(e)
			}
		})
	}
	t.Cleanup(func() {
		w.lock.Lock()
		w.stopped = true
		w.lock.Unlock()
		for _, one := range watches {
			one.Stop()
		}
		ended.Wait()
		w.judge(t)
	})
	return w
}

func (w *watched) record(e watch.Event) {
	object, is := e.Object.(client.Object)
	w.lock.Lock()
	defer w.lock.Unlock()
	if w.stopped {
		return
	}
	version := uint64(0)
	if is {
		version, _ = strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	}
	w.all = append(w.all, event{version, object, e.Type == watch.Deleted})
}

// isOurs reports whether an object belongs to the pool: a scene has a Machine of the control plane too.
func (w *watched) isOurs(object client.Object) bool {
	return client.ObjectKeyFromObject(object) == w.infra || object.GetLabels()[clusterv1.MachinePoolNameLabel] == w.infra.Name
}

func (w *watched) judge(t *testing.T) {
	w.lock.Lock()
	defer w.lock.Unlock()
	slices.SortStableFunc(w.all, func(a, b event) int { return cmp.Compare(a.version, b.version) })
	judge, before := &libvirtmachinepool.Judge{}, &infrav1.LibvirtMachinePool{}
	for _, e := range w.all {
		w.s.Expect(e.version).ToNot(BeZero(), "a watch failed: %v", e.object)
		if !w.isOurs(e.object) {
			continue
		}
		if _, is := e.object.(*clusterv1.MachinePool); is && !e.object.GetDeletionTimestamp().IsZero() {
			break // the pool is being deleted
		}
		judge.Happened(e.object, e.gone, !w.deleted[e.object.GetName()])
		// A reconcile with creations or deletions ends with a write of the status.
		if infra, is := e.object.(*infrav1.LibvirtMachinePool); is {
			if !reflect.DeepEqual(infra.Status, before.Status) || !slices.Equal(infra.Spec.ProviderIDList, before.Spec.ProviderIDList) {
				judge.Begin()
			}
			before = infra
		}
	}
	w.s.Expect(judge.Problems).To(BeEmpty())
	w.s.Expect(judge.Claims).To(BeNumerically(">", 0))
	w.s.Expect(judge.Tight).To(BeNumerically(">", 0))
	t.Logf("%d events; %d claims, %d machines created, %d deleted, %d of them at a limit",
		judge.Events, judge.Claims, judge.Made, judge.Taken, judge.Tight)
}

func libvirtMachines(s *world.Scene) []infrav1.LibvirtMachine {
	return slices.DeleteFunc(s.LibvirtMachines(), func(m infrav1.LibvirtMachine) bool { return m.Labels[infrav1.PoolLabel] == "" })
}

func machinesOf(s *world.Scene) []clusterv1.Machine {
	return slices.DeleteFunc(s.Machines(), func(m clusterv1.Machine) bool { return m.Labels[clusterv1.MachinePoolNameLabel] == "" })
}

// agree checks that the hosts have exactly the domains in the pool's status.
func agree(s *world.Scene, infra *infrav1.LibvirtMachinePool) {
	s.Eventually(func(g Gomega) {
		s.Get(infra)
		others := map[string]bool{}
		for _, machine := range s.LibvirtMachines() {
			others[machine.Spec.ProviderID] = machine.Labels[infrav1.PoolLabel] == ""
		}
		var running []string
		for _, host := range s.Hosts {
			_, domains := host.Left()
			for _, uuid := range domains {
				if id := infrav1.ProviderIDPrefix + uuid; !others[id] {
					running = append(running, id)
				}
			}
		}
		slices.Sort(running)
		g.Expect(running).To(Equal(append([]string{}, infra.Spec.ProviderIDList...)))
	}).Should(Succeed())
}

func scale(s *world.Scene, pool *clusterv1.MachinePool, replicas int32) {
	world.Change(s, pool, func(p *clusterv1.MachinePool) { p.Spec.Replicas = ptr.To(replicas) })
}

// deleteSome deletes random machines, either their Machines or their LibvirtMachines.
func (w *watched) deleteSome(s *world.Scene, random *rand.Rand, many int) {
	machines := libvirtMachines(s)
	random.Shuffle(len(machines), func(i, j int) { machines[i], machines[j] = machines[j], machines[i] })
	for i := range min(many, len(machines)) {
		w.lock.Lock()
		w.deleted[machines[i].Name] = true
		w.lock.Unlock()
		var object client.Object = &machines[i]
		if random.IntN(2) == 0 {
			object = &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: machines[i].Name}}
		}
		err := s.Client.Delete(context.Background(), object)
		if !apierrors.IsNotFound(err) {
			s.Expect(err).ToNot(HaveOccurred())
		}
	}
}

// TestPoolFromZeroAndBack: 0, 30, 10 and 30 machines with a rollout in between and random deletions, with Cluster API's
// own controllers and a manager with an old cache.
func TestPoolFromZeroAndBack(t *testing.T) {
	t.Parallel()
	s := world.NewScene(t, "a", "b", "c", "a", "b", "c")
	cluster := s.Cluster("blue")
	s.ControlPlane(cluster)
	random := rand.New(rand.NewPCG(1, 2))
	delayEvents(t, rand.New(rand.NewPCG(1, 3)))
	o := observe(t, s, client.ObjectKey{Namespace: s.Namespace, Name: "workers"})
	pool, infra := s.MachinePool(cluster, "workers", 0, func(pool *clusterv1.MachinePool, infra *infrav1.LibvirtMachinePool) {
		pool.Spec.FailureDomains = []string{"a", "b"}
		infra.Spec.Template.ObjectMeta.Labels = map[string]string{"team": "one"}
	})
	s.PoolSettled(pool, infra, 0)
	s.Expect(*infra.Status.Ready).To(BeTrue())
	s.Expect(*pool.Status.Initialization.InfrastructureProvisioned).To(BeTrue())
	s.Expect(infra.Spec.ProviderID).To(Equal("libvirt:///" + s.Namespace + "/workers"))
	s.Expect(infra.Status.InfrastructureMachineKind).To(Equal("LibvirtMachine"))

	scale(s, pool, 30)
	s.PoolSettled(pool, infra, 30)
	agree(s, infra)
	domains := map[string]int{}
	for _, machine := range libvirtMachines(s) {
		domains[machine.Status.FailureDomain]++
		s.Expect(machine.Labels).To(And(HaveKeyWithValue(clusterv1.ClusterNameLabel, "blue"), HaveKeyWithValue(clusterv1.MachinePoolNameLabel, "workers"),
			HaveKeyWithValue(infrav1.PoolLabel, "workers"), HaveKeyWithValue("team", "one")))
		s.Expect(machine.OwnerReferences).To(ConsistOf(
			And(HaveField("Kind", "LibvirtMachinePool"), HaveField("UID", infra.UID), HaveField("Controller", BeNil())),
			And(HaveField("Kind", "Machine"), HaveField("Name", machine.Name), HaveField("Controller", HaveValue(BeTrue())))))
	}
	s.Expect(domains).To(Equal(map[string]int{"a": 15, "b": 15}))

	// The oldest and the chosen ones are deleted.
	var chosen []string
	for _, machine := range machinesOf(s)[25:28] {
		chosen = append(chosen, machine.Name)
		world.Change(s, &machine, func(m *clusterv1.Machine) { m.Annotations = map[string]string{clusterv1.DeleteMachineAnnotation: ""} })
	}
	others := slices.DeleteFunc(libvirtMachines(s), func(m infrav1.LibvirtMachine) bool { return slices.Contains(chosen, m.Name) })
	scale(s, pool, 10)
	s.PoolSettled(pool, infra, 10)
	agree(s, infra)
	// Of the 27 others, which are all ready, the 10 youngest stay. They were created within a few seconds: those of the
	// same second are ordered by name.
	var stay []string
	for _, machine := range libvirtMachines(s) {
		stay = append(stay, machine.Name)
	}
	slices.SortFunc(others, func(a, b infrav1.LibvirtMachine) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	var youngest []string
	for _, machine := range others[len(others)-10:] {
		youngest = append(youngest, machine.Name)
	}
	s.Expect(stay).To(ConsistOf(youngest))

	o.deleteSome(s, random, 4)
	s.AwaitManagers()
	s.PoolSettled(pool, infra, 10)
	agree(s, infra)

	world.Change(s, infra, func(p *infrav1.LibvirtMachinePool) { p.Spec.Template.Spec.CPUs = 2 })
	s.Condition(infra, infrav1.UpToDateCondition, metav1.ConditionFalse)
	o.deleteSome(s, random, 3)
	scale(s, pool, 30)
	o.deleteSome(s, random, 3)
	s.PoolSettled(pool, infra, 30)
	agree(s, infra)
	made := map[string]bool{}
	for _, machine := range libvirtMachines(s) {
		s.Expect(machine.Spec.CPUs).To(BeEquivalentTo(2))
		made[machine.Name] = strings.HasPrefix(machine.Name, "workers-")
	}
	s.Expect(made).To(HaveLen(30))

	s.Delete(pool)
	s.Gone(infra)
	s.Delete(cluster)
	s.NothingLeft()
	s.Expect(libvirtMachines(s)).To(BeEmpty())
}
