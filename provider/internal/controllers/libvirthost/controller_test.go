package libvirthost

import (
	"context"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/fleet"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/index"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/placement"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/fake"
)

const (
	soon        = 2 * time.Minute
	machineUUID = "00000000-0000-4000-8000-000000000001"
)

var key = client.ObjectKey{Name: "host"}

// fixture is a LibvirtHost, its host, and a reconciler with a fleet.
type fixture struct {
	*WithT
	t        *testing.T
	client   client.WithWatch
	host     *fake.Host
	recorder *events.FakeRecorder

	*Reconciler

	// connect, if set, opens connections.
	connect fleet.Connect

	lock    sync.Mutex
	targets []fleet.Target
}

func newFixture(t *testing.T, change func(*infrav1.LibvirtHost), objects ...client.Object) *fixture {
	t.Helper()
	f := &fixture{WithT: NewWithT(t), t: t, host: fake.NewHost()}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, clusterv1.AddToScheme, infrav1.AddToScheme} {
		f.Expect(add(scheme)).To(Succeed())
	}
	host := &infrav1.LibvirtHost{ObjectMeta: metav1.ObjectMeta{Name: key.Name, Labels: map[string]string{clusterv1.WatchLabel: "blue"}},
		Spec: infrav1.LibvirtHostSpec{URI: "qemu+tls://host/system",
			StoragePools: infrav1.HostStoragePools{Images: "default", Disks: []string{"default"}},
			Networks:     []infrav1.HostNetwork{{Name: "default", LibvirtNetwork: "default"}, {Name: "lan", Bridge: "br0"}}}}
	if change != nil {
		change(host)
	}
	f.client = fakeclient.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(host).
		WithIndex(&infrav1.LibvirtMachine{}, index.MachineHost, index.HostOf).WithObjects(append(objects, host)...).Build()
	f.restart()
	return f
}

// restart replaces the reconciler and the fleet, as a restart of the manager does.
func (f *fixture) restart() {
	f.recorder = events.NewFakeRecorder(100)
	hosts := fleet.New(func(ctx context.Context, target fleet.Target) (hypervisor.Hypervisor, error) {
		f.lock.Lock()
		f.targets = append(f.targets, target)
		host := f.host
		f.lock.Unlock()
		if f.connect != nil {
			return f.connect(ctx, target)
		}
		return host.Connect(ctx)
	}, fleet.Options{ListInterval: 20 * time.Millisecond, MinBackoff: time.Millisecond, MaxBackoff: 10 * time.Millisecond})
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error)
	go func() { stopped <- hosts.Start(ctx) }()
	f.t.Cleanup(func() {
		cancel()
		f.Eventually(stopped).WithTimeout(soon).Should(Receive(Succeed()))
	})
	f.Reconciler = &Reconciler{Client: f.client, Fleet: hosts, Scheduler: &placement.Scheduler{Ledger: &placement.Ledger{}}, recorder: f.recorder}
}

func (f *fixture) reconcile() ctrl.Result {
	f.t.Helper()
	result, err := f.Reconcile(f.t.Context(), ctrl.Request{NamespacedName: key})
	f.Expect(err).ToNot(HaveOccurred())
	return result
}

func (f *fixture) get() *infrav1.LibvirtHost {
	f.t.Helper()
	host := &infrav1.LibvirtHost{}
	f.Expect(f.client.Get(f.t.Context(), key, host)).To(Succeed())
	return host
}

// eventually reconciles, as events of the fleet would, until a condition has a status and reason. It returns its
// message.
func (f *fixture) eventually(conditionType string, status metav1.ConditionStatus, reason string) string {
	f.t.Helper()
	var message string
	f.Eventually(func(g Gomega) {
		_, err := f.Reconcile(f.t.Context(), ctrl.Request{NamespacedName: key})
		g.Expect(err).ToNot(HaveOccurred())
		condition := conditions.Get(f.get(), conditionType)
		g.Expect(condition).ToNot(BeNil())
		g.Expect([]any{condition.Status, condition.Reason}).To(Equal([]any{status, reason}), condition.Message)
		message = condition.Message
	}).WithTimeout(soon).WithPolling(5 * time.Millisecond).Should(Succeed())
	return message
}

func (f *fixture) eventuallyReady() {
	f.t.Helper()
	f.eventually(infrav1.ReadyCondition, metav1.ConditionTrue, infrav1.ReadyReason)
}

func boundMachine(name string) *infrav1.LibvirtMachine {
	machine := &infrav1.LibvirtMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name},
		Spec: infrav1.LibvirtMachineSpec{HostName: key.Name, ProviderID: infrav1.ProviderIDPrefix + machineUUID, CPUs: 2}}
	machine.Spec.Memory.Set(4 << 30)
	machine.Spec.RootDisk.Size.Set(20 << 30)
	return machine
}

func define(g *WithT, host *fake.Host, uuid string, owner *hypervisor.Owner) {
	metadata := ""
	if owner != nil {
		var err error
		metadata, err = owner.Metadata()
		g.Expect(err).ToNot(HaveOccurred())
	}
	connection, err := host.Connect(context.Background())
	g.Expect(err).ToNot(HaveOccurred())
	defer func() { _ = connection.Close() }()
	g.Expect(connection.DefineDomain(context.Background(), hypervisor.Definition{UUID: uuid, Name: uuid, XML: "<domain><name>" + uuid + "</name><uuid>" + uuid +
		"</uuid><metadata>" + metadata + "</metadata><memory unit='GiB'>8</memory><vcpu>4</vcpu></domain>"})).To(Succeed())
	g.Expect(connection.StartDomain(context.Background(), uuid)).To(Succeed())
}

func TestLifeOfAHost(t *testing.T) {
	f := newFixture(t, nil)
	f.reconcile()
	f.Expect(f.get().Finalizers).To(ConsistOf(infrav1.HostFinalizer))
	f.Expect(f.get().Status).To(BeZero())
	f.reconcile()
	f.Expect(f.get().Status.Conditions).To(HaveExactElements(HaveField("Type", infrav1.PausedCondition)))
	f.eventuallyReady()

	status := f.get().Status
	for _, condition := range []string{infrav1.ReachableCondition, infrav1.PoolsReadyCondition, infrav1.NetworksReadyCondition} {
		f.Expect(conditions.IsTrue(f.get(), condition)).To(BeTrue(), condition)
	}
	f.Expect(*status.Capacity.CPUs).To(BeEquivalentTo(16))
	f.Expect(status.Capacity.Memory.String()).To(Equal("64Gi"))
	f.Expect(status.Capacity.Storage.String()).To(Equal("1Ti"))
	f.Expect(*status.Allocated.CPUs).To(BeZero())
	f.Expect(status.Arch).To(Equal(infrav1.ArchitectureAmd64))
	f.Expect(status.LibvirtVersion).To(Equal("9.0.0"))
	f.Expect(status.Features).To(Equal([]string{"bios", "hugepages-1Gi", "hugepages-2Mi", "kvm", "secure-boot", "tpm", "uefi"}))
	f.Expect(*status.Machines).To(BeZero())
	f.Expect(f.recorder.Events).To(Receive(Equal("Normal Reachable Connected to libvirt 9.0.0")))

	before := f.get()
	f.Expect(f.reconcile()).To(BeZero())
	f.Expect(f.get()).To(Equal(before), "a reconcile without changes writes nothing")

	f.host.SetReachable(false)
	f.Expect(f.eventually(infrav1.ReachableCondition, metav1.ConditionFalse, infrav1.ConnectionFailedReason)).To(ContainSubstring("can't be reached"))
	f.eventually(infrav1.PoolsReadyCondition, metav1.ConditionUnknown, infrav1.HostUnreachableReason)
	f.Expect(f.eventually(infrav1.ReadyCondition, metav1.ConditionFalse, infrav1.NotReadyReason)).To(ContainSubstring("Reachable"))
	f.Expect(f.get().Status.Capacity.Memory.String()).To(Equal("64Gi"), "known values stay")
	f.Expect(f.recorder.Events).To(Receive(HavePrefix("Warning ConnectionFailed ")))
	f.host.SetReachable(true)
	f.eventuallyReady()
	f.Expect(f.recorder.Events).To(Receive(HavePrefix("Normal Reachable ")))
	f.Expect(f.recorder.Events).To(BeEmpty())
}

func TestWhatAHostLacks(t *testing.T) {
	for name, tc := range map[string]struct {
		spec              func(*infrav1.LibvirtHostSpec)
		host              func(*fake.Host)
		condition, reason string
		message           string
	}{
		"a pool": {
			spec:      func(s *infrav1.LibvirtHostSpec) { s.StoragePools.Disks = append(s.StoragePools.Disks, "fast", "big") },
			host:      func(h *fake.Host) { h.SetPool(hypervisor.Pool{Name: "fast"}) },
			condition: infrav1.PoolsReadyCondition, reason: infrav1.PoolsNotReadyReason,
			message: "Storage pool big doesn't exist; Storage pool fast isn't active",
		},
		"a pool of files": {
			spec: func(s *infrav1.LibvirtHostSpec) { s.StoragePools.Disks = append(s.StoragePools.Disks, "lvm") },
			host: func(h *fake.Host) {
				h.SetPool(hypervisor.Pool{Name: "lvm", Active: true, CapacityBytes: 1 << 40, AvailableBytes: 1 << 40, Type: "logical"})
			},
			condition: infrav1.PoolsReadyCondition, reason: infrav1.PoolsNotReadyReason,
			message: "Storage pool lvm is of type logical: use a pool of type dir, fs, netfs",
		},
		"a folder for console logs": {
			spec:      func(s *infrav1.LibvirtHostSpec) { s.ConsoleLogFolder = "/fake/default" },
			condition: infrav1.PoolsReadyCondition, reason: infrav1.PoolsNotReadyReason,
			message: "Storage pool default is in spec.consoleLogFolder, where console logs of guests could make it unusable: choose another folder",
		},
		"the pool for images": {
			spec:      func(s *infrav1.LibvirtHostSpec) { s.StoragePools.Images = "images" },
			condition: infrav1.PoolsReadyCondition, reason: infrav1.PoolsNotReadyReason, message: "Storage pool images doesn't exist",
		},
		"a right": {
			host: func(h *fake.Host) {
				h.Inject(fake.Fault{Operation: fake.PoolVolumes, Effect: fake.Fail, Reason: hypervisor.ErrDenied, Times: -1})
			},
			condition: infrav1.PoolsReadyCondition, reason: infrav1.PoolsNotReadyReason,
			message: "Storage pool default can't be read: listing the volumes of the storage pool default: not allowed",
		},
		"a network": {
			host:      func(h *fake.Host) { h.SetNetwork(hypervisor.Network{Name: "default"}) },
			condition: infrav1.NetworksReadyCondition, reason: infrav1.NetworksNotReadyReason, message: "libvirt network default isn't active",
		},
		"a bridge": {
			spec: func(s *infrav1.LibvirtHostSpec) {
				s.Networks = append(s.Networks, infrav1.HostNetwork{Name: "dmz", Bridge: "br-dmz"}, infrav1.HostNetwork{Name: "public", MacvtapDevice: "eth7"},
					infrav1.HostNetwork{Name: "there", MacvtapDevice: "eth0"})
			},
			condition: infrav1.NetworksReadyCondition, reason: infrav1.NetworksNotReadyReason,
			message: "Network interface br-dmz doesn't exist: it is the bridge of network dmz; Network interface eth7 doesn't exist: it is the macvtap device of network public",
		},
		"a newer libvirt": {
			host: func(h *fake.Host) { h.SetFacts(hypervisor.Facts{LibvirtVersion: "6.0.9"}) },
			spec: func(s *infrav1.LibvirtHostSpec) {
				s.Networks = []infrav1.HostNetwork{{Name: "blue", Bridge: "br0", VLAN: 42}, {Name: "green", Bridge: "br0", Isolated: ptr.To(true)},
					{Name: "red", Bridge: "br0", VLAN: 43, BridgeType: infrav1.BridgeTypeOpenVSwitch, Isolated: ptr.To(false)}}
			},
			condition: infrav1.NetworksReadyCondition, reason: infrav1.NetworksNotReadyReason,
			message: "isolated of network green needs libvirt 6.1.0, and the host has 6.0.9; vlan on a Linux bridge of network blue needs libvirt 11.0.0, and the host has 6.0.9",
		},
		"a filter": {
			spec: func(s *infrav1.LibvirtHostSpec) {
				s.Networks = []infrav1.HostNetwork{{Name: "blue", Bridge: "br0", Filter: &infrav1.NetworkFilter{Name: "tenants"}},
					{Name: "green", Bridge: "br0", Filter: &infrav1.NetworkFilter{Name: "clean-traffic"}}}
			},
			condition: infrav1.NetworksReadyCondition, reason: infrav1.NetworksNotReadyReason,
			message: "Network filter tenants of network blue doesn't exist",
		},
		"filters": {
			host: func(h *fake.Host) {
				h.Inject(fake.Fault{Operation: fake.HasFilter, Effect: fake.Fail, Reason: hypervisor.ErrUnsupported, Times: -1})
			},
			spec: func(s *infrav1.LibvirtHostSpec) {
				s.Networks[0].Filter = &infrav1.NetworkFilter{Name: "clean-traffic"}
			},
			condition: infrav1.NetworksReadyCondition, reason: infrav1.NetworksNotReadyReason,
			message: "Network filter clean-traffic of network default can't be read: looking up the network filter clean-traffic: not supported",
		},
		"a Linux bridge": {
			host: func(h *fake.Host) { h.SetNetwork(hypervisor.Network{Name: "default", Active: true}) },
			spec: func(s *infrav1.LibvirtHostSpec) {
				s.Networks[0].Filter = &infrav1.NetworkFilter{Name: "clean-traffic"}
			},
			condition: infrav1.NetworksReadyCondition, reason: infrav1.NetworksNotReadyReason,
			message: "isolated and filter of network default need a Linux bridge, and libvirt network default isn't on one",
		},
		"maintenance": {
			spec: func(s *infrav1.LibvirtHostSpec) {
				s.Maintenance = &infrav1.HostMaintenance{Mode: infrav1.MaintenanceCordon, Reason: "new disks"}
			},
			condition: infrav1.ReadyCondition, reason: infrav1.InMaintenanceReason, message: "In maintenance (Cordon): new disks",
		},
		"all of it": {
			spec: func(s *infrav1.LibvirtHostSpec) {
				s.Maintenance = &infrav1.HostMaintenance{Mode: infrav1.MaintenanceEvacuate}
			},
			host:      func(h *fake.Host) { h.SetReachable(false) },
			condition: infrav1.ReadyCondition, reason: infrav1.InMaintenanceReason, message: "In maintenance (Evacuate)\n* Reachable: connecting to the host",
		},
		"an identity": {
			spec: func(s *infrav1.LibvirtHostSpec) {
				s.IdentityRef = &infrav1.ClusterIdentityReference{Name: "nobody"}
			},
			condition: infrav1.ReachableCondition, reason: infrav1.IdentityNotFoundReason, message: "LibvirtClusterIdentity nobody doesn't exist",
		},
		"a valid URI": {
			spec:      func(s *infrav1.LibvirtHostSpec) { s.URI = "qemu+tls://host/other" },
			condition: infrav1.ReachableCondition, reason: infrav1.ConnectionFailedReason, message: "reading spec.uri",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, func(host *infrav1.LibvirtHost) {
				if tc.spec != nil {
					tc.spec(&host.Spec)
				}
			})
			if tc.host != nil {
				tc.host(f.host)
			}
			f.Eventually(func() string {
				return f.eventually(tc.condition, metav1.ConditionFalse, tc.reason)
			}).WithTimeout(soon).Should(HavePrefix(tc.message))
			f.Expect(conditions.IsFalse(f.get(), infrav1.ReadyCondition)).To(BeTrue())
		})
	}
}

// TestInterfaces: bridges are created and deleted. If the host can't look up bridges, they count as existing.
func TestInterfaces(t *testing.T) {
	f := newFixture(t, nil)
	f.eventuallyReady()
	f.host.SetInterfaces("lo")
	f.eventually(infrav1.NetworksReadyCondition, metav1.ConditionFalse, infrav1.NetworksNotReadyReason)
	f.Expect(conditions.IsFalse(f.get(), infrav1.ReadyCondition)).To(BeTrue())
	f.host.SetInterfaces("lo", "br0")
	f.eventuallyReady()
	f.Expect(conditions.GetMessage(f.get(), infrav1.NetworksReadyCondition)).To(BeEmpty())

	f.host.SetInterfaces()
	f.Eventually(func() string {
		f.written.Delete(key.Name) // changed messages are written later
		return f.eventually(infrav1.NetworksReadyCondition, metav1.ConditionTrue, infrav1.NetworksReadyReason)
	}).WithTimeout(soon).Should(HavePrefix("Unknown whether the bridge br0 exists: looking up the network interface br0: not supported"))
	f.eventuallyReady()
	f.host.Inject(fake.Fault{Operation: fake.HasInterface, Effect: fake.Fail, Reason: hypervisor.ErrDenied, Times: -1})
	f.Eventually(func() string {
		f.written.Delete(key.Name)
		return f.eventually(infrav1.NetworksReadyCondition, metav1.ConditionTrue, infrav1.NetworksReadyReason)
	}).WithTimeout(soon).Should(ContainSubstring("exists: looking up the network interface br0: not allowed"))
}

// TestNetworksOfTenants: a host that supports the settings of its networks is Ready.
func TestNetworksOfTenants(t *testing.T) {
	f := newFixture(t, func(host *infrav1.LibvirtHost) {
		filter := &infrav1.NetworkFilter{Name: "clean-traffic"}
		host.Spec.Networks = []infrav1.HostNetwork{{Name: "blue", Bridge: "br0", VLAN: 42, MTU: 9000, Isolated: ptr.To(true), Filter: filter},
			{Name: "nat", LibvirtNetwork: "default", Isolated: ptr.To(true), Filter: filter}}
	})
	f.host.SetFacts(hypervisor.Facts{LibvirtVersion: "11.0.0"})
	f.eventuallyReady()
	host := f.get()
	host.Spec.Networks[0].Filter = &infrav1.NetworkFilter{Name: "tenants"}
	f.Expect(f.Client.Update(t.Context(), host)).To(Succeed())
	f.Expect(f.eventually(infrav1.NetworksReadyCondition, metav1.ConditionFalse, infrav1.NetworksNotReadyReason)).To(
		Equal("Network filter tenants of network blue doesn't exist"))
	f.host.SetFilters("clean-traffic", "tenants")
	f.eventuallyReady()
}

// TestCounts: the allocated resources are those of placed machines and of foreign domains. A spec alone isn't counted.
func TestCounts(t *testing.T) {
	other := boundMachine("elsewhere")
	other.Spec.HostName = "another"
	f := newFixture(t, nil, boundMachine("a"), other)
	define(f.WithT, f.host, machineUUID, &hypervisor.Owner{Cluster: "c", Namespace: "team", Name: "a"})
	define(f.WithT, f.host, "00000000-0000-4000-8000-000000000002", nil)
	f.eventuallyReady()
	allocated := f.get().Status.Allocated
	f.Expect(*allocated.CPUs).To(BeEquivalentTo(4+4), "its domain has more than its spec")
	f.Expect(allocated.Memory.String()).To(Equal("16Gi"))
	f.Expect(allocated.Storage.String()).To(Equal("20Gi"))
	f.Expect(*f.get().Status.Machines).To(BeEquivalentTo(1))

	// Changed numbers are written later, and together.
	before := f.get()
	machine := boundMachine("b")
	machine.UID, machine.Spec.ProviderID = "b", infrav1.ProviderIDPrefix+"00000000-0000-4000-8000-000000000003"
	f.Expect(f.client.Create(t.Context(), machine)).To(Succeed())
	f.Expect(f.reconcile().RequeueAfter).To(And(BeNumerically(">", 0), BeNumerically("<=", countInterval)))
	f.Expect(f.get()).To(Equal(before))
	count := func() {
		f.written.Store(key.Name, time.Now().Add(-countInterval))
		f.reconcile()
	}
	count()
	f.Expect(*f.get().Status.Machines).To(BeEquivalentTo(2))
	f.Expect(*f.get().Status.Allocated.CPUs).To(BeEquivalentTo(4+4), "only its spec has the host")
	f.Scheduler.See(placement.Machine{UID: machine.UID, Host: key.Name, Needs: placement.Resources{{Kind: placement.CPU}: 1}})
	count()
	f.Expect(*f.get().Status.Allocated.CPUs).To(BeEquivalentTo(4+4+1), "it was placed, with one CPU")
}

func TestDeletion(t *testing.T) {
	f := newFixture(t, nil, boundMachine("a"))
	f.eventuallyReady()
	f.Expect(f.client.Delete(t.Context(), f.get())).To(Succeed())
	f.Expect(f.eventually(infrav1.ReadyCondition, metav1.ConditionFalse, infrav1.DeletingReason)).
		To(Equal("Waiting for 1 LibvirtMachines that are bound to the host to be deleted: team/a"))
	_, err := f.Fleet.Hypervisor(key.Name)
	f.Expect(err).ToNot(HaveOccurred(), "the machines' domains must be deleted")
	f.restart()
	f.reconcile()
	f.Eventually(func() error { _, err := f.Fleet.Hypervisor(key.Name); return err }).WithTimeout(soon).Should(Succeed())

	f.Expect(f.client.Delete(t.Context(), boundMachine("a"))).To(Succeed())
	f.reconcile()
	f.Expect(apierrors.IsNotFound(f.client.Get(t.Context(), key, &infrav1.LibvirtHost{}))).To(BeTrue())
	_, there := f.Fleet.Snapshot(key.Name)
	f.Expect(there).To(BeFalse())
	f.reconcile() // after the deletion
}

func TestDeletionByForce(t *testing.T) {
	f := newFixture(t, nil)
	f.eventuallyReady()
	host := f.get()
	host.Finalizers = nil
	f.Expect(f.client.Update(t.Context(), host)).To(Succeed())
	f.Expect(f.client.Delete(t.Context(), host)).To(Succeed())
	f.reconcile()
	_, there := f.Fleet.Snapshot(key.Name)
	f.Expect(there).To(BeFalse())
}

// TestCredentials: a host has an identity without a Secret, then one with a Secret, and then another Secret.
func TestCredentials(t *testing.T) {
	identity := &infrav1.LibvirtClusterIdentity{ObjectMeta: metav1.ObjectMeta{Name: "id"},
		Spec: infrav1.LibvirtClusterIdentitySpec{SecretRef: infrav1.SecretReference{Namespace: "system", Name: "secret"}}}
	f := newFixture(t, func(host *infrav1.LibvirtHost) {
		host.Spec.IdentityRef = &infrav1.ClusterIdentityReference{Name: "id"}
	}, identity)
	f.Expect(f.eventually(infrav1.ReachableCondition, metav1.ConditionFalse, infrav1.IdentityNotFoundReason)).
		To(Equal("Secret system/secret of LibvirtClusterIdentity id doesn't exist"))
	f.Expect(f.reconcile().RequeueAfter).To(Equal(secretInterval))

	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "secret"},
		Data: map[string][]byte{"ca.crt": []byte("ca"), "tls.crt": []byte("certificate"), "tls.key": []byte("key"), "other": []byte("x")}}
	f.Expect(f.client.Create(t.Context(), secret)).To(Succeed())
	f.eventuallyReady()
	f.Expect(f.reconcile().RequeueAfter).To(Equal(secretInterval))
	f.Expect(f.targets).To(HaveLen(1))
	f.Expect(string(f.targets[0].Credentials.CACert)).To(Equal("ca"))
	f.Expect(string(f.targets[0].Credentials.Key)).To(Equal("key"))

	secret.Data["tls.key"] = []byte("rotated")
	secret.Data["other"] = nil
	f.Expect(f.client.Update(t.Context(), secret)).To(Succeed())
	f.reconcile()
	f.Eventually(func() int { f.lock.Lock(); defer f.lock.Unlock(); return len(f.targets) }).WithTimeout(soon).Should(Equal(2))
	f.Expect(string(f.targets[1].Credentials.Key)).To(Equal("rotated"))
	f.eventuallyReady()
}

// TestRestart: a new manager writes nothing before the end of the first attempt to connect.
func TestRestart(t *testing.T) {
	f := newFixture(t, nil)
	f.eventuallyReady()
	before := f.get()
	f.host.Inject(fake.Fault{Operation: fake.Connect, Effect: fake.Hang})
	f.restart()
	f.reconcile()
	f.Expect(f.get()).To(Equal(before))
	snapshot, there := f.Fleet.Snapshot(key.Name)
	f.Expect(there).To(BeTrue())
	f.Expect(snapshot.Reachable).To(BeFalse())
}

func TestHostsOfOthersAreLeftAlone(t *testing.T) {
	f := newFixture(t, nil)
	f.WatchFilterValue = "blue"
	f.eventuallyReady()
	f.WatchFilterValue = "green"
	before := f.get()
	f.host.SetReachable(false)
	f.Expect(f.reconcile()).To(BeZero())
	f.Expect(f.get()).To(Equal(before))
	_, there := f.Fleet.Snapshot(key.Name)
	f.Expect(there).To(BeFalse())
}

// TestPaused: nothing of a paused host is written, and its machines continue to work, also after a restart of the
// manager or a rotation of credentials.
func TestPaused(t *testing.T) {
	identity := &infrav1.LibvirtClusterIdentity{ObjectMeta: metav1.ObjectMeta{Name: "id"},
		Spec: infrav1.LibvirtClusterIdentitySpec{SecretRef: infrav1.SecretReference{Namespace: "system", Name: "secret"}}}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "secret"}, Data: map[string][]byte{"tls.key": []byte("1")}}
	f := newFixture(t, func(host *infrav1.LibvirtHost) {
		host.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
		host.Spec.IdentityRef = &infrav1.ClusterIdentityReference{Name: "id"}
	}, identity, secret, boundMachine("a"))
	f.eventually(infrav1.PausedCondition, metav1.ConditionTrue, infrav1.PausedReason)
	before := f.get()
	connected := func(times int) {
		f.t.Helper()
		f.Eventually(func() error { _, err := f.Fleet.Hypervisor(key.Name); return err }).WithTimeout(soon).Should(Succeed())
		f.Eventually(f.dials).WithTimeout(soon).Should(Equal(times))
		f.Expect(f.reconcile()).To(Equal(ctrl.Result{RequeueAfter: secretInterval}))
		f.Expect(f.get()).To(Equal(before))
	}
	f.reconcile()
	connected(1)
	f.restart()
	f.reconcile()
	connected(2)
	secret.Data["tls.key"] = []byte("2")
	f.Expect(f.client.Update(t.Context(), secret)).To(Succeed())
	f.reconcile()
	connected(3)

	f.Expect(f.client.Delete(t.Context(), secret)).To(Succeed())
	f.Expect(f.reconcile()).To(Equal(ctrl.Result{RequeueAfter: secretInterval}))
	_, err := f.Fleet.Hypervisor(key.Name)
	f.Expect(err).ToNot(HaveOccurred(), "a working connection isn't closed")
	secret.ResourceVersion = ""
	f.Expect(f.client.Create(t.Context(), secret)).To(Succeed())
	f.Expect(f.client.Delete(t.Context(), f.get())).To(Succeed())
	before = f.get()
	f.reconcile()
	connected(3)

	host := f.get()
	host.Annotations = nil
	f.Expect(f.client.Update(t.Context(), host)).To(Succeed())
	f.eventually(infrav1.ReadyCondition, metav1.ConditionFalse, infrav1.DeletingReason)
	f.Expect(conditions.IsTrue(f.get(), infrav1.ReachableCondition)).To(BeTrue())
}

// dials returns the number of connections to the host since the test started.
func (f *fixture) dials() int {
	f.lock.Lock()
	defer f.lock.Unlock()
	return len(f.targets)
}

// TestErrorsShow: a failure of the API server is reported for a host without a known state, and doesn't change a known
// state.
func TestErrorsShow(t *testing.T) {
	identity := &infrav1.LibvirtClusterIdentity{ObjectMeta: metav1.ObjectMeta{Name: "id"},
		Spec: infrav1.LibvirtClusterIdentitySpec{SecretRef: infrav1.SecretReference{Namespace: "system", Name: "secret"}}}
	f := newFixture(t, func(host *infrav1.LibvirtHost) {
		host.Spec.IdentityRef = &infrav1.ClusterIdentityReference{Name: "id"}
	}, identity, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "secret"}})
	f.reconcile()
	f.reconcile()
	failing := interceptor.NewClient(f.client, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
		if _, is := object.(*corev1.Secret); is {
			return apierrors.NewTooManyRequestsError("slow down")
		}
		return c.Get(ctx, key, object, options...)
	}})
	f.Client = failing
	const failure = "reading Secret system/secret of LibvirtClusterIdentity id: Too many requests: slow down"
	_, err := f.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
	f.Expect(err).To(MatchError(failure))
	f.Expect(f.get().Status.Conditions).To(ContainElements(
		And(HaveField("Type", infrav1.ReachableCondition), HaveField("Reason", infrav1.InternalErrorReason), HaveField("Message", failure)),
		And(HaveField("Type", infrav1.ReadyCondition), HaveField("Status", metav1.ConditionUnknown))))
	f.Client = f.client
	f.eventuallyReady()
	f.Client = failing
	before := f.get()
	_, err = f.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
	f.Expect(err).To(HaveOccurred())
	f.Expect(f.get()).To(Equal(before))
}
