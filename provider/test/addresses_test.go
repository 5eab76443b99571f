package test

import (
	"context"
	"net/netip"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// The host whose network has the addresses of pools, and its failure domain, which has no other Ready host: guests are
// bound to the network of their host.
const (
	poolHost   = "host-b1"
	poolDomain = "b"
)

// poolAddress returns an address of the guests' network on poolHost that DHCP doesn't allocate, counted from 0. Each
// cluster has its own.
func (w *world) poolAddress(index int) string {
	address, _ := w.hosts[poolHost].Static()
	for range index {
		address = address.Next()
	}
	return address.String()
}

// addressesLife: the machines of a cluster and its endpoint have addresses from the in-cluster IPAM provider, of both
// families. The IPv4 pool has only two addresses, so that a replacement waits for the address of the machine that it
// replaces.
func addressesLife(ctx context.Context, g *WithT, w *world) {
	c := w.newCluster(ctx, g, "addresses")
	released := c.watchReleases(ctx, g)
	endpoint := c.endpointPool(ctx, g)
	pools := []ipamv1.IPPoolReference{
		c.createPool(ctx, g, "nodes-v4", w.hosts[poolHost].Gateway().String(), 24, w.poolAddress(0), w.poolAddress(1)),
		c.createPool(ctx, g, "nodes-v6", "", 64, "fd00:90:2::10-fd00:90:2::1f"),
	}
	c.apply(ctx, g, changed(g, c.generate(ctx, g, 1), map[string]func(map[string]any){
		"LibvirtCluster": func(spec map[string]any) {
			endpointFromPool(g, endpoint)(spec)
			g.Expect(unstructured.SetNestedField(spec, poolDomain, "hostSelector", "matchLabels", "failure-domain")).To(Succeed())
		},
		"LibvirtMachineTemplate": func(spec map[string]any) {
			nic := map[string]any{"network": "default", "addressesFromPools": []any{reference(pools[0]), reference(pools[1])}}
			g.Expect(unstructured.SetNestedSlice(spec, []any{nic}, "template", "spec", "interfaces")).To(Succeed())
		},
	}), poolDomain)
	c.hasEndpointOf(ctx, g, endpoint)

	d := &deployment{cluster: c, key: client.ObjectKey{Namespace: c.key.Namespace, Name: c.key.Name + "-md-0"}}
	old := d.available(ctx, g, 1)[0]
	controlPlane := c.machines(ctx, g, client.MatchingLabels{clusterv1.MachineControlPlaneLabel: ""})[0]
	first, second := c.hasClaimed(ctx, g, controlPlane, pools...), c.hasClaimed(ctx, g, old, pools...)
	g.Expect([]string{first[0], second[0]}).To(ConsistOf(w.poolAddress(0), w.poolAddress(1)))
	c.inUse(ctx, g, pools[0], 2, 2)
	c.inUse(ctx, g, pools[1], 2, 16)

	g.Expect(c.client.Delete(ctx, &old.machine)).To(Succeed())
	next := old
	eventually(g, func(g Gomega) {
		next = d.availableNow(ctx, g, 1)[0]
		g.Expect(next.machine.Name).ToNot(Equal(old.machine.Name))
	})
	g.Expect(c.hasClaimed(ctx, g, next, pools...)[0]).To(Equal(second[0]))
	g.Expect(c.domainsOf(g, old)).To(BeEmpty())
	c.inUse(ctx, g, pools[0], 2, 2)

	c.delete(ctx, g)
	c.inUse(ctx, g, endpoint, 0, 1)
	c.inUse(ctx, g, pools[0], 0, 2)
	c.inUse(ctx, g, pools[1], 0, 16)
	names := []string{c.key.Name + "-control-plane-endpoint"}
	for _, m := range []machine{controlPlane, old, next} {
		names = append(names, m.infra.Name+"-0-0", m.infra.Name+"-0-1")
	}
	released.stop(g, names...)
}

// hasEndpointOf checks that the cluster's endpoint is the address that it has claimed.
func (c *cluster) hasEndpointOf(ctx context.Context, g *WithT, pool ipamv1.IPPoolReference) {
	var infra infrav1.LibvirtCluster
	g.Expect(c.client.Get(ctx, c.key, &infra)).To(Succeed())
	allocated := c.allocated(ctx, g, c.key.Name+"-control-plane-endpoint", &infra, pool)
	g.Expect(allocated.Address).To(Equal(c.endpoint.String()))
	g.Expect(infra.Spec.ControlPlaneEndpoint.Host).To(Equal(allocated.Address))
	c.inUse(ctx, g, pool, 1, 1)
}

// claimed is the name of a machine of the demo cluster, and of the pool of its address.
const claimed = "claimed"

// demoAddress follows the addresses of addressesLife.
const demoAddress = 8

// createDemo creates the cluster of the sequential scenes. Its endpoint is from a pool, and so is the address of one
// machine, which has no owner except the cluster.
func (w *world) createDemo(ctx context.Context, g *WithT) {
	w.demo = w.newCluster(ctx, g, "demo")
	endpoint := w.demo.endpointPool(ctx, g)
	w.demo.apply(ctx, g, changed(g, w.demo.generate(ctx, g, 3), map[string]func(map[string]any){
		"LibvirtCluster": endpointFromPool(g, endpoint),
	}), "a", "b")
	w.demo.hasEndpointOf(ctx, g, endpoint)
	pool := w.demo.createPool(ctx, g, claimed, w.hosts[poolHost].Gateway().String(), 24, w.poolAddress(demoAddress))
	w.demo.createMachineIn(ctx, g, claimed, poolDomain, func(spec *infrav1.LibvirtMachineSpec) {
		spec.Interfaces[0].AddressesFromPools = []ipamv1.IPPoolReference{pool}
	})
}

// demoClaimed checks that the demo cluster has its addresses from pools, in whichever management cluster it is.
func (w *world) demoClaimed(ctx context.Context, g Gomega) {
	var object clusterv1.Machine
	g.Expect(w.demo.client.Get(ctx, client.ObjectKey{Namespace: w.demo.key.Namespace, Name: claimed}, &object)).To(Succeed())
	pool := ipamv1.IPPoolReference{APIGroup: poolKind.Group, Kind: poolKind.Kind, Name: claimed}
	g.Expect(w.demo.hasClaimed(ctx, g, w.demo.complete(ctx, g, object), pool)).To(Equal([]string{w.poolAddress(demoAddress)}))
	g.Expect(netip.ParseAddr(w.demo.claims(ctx, g)[w.demo.key.Name+"-control-plane-endpoint"][0])).To(Equal(w.demo.endpoint))
}

// demoDeleted: the deleted demo cluster leaves no objects on hosts and no addresses in pools.
func demoDeleted(ctx context.Context, g *WithT, w *world) {
	w.demo.delete(ctx, g)
	for _, name := range []string{claimed, "endpoint"} {
		w.demo.inUse(ctx, g, ipamv1.IPPoolReference{Name: name}, 0, 1)
	}
}
