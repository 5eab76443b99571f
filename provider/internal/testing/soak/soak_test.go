// Package soak injects random faults in rounds, and checks after each round that the hosts and the API server agree
// exactly.
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
	duration = flag.Duration("soak.duration", 10*time.Second, "the duration of the faults, before the last quiet point")
	seed     = flag.Uint64("soak.seed", 1, "the seed of the faults; 0 chooses a random one")
)

const (
	// maxReplicas is the number of machines that fit on the hosts with a quarter to spare, shared by the
	// MachineDeployments. Resources that are never released would exceed the rest.
	maxReplicas = 4
	// patience is the time limit for everything to recover after the last fault. The longest delay of a controller is a
	// minute, and a back-off may be about as long.
	patience = 4 * time.Minute
	// shownLines is the number of log lines that are shown for a machine, half of them the first ones.
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
	// damaged has the UUIDs of machines with a deleted domain or volume.
	damaged map[string]bool
	counts  map[string]int
	// older has the functions that end managers after a takeover, and full those that empty filled disks.
	older []func() error
	full  []func()
}

// TestSoak creates and deletes machines while hosts are unreachable, calls fail, hang or lose their answers, domains
// and volumes are deleted, writes conflict, caches are old, the image server misbehaves, disks are full, the manager is
// killed, and two managers run. At each quiet point every machine has its domain and volumes, there are no others, and
// the numbers of the hosts are right.
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

// build creates the cluster with a MachineDeployment for each kind of disk.
func (s *soak) build() {
	cluster := s.Cluster("soak")
	// The actions must not delete a machine of the control plane, so this replaces it.
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
	// The order of a map is random, and a seed must repeat.
	sortByName(s.deployments)
}

// chaos injects faults for some time.
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

// quiet ends all faults, replaces damaged machines, and waits until everything agrees.
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
		host.SetReachable(false) // ends hanging calls
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

// describe shows the machines, and the log about those that aren't right.
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
			fmt.Fprintf(&out, "The Machine %s, created at %s, has no LibvirtMachine. The log about it:\n%s\n",
				machine.Name, machine.CreationTimestamp, s.Log.About(machine.Name, shownLines))
		}
	}
	return out.String()
}
