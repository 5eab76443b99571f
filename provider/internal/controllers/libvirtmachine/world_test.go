package libvirtmachine

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/domainxml"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/images"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/index"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/placement"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/fake"
)

const (
	// patience is the timeout of tests for an expected event. It is not an expectation of speed.
	patience = time.Minute
	secret   = "kubeadm-token-nobody-may-see"
)

var key = client.ObjectKey{Namespace: "team", Name: "blue-1"}

// testSources allows downloads from imageServer and other test servers.
var testSources = images.Sources{Allowed: []string{"127.0.0.0/8"}}

// imageServer serves one image to all tests.
var imageServer = sync.OnceValue(func() *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(imageContent) }))
})

var imageContent = func() []byte {
	header := make([]byte, 104)
	copy(header, "QFI\xfb")
	binary.BigEndian.PutUint32(header[4:], 3)
	binary.BigEndian.PutUint64(header[24:], 2<<30)
	return append(header, bytes.Repeat([]byte("guest"), 200)...)
}()

func checksum(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// world is an API server in memory with a Cluster and one Machine, and fake hosts.
type world struct {
	*WithT
	t     *testing.T
	api   client.WithWatch
	hosts map[string]*fake.Host
	// connecting are the names of hosts that are being connected to for the first time.
	connecting sync.Map
	// events and log have the output of all processes.
	events *events.FakeRecorder
	log    *log
	// functions intercept the calls of all processes to the API server.
	functions interceptor.Funcs
	managers  []*manager
	// everyReconcile, if set, is called before each reconcile by until. killNext returns after how many
	// calls the successor of a killed manager is killed, or 0 for never.
	everyReconcile func()
	killNext       func() int
	// images are the options of the image stores, or nil for the default.
	images *images.Options
	// mac is the MAC address of the first interface, if it isn't derived. silent disables DHCP.
	mac    string
	silent bool
	// inPlace enables updates in place in all processes.
	inPlace bool
	// patience is how long machines wait for new hosts, in all processes.
	patience time.Duration
	// ledger, if set, is shared by all processes: it has the placements of earlier processes.
	ledger *placement.Ledger
	ipam   ipam
}

type log struct {
	lock sync.Mutex
	text strings.Builder
}

func (l *log) logger() logr.Logger {
	return funcr.New(func(prefix, args string) {
		l.lock.Lock()
		defer l.lock.Unlock()
		l.text.WriteString(prefix + " " + args + "\n")
	}, funcr.Options{Verbosity: 10})
}

func (l *log) String() string {
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.text.String()
}

// newWorld returns a world with some hosts, each in a different failure domain. change changes the LibvirtMachine
// first.
func newWorld(t *testing.T, change func(*infrav1.LibvirtMachine), hosts ...string) *world {
	t.Helper()
	w := &world{WithT: NewWithT(t), t: t, hosts: map[string]*fake.Host{}, events: events.NewFakeRecorder(1000), log: &log{}}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, clusterv1.AddToScheme, ipamv1.AddToScheme, infrav1.AddToScheme} {
		w.Expect(add(scheme)).To(Succeed())
	}
	owner := func(kind, name string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: kind, Name: name, UID: "1"}}
	}
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "blue"},
		Spec:   clusterv1.ClusterSpec{InfrastructureRef: clusterv1.ContractVersionedObjectReference{Name: "blue"}},
		Status: clusterv1.ClusterStatus{Initialization: clusterv1.ClusterInitializationStatus{InfrastructureProvisioned: ptr.To(true)}}}
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, OwnerReferences: owner("MachineSet", "blue")},
		Spec: clusterv1.MachineSpec{ClusterName: "blue", Bootstrap: clusterv1.Bootstrap{DataSecretName: ptr.To("blue-1")}}}
	infra := &infrav1.LibvirtMachine{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "uid-1", OwnerReferences: owner("Machine", key.Name),
		Labels: map[string]string{clusterv1.ClusterNameLabel: "blue"}}, Spec: newSpec()}
	if change != nil {
		change(infra)
	}
	objects := []client.Object{cluster, machine, infra,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: key.Namespace}},
		&infrav1.LibvirtCluster{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "blue"}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "blue-1"},
			Data: map[string][]byte{"value": []byte("#cloud-config\n# " + secret + "\n"), "format": []byte(cmpFormat(infra))}}}
	for _, name := range hosts {
		w.hosts[name] = fake.NewHost()
		host := &infrav1.LibvirtHost{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: infrav1.LibvirtHostSpec{URI: "test:///default",
			FailureDomain: "rack-" + name, ConsoleLogFolder: "/var/log/libvirt/console",
			StoragePools: infrav1.HostStoragePools{Images: "default", Disks: []string{"default"}},
			Networks:     []infrav1.HostNetwork{{Name: "default", LibvirtNetwork: "default"}, {Name: "bridged", Bridge: "br0"}, {Name: "tapped", MacvtapDevice: "eth0"}},
		}}
		for _, condition := range []string{infrav1.ReadyCondition, infrav1.ReachableCondition} {
			conditions.Set(host, metav1.Condition{Type: condition, Status: metav1.ConditionTrue, Reason: condition})
		}
		objects = append(objects, host)
	}
	w.api = clientfake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithIndex(&infrav1.LibvirtMachine{}, index.MachineHost, index.HostOf).
		WithIndex(&infrav1.LibvirtMachine{}, index.MachineProviderID, index.ProviderIDOf).
		WithStatusSubresource(&infrav1.LibvirtMachine{}, &ipamv1.IPAddressClaim{}, &clusterv1.Machine{}, &clusterv1.Cluster{}).Build()
	t.Cleanup(func() {
		for _, m := range w.managers {
			m.end()
		}
	})
	return w
}

func cmpFormat(infra *infrav1.LibvirtMachine) infrav1.BootstrapFormat {
	if infra.Spec.BootstrapFormat == "" {
		return infrav1.BootstrapFormatCloudConfig
	}
	return infra.Spec.BootstrapFormat
}

// newSpec returns a machine's spec with the defaults of the API server.
func newSpec() infrav1.LibvirtMachineSpec {
	return infrav1.LibvirtMachineSpec{
		CPUs: 2, Memory: resource.MustParse("4Gi"),
		CPU:        infrav1.CPUSpec{Mode: infrav1.CPUModeHostModel, Architecture: infrav1.ArchitectureAmd64},
		Firmware:   infrav1.FirmwareSpec{Type: infrav1.FirmwareUEFI},
		Image:      infrav1.ImageSpec{URL: imageServer().URL + "/image.qcow2", Checksum: checksum(imageContent), Format: infrav1.ImageFormatQCOW2},
		RootDisk:   infrav1.RootDiskSpec{Size: resource.MustParse("20Gi"), Clone: infrav1.CloneOverlay},
		Interfaces: []infrav1.InterfaceSpec{{Network: "default"}},
		Autostart:  ptr.To(true), GuestAgent: ptr.To(true), BootstrapFormat: infrav1.BootstrapFormatCloudConfig,
	}
}

// fixtureCalls are the calls by which the fixture reads the state of a host, as a fleet does.
var fixtureCalls = []fake.Operation{fake.Facts, fake.ListDomains, fake.Connect, fake.Pool, fake.PoolVolumes, fake.PCIDevices}

// manager is a process with a reconciler and an image store.
type manager struct {
	*process
	*Reconciler
	cache *cache
	world *world
	end   func()
}

// newManager starts a process, which is killed after killAt calls, or never if killAt is 0.
func (w *world) newManager(killAt int) *manager {
	w.t.Helper()
	p := &process{killAt: killAt}
	seen := &hosts{process: p, hosts: w.hosts, connecting: &w.connecting, open: map[string]hypervisor.Hypervisor{}}
	between := interceptor.NewClient(w.api, w.functions)
	c := interceptor.NewClient(between, p.intercept())
	options := images.Options{Sources: testSources, FirstRetry: time.Millisecond, LastRetry: 5 * time.Millisecond, CleanUpTimeout: time.Second}
	if w.images != nil {
		options = *w.images
	}
	store := images.New(seen.Hypervisor, func(string) []string { return []string{"default"} },
		options)
	seenLate := &cache{}
	cached := interceptor.NewClient(c, seenLate.intercept())
	scheduler := &placement.Scheduler{Ledger: cmp.Or(w.ledger, &placement.Ledger{}), Client: cached, APIReader: c, Hosts: seen, HostsPatience: w.patience}
	m := &manager{process: p, cache: seenLate, world: w, Reconciler: &Reconciler{Client: cached, APIReader: c, Hosts: seen, Images: store, Scheduler: scheduler, recorder: w.events, InPlaceUpdates: w.inPlace}}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = store.Start(ctx)
	}()
	m.end = sync.OnceFunc(func() {
		p.kill()
		cancel()
		<-ended
		for _, connected := range seen.open {
			_ = connected.Close()
		}
	})
	w.managers = append(w.managers, m)
	return m
}

func (m *manager) reconcile() (ctrl.Result, error) { return m.reconcileObject(key) }

func (m *manager) reconcileObject(machine client.ObjectKey) (ctrl.Result, error) {
	ctx := klog.NewContext(context.Background(), m.world.log.logger())
	return m.Reconcile(ctrl.LoggerInto(ctx, m.world.log.logger()), ctrl.Request{NamespacedName: machine})
}

// infra returns the LibvirtMachine, or nil if it is deleted.
func (w *world) infra() *infrav1.LibvirtMachine {
	infra := &infrav1.LibvirtMachine{}
	err := w.api.Get(context.Background(), key, infra)
	if apierrors.IsNotFound(err) {
		return nil
	}
	w.Expect(err).ToNot(HaveOccurred())
	return infra
}

// volumeName returns the name of a volume of the machine.
func (w *world) volumeName(what string) string {
	return hypervisor.VolumePrefix(w.uuid(), key.Namespace, key.Name) + what
}

func (w *world) uuid() string {
	return strings.TrimPrefix(w.infra().Spec.ProviderID, infrav1.ProviderIDPrefix)
}

// giveAddresses acts as the IPAM provider and as the DHCP server of all hosts.
func (w *world) giveAddresses() {
	w.ipam.run(w)
	infra := w.infra()
	if infra == nil || infra.Spec.HostName == "" || w.silent {
		return
	}
	uuid, host := strings.TrimPrefix(infra.Spec.ProviderID, infrav1.ProviderIDPrefix), w.hosts[infra.Spec.HostName]
	if host.State(uuid) == hypervisor.StateRunning {
		host.SetAddresses(uuid, hypervisor.SourceLease, hypervisor.InterfaceAddress{
			MAC: cmp.Or(w.mac, domainxml.MACAddress(uuid, 0)), Address: netip.MustParseAddr("192.0.2.7")})
	}
}

// until reconciles until the condition is true. A killed manager is replaced by another one, which isn't killed.
func (w *world) until(m *manager, is func() bool) *manager {
	w.t.Helper()
	for deadline := time.Now().Add(patience); !is(); {
		if time.Now().After(deadline) {
			w.t.Fatalf("the condition isn't met: %+v\n%s", w.infra(), w.log)
		}
		if w.everyReconcile != nil {
			w.everyReconcile()
		}
		result, err := m.reconcile()
		w.giveAddresses()
		if m.isDead() {
			m.end()
			killAt := 0
			if w.killNext != nil {
				killAt = w.killNext()
			}
			m = w.newManager(killAt)
			continue
		}
		switch {
		case result.RequeueAfter > 10*time.Second && w.everyReconcile == nil:
			time.Sleep(5 * time.Millisecond) // events would trigger the reconcile sooner
		case err != nil || result.RequeueAfter > 0:
			time.Sleep(200 * time.Microsecond)
		}
	}
	return m
}

func (w *world) isProvisioned() bool {
	infra := w.infra()
	return infra != nil && ptr.Deref(infra.Status.Initialization.Provisioned, false)
}

func (w *world) hasCondition(condition, reason string) func() bool {
	return func() bool {
		infra := w.infra()
		return infra != nil && conditions.Has(infra, condition) && conditions.GetReason(infra, condition) == reason
	}
}

// joinNode sets the node of the Machine, as Cluster API does.
func (w *world) joinNode() {
	machine := &clusterv1.Machine{}
	w.Expect(w.api.Get(context.Background(), key, machine)).To(Succeed())
	machine.Status.NodeRef = clusterv1.MachineNodeReference{Name: key.Name}
	w.Expect(w.api.Status().Update(context.Background(), machine)).To(Succeed())
}

func (w *world) delete() {
	w.Expect(client.IgnoreNotFound(w.api.Delete(context.Background(), &infrav1.LibvirtMachine{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}))).To(Succeed())
}

// deleteOwners deletes the Machine, the Cluster and the LibvirtCluster without waiting.
func (w *world) deleteOwners() {
	for _, object := range []client.Object{&clusterv1.Machine{}, &clusterv1.Cluster{}, &infrav1.LibvirtCluster{}} {
		object.SetNamespace(key.Namespace)
		object.SetName("blue")
		if _, machine := object.(*clusterv1.Machine); machine {
			object.SetName(key.Name)
		}
		w.Expect(client.IgnoreNotFound(w.api.Delete(context.Background(), object))).To(Succeed())
	}
}

// isDeleted reports whether the LibvirtMachine is deleted. A killed manager may have removed the finalizer.
func (w *world) isDeleted() bool { return w.infra() == nil }

// ownerHash matches the part of a volume's name that identifies its owner.
var ownerHash = regexp.MustCompile(`^-[0-9a-f]{16}-`)

// inventory lists the objects on the hosts and the claims, without the random parts of names and without the image.
func (w *world) inventory() []string {
	var left []string
	for name, host := range w.hosts {
		volumes, domains := host.Left()
		for _, ref := range volumes {
			if strings.HasPrefix(ref.Name, "caplv-image-") {
				continue
			}
			what := ref.Name
			if len(what) > 37 && strings.Count(what[:36], "-") == 4 {
				what = "uuid" + ownerHash.ReplaceAllString(what[36:], "-")
			}
			left = append(left, fmt.Sprintf("%s: volume %s", name, what))
		}
		for _, uuid := range domains {
			left = append(left, fmt.Sprintf("%s: domain %s", name, host.State(uuid)))
		}
	}
	for _, claim := range w.claims() {
		left = append(left, "claim "+claim.Name)
	}
	slices.Sort(left)
	return left
}

// output returns all readable output: events, logs, the object, and the XML of domains.
func (w *world) output() string {
	var text strings.Builder
	for len(w.events.Events) > 0 {
		text.WriteString(<-w.events.Events + "\n")
	}
	text.WriteString(w.log.String())
	fmt.Fprintf(&text, "%+v\n", w.infra())
	for _, host := range w.hosts {
		_, domains := host.Left()
		for _, uuid := range domains {
			xml, _ := host.DomainXML(uuid)
			text.WriteString(xml)
		}
	}
	return text.String()
}
