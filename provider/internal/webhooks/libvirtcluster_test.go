package webhooks

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

func TestLibvirtClusterDefault(t *testing.T) {
	for name, test := range map[string]struct{ given, want clusterv1.APIEndpoint }{
		"nothing":       {clusterv1.APIEndpoint{}, clusterv1.APIEndpoint{}},
		"a host":        {clusterv1.APIEndpoint{Host: "192.0.2.10"}, clusterv1.APIEndpoint{Host: "192.0.2.10", Port: 6443}},
		"host and port": {clusterv1.APIEndpoint{Host: "192.0.2.10", Port: 443}, clusterv1.APIEndpoint{Host: "192.0.2.10", Port: 443}},
		"a port":        {clusterv1.APIEndpoint{Port: 443}, clusterv1.APIEndpoint{Port: 443}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			cluster := &infrav1.LibvirtCluster{}
			cluster.Spec.ControlPlaneEndpoint = test.given
			g.Expect(LibvirtClusterDefaulter{}.Default(context.Background(), cluster)).To(Succeed())
			g.Expect(cluster.Spec.ControlPlaneEndpoint).To(Equal(test.want))
		})
	}
}

func TestLibvirtCluster(t *testing.T) {
	cluster := &infrav1.LibvirtCluster{ObjectMeta: named("cluster")}
	cluster.Spec.ControlPlaneLoadBalancer.Type = infrav1.LoadBalancerKubeVIP
	host := func(host string) func(*infrav1.LibvirtCluster) {
		return func(c *infrav1.LibvirtCluster) { c.Spec.ControlPlaneEndpoint.Host = host }
	}

	testCreations(t, libvirtClusterValidator(), cluster, []change[*infrav1.LibvirtCluster]{
		{name: "unchanged", change: func(*infrav1.LibvirtCluster) {}},
		{name: "an IPv4 address", change: host("192.0.2.10")},
		{name: "an IPv6 address", change: host("2001:db8::1")},
		{name: "a name", change: host("api.example.com")},
		{name: "a name with digits", change: host("api1.10.example")},
		{name: "an invalid address", change: host("300.1.1.1"), refused: "must be an IP address or a DNS name"},
		{name: "a part of an address", change: host("192.0.2"), refused: "must be an IP address or a DNS name"},
		{name: "a URL", change: host("https://api.example.com"), refused: "must be an IP address or a DNS name in lower case, without scheme and port"},
		{name: "host:port", change: host("192.0.2.10:6443"), refused: "spec.controlPlaneEndpoint.host: Invalid value"},
		{name: "a seed as the load balancer's image", change: func(c *infrav1.LibvirtCluster) {
			c.Spec.ControlPlaneLoadBalancer.HAProxy = &infrav1.HAProxySpec{Image: infrav1.ImageSpec{Volume: "00000000-0000-4000-8000-000000000001-seed"}}
		}, refused: "spec.controlPlaneLoadBalancer.haproxy.image.volume: Invalid value"},
		{name: "an invalid selector", change: func(c *infrav1.LibvirtCluster) {
			c.Spec.HostSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "zone", Operator: "Near"}}}
		}, refused: "spec.hostSelector.matchExpressions[0].operator"},
	})

	testChanges(t, libvirtClusterValidator(), cluster, []change[*infrav1.LibvirtCluster]{
		{name: "the endpoint is set", change: func(c *infrav1.LibvirtCluster) {
			c.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "192.0.2.10", Port: 6443}
		}},
		{name: "another load balancer before there is an endpoint", change: func(c *infrav1.LibvirtCluster) {
			c.Spec.ControlPlaneLoadBalancer.Type = infrav1.LoadBalancerExternal
		}},
	})

	cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "192.0.2.10", Port: 6443}
	testChanges(t, libvirtClusterValidator(), cluster, []change[*infrav1.LibvirtCluster]{
		{name: "another host", change: host("192.0.2.11"), refused: "spec.controlPlaneEndpoint.host: Forbidden: is immutable once set"},
		{name: "no host", change: host(""), refused: "spec.controlPlaneEndpoint.host: Forbidden"},
		{name: "another port", change: func(c *infrav1.LibvirtCluster) { c.Spec.ControlPlaneEndpoint.Port = 443 },
			refused: "spec.controlPlaneEndpoint.port: Forbidden: is immutable once set"},
		{name: "another load balancer", change: func(c *infrav1.LibvirtCluster) { c.Spec.ControlPlaneLoadBalancer.Type = infrav1.LoadBalancerExternal },
			refused: "spec.controlPlaneLoadBalancer.type: Forbidden: is immutable once the control plane endpoint is set: it belongs to KubeVIP"},
		{name: "other hosts", change: func(c *infrav1.LibvirtCluster) {
			c.Spec.HostSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"zone": "a"}}
		}},
	})
}
