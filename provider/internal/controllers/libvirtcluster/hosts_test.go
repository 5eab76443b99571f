package libvirtcluster

import (
	"errors"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/access"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/claims"
)

// newHost returns a host that is Ready, in a failure domain, with the label rack of the same value.
func newHost(name, domain string, changes ...func(*infrav1.LibvirtHost)) infrav1.LibvirtHost {
	host := infrav1.LibvirtHost{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"rack": domain}},
		Spec:       infrav1.LibvirtHostSpec{URI: "test:///default", FailureDomain: domain},
	}
	host.SetConditions([]metav1.Condition{{Type: infrav1.ReadyCondition, Status: metav1.ConditionTrue, Reason: infrav1.ReadyReason}})
	for _, change := range changes {
		change(&host)
	}
	return host
}

func notReady(host *infrav1.LibvirtHost)  { host.Status.Conditions[0].Status = metav1.ConditionFalse }
func cordoned(host *infrav1.LibvirtHost)  { host.Spec.Maintenance = &infrav1.HostMaintenance{} }
func forbidden(host *infrav1.LibvirtHost) { identified(host, "foreign") }
func permitted(host *infrav1.LibvirtHost) { identified(host, "ours") }

func identified(host *infrav1.LibvirtHost, name string) {
	host.Spec.IdentityRef = &infrav1.ClusterIdentityReference{Name: name}
}

func TestHosts(t *testing.T) {
	gone := func(host *infrav1.LibvirtHost) {
		now := metav1.Now()
		host.DeletionTimestamp = &now
	}
	for _, tc := range []struct {
		name     string
		hosts    []infrav1.LibvirtHost
		selector *metav1.LabelSelector
		foreign  *infrav1.AllowedNamespaces
		before   []clusterv1.FailureDomain
		domains  []string
		reason   string
		message  string
	}{
		{name: "no host", reason: infrav1.NoHostsSelectedReason, message: "No LibvirtHost exists"},
		{name: "two in one failure domain, sorted", reason: infrav1.HostsAvailableReason, domains: []string{"a", "b"},
			hosts: []infrav1.LibvirtHost{newHost("1", "b"), newHost("2", "a"), newHost("3", "b")}},
		{name: "the failure domain is the name", reason: infrav1.HostsAvailableReason, domains: []string{"h"}, hosts: []infrav1.LibvirtHost{newHost("h", "")}},
		{name: "selected", reason: infrav1.HostsAvailableReason, domains: []string{"b"}, hosts: []infrav1.LibvirtHost{newHost("1", "b"), newHost("2", "a")},
			selector: &metav1.LabelSelector{MatchLabels: map[string]string{"rack": "b"}}},
		{name: "none selected", reason: infrav1.NoHostsSelectedReason, message: "spec.hostSelector selects no LibvirtHost that namespace team may use",
			hosts:    []infrav1.LibvirtHost{newHost("1", "b"), newHost("2", "a")},
			selector: &metav1.LabelSelector{MatchLabels: map[string]string{"rack": "c"}}},
		{name: "none allowed", reason: infrav1.NamespaceNotAllowedReason, message: access.NotAllowed("team"),
			hosts: []infrav1.LibvirtHost{newHost("1", "a", forbidden)}},
		{name: "only hosts that aren't selected are allowed", reason: infrav1.NamespaceNotAllowedReason, message: access.NotAllowed("team"),
			hosts:    []infrav1.LibvirtHost{newHost("1", "a", forbidden), newHost("2", "b", permitted), newHost("3", "b")},
			selector: &metav1.LabelSelector{MatchLabels: map[string]string{"rack": "a"}}},
		{name: "another identity has an invalid selector", reason: infrav1.HostsAvailableReason, domains: []string{"b"},
			foreign: &infrav1.AllowedNamespaces{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a b": "c"}}},
			hosts:   []infrav1.LibvirtHost{newHost("1", "a", forbidden), newHost("2", "b", permitted)}},
		{name: "not ready, and hosts that aren't allowed aren't named", reason: infrav1.NoHostsReadyReason,
			message: "These hosts aren't Ready, or are in maintenance: 2", hosts: []infrav1.LibvirtHost{newHost("1", "a", forbidden), newHost("2", "b", permitted, notReady)}},
		{name: "one allowed", reason: infrav1.HostsAvailableReason, domains: []string{"b"},
			hosts: []infrav1.LibvirtHost{newHost("1", "a", forbidden), newHost("2", "b", permitted)}},
		{name: "never ready: its failure domain isn't offered", reason: infrav1.HostsAvailableReason, domains: []string{"b"},
			hosts: []infrav1.LibvirtHost{newHost("1", "a", notReady), newHost("2", "b"), newHost("3", "b", notReady)}},
		{name: "another host of the domain is ready", reason: infrav1.HostsAvailableReason, domains: []string{"a"},
			hosts: []infrav1.LibvirtHost{newHost("1", "a", notReady), newHost("2", "a")}},
		{name: "no longer ready: its failure domain stays", reason: infrav1.HostsAvailableReason, domains: []string{"a", "b"},
			before: []clusterv1.FailureDomain{{Name: "a"}, {Name: "gone"}}, hosts: []infrav1.LibvirtHost{newHost("1", "a", notReady), newHost("2", "b")}},
		{name: "none ready any more: its failure domain stays", reason: infrav1.NoHostsReadyReason, domains: []string{"a"},
			before: []clusterv1.FailureDomain{{Name: "a"}}, message: "These hosts aren't Ready, or are in maintenance: 1", hosts: []infrav1.LibvirtHost{newHost("1", "a", notReady)}},
		{name: "in maintenance: its failure domain is removed", reason: infrav1.HostsAvailableReason, domains: []string{"b"},
			hosts: []infrav1.LibvirtHost{newHost("1", "a", cordoned), newHost("2", "b"), newHost("3", "b", cordoned)}},
		{name: "all in maintenance", reason: infrav1.NoHostsReadyReason, message: "These hosts aren't Ready, or are in maintenance: 1",
			hosts: []infrav1.LibvirtHost{newHost("1", "a", cordoned)}},
		{name: "being deleted", reason: infrav1.NoHostsSelectedReason, message: "spec.hostSelector selects no LibvirtHost that namespace team may use",
			hosts: []infrav1.LibvirtHost{newHost("1", "a", gone)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := NewWithT(t)
			infra := &infrav1.LibvirtCluster{Spec: infrav1.LibvirtClusterSpec{HostSelector: tc.selector}}
			identities := []infrav1.LibvirtClusterIdentity{
				{ObjectMeta: metav1.ObjectMeta{Name: "foreign"}, Spec: infrav1.LibvirtClusterIdentitySpec{AllowedNamespaces: tc.foreign}},
				{ObjectMeta: metav1.ObjectMeta{Name: "ours"}, Spec: infrav1.LibvirtClusterIdentitySpec{AllowedNamespaces: &infrav1.AllowedNamespaces{List: []string{"team"}}}},
			}
			sorted, err := hostsOf(infra, tc.hosts, identities, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}})
			g.Expect(err).ToNot(HaveOccurred())
			domains := sorted.failureDomains(tc.before)
			var names []string
			for _, domain := range domains {
				names = append(names, domain.Name)
				g.Expect(*domain.ControlPlane).To(BeTrue())
			}
			g.Expect(names).To(Equal(tc.domains))

			condition := sorted.condition("team", len(domains))
			g.Expect(condition.Reason).To(Equal(tc.reason))
			g.Expect(condition.Message).To(Equal(tc.message))
			g.Expect(condition.Status == metav1.ConditionTrue).To(Equal(tc.reason == infrav1.HostsAvailableReason))
		})
	}
}

// TestFailureDomainsStay: a failure domain is offered when one of its hosts is Ready, and stays when the host isn't
// Ready any more, also after a restart.
func TestFailureDomainsStay(t *testing.T) {
	g := NewWithT(t)
	c := newClient(g, interceptor.Funcs{}, func(*infrav1.LibvirtCluster) {})
	never, ready := newHost("never", "other", notReady), &infrav1.LibvirtHost{}
	g.Expect(c.Create(t.Context(), &never)).To(Succeed())
	reconcile := func() {
		for range 4 {
			r, _ := newReconciler(c)
			_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
			g.Expect(err).ToNot(HaveOccurred())
		}
		g.Expect(get(g, c).Status.FailureDomains).To(HaveExactElements(HaveField("Name", "rack")))
	}
	reconcile()
	g.Expect(c.Get(t.Context(), client.ObjectKey{Name: "host"}, ready)).To(Succeed())
	notReady(ready)
	g.Expect(c.Update(t.Context(), ready)).To(Succeed())
	reconcile()
}

func TestManyHosts(t *testing.T) {
	g := NewWithT(t)
	var all []infrav1.LibvirtHost
	for i := range 120 {
		all = append(all, newHost(fmt.Sprintf("host-%03d", i), ""))
	}
	sorted, err := hostsOf(&infrav1.LibvirtCluster{}, all, nil, &corev1.Namespace{})
	g.Expect(err).ToNot(HaveOccurred())
	domains := sorted.failureDomains(nil)
	g.Expect(sorted.condition("team", len(domains)).Message).To(Equal("Of 120 failure domains, status.failureDomains lists the first 100 by name"))
	sorted.ready = nil
	g.Expect(sorted.condition("team", 0).Message).To(HaveSuffix("host-009, and 110 more"))
}

func TestEndpointCondition(t *testing.T) {
	here, there := clusterv1.APIEndpoint{Host: "192.0.2.10", Port: 6443}, clusterv1.APIEndpoint{Host: "192.0.2.11", Port: 6443}
	for _, tc := range []struct {
		name           string
		own, ofCluster clusterv1.APIEndpoint
		noAddress      error
		loadBalancer   infrav1.ControlPlaneLoadBalancerType
		reason         string
	}{
		{name: "own", own: here, reason: infrav1.ControlPlaneEndpointSetReason},
		{name: "own, external", own: here, loadBalancer: infrav1.LoadBalancerExternal, reason: infrav1.ControlPlaneEndpointSetReason},
		{name: "both the same", own: here, ofCluster: here, reason: infrav1.ControlPlaneEndpointSetReason},
		{name: "both, different", own: here, ofCluster: there, reason: infrav1.ControlPlaneEndpointMismatchReason},
		{name: "another port", own: clusterv1.APIEndpoint{Port: 443}, ofCluster: there, reason: infrav1.ControlPlaneEndpointMismatchReason},
		{name: "none", reason: infrav1.WaitingForControlPlaneEndpointReason},
		{name: "only a port", own: clusterv1.APIEndpoint{Port: 443}, reason: infrav1.WaitingForControlPlaneEndpointReason},
		{name: "the address isn't allocated yet", noAddress: &claims.NotGivenError{}, reason: infrav1.WaitingForAddressReason},
		{name: "a pool is exhausted", noAddress: &claims.NotGivenError{Failed: true}, reason: infrav1.AddressClaimFailedReason},
		{name: "a claim is refused", noAddress: errors.New("forbidden"), reason: infrav1.AddressClaimFailedReason},
		{name: "haproxy", own: here, loadBalancer: infrav1.LoadBalancerHAProxy, reason: infrav1.ControlPlaneEndpointSetReason},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := NewWithT(t)
			spec := &infrav1.LibvirtClusterSpec{ControlPlaneEndpoint: tc.own}
			spec.ControlPlaneLoadBalancer.Type = tc.loadBalancer
			condition := endpointCondition(spec, tc.ofCluster, tc.noAddress)
			g.Expect(condition.Reason).To(Equal(tc.reason), condition.Message)
			g.Expect(condition.Status == metav1.ConditionTrue).To(Equal(tc.reason == infrav1.ControlPlaneEndpointSetReason))
		})
	}
}
