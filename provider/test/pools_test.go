package test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	utilyaml "sigs.k8s.io/cluster-api/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// poolKind is the kind of pools of the in-cluster IPAM provider.
var poolKind = schema.GroupVersionKind{Group: "ipam.cluster.x-k8s.io", Version: "v1alpha2", Kind: "InClusterIPPool"}

// createPool creates a pool of a cluster, with which it is moved. gateway may be empty.
func (c *cluster) createPool(ctx context.Context, g *WithT, name, gateway string, prefix int64, addresses ...string) ipamv1.IPPoolReference {
	spec := map[string]any{"prefix": prefix}
	if gateway != "" {
		spec["gateway"] = gateway
	}
	g.Expect(unstructured.SetNestedStringSlice(spec, addresses, "addresses")).To(Succeed())
	pool := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	pool.SetGroupVersionKind(poolKind)
	pool.SetNamespace(c.key.Namespace)
	pool.SetName(name)
	pool.SetLabels(map[string]string{clusterv1.ClusterNameLabel: c.key.Name})
	g.Expect(c.client.Create(ctx, pool)).To(Succeed())
	return ipamv1.IPPoolReference{APIGroup: poolKind.Group, Kind: poolKind.Kind, Name: name}
}

// endpointPool creates a pool with only the address of the cluster's API server.
func (c *cluster) endpointPool(ctx context.Context, g *WithT) ipamv1.IPPoolReference {
	return c.createPool(ctx, g, "endpoint", c.Network.Gateway().String(), 16, c.endpoint.String())
}

// inUse waits until a pool of total addresses has allocated used ones.
func (c *cluster) inUse(ctx context.Context, g *WithT, pool ipamv1.IPPoolReference, used, total int64) {
	eventually(g, func(g Gomega) {
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(poolKind)
		g.Expect(c.client.Get(ctx, client.ObjectKey{Namespace: c.key.Namespace, Name: pool.Name}, object)).To(Succeed())
		status, _, err := unstructured.NestedMap(object.Object, "status", "ipAddresses")
		g.Expect(err).ToNot(HaveOccurred())
		g.Expect(status).To(Equal(map[string]any{"total": total, "used": used, "free": total - used, "outOfRange": int64(0)}), pool.Name)
	})
}

// endpointFromPool returns a change that makes a LibvirtCluster without an endpoint claim it.
func endpointFromPool(g *WithT, pool ipamv1.IPPoolReference) func(map[string]any) {
	return func(spec map[string]any) {
		delete(spec, "controlPlaneEndpoint")
		g.Expect(unstructured.SetNestedMap(spec, reference(pool), "controlPlaneLoadBalancer", "addressFromPool")).To(Succeed())
	}
}

func reference(pool ipamv1.IPPoolReference) map[string]any {
	return map[string]any{"apiGroup": pool.APIGroup, "kind": pool.Kind, "name": pool.Name}
}

// changed returns a manifest with changed specs of some kinds.
func changed(g *WithT, manifest string, changes map[string]func(spec map[string]any)) string {
	objects, err := utilyaml.ToUnstructured([]byte(manifest))
	g.Expect(err).ToNot(HaveOccurred())
	found := map[string]bool{}
	for _, object := range objects {
		if change := changes[object.GetKind()]; change != nil {
			found[object.GetKind()] = true
			change(object.Object["spec"].(map[string]any))
		}
	}
	g.Expect(found).To(HaveLen(len(changes)), "the kinds in the manifest")
	out, err := utilyaml.FromUnstructured(objects)
	g.Expect(err).ToNot(HaveOccurred())
	return string(out)
}

// allocated returns the allocated address of a claim, and checks the owner of the claim.
func (c *cluster) allocated(ctx context.Context, g Gomega, name string, owner client.Object, pool ipamv1.IPPoolReference) ipamv1.IPAddressSpec {
	var claim ipamv1.IPAddressClaim
	g.Expect(c.client.Get(ctx, client.ObjectKey{Namespace: c.key.Namespace, Name: name}, &claim)).To(Succeed())
	g.Expect(metav1.IsControlledBy(&claim, owner)).To(BeTrue(), "the controller of the claim %s is %s", name, owner.GetName())
	g.Expect(claim.Spec.PoolRef).To(Equal(pool))
	g.Expect(claim.Status.AddressRef.Name).ToNot(BeEmpty(), name)
	var address ipamv1.IPAddress
	g.Expect(c.client.Get(ctx, client.ObjectKey{Namespace: c.key.Namespace, Name: claim.Status.AddressRef.Name}, &address)).To(Succeed())
	g.Expect(address.Spec.ClaimRef.Name).To(Equal(name))
	g.Expect(address.Spec.Prefix).ToNot(BeNil())
	return address.Spec
}

// hasClaimed checks that a machine has only the addresses that were claimed from the pools of its interface, and that
// its guest uses them. It returns them.
func (c *cluster) hasClaimed(ctx context.Context, g Gomega, m machine, pools ...ipamv1.IPPoolReference) []string {
	var plain, withNetwork, internal []string
	for i, pool := range pools {
		allocated := c.allocated(ctx, g, fmt.Sprintf("%s-0-%d", m.infra.Name, i), &m.infra, pool)
		plain = append(plain, allocated.Address)
		withNetwork = append(withNetwork, fmt.Sprintf("%s/%d", allocated.Address, *allocated.Prefix))
	}
	for _, address := range m.machine.Status.Addresses {
		if address.Type == clusterv1.MachineInternalIP {
			internal = append(internal, address.Address)
		}
	}
	g.Expect(internal).To(ConsistOf(plain), "the addresses of Machine %s", m.machine.Name)
	g.Expect(m.infra.Status.Conditions).To(ContainElement(isCondition(infrav1.AddressesReadyCondition, "True")), m.machine.Name)
	g.Expect(m.report.Addresses).To(ConsistOf(withNetwork), "the addresses of the guest of %s", m.machine.Name)
	g.Expect(m.report.From).To(Equal(plain[0]), "the address from which the guest of %s reports", m.machine.Name)
	leases, err := c.hosts[m.infra.Spec.HostName].Leases()
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(leases).ToNot(HaveKey(m.report.MACAddress), "a lease of %s, which has no DHCP", m.machine.Name)
	return plain
}

// claims returns the claims of the cluster by name: the allocated address, the pool, and the owner.
func (c *cluster) claims(ctx context.Context, g Gomega) map[string][]string {
	var list ipamv1.IPAddressClaimList
	g.Expect(c.client.List(ctx, &list, client.InNamespace(c.key.Namespace))).To(Succeed())
	found := map[string][]string{}
	for _, claim := range list.Items {
		owner := metav1.GetControllerOf(&claim)
		g.Expect(owner).ToNot(BeNil(), claim.Name)
		var address ipamv1.IPAddress
		g.Expect(claim.Status.AddressRef.Name).ToNot(BeEmpty(), claim.Name)
		g.Expect(c.client.Get(ctx, client.ObjectKey{Namespace: c.key.Namespace, Name: claim.Status.AddressRef.Name}, &address)).To(Succeed())
		found[claim.Name] = []string{address.Spec.Address, claim.Spec.PoolRef.Name, owner.Kind, owner.Name}
	}
	return found
}

// releases records the claims of a cluster that are released during a watch.
type releases struct {
	cluster  *cluster
	watching watch.Interface
	ended    chan struct{}

	mutex sync.Mutex
	// names are the names of the released claims, and early describes the ones that were released too early.
	names, early []string
	// stopped is true when the watch may end, also with an error.
	stopped bool
}

// watchReleases watches the cluster's claims until stop.
func (c *cluster) watchReleases(ctx context.Context, g *WithT) *releases {
	watcher, err := client.NewWithWatch(c.ControlPlane.Config, client.Options{Scheme: c.Client.Scheme()})
	g.Expect(err).ToNot(HaveOccurred())
	r := &releases{cluster: c, ended: make(chan struct{})}
	r.watching, err = watcher.Watch(ctx, &ipamv1.IPAddressClaimList{}, client.InNamespace(c.key.Namespace))
	g.Expect(err).ToNot(HaveOccurred())
	go func() {
		defer close(r.ended)
		for event := range r.watching.ResultChan() {
			r.see(event)
		}
	}()
	return r
}

func (r *releases) see(event watch.Event) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	claim, is := event.Object.(*ipamv1.IPAddressClaim)
	if !is {
		if !r.stopped {
			r.early = append(r.early, fmt.Sprintf("watching claims: %v", event.Object))
		}
		return
	}
	if deleted := event.Type == watch.Deleted || !claim.DeletionTimestamp.IsZero(); deleted && !slices.Contains(r.names, claim.Name) {
		r.names = append(r.names, claim.Name)
		r.early = append(r.early, r.users(claim)...)
	}
}

// users returns the domains that may use the address of a claim: the domain of the machine that owns it, or all domains
// of a cluster that owns it.
func (r *releases) users(claim *ipamv1.IPAddressClaim) (found []string) {
	prefix := r.cluster.key.Namespace + "."
	if owner := metav1.GetControllerOf(claim); owner != nil && owner.Kind == "LibvirtMachine" {
		prefix += owner.Name + "."
	}
	for name, host := range r.cluster.hosts {
		domains, err := host.Domains()
		if err != nil {
			found = append(found, err.Error())
		}
		for _, domain := range domains {
			if strings.HasPrefix(domain.Name, prefix) {
				found = append(found, fmt.Sprintf("%s is released, and %s has the domain %s", claim.Name, name, domain.Name))
			}
		}
	}
	return found
}

// stop waits until the named claims have been released, no others, and each of them after its last user was deleted.
func (r *releases) stop(g *WithT, names ...string) {
	eventually(g, func(g Gomega) {
		r.mutex.Lock()
		defer r.mutex.Unlock()
		g.Expect(r.names).To(ConsistOf(names))
		r.stopped = true
	})
	r.watching.Stop()
	<-r.ended
	g.Expect(r.early).To(BeEmpty())
	g.Expect(r.names).To(ConsistOf(names))
}
