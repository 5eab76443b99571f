package libvirtcluster

import (
	"context"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/loadbalancer"
)

var balancerKey = client.ObjectKey{Namespace: key.Namespace, Name: "blue-lb"}

// balanced is a cluster of type HAProxy. It simulates the controller of its machines and libvirt.
type balanced struct {
	*WithT
	client.WithWatch
	// kill is called before each write. If it returns an error, the write fails with it.
	kill func(done bool) error
}

// newBalanced returns a cluster. endpoint is the endpoint of the Cluster, or "".
func newBalanced(t *testing.T, endpoint string, change func(*infrav1.LibvirtCluster)) *balanced {
	b := &balanced{WithT: NewWithT(t)}
	write := func(do func() error) error {
		if b.kill != nil {
			if err := b.kill(false); err != nil {
				return err
			}
		}
		err := do()
		if err == nil && b.kill != nil {
			err = b.kill(true)
		}
		return err
	}
	b.WithWatch = newClient(b.WithT, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			return write(func() error { return c.Create(ctx, object, options...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			return write(func() error { return c.Delete(ctx, object, options...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			return write(func() error { return c.Patch(ctx, object, patch, options...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, of string, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			return write(func() error { return c.SubResource(of).Patch(ctx, object, patch, options...) })
		},
	}, func(infra *infrav1.LibvirtCluster) {
		infra.UID = "uid-blue"
		infra.Spec.ControlPlaneLoadBalancer = infrav1.ControlPlaneLoadBalancerSpec{Type: infrav1.LoadBalancerHAProxy,
			HAProxy: &infrav1.HAProxySpec{Image: infrav1.ImageSpec{Volume: "haproxy"}, CPUs: 1, Network: "lan",
				RootDisk: infrav1.RootDiskSpec{Size: resource.MustParse("4Gi")}}}
		if change != nil {
			change(infra)
		}
	})
	cluster := &clusterv1.Cluster{}
	b.Expect(b.Get(t.Context(), key, cluster)).To(Succeed())
	cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{}
	if endpoint != "" {
		cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: endpoint, Port: 6443}
	}
	b.Expect(b.Update(t.Context(), cluster)).To(Succeed())
	return b
}

// reconcile reconciles several times, each time with a new manager.
func (b *balanced) reconcile() {
	for range 8 {
		r, _ := newReconciler(b)
		_, err := r.Reconcile(context.Background(), ctrl.Request{NamespacedName: key})
		if b.kill == nil {
			b.Expect(err).ToNot(HaveOccurred())
		}
	}
}

// balancer returns the load balancer, or nil.
func (b *balanced) balancer() *infrav1.LibvirtMachine {
	machine := &infrav1.LibvirtMachine{}
	err := b.Get(context.Background(), balancerKey, machine)
	if apierrors.IsNotFound(err) {
		return nil
	}
	b.Expect(err).ToNot(HaveOccurred())
	return machine
}

func (b *balanced) configuration() loadbalancer.Configuration {
	configuration, err := loadbalancer.Parse(b.balancer().Annotations[infrav1.LoadBalancerConfigurationAnnotation])
	b.Expect(err).ToNot(HaveOccurred())
	return configuration
}

// runs sets the status of a running machine with an address on the host.
func (b *balanced) runs(machine *infrav1.LibvirtMachine, address string) {
	if machine.Spec.HostName == "" {
		machine.Spec.HostName = "host"
		machine.Finalizers = []string{infrav1.MachineFinalizer}
		b.Expect(b.Update(context.Background(), machine)).To(Succeed())
	}
	machine.Status = infrav1.LibvirtMachineStatus{InstanceState: infrav1.InstanceRunning,
		Initialization: infrav1.LibvirtMachineInitializationStatus{Provisioned: ptr.To(true)},
		Addresses:      clusterv1.MachineAddresses{{Type: clusterv1.MachineHostName, Address: machine.Name}, {Type: clusterv1.MachineInternalIP, Address: address}}}
	conditions.Set(machine, metav1.Condition{Type: infrav1.ReadyCondition, Status: metav1.ConditionTrue, Reason: infrav1.ReadyReason})
	b.Expect(b.Update(context.Background(), machine)).To(Succeed())
}

// finishDeletion removes the finalizer of the load balancer, as the machine's controller does.
func (b *balanced) finishDeletion() {
	machine := b.balancer()
	b.Expect(machine.DeletionTimestamp).ToNot(BeNil())
	machine.Finalizers = nil
	b.Expect(b.Update(context.Background(), machine)).To(Succeed())
}

// controlPlane creates a control plane machine with an address.
func (b *balanced) controlPlane(name, address string) *infrav1.LibvirtMachine {
	machine := &infrav1.LibvirtMachine{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: name,
		Labels: map[string]string{clusterv1.ClusterNameLabel: "blue", clusterv1.MachineControlPlaneLabel: ""}}}
	b.Expect(b.Create(context.Background(), machine)).To(Succeed())
	if address != "" {
		b.runs(machine, address)
	}
	return machine
}

func (b *balanced) reason() string {
	return conditions.GetReason(get(b.WithT, b), infrav1.ControlPlaneEndpointReadyCondition)
}

func (b *balanced) message() string {
	return conditions.GetMessage(get(b.WithT, b), infrav1.ControlPlaneEndpointReadyCondition)
}

// TestLifeOfALoadBalancer tests a load balancer from its creation to its deletion: its endpoint by DHCP, changes of the
// control plane machines, and its replacement.
func TestLifeOfALoadBalancer(t *testing.T) {
	b := newBalanced(t, "", nil)
	b.reconcile()
	machine := b.balancer()
	b.Expect(metav1.IsControlledBy(machine, get(b.WithT, b))).To(BeTrue(), "clusterctl move and the garbage collector need the owner")
	b.Expect(machine.Labels).To(And(HaveKeyWithValue(clusterv1.ClusterNameLabel, "blue"), HaveKeyWithValue(infrav1.LoadBalancerLabel, "blue")))
	b.Expect(machine.Spec.Image.Volume).To(Equal("haproxy"))
	b.Expect(machine.Spec.Interfaces[0].Network).To(Equal("lan"))
	b.Expect(machine.Spec.RootDisk.Size.String()).To(Equal("4Gi"))
	mac := machine.Spec.Interfaces[0].MACAddress
	b.Expect(mac).To(And(Not(BeEmpty()), Equal(get(b.WithT, b).Annotations[infrav1.LoadBalancerMACAddressAnnotation])))
	b.Expect(b.reason()).To(Equal(infrav1.LoadBalancerNotRunningReason))
	b.Expect(get(b.WithT, b).Status.Initialization.Provisioned).To(BeNil(), "there is no endpoint")

	b.runs(machine, "192.0.2.50")
	b.reconcile()
	infra := get(b.WithT, b)
	b.Expect(infra.Spec.ControlPlaneEndpoint).To(Equal(clusterv1.APIEndpoint{Host: "192.0.2.50", Port: 6443}))
	b.Expect(infra.Status.Initialization.Provisioned).To(HaveValue(BeTrue()))
	b.Expect(b.reason()).To(Equal(infrav1.ControlPlaneEndpointSetReason))
	b.Expect(b.configuration()).To(And(HaveField("Port", BeEquivalentTo(6443)), HaveField("Servers", BeEmpty()), HaveField("VirtualAddress.IsValid()", false)))

	b.controlPlane("cp-2", "192.0.2.62")
	gone := b.controlPlane("cp-1", "192.0.2.61")
	b.controlPlane("cp-3", "")
	b.reconcile()
	b.Expect(fmt.Sprint(b.configuration().Servers)).To(Equal("[192.0.2.61:6443 192.0.2.62:6443]"))
	before := b.balancer()
	b.reconcile()
	b.Expect(b.balancer()).To(Equal(before), "a reconcile without changes writes nothing")
	b.Expect(b.Delete(t.Context(), gone)).To(Succeed())
	b.reconcile()
	b.Expect(fmt.Sprint(b.configuration().Servers)).To(Equal("[192.0.2.62:6443]"), "it is being deleted")

	b.gone()
	b.reconcile()
	b.Expect(b.reason()).To(Equal(infrav1.LoadBalancerBeingReplacedReason))
	b.Expect(b.balancer().UID).To(Equal(before.UID), "there is only one at a time")
	b.finishDeletion()
	b.reconcile()
	next := b.balancer()
	b.Expect(next.DeletionTimestamp).To(BeNil())
	b.Expect(next.Spec.Interfaces[0].MACAddress).To(Equal(mac), "DHCP gives the same address")
	b.Expect(b.configuration().VirtualAddress.IsValid()).To(BeFalse())
	b.Expect(fmt.Sprint(b.configuration().Servers)).To(Equal("[192.0.2.62:6443]"))
	b.runs(next, "192.0.2.51")
	b.reconcile()
	b.Expect(b.reason()).To(Equal(infrav1.LoadBalancerAddressChangedReason))
	b.Expect(b.message()).To(And(ContainSubstring("192.0.2.51"), ContainSubstring("192.0.2.50"), ContainSubstring(mac)))
	b.Expect(get(b.WithT, b).Spec.ControlPlaneEndpoint.Host).To(Equal("192.0.2.50"))
	b.runs(b.balancer(), "192.0.2.50")
	b.reconcile()
	b.Expect(b.reason()).To(Equal(infrav1.ControlPlaneEndpointSetReason))

	b.endsInOrder()
}

// gone sets the status of a load balancer whose domain is missing.
func (b *balanced) gone() {
	machine := b.balancer()
	machine.Status.InstanceState = infrav1.InstanceNotFound
	b.Expect(b.Update(context.Background(), machine)).To(Succeed())
}

// endsInOrder deletes the LibvirtCluster and checks the order: machines, the load balancer, the LibvirtCluster.
func (b *balanced) endsInOrder() {
	b.Expect(b.Delete(context.Background(), get(b.WithT, b))).To(Succeed())
	b.reconcile()
	b.Expect(b.balancer().DeletionTimestamp).To(BeNil(), "remaining machines may need it")
	list := &infrav1.LibvirtMachineList{}
	b.Expect(b.List(context.Background(), list)).To(Succeed())
	for i := range list.Items {
		if machine := &list.Items[i]; machine.Name != balancerKey.Name {
			machine.Finalizers = nil
			b.Expect(b.Update(context.Background(), machine)).To(Succeed())
			b.Expect(client.IgnoreNotFound(b.Delete(context.Background(), machine))).To(Succeed())
		}
	}
	b.reconcile()
	b.Expect(conditions.GetMessage(get(b.WithT, b), infrav1.ReadyCondition)).To(Equal("Waiting for the load balancer, LibvirtMachine blue-lb, to be deleted"))
	b.finishDeletion()
	b.reconcile()
	b.Expect(b.balancer()).To(BeNil())
	b.Expect(apierrors.IsNotFound(b.Get(context.Background(), key, &infrav1.LibvirtCluster{}))).To(BeTrue())
}

// TestEndpointsOfLoadBalancers checks the configured addresses of the load balancer.
func TestEndpointsOfLoadBalancers(t *testing.T) {
	pool := &ipamv1.IPPoolReference{APIGroup: "ipam.test", Kind: "Pool", Name: "vips"}
	for name, tc := range map[string]struct {
		cluster string
		change  func(*infrav1.LibvirtCluster)
		want    string
	}{
		"set here": {change: func(infra *infrav1.LibvirtCluster) {
			infra.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "192.0.2.9", Port: 443}
		}, want: `{"port":443,"servers":[],"virtualAddress":"192.0.2.9"}`},
		"set on the Cluster": {cluster: "192.0.2.9", want: `{"port":6443,"servers":[],"virtualAddress":"192.0.2.9"}`},
		"a DNS name":         {cluster: "api.example.com", want: `{"port":6443,"servers":[]}`},
		"from a pool":        {change: func(infra *infrav1.LibvirtCluster) { infra.Spec.ControlPlaneLoadBalancer.AddressFromPool = pool }, want: `{"port":6443,"servers":[],"address":"198.51.100.7/24","gateway":"198.51.100.1"}`},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBalanced(t, tc.cluster, tc.change)
			b.reconcile()
			if infra := get(b.WithT, b); infra.Spec.ControlPlaneLoadBalancer.AddressFromPool != nil {
				b.Expect(b.balancer()).To(BeNil(), "it isn't created before its address is known")
				b.Expect(b.reason()).To(Equal(infrav1.WaitingForAddressReason))
				b.give()
				b.reconcile()
			}
			machine := b.balancer()
			b.Expect(machine.Annotations[infrav1.LoadBalancerConfigurationAnnotation]).To(Equal(tc.want))
			b.Expect(machine.Spec.Interfaces[0].MACAddress).To(BeEmpty())
			b.Expect(get(b.WithT, b).Annotations).ToNot(HaveKey(infrav1.LoadBalancerMACAddressAnnotation))
			b.Expect(b.reason()).To(Equal(infrav1.LoadBalancerNotRunningReason), "the endpoint is known and the load balancer doesn't run")
			b.runs(machine, "192.0.2.77")
			b.reconcile()
			b.Expect(b.reason()).To(Equal(infrav1.ControlPlaneEndpointSetReason))

			// An invalid annotation is written again, with the same addresses.
			machine = b.balancer()
			machine.Annotations[infrav1.LoadBalancerConfigurationAnnotation] = "{"
			b.Expect(b.Update(t.Context(), machine)).To(Succeed())
			b.reconcile()
			b.Expect(b.balancer().Annotations[infrav1.LoadBalancerConfigurationAnnotation]).To(Equal(tc.want))
		})
	}
}

// give acts as the IPAM provider.
func (b *balanced) give() {
	claim := &ipamv1.IPAddressClaim{}
	b.Expect(b.Get(context.Background(), client.ObjectKey{Namespace: key.Namespace, Name: "blue-control-plane-endpoint"}, claim)).To(Succeed())
	b.Expect(b.Create(context.Background(), &ipamv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: claim.Name}, Spec: ipamv1.IPAddressSpec{
		ClaimRef: ipamv1.IPAddressClaimReference{Name: claim.Name}, PoolRef: claim.Spec.PoolRef, Address: "198.51.100.7", Prefix: ptr.To[int32](24), Gateway: "198.51.100.1"}})).To(Succeed())
	claim.Status.AddressRef.Name = claim.Name
	b.Expect(b.Status().Update(context.Background(), claim)).To(Succeed())
}

// TestLoadBalancerIsReplaced checks when a load balancer is replaced.
func TestLoadBalancerIsReplaced(t *testing.T) {
	maintenance := func(mode infrav1.MaintenanceMode) func(*infrav1.LibvirtHost) {
		return func(host *infrav1.LibvirtHost) { host.Spec.Maintenance = &infrav1.HostMaintenance{Mode: mode} }
	}
	for name, tc := range map[string]struct {
		host     func(*infrav1.LibvirtHost)
		another  bool
		state    infrav1.InstanceState
		replaced bool
	}{
		"it runs":                             {another: true},
		"shut off, and started by its phases": {another: true, state: infrav1.InstanceShutOff},
		"crashed, and started by its phases":  {another: true, state: infrav1.InstanceCrashed},
		"unknown state":                       {another: true, state: infrav1.InstanceUnknown},
		"its domain is missing":               {state: infrav1.InstanceNotFound, replaced: true},
		"its host is cordoned":                {host: maintenance(infrav1.MaintenanceCordon), another: true},
		"its host is evacuated":               {host: maintenance(infrav1.MaintenanceEvacuate), another: true, replaced: true},
		"evacuated, and no other host":        {host: maintenance(infrav1.MaintenanceEvacuate)},
		"its host is deleted":                 {host: func(host *infrav1.LibvirtHost) { host.Finalizers = []string{infrav1.HostFinalizer} }, another: true, replaced: true},
		"its LibvirtHost is missing":          {host: func(*infrav1.LibvirtHost) {}, another: true},
		"no LibvirtHost exists":               {host: func(*infrav1.LibvirtHost) {}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBalanced(t, "192.0.2.9", nil)
			b.reconcile()
			machine := b.balancer()
			b.runs(machine, "192.0.2.77")
			b.reconcile()
			if tc.host != nil {
				host := &infrav1.LibvirtHost{}
				b.Expect(b.Get(t.Context(), client.ObjectKey{Name: "host"}, host)).To(Succeed())
				tc.host(host)
				b.Expect(b.Update(t.Context(), host)).To(Succeed())
				if host.Spec.Maintenance == nil {
					b.Expect(b.Delete(t.Context(), host)).To(Succeed())
				}
			}
			if tc.another {
				another := newHost("another", "rack")
				b.Expect(b.Create(t.Context(), &another)).To(Succeed())
			}
			if tc.state != "" {
				machine = b.balancer()
				machine.Status.InstanceState = tc.state
				b.Expect(b.Update(t.Context(), machine)).To(Succeed())
			}
			b.reconcile()
			b.Expect(!b.balancer().DeletionTimestamp.IsZero()).To(Equal(tc.replaced))
			if tc.replaced {
				b.Expect(b.reason()).To(Equal(infrav1.LoadBalancerBeingReplacedReason))
			}
		})
	}
}

// TestLoadBalancerWithoutOwner: a removed owner reference of the load balancer is restored. The load balancer is
// deleted with its LibvirtCluster also before that.
func TestLoadBalancerWithoutOwner(t *testing.T) {
	b := newBalanced(t, "192.0.2.9", nil)
	b.reconcile()
	owned := b.balancer()
	b.Expect(owned.OwnerReferences).To(HaveLen(1))
	disown := func() {
		machine := b.balancer()
		machine.OwnerReferences = nil
		b.Expect(b.Update(t.Context(), machine)).To(Succeed())
	}
	disown()
	b.reconcile()
	b.Expect(b.balancer().OwnerReferences).To(Equal(owned.OwnerReferences))
	b.Expect(b.balancer().UID).To(Equal(owned.UID))

	disown()
	b.Expect(b.Delete(t.Context(), get(b.WithT, b))).To(Succeed())
	b.reconcile()
	b.Expect(b.balancer()).To(BeNil())
}

// TestLoadBalancerNameIsTaken: a foreign machine with the load balancer's name isn't changed, also during deletion.
func TestLoadBalancerNameIsTaken(t *testing.T) {
	b := newBalanced(t, "192.0.2.9", nil)
	foreign := &infrav1.LibvirtMachine{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: balancerKey.Name, Labels: map[string]string{infrav1.LoadBalancerLabel: "blue"}}}
	b.Expect(b.Create(t.Context(), foreign)).To(Succeed())
	before := b.balancer()
	b.reconcile()
	b.Expect(b.reason()).To(Equal(infrav1.LoadBalancerNameTakenReason))
	b.Expect(b.Delete(t.Context(), get(b.WithT, b))).To(Succeed())
	b.reconcile()
	b.Expect(apierrors.IsNotFound(b.Get(t.Context(), key, &infrav1.LibvirtCluster{}))).To(BeTrue())
	b.Expect(b.balancer()).To(Equal(before))
}

// TestLoadBalancerKilledAtEachWrite fails each write of a life once, before or after its execution, as if the manager
// were killed there. The end is the same, with one MAC address.
func TestLoadBalancerKilledAtEachWrite(t *testing.T) {
	writes := 0
	life := func(t *testing.T, at int, done bool) {
		b := newBalanced(t, "", nil)
		writes = 0
		b.kill = func(isDone bool) error {
			if isDone == done {
				writes++
				if writes == at {
					return fmt.Errorf("killed at write %d", at)
				}
			}
			return nil
		}
		b.reconcile()
		quiet := func(do func()) { // for writes by the test
			kill := b.kill
			b.kill = nil
			do()
			b.kill = kill
		}
		var mac string
		quiet(func() {
			mac = b.balancer().Spec.Interfaces[0].MACAddress
			b.runs(b.balancer(), "192.0.2.50")
			b.controlPlane("cp-1", "192.0.2.61")
		})
		b.reconcile()
		b.Expect(fmt.Sprint(b.configuration().Servers)).To(Equal("[192.0.2.61:6443]"))
		quiet(b.gone)
		b.reconcile()
		quiet(b.finishDeletion)
		b.reconcile()
		quiet(func() { b.runs(b.balancer(), "192.0.2.50") })
		b.reconcile()
		b.Expect(b.balancer().Spec.Interfaces[0].MACAddress).To(Equal(mac))
		b.Expect(b.reason()).To(Equal(infrav1.ControlPlaneEndpointSetReason))
		b.kill = nil
		b.endsInOrder()
	}
	life(t, 0, false)
	total := writes
	NewWithT(t).Expect(total).To(BeNumerically(">", 8))
	for at := 1; at <= total; at++ {
		for _, done := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d %t", at, done), func(t *testing.T) { life(t, at, done) })
		}
	}
}

func TestBalancerName(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range []string{"blue", "a.b", "a-b", strings.Repeat("x", 60), strings.Repeat("x", 61), strings.Repeat("x", 62), strings.Repeat("x", 253), strings.Repeat("x", 51) + "-." + strings.Repeat("y", 50)} {
		got := balancerName(&infrav1.LibvirtCluster{ObjectMeta: metav1.ObjectMeta{Name: name}})
		NewWithT(t).Expect(validation.IsDNS1123Label(got)).To(BeEmpty(), "the host name %q", got)
		NewWithT(t).Expect(seen[got]).To(BeFalse(), got)
		seen[got] = true
	}
	NewWithT(t).Expect(seen).To(HaveKey("blue-lb"))
}
