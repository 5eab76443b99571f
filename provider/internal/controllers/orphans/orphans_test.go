package orphans

import (
	"context"
	"fmt"
	"path"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/fleet"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/index"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/fake"
)

// UUIDs of machines.
const (
	lost  = "11111111-1111-4111-8111-111111111111"
	alive = "22222222-2222-4222-8222-222222222222"
	disks = "33333333-3333-4333-8333-333333333333" // of a machine with volumes only
)

var start = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// hostOf is a host with one connection. Its snapshots are always new, or as old as a test sets.
type hostOf struct {
	host       *fake.Host
	connection hypervisor.Hypervisor
	old        *fleet.Snapshot
}

// Hypervisor implements Hosts.
func (h *hostOf) Hypervisor(string) (hypervisor.Hypervisor, error) { return h.connection, nil }

// Refresh implements Hosts.
func (h *hostOf) Refresh(context.Context, string, string) error { return nil }

// Snapshot implements Hosts.
func (h *hostOf) Snapshot(string) (fleet.Snapshot, bool) {
	if h.old != nil {
		return *h.old, true
	}
	connection, err := h.host.Connect(context.Background())
	if err != nil {
		return fleet.Snapshot{Err: err}, true
	}
	defer func() { _ = connection.Close() }()
	return snapshotOf(connection), true
}

func snapshotOf(connection hypervisor.Hypervisor) fleet.Snapshot {
	snapshot := fleet.Snapshot{Taken: start.AddDate(1, 0, 0), Domains: map[string]hypervisor.Domain{}, Pools: map[string]fleet.Pool{}}
	domains, err := connection.ListDomains(context.Background())
	for _, domain := range domains {
		snapshot.Domains[domain.UUID] = domain
	}
	pool := fleet.Pool{Pool: hypervisor.Pool{Name: "default", Active: true}, Volumes: map[string]hypervisor.Volume{}}
	if err == nil {
		var volumes []hypervisor.Volume
		volumes, err = connection.PoolVolumes(context.Background(), "default")
		for _, volume := range volumes {
			pool.Volumes[volume.Name] = volume
		}
	}
	snapshot.Pools["default"] = pool
	snapshot.Reachable, snapshot.Err = err == nil, err
	return snapshot
}

// world is an API server with a Cluster and a host. The host has the objects of an existing machine and of two missing
// ones.
type world struct {
	*WithT
	t      *testing.T
	api    client.WithWatch
	host   *fake.Host
	hosts  *hostOf
	events *events.FakeRecorder
	clock  time.Time
	r      *Reconciler
}

func newWorld(t *testing.T, options Options) *world {
	t.Helper()
	w := &world{WithT: NewWithT(t), t: t, host: fake.NewHost(), events: events.NewFakeRecorder(100), clock: start}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, clusterv1.AddToScheme, infrav1.AddToScheme} {
		w.Expect(add(scheme)).To(Succeed())
	}
	w.api = clientfake.NewClientBuilder().WithScheme(scheme).WithIndex(&infrav1.LibvirtMachine{}, index.MachineHost, index.HostOf).WithIndex(&infrav1.LibvirtMachine{}, index.MachineProviderID, index.ProviderIDOf).
		WithStatusSubresource(&infrav1.LibvirtHost{}).WithObjects(
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "here"}},
		&clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "blue"}},
		machine("alive", alive),
		&infrav1.LibvirtHost{ObjectMeta: metav1.ObjectMeta{Name: "host", UID: "host"}, Spec: infrav1.LibvirtHostSpec{URI: "test:///default"}},
	).Build()
	by := w.connect()
	w.define(by, alive, "alive")
	w.define(by, lost, "lost")
	for _, uuid := range []string{alive, lost, disks} {
		for _, what := range []string{"root", "seed", "disk-data"} {
			w.volume(by, uuid+"-"+what, "")
		}
	}
	w.Expect(by.StartDomain(t.Context(), lost)).To(Succeed())
	for _, name := range []string{"image.qcow2", "caplv-image-sha256-0", "44444444-4444-4444-8444-444444444444", "55555555-5555-4555-8555-555555555555-notes"} {
		w.volume(by, name, "") // other names than the provider's
	}
	// A foreign domain, with a volume whose name looks like the provider's.
	const theirs = "66666666-6666-4666-8666-666666666666"
	w.Expect(by.DefineDomain(t.Context(), hypervisor.Definition{UUID: theirs, Name: "theirs",
		XML: "<domain><name>theirs</name><uuid>" + theirs + "</uuid><memory>1</memory></domain>"})).To(Succeed())
	w.volume(by, theirs+"-root", "")
	w.restart(options)
	return w
}

func machine(name, uuid string) *infrav1.LibvirtMachine {
	return &infrav1.LibvirtMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(name)},
		Spec: infrav1.LibvirtMachineSpec{HostName: "host", ProviderID: infrav1.ProviderIDPrefix + uuid}}
}

func (w *world) connect() hypervisor.Hypervisor {
	w.t.Helper()
	connection, err := w.host.Connect(context.Background())
	w.Expect(err).ToNot(HaveOccurred())
	w.t.Cleanup(func() { _ = connection.Close() })
	return connection
}

func (w *world) define(by hypervisor.Hypervisor, uuid, name string) {
	w.t.Helper()
	metadata, err := hypervisor.Owner{Cluster: "blue", Namespace: "team", Name: name}.Metadata()
	w.Expect(err).ToNot(HaveOccurred())
	var devices strings.Builder
	for _, what := range []string{"root", "seed", "disk-data"} {
		fmt.Fprintf(&devices, `<disk type="volume"><source pool="default" volume="%s-%s"/></disk>`, uuid, what)
	}
	w.Expect(by.DefineDomain(context.Background(), hypervisor.Definition{UUID: uuid, Name: "team." + name,
		XML: fmt.Sprintf("<domain><name>team.%s</name><uuid>%s</uuid><memory>1</memory><metadata>%s</metadata><devices>%s<console><log file='/logs/team.%s-console.log'/></console></devices></domain>",
			name, uuid, metadata, devices.String(), name)})).To(Succeed())
}

func (w *world) volume(by hypervisor.Hypervisor, name, backing string) {
	w.t.Helper()
	spec := hypervisor.VolumeSpec{VolumeRef: hypervisor.VolumeRef{Pool: "default", Name: name}, Format: hypervisor.FormatQCOW2, CapacityBytes: 1 << 20}
	if backing != "" {
		below, err := by.Volume(context.Background(), hypervisor.VolumeRef{Pool: "default", Name: backing})
		w.Expect(err).ToNot(HaveOccurred())
		spec.Backing = &hypervisor.Backing{Path: below.Path, Format: hypervisor.FormatQCOW2}
	}
	_, err := by.CreateVolume(context.Background(), spec)
	w.Expect(err).ToNot(HaveOccurred())
}

// restart starts another manager.
func (w *world) restart(options Options) {
	w.t.Helper()
	w.hosts = &hostOf{host: w.host, connection: w.connect()}
	w.r = &Reconciler{Client: w.api, APIReader: w.api, Hosts: w.hosts, Options: options, recorder: w.events, now: func() time.Time { return w.clock }}
}

func (w *world) reconcile() (ctrl.Result, error) {
	return w.r.Reconcile(context.Background(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "host"}})
}

// findOrphans reconciles once and returns the LibvirtHost.
func (w *world) findOrphans() *infrav1.LibvirtHost {
	w.t.Helper()
	_, err := w.reconcile()
	w.Expect(err).ToNot(HaveOccurred())
	return w.object()
}

func (w *world) object() *infrav1.LibvirtHost {
	w.t.Helper()
	host := &infrav1.LibvirtHost{}
	w.Expect(w.api.Get(context.Background(), client.ObjectKey{Name: "host"}, host)).To(Succeed())
	return host
}

// remaining lists the remaining objects of a machine on the host.
func (w *world) remaining(uuid string) []string {
	volumes, domains := w.host.Left()
	var remaining []string
	for _, ref := range volumes {
		if what, is := strings.CutPrefix(ref.Name, uuid+"-"); is {
			remaining = append(remaining, what)
		}
	}
	for _, file := range w.host.ConsoleLogs() {
		if uuid == lost && path.Base(file) == "team.lost-console.log" {
			remaining = append(remaining, "console log")
		}
	}
	for _, domain := range domains {
		if domain == uuid {
			remaining = append(remaining, "domain "+string(w.host.State(domain)))
		}
	}
	return remaining
}

var (
	all         = []string{"disk-data", "root", "seed"}
	allOfLost   = append(all[:3:3], "console log", "domain Running")
	allOfAlive  = append(all[:3:3], "domain ShutOff")
	collecting  = Options{Collect: true, MinAge: time.Hour}
	otherMarker = hypervisor.VolumeRef{Pool: "default", Name: markerPrefix + "there"}
)

// TestReported: orphans are reported in the status, a condition and an event, and aren't deleted, whatever their age.
func TestReported(t *testing.T) {
	w := newWorld(t, Options{})
	host := w.findOrphans()
	condition := conditions.Get(host, infrav1.OrphansFoundCondition)
	w.Expect(condition.Status).To(Equal(metav1.ConditionTrue))
	w.Expect(condition.Message).To(Equal("2 missing LibvirtMachines have left domains or volumes: " +
		"domain team.lost of LibvirtMachine team/lost with 3 volumes; 3 volumes of " + disks))
	w.Expect(host.Status.Orphans).To(Equal([]infrav1.HostOrphan{
		{UUID: lost, Domain: "team.lost", Machine: "team/lost", Volumes: ptr.To[int32](3), Since: metav1.NewTime(start.Local()), KeptBecause: "the manager runs without --collect-orphans"},
		{UUID: disks, Volumes: ptr.To[int32](3), Since: metav1.NewTime(start.Local()), KeptBecause: "the manager runs without --collect-orphans"},
	}))
	w.Expect(<-w.events.Events).To(HavePrefix("Warning OrphansFound 2 missing LibvirtMachines"))

	// Later, and by another manager: the time since when doesn't change, and no event is repeated.
	w.clock = start.Add(1000 * time.Hour)
	w.restart(Options{})
	w.Expect(w.findOrphans()).To(Equal(host))
	w.Expect(w.events.Events).To(BeEmpty())
	w.Expect(w.remaining(lost)).To(ConsistOf(allOfLost))
	w.Expect(w.remaining(disks)).To(ConsistOf(all))

	// The machines exist again.
	w.Expect(w.api.Create(t.Context(), machine("lost", lost))).To(Succeed())
	w.Expect(w.api.Create(t.Context(), machine("disks", disks))).To(Succeed())
	host = w.findOrphans()
	w.Expect(host.Status.Orphans).To(BeEmpty())
	w.Expect(conditions.GetReason(host, infrav1.OrphansFoundCondition)).To(Equal(infrav1.NoOrphansReason))
}

// TestLongTexts: texts are cut between two characters.
func TestLongTexts(t *testing.T) {
	g := NewWithT(t)
	host := &infrav1.LibvirtHost{}
	letters := "x" + strings.Repeat("ä", 1000)
	domain := &hypervisor.Domain{Name: "y" + letters, Owner: &hypervisor.Owner{Namespace: "team", Name: letters}}
	setStatus(host, map[string]keptOrphan{lost: {because: "ä" + letters}}, []orphan{{uuid: lost, domain: domain}})
	g.Expect(host.Status.Orphans).To(HaveLen(1))
	is := host.Status.Orphans[0]
	g.Expect(is.Domain).To(Equal("yx" + strings.Repeat("ä", (maxDomain-2)/2)))
	g.Expect(is.Machine).To(Equal("team/x" + strings.Repeat("ä", (maxMachine-6)/2)))
	g.Expect(is.KeptBecause).To(Equal("äx" + strings.Repeat("ä", (maxKept-3)/2)))
}

// TestOldSnapshot: a machine that has just been deleted isn't an orphan, although the snapshot still has it. A machine
// that the cache doesn't have yet isn't one either.
func TestOldSnapshot(t *testing.T) {
	w := newWorld(t, Options{})
	before, _ := w.hosts.Snapshot("host")
	w.hosts.old = &before
	by := w.connect()
	w.Expect(by.StopDomain(t.Context(), lost)).To(Succeed())
	for _, uuid := range []string{lost, disks} {
		for _, what := range all {
			w.Expect(by.DeleteVolume(t.Context(), hypervisor.VolumeRef{Pool: "default", Name: uuid + "-" + what})).To(Succeed())
		}
	}
	w.Expect(by.UndefineDomain(t.Context(), lost)).To(Succeed())
	w.r.Client = interceptor.NewClient(w.api, interceptor.Funcs{ // an empty cache
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return nil }})
	w.Expect(conditions.GetReason(w.findOrphans(), infrav1.OrphansFoundCondition)).To(Equal(infrav1.NoOrphansReason))
}

// TestMarkerIsMadeOnce: a new marker isn't in the snapshot until the host is read completely, and the host is
// reconciled after each of its changes. The marker isn't created again in the meantime. A deleted marker is created
// again.
func TestMarkerIsMadeOnce(t *testing.T) {
	w := newWorld(t, Options{})
	made := func() int {
		made := 0
		for _, call := range w.host.Calls() {
			if call.Operation == fake.CreateVolume {
				made++
			}
		}
		w.host.ForgetCalls()
		return made
	}
	old, _ := w.hosts.Snapshot("host")
	old.Taken = start.Add(-time.Second)
	w.hosts.old = &old
	made()
	w.host.Inject(fake.Fault{Operation: fake.CreateVolume, Times: 1, Effect: fake.Fail, Reason: hypervisor.ErrOther})
	_, err := w.reconcile()
	w.Expect(err).To(HaveOccurred())
	made()
	w.findOrphans()
	w.Expect(made()).To(Equal(1), "a failed creation is retried")
	w.findOrphans()
	w.findOrphans()
	w.Expect(made()).To(BeZero())

	w.clock = start.Add(time.Minute)
	read, _ := (&hostOf{host: w.host}).Snapshot("host")
	read.Taken = w.clock
	w.hosts.old = &read
	w.findOrphans()
	w.Expect(made()).To(BeZero())
	volumes, _ := w.host.Left()
	for _, ref := range volumes {
		if strings.HasPrefix(ref.Name, markerPrefix) {
			w.Expect(w.connect().DeleteVolume(t.Context(), ref)).To(Succeed())
		}
	}
	w.clock = start.Add(2 * time.Minute)
	read, _ = (&hostOf{host: w.host}).Snapshot("host")
	read.Taken = w.clock
	w.hosts.old = &read
	w.findOrphans()
	w.Expect(made()).To(Equal(1))
}

// TestHostThatIsConnectedTo: before the end of the first attempt to connect, nothing is written.
func TestHostThatIsConnectedTo(t *testing.T) {
	w := newWorld(t, Options{})
	before := w.object()
	w.hosts.old = &fleet.Snapshot{}
	w.Expect(w.findOrphans()).To(Equal(before))
}

// TestCollected: all objects of an orphan are deleted after its age, the seed first and the domain last, and no other
// objects are.
func TestCollected(t *testing.T) {
	w := newWorld(t, collecting)
	w.Expect(w.findOrphans().Status.Orphans).To(HaveEach(HaveField("KeptBecause", "it isn't deleted before 2026-11-21T13:00:00Z")))
	w.clock = start.Add(time.Hour - time.Second)
	w.findOrphans()
	w.Expect(w.remaining(lost)).To(ConsistOf(allOfLost))

	w.clock = start.Add(time.Hour)
	w.host.ForgetCalls()
	host := w.findOrphans()
	w.Expect(host.Status.Orphans).To(BeEmpty())
	w.Expect(w.remaining(lost)).To(BeEmpty())
	w.Expect(w.remaining(disks)).To(BeEmpty())
	var changes []string
	for _, call := range w.host.Calls() {
		switch call.Operation {
		case fake.StopDomain, fake.DeleteVolume, fake.UndefineDomain:
			changes = append(changes, string(call.Operation)+" "+call.Object)
		}
	}
	w.Expect(changes).To(Equal([]string{
		"StopDomain " + lost, "DeleteVolume default/" + lost + "-seed", "DeleteVolume default/" + lost + "-root", "DeleteVolume default/" + lost + "-disk-data", "UndefineDomain " + lost,
		"DeleteVolume default/" + disks + "-seed", "DeleteVolume default/" + disks + "-root", "DeleteVolume default/" + disks + "-disk-data",
	}))
	w.Expect(w.remaining(alive)).To(ConsistOf(allOfAlive))
	volumes, domains := w.host.Left()
	w.Expect(domains).To(HaveLen(2))
	w.Expect(volumes).To(HaveLen(3 + 4 + 1 + 1)) // the machine's, unnamed ones, a foreign one, the marker
}

// TestNotDeleted: in each of these cases an orphan isn't deleted, whatever its age.
func TestNotDeleted(t *testing.T) {
	paused := func(cluster *clusterv1.Cluster) { cluster.Spec.Paused = ptr.To(true) }
	for _, tc := range []struct {
		name   string
		change func(w *world)
		// because is the reason why it is kept. If it is empty, it isn't an orphan, or the host isn't reconciled.
		because string
		// volumes is true if volumes without a domain are kept too.
		volumes bool
	}{
		{name: "its Cluster was moved", because: "its Cluster team/blue isn't in this management cluster",
			change: func(w *world) { w.Expect(w.api.Delete(w.t.Context(), blue())).To(Succeed()) }},
		{name: "its Cluster is being moved", change: func(w *world) { w.changeCluster(paused) }},
		{name: "its Cluster is paused by the annotation", change: func(w *world) {
			w.changeCluster(func(c *clusterv1.Cluster) { c.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} })
		}},
		{name: "another management cluster has machines there", because: "another management cluster has or had machines on the host", volumes: true,
			change: func(w *world) { w.volume(w.connect(), otherMarker.Name, "") }},
		{name: "the host is paused", volumes: true, change: func(w *world) {
			w.changeHost(func(h *infrav1.LibvirtHost) { h.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} })
		}},
		{name: "restored from a backup, older", because: "a LibvirtMachine team/lost exists, with another provider ID",
			change: func(w *world) {
				w.Expect(w.api.Create(w.t.Context(), machine("lost", "77777777-7777-4777-8777-777777777777"))).To(Succeed())
			}},
		{name: "restored from a backup, with another UID", change: func(w *world) {
			restored := machine("lost", lost)
			restored.UID = "new"
			w.Expect(w.api.Create(w.t.Context(), restored)).To(Succeed())
		}},
		{name: "another domain uses its disk", because: "the domain team.alive uses its volume default/" + lost + "-root", change: func(w *world) {
			w.host.RemoveDomain(alive)
			metadata, _ := hypervisor.Owner{Cluster: "blue", Namespace: "team", Name: "alive"}.Metadata()
			w.Expect(w.connect().DefineDomain(w.t.Context(), hypervisor.Definition{UUID: alive, Name: "team.alive",
				XML: fmt.Sprintf(`<domain><name>team.alive</name><uuid>%s</uuid><memory>1</memory><metadata>%s</metadata><devices><disk><source pool="default" volume="%s-root"/></disk></devices></domain>`,
					alive, metadata, lost)})).To(Succeed())
		}},
		{name: "another volume is an overlay of its disk", because: "the volume default/overlay is an overlay of its volume default/" + lost + "-root",
			change: func(w *world) { w.volume(w.connect(), "overlay", lost+"-root") }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, collecting)
			w.findOrphans()
			tc.change(w)
			w.clock = start.Add(1000 * time.Hour)
			w.findOrphans()
			host := w.findOrphans()
			w.Expect(w.remaining(lost)).To(ConsistOf(allOfLost))
			if tc.volumes {
				w.Expect(w.remaining(disks)).To(ConsistOf(all))
			} else {
				w.Expect(w.remaining(disks)).To(BeEmpty(), "volumes have no owner in metadata")
			}
			if tc.because != "" {
				w.Expect(host.Status.Orphans).To(ContainElement(And(HaveField("UUID", lost), HaveField("KeptBecause", ContainSubstring(tc.because)))))
			}
		})
	}
}

func blue() *clusterv1.Cluster {
	return &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "blue"}}
}

func (w *world) changeCluster(change func(*clusterv1.Cluster)) {
	w.t.Helper()
	cluster := blue()
	w.Expect(w.api.Get(w.t.Context(), client.ObjectKeyFromObject(cluster), cluster)).To(Succeed())
	change(cluster)
	w.Expect(w.api.Update(w.t.Context(), cluster)).To(Succeed())
}

func (w *world) changeHost(change func(*infrav1.LibvirtHost)) {
	w.t.Helper()
	host := w.object()
	change(host)
	w.Expect(w.api.Update(w.t.Context(), host)).To(Succeed())
}

// TestMove: after a move the old management cluster still has the LibvirtHosts, and may even delete orphans. No moved
// machine is changed, during or after the move, whether the new management cluster reaches the host or not.
func TestMove(t *testing.T) {
	for _, reached := range []bool{true, false} {
		t.Run(fmt.Sprintf("reached %t", reached), func(t *testing.T) {
			w := newWorld(t, collecting)
			w.findOrphans()
			w.changeCluster(func(c *clusterv1.Cluster) { c.Spec.Paused = ptr.To(true) })
			w.Expect(w.api.Delete(t.Context(), machine("alive", alive))).To(Succeed())
			for hour := range 5 {
				w.clock = w.clock.Add(time.Duration(hour) * time.Hour)
				w.findOrphans()
			}
			w.Expect(w.remaining(alive)).To(ConsistOf(allOfAlive))
			if reached {
				w.volume(w.connect(), otherMarker.Name, "")
			}
			w.Expect(w.api.Delete(t.Context(), blue())).To(Succeed())
			for range 5 {
				w.clock = w.clock.Add(24 * time.Hour)
				w.findOrphans()
			}
			w.Expect(w.remaining(alive)).To(ContainElement("domain ShutOff"))
			w.Expect(w.remaining(alive)).To(ConsistOf(allOfAlive))
		})
	}
}

// TestMarker: the marker exists where this management cluster has machines, and is deleted with them.
func TestMarker(t *testing.T) {
	w := newWorld(t, Options{})
	marked := func() bool {
		volumes, _ := w.host.Left()
		for _, ref := range volumes {
			if ref.Name == markerPrefix+"here" {
				return true
			}
		}
		return false
	}
	w.findOrphans()
	w.Expect(marked()).To(BeTrue())
	w.Expect(w.api.Delete(t.Context(), machine("alive", alive))).To(Succeed())
	w.findOrphans()
	w.Expect(marked()).To(BeFalse())
	w.restart(collecting)
	w.findOrphans()
	w.Expect(marked()).To(BeTrue(), "a manager that deletes orphans has a marker")
}

// TestAppearsWhileDeleting: a machine that is restored between two deletions stops them.
func TestAppearsWhileDeleting(t *testing.T) {
	w := newWorld(t, collecting)
	w.findOrphans()
	w.clock = start.Add(time.Hour)
	lists := 0
	w.r.APIReader = interceptor.NewClient(w.api, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if lists++; lists == 4 { // to find it, to stop it, to delete the seed; and now
				w.Expect(c.Create(ctx, machine("lost", lost))).To(Succeed())
			}
			return c.List(ctx, list, options...)
		}})
	host := w.findOrphans()
	w.Expect(w.remaining(lost)).To(ConsistOf("root", "disk-data", "console log", "domain ShutOff"))
	w.Expect(host.Status.Orphans).To(ContainElement(HaveField("KeptBecause", "its LibvirtMachine exists again")))
	w.Expect(w.findOrphans().Status.Orphans).To(BeEmpty())
}

// TestKilled: the manager is killed after each of its calls to the host, also during deletions. The next manager
// continues, and neither deletes other objects.
func TestKilled(t *testing.T) {
	calls := func() int {
		w := newWorld(t, collecting)
		w.findOrphans()
		w.clock = start.Add(time.Hour)
		w.host.ForgetCalls()
		w.hosts.old = ptr.To(snapshotOf(w.connect()))
		w.host.ForgetCalls()
		w.findOrphans()
		return len(w.host.Calls())
	}()
	if calls < 20 {
		t.Fatalf("only %d calls", calls)
	}
	for at := range calls {
		w := newWorld(t, collecting)
		w.findOrphans()
		w.clock = start.Add(time.Hour)
		w.hosts.old = ptr.To(snapshotOf(w.connect()))
		w.host.Inject(fake.Fault{Skip: at, Effect: fake.Disconnect, AfterDone: true})
		_, err := w.reconcile()
		w.Expect(err).ToNot(HaveOccurred(), "an unreachable host isn't an error")
		w.host.ClearFaults()
		// The orphans of the first manager are in the status, or are found again and start at age 0.
		w.restart(collecting)
		w.findOrphans()
		w.clock = w.clock.Add(2 * time.Hour)
		w.findOrphans()
		w.Expect(w.findOrphans().Status.Orphans).To(BeEmpty(), "killed after call %d", at)
		w.Expect(w.remaining(lost)).To(BeEmpty(), "killed after call %d", at)
		w.Expect(w.remaining(disks)).To(BeEmpty())
		w.Expect(w.remaining(alive)).To(ConsistOf(allOfAlive))
	}
}

// TestStrangeOwners: the metadata of a domain may have any content, which neither causes failures nor requests to the
// API server.
func TestStrangeOwners(t *testing.T) {
	w := newWorld(t, collecting)
	const strange = "77777777-7777-4777-8777-777777777777"
	metadata, err := hypervisor.Owner{Cluster: "../../blue", Namespace: "a/b" + strings.Repeat("c", 400), Name: "x"}.Metadata()
	w.Expect(err).ToNot(HaveOccurred())
	w.Expect(w.connect().DefineDomain(t.Context(), hypervisor.Definition{UUID: strange, Name: "strange",
		XML: fmt.Sprintf("<domain><name>strange</name><uuid>%s</uuid><memory>1</memory><metadata>%s</metadata></domain>", strange, metadata)})).To(Succeed())
	w.findOrphans()
	w.clock = start.Add(time.Hour)
	orphans := w.findOrphans().Status.Orphans
	w.Expect(orphans).To(HaveLen(1))
	w.Expect(orphans[0].Machine).To(HaveLen(maxMachine))
	w.Expect(orphans[0].KeptBecause).To(ContainSubstring("isn't in this management cluster"))
	w.Expect(w.remaining(lost)).To(BeEmpty())
}

// TestNothingChanges: a host that reports a deletion and still has the object causes an error, and not endless
// requests.
func TestNothingChanges(t *testing.T) {
	w := newWorld(t, collecting)
	w.findOrphans()
	w.clock = start.Add(time.Hour)
	w.host.Inject(fake.Fault{Operation: fake.DeleteVolume, Times: -1, Effect: fake.Fail, Reason: hypervisor.ErrNotFound})
	_, err := w.reconcile()
	w.Expect(err).To(MatchError(ContainSubstring("deleting the volume default/" + lost + "-seed had no effect")))
	w.Expect(w.object().Status.Orphans).To(ContainElement(And(HaveField("UUID", lost), HaveField("KeptBecause", ContainSubstring("deleting it failed")))))
	w.host.ClearFaults()
	w.Expect(w.findOrphans().Status.Orphans).To(BeEmpty())
}

// TestReadErrors: if the API server or the host can't be read, no orphan is reported or deleted.
func TestReadErrors(t *testing.T) {
	errAPI := fmt.Errorf("the API server is away")
	w := newWorld(t, collecting)
	w.findOrphans()
	w.clock = start.Add(time.Hour)
	w.r.APIReader = interceptor.NewClient(w.api, interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return errAPI }})
	_, err := w.reconcile()
	w.Expect(err).To(MatchError(errAPI))
	w.Expect(conditions.Get(w.object(), infrav1.OrphansFoundCondition).Status).To(Equal(metav1.ConditionUnknown))
	w.Expect(w.object().Status.Orphans).To(HaveLen(2), "the earlier status stays")

	w.r.APIReader = w.api
	w.host.SetReachable(false)
	_, err = w.reconcile()
	w.Expect(err).ToNot(HaveOccurred())
	w.Expect(conditions.GetReason(w.object(), infrav1.OrphansFoundCondition)).To(Equal(infrav1.HostUnreachableReason))
	w.Expect(w.remaining(lost)).To(ConsistOf(allOfLost))
}
