package access_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/access"
)

func TestHost(t *testing.T) {
	green, unreadable := &metav1.LabelSelector{MatchLabels: map[string]string{"team": "green"}}, &metav1.LabelSelector{MatchLabels: map[string]string{"a b": "c"}}
	for _, tc := range []struct {
		name    string
		ref     string
		allowed *infrav1.AllowedNamespaces
		want    bool
	}{
		{name: "without identity", want: true},
		{name: "identity doesn't exist", ref: "other", allowed: &infrav1.AllowedNamespaces{}},
		{name: "no allowedNamespaces", ref: "fleet"},
		{name: "empty", ref: "fleet", allowed: &infrav1.AllowedNamespaces{}, want: true},
		{name: "listed", ref: "fleet", allowed: &infrav1.AllowedNamespaces{List: []string{"a", "green-1"}}, want: true},
		{name: "not listed", ref: "fleet", allowed: &infrav1.AllowedNamespaces{List: []string{"green"}}},
		{name: "selected", ref: "fleet", allowed: &infrav1.AllowedNamespaces{Selector: green}, want: true},
		{name: "not listed and selected", ref: "fleet", allowed: &infrav1.AllowedNamespaces{List: []string{"a"}, Selector: green}, want: true},
		{name: "not selected", ref: "fleet", allowed: &infrav1.AllowedNamespaces{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "red"}}}},
		{name: "invalid selector", ref: "fleet", allowed: &infrav1.AllowedNamespaces{Selector: unreadable}},
		{name: "listed, with an invalid selector", ref: "fleet", allowed: &infrav1.AllowedNamespaces{List: []string{"green-1"}, Selector: unreadable}, want: true},
		{name: "empty selector", ref: "fleet", allowed: &infrav1.AllowedNamespaces{Selector: &metav1.LabelSelector{}}, want: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := NewWithT(t)
			host := &infrav1.LibvirtHost{}
			if tc.ref != "" {
				host.Spec.IdentityRef = &infrav1.ClusterIdentityReference{Name: tc.ref}
			}
			identities := []infrav1.LibvirtClusterIdentity{{ObjectMeta: metav1.ObjectMeta{Name: "fleet"},
				Spec: infrav1.LibvirtClusterIdentitySpec{AllowedNamespaces: tc.allowed}}}
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "green-1", Labels: map[string]string{"team": "green"}}}
			g.Expect(access.Host(host, identities, namespace)).To(Equal(tc.want))
		})
	}
}

func TestNetworks(t *testing.T) {
	g := NewWithT(t)
	host := &infrav1.LibvirtHost{Spec: infrav1.LibvirtHostSpec{Networks: []infrav1.HostNetwork{
		{Name: "all"}, {Name: "any", AllowedNamespaces: &infrav1.AllowedNamespaces{}},
		{Name: "listed", AllowedNamespaces: &infrav1.AllowedNamespaces{List: []string{"green-1"}}},
		{Name: "not-listed", AllowedNamespaces: &infrav1.AllowedNamespaces{List: []string{"green"}}},
		{Name: "selected", AllowedNamespaces: &infrav1.AllowedNamespaces{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "green"}}}},
		{Name: "not-selected", AllowedNamespaces: &infrav1.AllowedNamespaces{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "red"}}}},
		{Name: "unreadable", AllowedNamespaces: &infrav1.AllowedNamespaces{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a b": "c"}}}},
	}}}
	var names []string
	for _, network := range access.Networks(host, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "green-1", Labels: map[string]string{"team": "green"}}}) {
		names = append(names, network.Name)
	}
	g.Expect(names).To(Equal([]string{"all", "any", "listed", "selected"}))
}

func TestInvalidSelector(t *testing.T) {
	g := NewWithT(t)
	identity := &infrav1.LibvirtClusterIdentity{ObjectMeta: metav1.ObjectMeta{Name: "fleet"}}
	identity.Spec.AllowedNamespaces = &infrav1.AllowedNamespaces{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a b": "c"}}}
	allowed, err := access.Identity(identity, &corev1.Namespace{})
	g.Expect(err).To(MatchError(ContainSubstring("spec.allowedNamespaces.selector of LibvirtClusterIdentity fleet")))
	g.Expect(allowed).To(BeFalse())
}
