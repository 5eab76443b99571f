package libvirtcluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	clusterctl "sigs.k8s.io/cluster-api/cmd/clusterctl/client/cluster"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// inMemory makes clusterctl use objects in memory.
type inMemory struct {
	clusterctl.Proxy
	client client.Client
}

func (p inMemory) NewClient(context.Context) (client.Client, error) { return p.client, nil }

// clusterctlOf returns a clusterctl client of a management cluster.
func clusterctlOf(c client.Client) clusterctl.Client {
	return clusterctl.New(clusterctl.Kubeconfig{}, nil, clusterctl.InjectProxy(inMemory{client: c}))
}

// movableKinds returns the CRDs that clusterctl reads for a move, with the labels of `clusterctl init`: the provider's
// CRDs, and the needed ones of Cluster API.
func movableKinds(g *WithT) []client.Object {
	files, err := filepath.Glob("../../../config/crd/bases/*.yaml")
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(files).ToNot(BeEmpty())
	var found []client.Object
	for _, file := range files {
		content, err := os.ReadFile(file)
		g.Expect(err).ToNot(HaveOccurred())
		crd := &apiextensionsv1.CustomResourceDefinition{}
		g.Expect(yaml.Unmarshal(content, crd)).To(Succeed())
		found = append(found, crd)
	}
	for _, kind := range []string{"Cluster", "Machine"} {
		found = append(found, &apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: kind},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Group: clusterv1.GroupVersion.Group, Scope: apiextensionsv1.NamespaceScoped, Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind},
				Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: clusterv1.GroupVersion.Version, Storage: true}},
			}})
	}
	for _, crd := range found {
		labels := crd.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[clusterctlv1.ClusterctlLabel] = ""
		crd.SetLabels(labels)
	}
	return found
}

// serves gives a control plane machine a host and a Machine with a node.
func (b *balanced) serves(infra *infrav1.LibvirtMachine) {
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: infra.Namespace, Name: infra.Name, UID: types.UID("machine-" + infra.Name),
		Labels:          map[string]string{clusterv1.ClusterNameLabel: key.Name, clusterv1.MachineControlPlaneLabel: ""},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: key.Name, UID: "1"}}}}
	machine.Status.NodeRef.Name = infra.Name
	b.Expect(b.Create(context.Background(), machine)).To(Succeed())
	infra.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: machine.Name, UID: machine.UID, Controller: ptr.To(true)}}
	infra.Spec.ProviderID = infrav1.ProviderIDPrefix + infra.Name
	infra.UID = types.UID("uid-" + infra.Name)
	b.Expect(b.Update(context.Background(), infra)).To(Succeed())
}

// TestMovedLoadBalancer: clusterctl moves a cluster with a load balancer, which then belongs to the moved
// LibvirtCluster. Nothing is created or deleted in the new management cluster. The status isn't moved: while the
// addresses of machines aren't known, the load balancer keeps its servers.
func TestMovedLoadBalancer(t *testing.T) {
	from := newBalanced(t, "", nil)
	from.reconcile()
	was := from.balancer()
	was.UID, was.Spec.ProviderID = "uid-lb", infrav1.ProviderIDPrefix+"lb"
	from.runs(was, "192.0.2.50")
	for name, address := range map[string]string{"cp-1": "192.0.2.61", "cp-2": "192.0.2.62"} {
		from.serves(from.controlPlane(name, address))
	}
	from.reconcile()
	was = from.balancer()
	const servers = "[192.0.2.61:6443 192.0.2.62:6443]"
	from.Expect(fmt.Sprint(from.configuration().Servers)).To(Equal(servers))
	infraWas := get(from.WithT, from)
	moved := &clusterv1.Cluster{}
	from.Expect(from.Get(t.Context(), key, moved)).To(Succeed())
	moved.Status.Initialization.InfrastructureProvisioned = ptr.To(true)
	conditions.Set(moved, metav1.Condition{Type: clusterv1.ClusterControlPlaneInitializedCondition, Status: metav1.ConditionTrue, Reason: "Initialized"})
	from.Expect(from.Update(t.Context(), moved)).To(Succeed())
	kinds := movableKinds(from.WithT)
	for _, kind := range kinds {
		from.Expect(from.Create(t.Context(), kind.DeepCopyObject().(client.Object))).To(Succeed())
	}

	to := &balanced{WithT: from.WithT}
	created := 0
	host := newHost("host", "rack")
	to.WithWatch = fake.NewClientBuilder().WithScheme(from.Scheme()).WithStatusSubresource(&infrav1.LibvirtCluster{}).WithObjects(append(kinds, &host, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: key.Namespace}})...).
		WithInterceptorFuncs(interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			created++
			// The API server sets these.
			object.SetUID(types.UID(fmt.Sprintf("moved-%d", created)))
			if content, is := object.(*unstructured.Unstructured); is {
				delete(content.Object, "status")
			}
			return c.Create(ctx, object, options...)
		}}).Build()
	from.Expect(clusterctlOf(from).ObjectMover().Move(t.Context(), key.Namespace, clusterctlOf(to), false)).To(Succeed())
	to.Expect(from.balancer()).To(BeNil())
	to.Expect(apierrors.IsNotFound(from.Get(t.Context(), key, &infrav1.LibvirtCluster{}))).To(BeTrue())

	there := to.balancer()
	to.Expect(there.Status).To(BeZero())
	to.Expect(there.Spec).To(Equal(was.Spec))
	to.Expect(there.Labels).To(Equal(was.Labels))
	to.Expect(metav1.IsControlledBy(there, get(to.WithT, to))).To(BeTrue())
	created = 0
	to.reconcile()
	to.Expect(created).To(BeZero(), "nothing is created")
	to.Expect(to.balancer().UID).To(Equal(there.UID))
	to.Expect(to.balancer().DeletionTimestamp).To(BeNil())
	to.Expect(fmt.Sprint(to.configuration().Servers)).To(Equal(servers))
	to.Expect(to.reason()).To(Equal(infrav1.LoadBalancerNotRunningReason), "its state isn't known yet")
	infra := get(to.WithT, to)
	to.Expect(infra.Spec).To(Equal(infraWas.Spec))
	to.Expect(infra.Annotations).To(Equal(infraWas.Annotations))

	// The controller of LibvirtMachines finds the machines on their hosts, one after the other.
	find := func(name, address string) {
		machine := &infrav1.LibvirtMachine{}
		to.Expect(to.Get(t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: name}, machine)).To(Succeed())
		to.runs(machine, address)
		to.reconcile()
	}
	find(balancerKey.Name, "192.0.2.50")
	find("cp-1", "192.0.2.61")
	to.Expect(to.reason()).To(Equal(infrav1.ControlPlaneEndpointSetReason))
	to.Expect(fmt.Sprint(to.configuration().Servers)).To(Equal(servers))
	find("cp-2", "192.0.2.63") // DHCP has allocated another address
	to.Expect(fmt.Sprint(to.configuration().Servers)).To(Equal("[192.0.2.61:6443 192.0.2.63:6443]"))
	to.Expect(created).To(BeZero())
	to.Expect(to.balancer().UID).To(Equal(there.UID))
}
