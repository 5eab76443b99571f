// Package soak lets everything go wrong at random, again and again, and looks at quiet points whether
// hosts and the API server agree exactly.
package soak

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/images"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/world"
)

var (
	duration = flag.Duration("soak.duration", 10*time.Second, "how long faults go on; the last quiet point comes after")
	seed     = flag.Uint64("soak.seed", 1, "what chooses the faults; 0 takes one at random")
)

const (
	// maxReplicas is as many machines as fit into the hosts, shared by the MachineDeployments, with a
	// quarter to spare: room that is never given back would be missed.
	maxReplicas = 4
	// patience is how long everything may take to get well, once nothing goes wrong any more: the longest
	// delay of a controller's is a minute, and a back-off may have grown to about as much.
	patience = 4 * time.Minute
	// shownLines is how many lines of the log are shown of a machine, half of them the first ones.
	shownLines = 200
)

var (
	api                     = &apiFaults{}
	late, lateForClusterAPI = &world.LateWatches{}, &world.LateWatches{}
)

func TestMain(m *testing.M) {
	transport := func(next http.RoundTripper) http.RoundTripper { return late.Wrap(api.wrap(next)) }
	world.Configure(world.Settings{Transport: transport, ClusterAPITransport: lateForClusterAPI.Wrap, Images: images.Options{
		Sources:     images.Sources{Allowed: []string{"127.0.0.0/8"}},
		IdleTimeout: 5 * time.Second, FirstRetry: 200 * time.Millisecond, LastRetry: 5 * time.Second},
		CountInterval: time.Second})
	os.Exit(world.Main(m))
}

// soak is one run.
type soak struct {
	*world.Scene
	t           *testing.T
	random      *rand.Rand
	images      *imageServer
	deployments []*clusterv1.MachineDeployment
	// damaged are the UUIDs of machines that something was taken from by hand.
	damaged map[string]bool
	counts  map[string]int
	// older are ends of managers that go on although another one has taken over, and full of the filling of
	// hosts' disks.
	older []func() error
	full  []func()
}

// TestSoak: machines are made and deleted while hosts are lost, calls fail, hang, or lose their answers,
// domains and volumes are deleted by hand, writes conflict, caches are old, the image server misbehaves,
// disks are full, the manager is killed, and two managers are there at once. At each quiet point every
// machine has its domain and volumes, there is nothing else, and hosts count what is there.
func TestSoak(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("seed %d: repeat with -soak.seed=%d -soak.duration=%s", *seed, *seed, *duration)
	s := &soak{t: t, random: rand.New(rand.NewPCG(*seed, 1)), images: newImageServer(t),
		damaged: map[string]bool{}, counts: map[string]int{}}
	s.Scene = world.NewScene(t, "rack-a", "rack-b", "rack-a", "rack-b")
	s.build()
	s.quiet()
	round := 0
	for end := time.Now().Add(*duration); time.Now().Before(end); {
		round++
		s.chaos(min(time.Duration(3+s.random.IntN(8))*time.Second, time.Until(end)))
		s.quiet()
		if round%10 == 0 {
			t.Logf("after %d rounds: %v", round, s.counts)
		}
	}
	t.Logf("%d rounds: %v", round, s.counts)
	for _, deployment := range s.deployments {
		s.Expect(s.Client.Delete(t.Context(), deployment)).To(gomega.Succeed())
	}
	s.deployments = nil
	s.quiet()
}

// build makes the cluster with a MachineDeployment for each way of making disks.
func (s *soak) build() {
	cluster := s.Cluster("soak")
	// Nobody is to delete a machine of the control plane, so there is none: this stands in for it.
	s.Eventually(func() error {
		s.Get(cluster)
		cluster.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
		conditions.Set(cluster, metav1.Condition{Type: clusterv1.ClusterControlPlaneInitializedCondition, Status: metav1.ConditionTrue,
			Reason: clusterv1.ClusterControlPlaneInitializedReason})
		return s.Client.Status().Update(s.t.Context(), cluster)
	}).Should(gomega.Succeed())
	for name, change := range map[string]func(*infrav1.LibvirtMachineSpec){
		"placed": func(*infrav1.LibvirtMachineSpec) {},
		"by-url": func(spec *infrav1.LibvirtMachineSpec) {
			spec.Image = infrav1.ImageSpec{URL: s.images.URL, Checksum: s.images.checksum}
			spec.ExtraDisks = []infrav1.ExtraDiskSpec{{Name: "data", Size: resource.MustParse("1Gi")}}
		},
		"copied": func(spec *infrav1.LibvirtMachineSpec) { spec.RootDisk.Clone = infrav1.CloneFull },
	} {
		template := s.Template(name, change, func(spec *infrav1.LibvirtMachineSpec) { spec.Memory = resource.MustParse("12Gi") })
		s.deployments = append(s.deployments, s.MachineDeployment(cluster, name, 2, template.Name))
	}
	// A map has no order, and a seed has to repeat.
	sortByName(s.deployments)
}

// chaos lets things go wrong for some time.
func (s *soak) chaos(length time.Duration) {
	ctx, cancel := context.WithTimeout(s.t.Context(), length)
	defer cancel()
	for ctx.Err() == nil {
		action := actions[s.random.IntN(len(actions))]
		s.counts[action.name]++
		if err := action.do(s, ctx); err != nil && ctx.Err() == nil {
			s.t.Fatalf("%s: %v", action.name, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(20+s.random.IntN(230)) * time.Millisecond):
		}
	}
}

// quiet ends all faults, lets machines be replaced that were damaged, and waits until everything agrees.
func (s *soak) quiet() {
	s.t.Helper()
	api.set(0, 0, 0)
	late.Release()
	lateForClusterAPI.Release()
	s.images.behave(served)
	for _, end := range s.older {
		if err := end(); err != nil {
			s.t.Fatal(err)
		}
	}
	for _, end := range s.full {
		end()
	}
	s.older, s.full = nil, nil
	for _, host := range s.Hosts {
		host.ClearFaults()
		host.SetReachable(false) // ends what hangs
		host.SetReachable(true)
	}
	began := time.Now()
	for {
		err := errors.Join(s.KeepProvider(), s.replaceDamaged())
		if err == nil {
			err = s.agreement()
		}
		if err == nil {
			break
		}
		if time.Since(began) > patience {
			s.t.Fatalf("seed %d: %s after the last fault:\n%v\n%s", *seed, patience, err, s.describe())
		}
		time.Sleep(250 * time.Millisecond)
	}
	s.counts["quiet points"]++
	s.counts["longest wait (s)"] = max(s.counts["longest wait (s)"], int(time.Since(began).Seconds()))
	for _, host := range s.Hosts {
		host.ForgetCalls()
	}
}

// describe shows the machines, and what the managers have written about those that aren't as they shall be.
func (s *soak) describe() string {
	var out strings.Builder
	all := s.LibvirtMachines()
	for i := range all {
		infra := &all[i]
		fmt.Fprintf(&out, "%s on %s, %s, deleted %v:\n", infra.Name, infra.Spec.HostName, infra.Spec.ProviderID, infra.DeletionTimestamp)
		for _, c := range infra.Status.Conditions {
			fmt.Fprintf(&out, "  %s=%s %s: %s\n", c.Type, c.Status, c.Reason, c.Message)
		}
		if unfinished(infra) != "" {
			fmt.Fprintf(&out, "The log about %s:\n%s\n", infra.Name, s.Log.About(infra.Name, shownLines))
		}
	}
	for _, machine := range s.Machines() {
		if !slices.ContainsFunc(all, func(infra infrav1.LibvirtMachine) bool { return infra.Name == machine.Name }) {
			fmt.Fprintf(&out, "The Machine %s, made at %s, has no LibvirtMachine. The log about it:\n%s\n",
				machine.Name, machine.CreationTimestamp, s.Log.About(machine.Name, shownLines))
		}
	}
	return out.String()
}
