// Package test tests the provider as users run it: installed by clusterctl from its release, with Cluster API's
// managers, libvirt hosts and guests, all of them real and in a sandbox.
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
	"github.com/clusterctl-release/clusterctl-release/internal/testbed/guest/report"
	"github.com/clusterctl-release/clusterctl-release/internal/testbed/libvirthost"
	"github.com/clusterctl-release/clusterctl-release/internal/testbed/sandbox"
	"github.com/clusterctl-release/clusterctl-release/internal/testbed/workload"
	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// patience is the timeout for anything. It is far more than needed, and not a measure.
const patience = 10 * time.Minute

// hugepages is the number of huge pages of 2 MiB that one guest needs.
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

// world is a management cluster with the provider, three hosts in two failure domains, and some hosts for single
// scenes. Scenes share it.
type world struct {
	*testbed.Testbed
	registered *testbed.Hosts
	hosts      map[string]*libvirthost.Host
	player     *workload.Player

	mutex sync.Mutex
	// clusters is the number of created clusters, from which the addresses of their API servers are derived.
	clusters byte
	// gone are the deleted guests.
	gone []deletedGuest
	// demo is the cluster of the sequential scenes.
	demo *cluster
	// suspects has the reported orphans.
	suspects *suspects
	// second is another management cluster, to which demo is moved.
	second *testbed.Testbed
	// played is the number of completed scenes.
	played atomic.Int32
}

// deletedGuest is a deleted guest, with a time at which its domain was deleted already.
type deletedGuest struct {
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

// options are clusterctl's variables for features that are off by default.
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
	// Both mostly wait.
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

// eventually repeats checks until they succeed.
func eventually(g *WithT, check func(g Gomega)) {
	g.Eventually(check).WithTimeout(patience).WithPolling(500 * time.Millisecond).Should(Succeed())
}

// describe shows for failures all clusters as clusterctl does, and why guests may have been silent.
func (w *world) describe(ctx context.Context) string {
	var list clusterv1.ClusterList
	if err := w.Client.List(ctx, &list); err != nil {
		return err.Error()
	}
	var out strings.Builder
	for i := range list.Items {
		object := &list.Items[i]
		tree, err := w.Clusterctl(ctx, "describe", "cluster", object.Name, "--namespace="+object.Namespace, "--grouping=false", "--echo")
		if err != nil {
			tree = err.Error()
		}
		fmt.Fprintf(&out, "== %s\n", client.ObjectKeyFromObject(object))
		for line := range strings.Lines(tree) {
			fmt.Fprintln(&out, strings.TrimRight(line, " \n")) // clusterctl fills each line up to the longest one
		}
	}
	w.describeSilent(&out)
	return out.String()
}

// describeSilent writes the last lines from the consoles of the guests that exist and have not reported.
func (w *world) describeSilent(out *strings.Builder) {
	const most = 1000 // bytes
	for name, host := range w.hosts {
		domains, err := host.Domains()
		if err != nil {
			fmt.Fprintf(out, "== the domains of %s: %v\n", name, err)
		}
		reports, _ := host.Reports()
		for _, domain := range domains {
			if slices.ContainsFunc(reports, func(r report.Report) bool { return r.SystemUUID == domain.UUID }) {
				continue
			}
			console, err := host.QEMULog(hypervisor.ConsoleLogName(domain.Name))
			if err != nil {
				console = []byte(err.Error())
			}
			fmt.Fprintf(out, "== no report of %s on %s, whose console has\n%s\n", domain.Name, name, console[max(0, len(console)-most):])
		}
	}
}

// hostsReady waits until all hosts are Ready.
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

// nothingLeft checks that hosts have no objects left except images, which another scene checks, and the markers of
// managers, and waits until the leases of all guests have expired, because the lease of a deleted guest can't be
// released.
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
			if !seen { // the guest was deleted before a scene has seen it complete
				at = time.Now()
			}
			g.Expect(host.Forgets(report.MACAddress, at)).To(Succeed())
		}
	}
	for name, host := range w.hosts {
		g.Eventually(host.Leases).WithTimeout(leasesEnd).WithPolling(time.Second).Should(BeEmpty(), name)
	}
}

// leasesEnd returns when the last lease has expired: the hosts' leases last two minutes.
const leasesEnd = 150 * time.Second

// isCondition matches a condition by its type and status.
func isCondition(kind, status string) interface {
	Match(actual any) (bool, error)
	FailureMessage(actual any) string
	NegatedFailureMessage(actual any) string
} {
	return And(HaveField("Type", kind), HaveField("Status", BeEquivalentTo(status)))
}

// patch changes the current object. It retries, because the managers with the webhooks may restart after losing their
// leader election on a busy machine.
func patch[T client.Object](ctx context.Context, g *WithT, c client.Client, key client.ObjectKey, object T, change func(T)) {
	eventually(g, func(g Gomega) {
		g.Expect(c.Get(ctx, key, object)).To(Succeed())
		before := object.DeepCopyObject().(client.Object)
		change(object)
		g.Expect(c.Patch(ctx, object, client.MergeFrom(before))).To(Succeed())
	})
}

// providerID returns the provider ID of a domain.
func providerID(uuid string) string { return "libvirt:///" + uuid }

func uuidOf(providerID string) string { return strings.TrimPrefix(providerID, "libvirt:///") }

func itoa[T ~int | ~int32](number T) string { return fmt.Sprint(number) }
