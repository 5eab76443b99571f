package libvirtmachine

import (
	"context"
	"errors"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/index"
)

// node returns a node with a system UUID.
func node(name, systemUUID, providerID string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: providerID},
		Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{SystemUUID: systemUUID}}}
}

// reversed returns a UUID as guests show it if SMBIOS doesn't define the order of its bytes.
func reversed(uuid string) string {
	return uuid[6:8] + uuid[4:6] + uuid[2:4] + uuid[0:2] + "-" + uuid[11:13] + uuid[9:11] + "-" + uuid[16:18] + uuid[14:16] + uuid[18:]
}

// TestNodeProviderID: the node of the domain gets the provider ID if it has none. In all other cases nodes aren't
// changed, and the machine is Ready.
func TestNodeProviderID(t *testing.T) {
	const other = "libvirt:///11111111-1111-4111-8111-111111111111"
	for _, tc := range []struct {
		name            string
		nodes           func(uuid string) []client.Object
		functions       interceptor.Funcs
		apart           bool
		reason, message string
		// want are provider IDs of nodes; "own" is the machine's.
		want map[string]string
	}{
		{name: "without one", reason: infrav1.NodeProviderIDSetReason, want: map[string]string{"a": "own", "b": ""},
			nodes: func(uuid string) []client.Object {
				return []client.Object{node("a", uuid, ""), node("b", "22222222-2222-4222-8222-222222222222", "")}
			}},
		{name: "in upper case", reason: infrav1.NodeProviderIDSetReason, want: map[string]string{"a": "own"},
			nodes: func(uuid string) []client.Object { return []client.Object{node("a", strings.ToUpper(uuid), "")} }},
		{name: "bytes reversed", reason: infrav1.NodeProviderIDSetReason, want: map[string]string{"a": "own"},
			nodes: func(uuid string) []client.Object { return []client.Object{node("a", reversed(uuid), "")} }},
		{name: "it has the same one", reason: infrav1.NodeProviderIDSetReason, want: map[string]string{"a": "own"},
			nodes: func(uuid string) []client.Object {
				return []client.Object{node("a", uuid, infrav1.ProviderIDPrefix+uuid)}
			}},
		{name: "it has another", reason: infrav1.NodeProviderIDConflictReason, message: "has the provider ID " + other, want: map[string]string{"a": other},
			nodes: func(uuid string) []client.Object { return []client.Object{node("a", uuid, other)} }},
		{name: "two", reason: infrav1.NodeProviderIDConflictReason, message: "Several nodes have the system UUID", want: map[string]string{"a": "", "b": ""},
			nodes: func(uuid string) []client.Object { return []client.Object{node("a", uuid, ""), node("b", uuid, "")} }},
		{name: "none", reason: infrav1.WaitingForNodeReason, message: "No node has the system UUID", want: map[string]string{"a": "", "b": ""},
			nodes: func(string) []client.Object { return []client.Object{node("a", "", ""), node("b", "no UUID", "")} }},
		{name: "can't be reached", apart: true, reason: infrav1.WaitingForNodeReason, message: "Waiting for the workload cluster to be reached. See what the guest has written to its console, on host a: ",
			nodes: func(uuid string) []client.Object { return []client.Object{node("a", uuid, "")} }, want: map[string]string{"a": ""}},
		{name: "writing fails", reason: infrav1.WaitingForNodeReason, message: "Writing spec.providerID of node a failed", want: map[string]string{"a": ""},
			functions: interceptor.Funcs{Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
				return errors.New("no answer")
			}},
			nodes: func(uuid string) []client.Object { return []client.Object{node("a", uuid, "")} }},
		{name: "reading fails", reason: infrav1.InternalErrorReason, message: "listing the nodes of the workload cluster: no answer", want: map[string]string{},
			functions: interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
				return errors.New("no answer")
			}},
			nodes: func(string) []client.Object { return nil }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, nil, "a")
			m := w.until(w.newManager(0), func() bool { return w.infra().Spec.ProviderID != "" })
			workload := clientfake.NewClientBuilder().WithIndex(&corev1.Node{}, index.NodeDomain, index.DomainsOf).WithObjects(tc.nodes(w.uuid())...).WithInterceptorFuncs(tc.functions).Build()
			m.Workload = clustercache.NewFakeClusterCache(workload, client.ObjectKey{Namespace: key.Namespace, Name: "blue"}, "libvirtmachine-nodes")
			if tc.apart {
				m.Workload = clustercache.NewFakeEmptyClusterCache()
			}
			m = w.until(m, w.isProvisioned)
			for range 3 {
				_, err := m.reconcile()
				w.Expect(err).ToNot(HaveOccurred())
			}
			infra := w.infra()
			w.Expect(conditions.GetReason(infra, infrav1.NodeProviderIDSetCondition)).To(Equal(tc.reason))
			w.Expect(conditions.GetMessage(infra, infrav1.NodeProviderIDSetCondition)).To(ContainSubstring(tc.message))
			w.Expect(conditions.IsTrue(infra, infrav1.ReadyCondition)).To(BeTrue(), "the machine works")
			for name, want := range tc.want {
				if want == "own" {
					want = infra.Spec.ProviderID
				}
				is := &corev1.Node{}
				w.Expect(workload.Get(t.Context(), client.ObjectKey{Name: name}, is)).To(Succeed())
				w.Expect(is.Spec.ProviderID).To(Equal(want), name)
			}
			if tc.reason == infrav1.NodeProviderIDConflictReason {
				w.Expect(w.output()).To(ContainSubstring("Warning " + infrav1.NodeProviderIDConflictReason))
			}
			w.joinNode()
			w.until(m, func() bool { return conditions.IsTrue(w.infra(), infrav1.NodeProviderIDSetCondition) })
			m.Workload = nil // the feature was turned off
			w.until(m, func() bool { return !conditions.Has(w.infra(), infrav1.NodeProviderIDSetCondition) })
		})
	}
}

// TestNodesAreNotCopied: one of many nodes is selected by an index, read without a copy from the cache, and not
// changed.
func TestNodesAreNotCopied(t *testing.T) {
	w := newWorld(t, nil, "a")
	m := w.until(w.newManager(0), func() bool { return w.infra().Spec.ProviderID != "" })
	cached := &corev1.NodeList{Items: []corev1.Node{*node("a", w.uuid(), ""), *node("b", "22222222-2222-4222-8222-222222222222", "")}}
	before := cached.DeepCopy()
	lists := 0
	workload := clientfake.NewClientBuilder().WithIndex(&corev1.Node{}, index.NodeDomain, index.DomainsOf).WithObjects(before.Items[0].DeepCopy(), before.Items[1].DeepCopy()).WithInterceptorFuncs(interceptor.Funcs{
		List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			lists++
			w.Expect(options).To(ConsistOf(client.UnsafeDisableDeepCopy, client.MatchingFields{index.NodeDomain: w.uuid()}))
			list.(*corev1.NodeList).Items = cached.Items[:1]
			return nil
		},
		Patch: func(_ context.Context, _ client.WithWatch, object client.Object, _ client.Patch, _ ...client.PatchOption) error {
			w.Expect(object.GetName()).To(Equal("a"))
			object.SetLabels(map[string]string{"as": "answered"})
			return nil
		}}).Build()
	m.Workload = clustercache.NewFakeClusterCache(workload, client.ObjectKey{Namespace: key.Namespace, Name: "blue"}, "libvirtmachine-nodes")
	w.until(m, w.hasCondition(infrav1.NodeProviderIDSetCondition, infrav1.NodeProviderIDSetReason))
	w.Expect(lists).ToNot(BeZero())
	w.Expect(cached).To(Equal(before))
}

// TestMachineOfNode: a node is mapped to its machine in each format of the UUID.
func TestMachineOfNode(t *testing.T) {
	w := newWorld(t, nil, "a")
	m := w.until(w.newManager(0), func() bool { return w.infra().Spec.ProviderID != "" })
	for _, shown := range []string{w.uuid(), strings.ToUpper(w.uuid()), reversed(w.uuid()), " " + w.uuid() + "\n"} {
		w.Expect(m.machineOfNode(t.Context(), node("a", shown, ""))).To(ConsistOf(HaveField("NamespacedName", key)), shown)
	}
	w.Expect(m.machineOfNode(t.Context(), node("a", "", ""))).To(BeEmpty())
	w.Expect(m.machineOfNode(t.Context(), node("a", "22222222-2222-4222-8222-222222222222", ""))).To(BeEmpty())
}
