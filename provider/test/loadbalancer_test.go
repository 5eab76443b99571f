package test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"
	"github.com/google/uuid"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterctl-release/clusterctl-release/internal/testbed"
	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// balanced is a cluster with a load balancer.
type balanced struct {
	*cluster
	balancer client.ObjectKey
	// endpoint is the address of the API server, and users is the HTTP client of its users.
	endpoint string
	users    *http.Client
}

// balancerLife: a cluster has a virtual machine with HAProxy, whose address by DHCP is the endpoint. It leads users to
// the existing control plane machines only, also after its domain was lost. The guests are on one host, whose network
// allocates their addresses.
func balancerLife(ctx context.Context, g *WithT, w *world) {
	b := &balanced{cluster: w.newCluster(ctx, g, "balanced")}
	b.createBalanced(ctx, g)
	b.balancer = client.ObjectKey{Namespace: b.key.Namespace, Name: b.key.Name + "-lb"}
	b.users = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true, // HAProxy chooses a server for each connection
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
	}}
	first := b.runs(ctx, g)
	b.endpoint = net.JoinHostPort(first.Status.Addresses[1].Address, "6443")
	eventually(g, func(g Gomega) {
		var object clusterv1.Cluster
		g.Expect(b.client.Get(ctx, b.key, &object)).To(Succeed())
		g.Expect(object.Status.Initialization.InfrastructureProvisioned).To(HaveValue(BeTrue()))
		g.Expect(object.Spec.ControlPlaneEndpoint.String()).To(Equal(b.endpoint))
	})

	one := b.addServer(ctx, g, "one")
	b.reaches(ctx, g, one)
	two := b.addServer(ctx, g, "two")
	b.reaches(ctx, g, one, two)
	g.Expect(b.client.Delete(ctx, &one.machine)).To(Succeed())
	b.reaches(ctx, g, two)

	b.lose(g, first)
	var second infrav1.LibvirtMachine
	eventually(g, func(g Gomega) {
		g.Expect(b.client.Get(ctx, b.balancer, &second)).To(Succeed())
		g.Expect(second.UID).ToNot(Equal(first.UID))
	})
	second = b.runs(ctx, g)
	g.Expect(second.Spec.Interfaces).To(Equal(first.Spec.Interfaces), "with the same MAC address")
	g.Expect(second.Status.Addresses[1]).To(Equal(first.Status.Addresses[1]), "with the same address from DHCP")
	b.reaches(ctx, g, two)
	b.delete(ctx, g)
}

// createBalanced creates a cluster with a load balancer only.
func (c *cluster) createBalanced(ctx context.Context, g *WithT) {
	variables, err := testbed.GuestVariables()
	g.Expect(err).ToNot(HaveOccurred())
	meta := metav1.ObjectMeta{Namespace: c.key.Namespace, Name: c.key.Name}
	infra := &infrav1.LibvirtCluster{ObjectMeta: meta, Spec: infrav1.LibvirtClusterSpec{
		HostSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"failure-domain": poolDomain}},
		ControlPlaneLoadBalancer: infrav1.ControlPlaneLoadBalancerSpec{Type: infrav1.LoadBalancerHAProxy, HAProxy: &infrav1.HAProxySpec{
			Image:  infrav1.ImageSpec{URL: variables["LIBVIRT_HAPROXY_IMAGE_URL"], Checksum: variables["LIBVIRT_HAPROXY_IMAGE_CHECKSUM"]},
			Memory: resource.MustParse("256Mi"), RootDisk: infrav1.RootDiskSpec{Size: resource.MustParse("1Gi")},
		}},
	}}
	g.Expect(c.client.Create(ctx, infra)).To(Succeed())
	object := &clusterv1.Cluster{ObjectMeta: meta}
	object.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "LibvirtCluster", Name: c.key.Name}
	g.Expect(c.client.Create(ctx, object)).To(Succeed())
}

// runs waits until the load balancer's guest has reported and its host has its configuration.
func (b *balanced) runs(ctx context.Context, g *WithT) (balancer infrav1.LibvirtMachine) {
	eventually(g, func(g Gomega) {
		g.Expect(b.client.Get(ctx, b.balancer, &balancer)).To(Succeed())
		g.Expect(balancer.Status.Conditions).To(ContainElement(isCondition(infrav1.LoadBalancerConfiguredCondition, "True")))
		reports, _ := b.hosts[balancer.Spec.HostName].Reports()
		g.Expect(reports).To(ContainElement(HaveField("MetaData.InstanceID", uuidOf(balancer.Spec.ProviderID))))
		g.Expect(balancer.Status.Addresses).To(ContainElement(HaveField("Type", clusterv1.MachineInternalIP)))
	})
	b.guests[uuidOf(balancer.Spec.ProviderID)] = deletedGuest{host: balancer.Spec.HostName, mac: balancer.Spec.Interfaces[0].MACAddress}
	return balancer
}

// addServer creates a control plane machine with the labels of a control plane provider, and waits for it.
func (b *balanced) addServer(ctx context.Context, g *WithT, name string) machine {
	b.createMachine(ctx, g, name, func(*infrav1.LibvirtMachineSpec) {})
	key := client.ObjectKey{Namespace: b.key.Namespace, Name: name}
	label := func(object client.Object) {
		labels := object.GetLabels()
		labels[clusterv1.MachineControlPlaneLabel] = ""
		object.SetLabels(labels)
	}
	patch(ctx, g, b.client, key, &clusterv1.Machine{}, func(m *clusterv1.Machine) { label(m) })
	patch(ctx, g, b.client, key, &infrav1.LibvirtMachine{}, func(m *infrav1.LibvirtMachine) { label(m) })
	return b.started(ctx, g, name)
}

// reaches waits until the endpoint leads to each of the machines, and to no other one.
func (b *balanced) reaches(ctx context.Context, g *WithT, machines ...machine) {
	want := map[string]bool{}
	for _, m := range machines {
		want[m.uuid()] = true
	}
	eventually(g, func(g Gomega) {
		got := map[string]bool{}
		for range 4 * len(machines) {
			answer, err := b.ask(ctx)
			g.Expect(err).ToNot(HaveOccurred())
			got[answer] = true
		}
		g.Expect(got).To(Equal(want))
	})
}

// ask returns the instance ID of the API server that answers at the endpoint.
func (b *balanced) ask(ctx context.Context) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("https://%s/", b.endpoint), nil)
	if err != nil {
		return "", err
	}
	response, err := b.users.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	return string(content), err
}

// lose deletes a machine's domain without the provider.
func (b *balanced) lose(g *WithT, lost infrav1.LibvirtMachine) {
	id, err := uuid.Parse(uuidOf(lost.Spec.ProviderID))
	g.Expect(err).ToNot(HaveOccurred())
	b.connected(g, lost.Spec.HostName, func(connection *golibvirt.Libvirt) error {
		domain, err := connection.DomainLookupByUUID(golibvirt.UUID(id))
		if err != nil {
			return err
		}
		if err := connection.DomainDestroy(domain); err != nil {
			return err
		}
		return connection.DomainUndefineFlags(domain, golibvirt.DomainUndefineNvram)
	})
}
