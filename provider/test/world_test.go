// Package test drives the provider as its users do: installed by clusterctl from its own release, with
// Cluster API's managers, libvirt hosts and guests, all of them real and in a sandbox.
package test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterctl-release/clusterctl-release/internal/testbed"
	"github.com/clusterctl-release/clusterctl-release/internal/testbed/libvirthost"
	"github.com/clusterctl-release/clusterctl-release/internal/testbed/sandbox"
	"github.com/clusterctl-release/clusterctl-release/internal/testbed/workload"
	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// patience is how long anything may take. Nothing is measured with it: it is far more than is needed.
const patience = 10 * time.Minute

// hugepages are as many of 2 MiB as one guest needs.
const hugepages = 128

func TestMain(m *testing.M) {
	prepare := func() error {
		if err := errors.Join(testbed.Prepare(), testbed.PrepareGuest(), testbed.PrepareBalancer(), testbed.PrepareSigned()); err != nil {
			return err
		}
		return testbed.PrepareHugepages(hugepages)
	}
	status := sandbox.Main(prepare, m.Run)
	if err := testbed.ReturnHugepages(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = 1
	}
	os.Exit(status)
}

// world is a management cluster with the provider, three hosts in two failure domains, and some that
// only one scene uses. Scenes share it.
type world struct {
	*testbed.Testbed
	registered *testbed.Hosts
	hosts      map[string]*libvirthost.Host
	player     *workload.Player

	mutex sync.Mutex
	// clusters counts those that were made, which makes the addresses of their API servers.
	clusters byte
	// gone are guests that were seen to be gone.
	gone []goneGuest
	// demo is the cluster of the scenes that are played alone.
	demo *cluster
	// suspects is what was taken for an orphan.
	suspects *suspects
	// second is another management cluster, which demo is moved to.
	second *testbed.Testbed
	// played is how many scenes were played to their end.
	played atomic.Int32
}

// goneGuest is a guest that was deleted: the time is when its domain was certainly gone.
type goneGuest struct {
	host, mac string
	at        time.Time
}

func newScheme(g *WithT) *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clusterv1.AddToScheme, bootstrapv1.AddToScheme, controlplanev1.AddToScheme, ipamv1.AddToScheme, runtimev1.AddToScheme, infrav1.AddToScheme} {
		g.Expect(add(scheme)).To(Succeed())
	}
	return scheme
}

// options are clusterctl's variables for what is off by default.
var options = map[string]string{"CAPLV_COLLECT_ORPHANS": "true", "EXP_RUNTIME_SDK": "true", "EXP_IN_PLACE_UPDATES": "true"}

func newWorld(ctx context.Context, t *testing.T, g *WithT) *world {
	t.Helper()
	variables, err := testbed.GuestVariables()
	g.Expect(err).ToNot(HaveOccurred())
	maps.Copy(variables, options)
	bed, err := testbed.Start(ctx, testbed.Options{Scheme: newScheme(g), Variables: variables})
	g.Expect(err).ToNot(HaveOccurred())
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(bed.Logs())
		}
		g.Expect(bed.Stop()).To(Succeed())
	})
	w := &world{Testbed: bed, hosts: map[string]*libvirthost.Host{}}
	t.Cleanup(func() {
		if w.second != nil {
			if t.Failed() {
				t.Log("The second management cluster:\n" + w.second.Logs())
			}
			g.Expect(w.second.Stop()).To(Succeed())
		}
	})
	// Both wait more than they work.
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return bed.Init(groupCtx) })
	specs := slices.Concat(testbed.DefaultHosts, maintainedHosts, cutOffHosts, keptHosts)
	w.registered, err = bed.StartHosts(ctx, specs)
	g.Expect(errors.Join(err, group.Wait())).To(Succeed())
	g.Expect(bed.ServeGuest(ctx)).To(Succeed())
	g.Expect(w.registered.Register(ctx)).To(Succeed())
	for i, spec := range specs {
		w.hosts[spec.Name] = w.registered.All[i]
	}
	w.player, err = bed.PlayWorkloads(ctx, w.registered.All)
	g.Expect(err).ToNot(HaveOccurred())
	w.suspects = w.watchSuspects(ctx, g)
	return w
}

// eventually waits until something that it asks for again and again is so.
func eventually(g *WithT, ask func(g Gomega)) {
	g.Eventually(ask).WithTimeout(patience).WithPolling(500 * time.Millisecond).Should(Succeed())
}

// describe shows all clusters as clusterctl does, for failures.
func (w *world) describe(ctx context.Context) string {
	var list clusterv1.ClusterList
	if err := w.Client.List(ctx, &list); err != nil {
		return err.Error()
	}
	var out strings.Builder
	for i := range list.Items {
		object := &list.Items[i]
		tree, err := w.Clusterctl(ctx, "describe", "cluster", object.Name, "--namespace="+object.Namespace, "--show-conditions=all", "--grouping=false", "--echo")
		if err != nil {
			tree = err.Error()
		}
		fmt.Fprintf(&out, "== %s\n%s\n", client.ObjectKeyFromObject(object), tree)
	}
	return out.String()
}

// hostsReady waits until the provider takes all hosts for ready.
func (w *world) hostsReady(ctx context.Context, g *WithT) {
	w.hostsReadyIn(ctx, g, w.Client)
}

// hostsReadyIn is hostsReady in any management cluster.
func (w *world) hostsReadyIn(ctx context.Context, g *WithT, c client.Client) {
	eventually(g, func(g Gomega) {
		var hosts infrav1.LibvirtHostList
		g.Expect(c.List(ctx, &hosts)).To(Succeed())
		ready := map[string]bool{}
		for _, host := range hosts.Items {
			if w.hosts[host.Name] != nil {
				g.Expect(host.Status.Conditions).To(ContainElement(isCondition(infrav1.ReadyCondition, "True")), host.Name)
				ready[host.Name] = true
			}
		}
		g.Expect(ready).To(HaveLen(len(w.hosts)))
	})
}

// nothingLeft: hosts have nothing left but images, which one scene sees deleted, and the marks of managers that look
// at them, and forget the addresses of all guests in time. Nobody can give a lease back for a guest that is gone, so the
// last ones are waited for.
func (w *world) nothingLeft(g *WithT) {
	gone := map[string]time.Time{}
	for _, guest := range w.gone {
		gone[guest.mac] = guest.at
	}
	for name, host := range w.hosts {
		g.Expect(host.Left()).To(Or(BeEmpty(), HaveEach(Or(HavePrefix("volume caplv-image-"), HavePrefix("volume caplv-manager-")))), name)
		reports, _ := host.Reports()
		for _, report := range reports {
			at, seen := gone[report.MACAddress]
			if !seen { // a guest that went before a scene has seen it whole
				at = time.Now()
			}
			g.Expect(host.Forgets(report.MACAddress, at)).To(Succeed())
		}
	}
	for name, host := range w.hosts {
		g.Eventually(host.Leases).WithTimeout(leasesEnd).WithPolling(time.Second).Should(BeEmpty(), name)
	}
}

// leasesEnd is when the last lease has ended for sure: the hosts' leases are for two minutes.
const leasesEnd = 150 * time.Second

// isCondition matches a condition by its type and status.
func isCondition(kind, status string) interface {
	Match(actual any) (bool, error)
	FailureMessage(actual any) string
	NegatedFailureMessage(actual any) string
} {
	return And(HaveField("Type", kind), HaveField("Status", BeEquivalentTo(status)))
}

// patch changes an object as it is at the moment. It goes on trying: the webhooks' managers may be away for
// a moment, as they elect a leader anew when the machine has much to do.
func patch[T client.Object](ctx context.Context, g *WithT, c client.Client, key client.ObjectKey, object T, change func(T)) {
	eventually(g, func(g Gomega) {
		g.Expect(c.Get(ctx, key, object)).To(Succeed())
		before := object.DeepCopyObject().(client.Object)
		change(object)
		g.Expect(c.Patch(ctx, object, client.MergeFrom(before))).To(Succeed())
	})
}

// providerID is that of a domain.
func providerID(uuid string) string { return "libvirt:///" + uuid }

func uuidOf(providerID string) string { return strings.TrimPrefix(providerID, "libvirt:///") }

func itoa[T ~int | ~int32](number T) string { return fmt.Sprint(number) }
