package libvirtmachinepool_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/world"
)

func TestMain(m *testing.M) { os.Exit(world.Main(m)) }

// observer looks at a pool all the time, and notes what mustn't be seen.
type observer struct {
	s        *world.Scene
	infra    client.ObjectKey
	lock     sync.Mutex
	desired  int // the highest that is allowed at the moment, without the surge
	surge    int
	seen     int
	claimed  int
	problems map[string]bool
}

func observe(t *testing.T, s *world.Scene, infra *infrav1.LibvirtMachinePool, surge int) *observer {
	o := &observer{s: s, infra: client.ObjectKeyFromObject(infra), surge: surge, problems: map[string]bool{}}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			o.look(ctx)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		s.Expect(slices.Collect(maps.Keys(o.problems))).To(BeEmpty())
		s.Expect(o.claimed).To(BeNumerically(">", 0), "of %d observations", o.seen)
		t.Logf("%d observations, %d of which of a pool that says it is as asked for", o.seen, o.claimed)
	})
	return o
}

// expect says how many machines there may be from now on.
func (o *observer) expect(desired int) {
	o.lock.Lock()
	defer o.lock.Unlock()
	o.desired = desired
}

func (o *observer) look(ctx context.Context) {
	o.lock.Lock()
	limit := o.desired + o.surge
	o.lock.Unlock()
	infra, list, machines := &infrav1.LibvirtMachinePool{}, &infrav1.LibvirtMachineList{}, &clusterv1.MachineList{}
	// Machines first: one whose Machine is being deleted by then isn't counted.
	if o.s.Client.List(ctx, machines, client.InNamespace(o.infra.Namespace), inPool) != nil ||
		o.s.Client.List(ctx, list, client.InNamespace(o.infra.Namespace), inPool) != nil || o.s.Client.Get(ctx, o.infra, infra) != nil {
		return // it ends
	}
	deleting := map[string]bool{}
	for i := range machines.Items {
		deleting[machines.Items[i].Name] = !machines.Items[i].DeletionTimestamp.IsZero()
	}
	alive := 0
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp.IsZero() && !deleting[list.Items[i].Name] {
			alive++
		}
	}
	o.lock.Lock()
	defer o.lock.Unlock()
	o.seen++
	// What is allowed may have shrunk since, and machines may have gone between the two lists.
	if limit == o.desired+o.surge && alive > limit+o.goneBetween(machines, list) {
		o.problems[fmt.Sprintf("%d machines, %d are allowed", alive, limit)] = true
	}
	if !slices.IsSorted(infra.Spec.ProviderIDList) {
		o.problems["providerIDList isn't sorted"] = true
	}
	if !world.Claims(infra) {
		return
	}
	o.claimed++
	if len(infra.Spec.ProviderIDList) != int(ptr.Deref(infra.Status.Replicas, -1)) || len(infra.Status.Instances) != len(infra.Spec.ProviderIDList) {
		o.problems[fmt.Sprintf("it says that it is ready with %d provider IDs, %d replicas and %d instances",
			len(infra.Spec.ProviderIDList), ptr.Deref(infra.Status.Replicas, -1), len(infra.Status.Instances))] = true
	}
	for _, one := range infra.Status.Instances {
		if !ptr.Deref(one.Ready, false) || !slices.Contains(infra.Spec.ProviderIDList, one.ProviderID) {
			o.problems[fmt.Sprintf("it says that it is ready with %+v", one)] = true
		}
	}
}

// goneBetween is how many machines were being made while the two lists were read: their Machines may be
// on their way out in the second list and not in the first.
func (o *observer) goneBetween(machines *clusterv1.MachineList, list *infrav1.LibvirtMachineList) int {
	known := map[string]bool{}
	for i := range machines.Items {
		known[machines.Items[i].Name] = true
	}
	unknown := 0
	for i := range list.Items {
		if !known[list.Items[i].Name] {
			unknown++
		}
	}
	return unknown
}

// inPool selects what is of a pool: a scene has a Machine of the control plane too.
var inPool = client.HasLabels{clusterv1.MachinePoolNameLabel}

func libvirtMachines(s *world.Scene) []infrav1.LibvirtMachine {
	return slices.DeleteFunc(s.LibvirtMachines(), func(m infrav1.LibvirtMachine) bool { return m.Labels[infrav1.PoolLabel] == "" })
}

func machinesOf(s *world.Scene) []clusterv1.Machine {
	return slices.DeleteFunc(s.Machines(), func(m clusterv1.Machine) bool { return m.Labels[clusterv1.MachinePoolNameLabel] == "" })
}

// agree looks whether the hosts have the domains that the pool speaks of, and no other.
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

// deleteSome deletes some machines at random, by their Machines or as they are.
func deleteSome(s *world.Scene, random *rand.Rand, many int) {
	machines := libvirtMachines(s)
	random.Shuffle(len(machines), func(i, j int) { machines[i], machines[j] = machines[j], machines[i] })
	for i := range min(many, len(machines)) {
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

// TestPoolFromZeroAndBack: 0, 30, 10, 30 machines with a rollout in between, and machines deleted at
// random, with Cluster API's own controllers.
func TestPoolFromZeroAndBack(t *testing.T) {
	t.Parallel()
	s := world.NewScene(t, "a", "b", "c", "a", "b", "c")
	cluster := s.Cluster("blue")
	s.ControlPlane(cluster)
	random := rand.New(rand.NewPCG(1, 2))
	pool, infra := s.MachinePool(cluster, "workers", 0, func(pool *clusterv1.MachinePool, infra *infrav1.LibvirtMachinePool) {
		pool.Spec.FailureDomains = []string{"a", "b"}
		infra.Spec.Template.ObjectMeta.Labels = map[string]string{"team": "one"}
	})
	o := observe(t, s, infra, 1)
	s.PoolSettled(pool, infra, 0)
	s.Expect(*infra.Status.Ready).To(BeTrue())
	s.Expect(*pool.Status.Initialization.InfrastructureProvisioned).To(BeTrue())
	s.Expect(infra.Spec.ProviderID).To(Equal("libvirt:///" + s.Namespace + "/workers"))
	s.Expect(infra.Status.InfrastructureMachineKind).To(Equal("LibvirtMachine"))

	o.expect(30)
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

	// The oldest and those that were chosen go.
	var chosen []string
	for _, machine := range machinesOf(s)[25:28] {
		chosen = append(chosen, machine.Name)
		world.Change(s, &machine, func(m *clusterv1.Machine) { m.Annotations = map[string]string{clusterv1.DeleteMachineAnnotation: ""} })
	}
	scale(s, pool, 10)
	s.PoolSettled(pool, infra, 10)
	agree(s, infra)
	o.expect(10)
	for _, machine := range libvirtMachines(s) {
		s.Expect(chosen).ToNot(ContainElement(machine.Name))
	}

	deleteSome(s, random, 4)
	s.Meanwhile()
	s.PoolSettled(pool, infra, 10)
	agree(s, infra)

	world.Change(s, infra, func(p *infrav1.LibvirtMachinePool) { p.Spec.Template.Spec.CPUs = 2 })
	s.Condition(infra, infrav1.UpToDateCondition, metav1.ConditionFalse)
	deleteSome(s, random, 3)
	o.expect(30)
	scale(s, pool, 30)
	deleteSome(s, random, 3)
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
