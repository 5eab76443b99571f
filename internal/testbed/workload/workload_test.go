package workload

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/clusterctl-release/clusterctl-release/internal/testbed/guest/report"
)

// reportingHost is a host with the given reports.
type reportingHost []report.Report

func (h reportingHost) Reports() ([]report.Report, <-chan struct{}) { return h, nil }

var (
	one     = types.NamespacedName{Namespace: "demo", Name: "one"}
	reports = reportingHost{
		{MetaData: report.MetaData{InstanceID: "a", LocalHostname: "one"}, SystemUUID: "a-b", Address: "10.90.0.2"},
		{MetaData: report.MetaData{InstanceID: "a", LocalHostname: "one"}, SystemUUID: "a-b", Address: "10.90.0.3"},
	}
)

func newClient(g *WithT, objects ...client.Object) client.Client {
	scheme := runtime.NewScheme()
	g.Expect(clientgoscheme.AddToScheme(scheme)).To(Succeed())
	g.Expect(clusterv1.AddToScheme(scheme)).To(Succeed())
	return fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&corev1.Node{}).WithObjects(objects...).Build()
}

func newMachine(providerID string) *clusterv1.Machine {
	return &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: one.Namespace, Name: one.Name},
		Spec:       clusterv1.MachineSpec{ClusterName: "cluster", ProviderID: providerID, Version: "v1.36.3"},
	}
}

// TestNewestReport checks that the newest report of a guest counts, and that those of other guests don't.
func TestNewestReport(t *testing.T) {
	g := NewWithT(t)
	p := &Player{Hosts: []Host{reportingHost{}, reports}}
	g.Expect(p.report("libvirt:///a")).To(HaveValue(HaveField("Address", "10.90.0.3")))
	g.Expect(p.report("libvirt:///b")).To(BeNil())
	g.Expect(p.report("")).To(BeNil())
}

// TestJoin checks that a guest's node has the kubelet's fields, also after an interrupted first try.
func TestJoin(t *testing.T) {
	for name, objects := range map[string][]client.Object{
		"new": nil,
		// The node was created without its status.
		"incomplete": {&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "one"}, Spec: corev1.NodeSpec{ProviderID: "libvirt:///a"}}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			ctx := context.Background()
			c := &cluster{client: newClient(g, objects...)}
			g.Expect(c.join(ctx, newMachine("libvirt:///a"), &reports[1], false)).To(Succeed())
			var node corev1.Node
			g.Expect(c.client.Get(ctx, client.ObjectKey{Name: "one"}, &node)).To(Succeed())
			g.Expect(node.Spec.ProviderID).To(Equal("libvirt:///a"))
			g.Expect(node.Status.Addresses).To(ContainElement(corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "10.90.0.3"}))
			g.Expect(node.Status.NodeInfo.SystemUUID).To(Equal("a-b"))
			g.Expect(node.Status.NodeInfo.KubeletVersion).To(Equal("v1.36.3"))
			g.Expect(node.Status.Conditions).To(ContainElement(And(HaveField("Type", corev1.NodeReady), HaveField("Status", corev1.ConditionTrue))))

			g.Expect(c.join(ctx, newMachine("libvirt:///a"), &reports[0], false)).To(Succeed())
			var again corev1.Node
			g.Expect(c.client.Get(ctx, client.ObjectKey{Name: "one"}, &again)).To(Succeed())
			g.Expect(again.ResourceVersion).To(Equal(node.ResourceVersion))
		})
	}
}

// TestUnaware checks that the nodes of a cluster with unaware kubelets have no provider ID.
func TestUnaware(t *testing.T) {
	g := NewWithT(t)
	c := &cluster{client: newClient(g), unaware: true}
	g.Expect(c.join(t.Context(), newMachine("libvirt:///a"), &reports[1], false)).To(Succeed())
	var node corev1.Node
	g.Expect(c.client.Get(t.Context(), client.ObjectKey{Name: "one"}, &node)).To(Succeed())
	g.Expect(node.Spec.ProviderID).To(BeEmpty())
	g.Expect(node.Status.Conditions).ToNot(BeEmpty())
}

// TestWaits checks that machines that are deleted, have their node, or have no report are skipped, and that a worker
// doesn't start a control plane.
func TestWaits(t *testing.T) {
	now := metav1.Now()
	deleted, joined := newMachine("libvirt:///a"), newMachine("libvirt:///a")
	deleted.DeletionTimestamp, deleted.Finalizers = &now, []string{"test/keep"}
	joined.Status.NodeRef = clusterv1.MachineNodeReference{Name: "one"}
	tests := []struct {
		name    string
		machine *clusterv1.Machine
		want    string
	}{
		{"missing", nil, ""},
		{"deleted", deleted, ""},
		{"joined", joined, ""},
		{"no provider ID", newMachine(""), ""},
		{"no report", newMachine("libvirt:///b"), ""},
		{"no control plane", newMachine("libvirt:///a"), "the control plane of the cluster demo/cluster of machine one: it doesn't run so far"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			var objects []client.Object
			if test.machine != nil {
				objects = append(objects, test.machine)
			}
			m := &management{Player: &Player{Hosts: []Host{reports}}, client: newClient(g, objects...)}
			_, err := m.Reconcile(context.Background(), ctrl.Request{NamespacedName: one})
			if test.want == "" {
				g.Expect(err).ToNot(HaveOccurred())
				g.Expect(m.clusters).To(BeEmpty())
				return
			}
			g.Expect(err).To(MatchError(test.want))
		})
	}
}

// TestStopDeleted checks that the control plane of a cluster ends when no management cluster has the cluster.
func TestStopDeleted(t *testing.T) {
	g := NewWithT(t)
	ctx := context.Background()
	object := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: one.Namespace, Name: one.Name}}
	from, to := newClient(g), newClient(g, object)
	p := &Player{clusters: map[types.NamespacedName]*cluster{one: {}}}
	p.managements = []*management{{Player: p, client: from}, {Player: p, client: to}}
	_, err := p.stopDeleted(ctx, ctrl.Request{NamespacedName: one})
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(p.clusters).To(HaveKey(one))
	g.Expect(to.Delete(ctx, object)).To(Succeed())
	_, err = p.stopDeleted(ctx, ctrl.Request{NamespacedName: one})
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(p.clusters).To(BeEmpty())
	_, running := p.Client(one)
	g.Expect(running).To(BeFalse())
}
