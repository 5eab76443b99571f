package api

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/core/reconcilers/cluster"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

const soon = 2 * time.Minute

// startClusterController runs Cluster API's controller of Clusters with the manager, so that the tests see what it
// reads from a LibvirtCluster.
var startClusterController = sync.OnceValue(func() error {
	ctx := context.Background()
	mgr, err := ctrl.NewManager(testWorld.environment.Config, ctrl.Options{
		Scheme: newScheme(), Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		return fmt.Errorf("creating a manager for Cluster API's controller: %w", err)
	}
	reconciler := &cluster.Reconciler{Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(),
		ClusterCache:                clustercache.NewFakeClusterCache(testWorld.client, client.ObjectKey{}),
		RemoteConnectionGracePeriod: time.Hour}
	if err := reconciler.SetupWithManager(ctx, mgr, controller.Options{}); err != nil {
		return fmt.Errorf("setting up Cluster API's controller: %w", err)
	}
	go func() { _ = mgr.Start(ctx) }() // ends with the test program, like the API server
	if !mgr.GetCache().WaitForCacheSync(ctx) {
		return errors.New("the cache of Cluster API's controller doesn't sync")
	}
	return nil
})

// clusterTest is a Cluster with a LibvirtCluster of the same name, and hosts that only this cluster selects.
type clusterTest struct {
	*WithT
	*world
	t    *testing.T
	name string
}

// newClusterTest creates a Ready host in each failure domain. The hosts are paused, so that the manager doesn't change
// the status that the test sets.
func newClusterTest(t *testing.T, name string, failureDomains ...string) *clusterTest {
	t.Helper()
	w, g := theWorld(t), NewWithT(t)
	g.Expect(startClusterController()).To(Succeed())
	ct := &clusterTest{WithT: g, world: w, t: t, name: unique(name)}
	for i, domain := range failureDomains {
		host := &infrav1.LibvirtHost{ObjectMeta: metav1.ObjectMeta{Name: ct.hostName(i), Labels: map[string]string{"for": ct.name},
			Annotations: map[string]string{clusterv1.PausedAnnotation: ""}},
			Spec: infrav1.LibvirtHostSpec{URI: "test:///default", FailureDomain: domain}}
		g.Expect(w.client.Create(t.Context(), host)).To(Succeed())
		ct.setHostReady(i, metav1.ConditionTrue)
	}
	return ct
}

func (ct *clusterTest) hostName(number int) string { return fmt.Sprintf("%s-%d", ct.name, number) }

func (ct *clusterTest) endpoint() string { return ct.name + ".example.com" }

func (ct *clusterTest) key() client.ObjectKey {
	return client.ObjectKey{Namespace: "default", Name: ct.name}
}

// setHostReady acts as the controller of LibvirtHosts, after that one has written the Paused condition.
func (ct *clusterTest) setHostReady(number int, status metav1.ConditionStatus) {
	ct.t.Helper()
	host := &infrav1.LibvirtHost{}
	ct.Eventually(func() error {
		if err := ct.client.Get(ct.t.Context(), client.ObjectKey{Name: ct.hostName(number)}, host); err != nil {
			return err
		}
		conditions.Set(host, metav1.Condition{Type: infrav1.ReadyCondition, Status: status, Reason: "Test"})
		return ct.client.Status().Update(ct.t.Context(), host)
	}).WithTimeout(soon).Should(Succeed())
}

// create creates the LibvirtCluster and then the Cluster, each with a change.
func (ct *clusterTest) create(changeInfra func(*infrav1.LibvirtCluster), changeCluster func(*clusterv1.Cluster)) {
	ct.t.Helper()
	infra := &infrav1.LibvirtCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: ct.name},
		Spec: infrav1.LibvirtClusterSpec{HostSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"for": ct.name}}}}
	owner := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: ct.name},
		Spec: clusterv1.ClusterSpec{InfrastructureRef: clusterv1.ContractVersionedObjectReference{
			APIGroup: infrav1.GroupVersion.Group, Kind: "LibvirtCluster", Name: ct.name}}}
	if changeInfra != nil {
		changeInfra(infra)
	}
	if changeCluster != nil {
		changeCluster(owner)
	}
	ct.Expect(ct.client.Create(ct.t.Context(), infra)).To(Succeed())
	ct.Expect(ct.client.Create(ct.t.Context(), owner)).To(Succeed())
}

func (ct *clusterTest) infra() *infrav1.LibvirtCluster {
	infra := &infrav1.LibvirtCluster{}
	ct.Expect(ct.client.Get(ct.t.Context(), ct.key(), infra)).To(Succeed())
	return infra
}

func (ct *clusterTest) cluster() *clusterv1.Cluster {
	owner := &clusterv1.Cluster{}
	ct.Expect(ct.client.Get(ct.t.Context(), ct.key(), owner)).To(Succeed())
	return owner
}

// eventually waits until a condition of the LibvirtCluster has a status and reason, and also the condition that Cluster
// API mirrors from Ready. It returns the message.
func (ct *clusterTest) eventually(conditionType string, status metav1.ConditionStatus, reason string) string {
	ct.t.Helper()
	var message string
	same := func(g Gomega, condition *metav1.Condition) {
		g.Expect(condition).ToNot(BeNil())
		g.Expect(condition.Status).To(Equal(status), "%v", condition)
		g.Expect(condition.Reason).To(Equal(reason), "%v", condition)
		message = condition.Message
	}
	ct.Eventually(func(g Gomega) {
		same(g, conditions.Get(ct.infra(), conditionType))
		if conditionType == infrav1.ReadyCondition {
			same(g, conditions.Get(ct.cluster(), clusterv1.ClusterInfrastructureReadyCondition))
		}
	}).WithTimeout(soon).Should(Succeed())
	return message
}

func (ct *clusterTest) events() []string {
	ct.t.Helper()
	list := &eventsv1.EventList{}
	ct.Expect(ct.client.List(ct.t.Context(), list, client.InNamespace("default"))).To(Succeed())
	var reasons []string
	for _, event := range list.Items {
		if event.Regarding.Kind == "LibvirtCluster" && event.Regarding.Name == ct.name {
			reasons = append(reasons, event.Type+" "+event.Reason)
		}
	}
	return reasons
}

func endpointOf(host string) clusterv1.APIEndpoint {
	return clusterv1.APIEndpoint{Host: host, Port: 6443}
}

// TestLifeOfACluster tests rules of the contract for InfraCluster that no schema shows, with Cluster API's controller:
// initialization completed, control plane endpoint, failure domains, conditions.
func TestLifeOfACluster(t *testing.T) {
	t.Parallel()
	ct := newClusterTest(t, "life", "rack-b", "rack-a", "rack-b")
	ct.create(func(infra *infrav1.LibvirtCluster) { infra.Spec.ControlPlaneEndpoint.Host = ct.endpoint() }, nil)

	ct.eventually(infrav1.ReadyCondition, metav1.ConditionTrue, infrav1.ReadyReason)
	ct.eventually(infrav1.PausedCondition, metav1.ConditionFalse, infrav1.NotPausedReason)
	ct.Eventually(func(g Gomega) {
		owner := ct.cluster()
		g.Expect(ptr.Deref(owner.Status.Initialization.InfrastructureProvisioned, false)).To(BeTrue())
		g.Expect(owner.Spec.ControlPlaneEndpoint).To(Equal(endpointOf(ct.endpoint())))
		g.Expect(owner.Status.FailureDomains).To(HaveExactElements(
			clusterv1.FailureDomain{Name: "rack-a", ControlPlane: ptr.To(true)}, clusterv1.FailureDomain{Name: "rack-b", ControlPlane: ptr.To(true)}))
	}).WithTimeout(soon).Should(Succeed())
	infra := ct.infra()
	ct.Expect(infra.Finalizers).To(ConsistOf(infrav1.ClusterFinalizer))
	ct.Expect(infra.Labels).To(HaveKeyWithValue(clusterv1.ClusterNameLabel, ct.name))

	// Hosts are added and removed, and the cluster stays provisioned.
	for i := range 3 {
		ct.setHostReady(i, metav1.ConditionFalse)
	}
	ct.Expect(ct.eventually(infrav1.ReadyCondition, metav1.ConditionFalse, infrav1.NotReadyReason)).To(ContainSubstring("These hosts aren't Ready"))
	ct.eventually(infrav1.HostsAvailableCondition, metav1.ConditionFalse, infrav1.NoHostsReadyReason)
	ct.Expect(*ct.infra().Status.Initialization.Provisioned).To(BeTrue())
	ct.Expect(ct.infra().Status.FailureDomains).To(HaveLen(2))
	ct.Expect(ct.client.Delete(t.Context(), &infrav1.LibvirtHost{ObjectMeta: metav1.ObjectMeta{Name: ct.hostName(1)}})).To(Succeed())
	ct.Eventually(func() []clusterv1.FailureDomain { return ct.cluster().Status.FailureDomains }).WithTimeout(soon).
		Should(HaveExactElements(HaveField("Name", "rack-b")))
	ct.setHostReady(0, metav1.ConditionTrue)
	ct.eventually(infrav1.ReadyCondition, metav1.ConditionTrue, infrav1.ReadyReason)

	ct.Eventually(ct.events).WithTimeout(soon).Should(ContainElements("Normal Provisioned", "Warning NoHostsReady"))
	ct.deleteInOrder()
	ct.Expect(ct.manager.log.String()).ToNot(ContainSubstring("forbidden"), "the manager's roles lack a permission")
}

// deleteInOrder deletes the Cluster while a machine exists, and then the machine.
func (ct *clusterTest) deleteInOrder() {
	ct.t.Helper()
	machine := minimalObjects(ct.name)["LibvirtMachine"]
	machine.SetLabels(map[string]string{clusterv1.ClusterNameLabel: ct.name})
	other := minimalObjects(unique("other"))["LibvirtMachine"]
	ct.Expect(ct.client.Create(ct.t.Context(), machine)).To(Succeed())
	ct.Expect(ct.client.Create(ct.t.Context(), other)).To(Succeed())

	// The manager's cache must have the machine before its cluster is deleted.
	ct.Eventually(ct.manager.log.String).WithTimeout(soon).Should(MatchRegexp(`"Waiting for the Machine controller .* LibvirtMachine="default/%s"`, ct.name))
	ct.Expect(ct.client.Delete(ct.t.Context(), ct.cluster())).To(Succeed())
	ct.Expect(ct.eventually(infrav1.ReadyCondition, metav1.ConditionFalse, infrav1.DeletingReason)).
		To(ContainSubstring("Waiting for 1 LibvirtMachines to be deleted: " + ct.name))
	ct.Expect(ct.infra().Finalizers).To(ConsistOf(infrav1.ClusterFinalizer))

	ct.Expect(ct.client.Delete(ct.t.Context(), machine)).To(Succeed())
	ct.Eventually(func() bool {
		return apierrors.IsNotFound(ct.client.Get(ct.t.Context(), ct.key(), &infrav1.LibvirtCluster{})) &&
			apierrors.IsNotFound(ct.client.Get(ct.t.Context(), ct.key(), &clusterv1.Cluster{}))
	}).WithTimeout(soon).Should(BeTrue())
}

func TestEndpointIsTakenOverFromTheCluster(t *testing.T) {
	t.Parallel()
	ct := newClusterTest(t, "external", "rack")
	ct.create(func(infra *infrav1.LibvirtCluster) {
		infra.Spec.ControlPlaneLoadBalancer.Type = infrav1.LoadBalancerExternal
	}, nil)
	ct.eventually(infrav1.ControlPlaneEndpointReadyCondition, metav1.ConditionFalse, infrav1.WaitingForControlPlaneEndpointReason)
	ct.eventually(infrav1.HostsAvailableCondition, metav1.ConditionTrue, infrav1.HostsAvailableReason)
	ct.eventually(infrav1.ReadyCondition, metav1.ConditionFalse, infrav1.NotReadyReason)
	ct.Expect(ct.infra().Status.Initialization.Provisioned).To(BeNil())

	owner := ct.cluster()
	before := owner.DeepCopy()
	owner.Spec.ControlPlaneEndpoint = endpointOf("api.example.com")
	ct.Expect(ct.client.Patch(t.Context(), owner, client.MergeFrom(before))).To(Succeed())
	ct.eventually(infrav1.ReadyCondition, metav1.ConditionTrue, infrav1.ReadyReason)
	ct.Expect(ct.infra().Spec.ControlPlaneEndpoint).To(Equal(endpointOf("api.example.com")))
	ct.Eventually(ct.events).WithTimeout(soon).Should(ContainElement("Normal ControlPlaneEndpointSet"))
}

func TestPausing(t *testing.T) {
	t.Parallel()
	setAnnotation := func(infra *infrav1.LibvirtCluster, paused bool) {
		infra.Annotations = map[string]string{}
		if paused {
			infra.Annotations[clusterv1.PausedAnnotation] = ""
		}
	}
	for name, byCluster := range map[string]bool{"Cluster": true, "annotation": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ct := newClusterTest(t, "pause", "rack")
			setPaused := func(paused bool) {
				infra, owner := ct.infra(), ct.cluster()
				var object client.Object = infra
				before := client.MergeFrom(infra.DeepCopy())
				if byCluster {
					object, before = owner, client.MergeFrom(owner.DeepCopy())
					owner.Spec.Paused = ptr.To(paused)
				} else {
					setAnnotation(infra, paused)
				}
				ct.Expect(ct.client.Patch(t.Context(), object, before)).To(Succeed())
			}
			ct.create(func(infra *infrav1.LibvirtCluster) {
				infra.Spec.ControlPlaneEndpoint.Host = ct.endpoint()
			}, nil)
			ct.eventually(infrav1.ReadyCondition, metav1.ConditionTrue, infrav1.ReadyReason)
			setPaused(true)
			ct.eventually(infrav1.PausedCondition, metav1.ConditionTrue, infrav1.PausedReason)

			// A paused object isn't changed, neither after changes of its hosts nor after its deletion.
			paused := ct.infra()
			ct.setHostReady(0, metav1.ConditionFalse)
			ct.Expect(ct.client.Delete(t.Context(), paused)).To(Succeed())
			ct.anotherClusterIsReconciled()
			now := ct.infra()
			ct.Expect(now.Finalizers).To(Equal(paused.Finalizers))
			ct.Expect(conditions.IsTrue(now, infrav1.ReadyCondition)).To(BeTrue())

			setPaused(false)
			ct.Eventually(func() bool {
				return apierrors.IsNotFound(ct.client.Get(t.Context(), ct.key(), &infrav1.LibvirtCluster{}))
			}).WithTimeout(soon).Should(BeTrue())
		})
	}
}

// anotherClusterIsReconciled waits until the manager has reconciled another cluster.
func (ct *clusterTest) anotherClusterIsReconciled() {
	ct.t.Helper()
	other := newClusterTest(ct.t, "meanwhile", "rack")
	other.create(func(infra *infrav1.LibvirtCluster) { infra.Spec.ControlPlaneEndpoint.Host = other.endpoint() }, nil)
	other.eventually(infrav1.ReadyCondition, metav1.ConditionTrue, infrav1.ReadyReason)
}

// TestExternallyManagedClusterIsLeftAlone: only Cluster API changes an externally managed cluster.
func TestExternallyManagedClusterIsLeftAlone(t *testing.T) {
	t.Parallel()
	ct := newClusterTest(t, "external", "rack")
	ct.create(func(infra *infrav1.LibvirtCluster) {
		infra.Annotations = map[string]string{clusterv1.ManagedByAnnotation: "somebody"}
		infra.Spec.ControlPlaneEndpoint.Host = ct.endpoint()
	}, nil)
	ct.Eventually(func() []metav1.OwnerReference { return ct.infra().OwnerReferences }).WithTimeout(soon).Should(HaveLen(1))
	ct.setHostReady(0, metav1.ConditionFalse)
	ct.anotherClusterIsReconciled()
	infra := ct.infra()
	ct.Expect(infra.Finalizers).To(BeEmpty())
	ct.Expect(infra.Status).To(BeZero())
	for _, field := range infra.ManagedFields {
		ct.Expect(field.Subresource).To(BeEmpty(), "%s wrote the status", field.Manager)
	}
}

// TestNamespacesOfAnIdentity: a host counts for a namespace as soon as its identity allows the namespace.
func TestNamespacesOfAnIdentity(t *testing.T) {
	t.Parallel()
	ct := newClusterTest(t, "tenant", "rack")
	identity := &infrav1.LibvirtClusterIdentity{ObjectMeta: metav1.ObjectMeta{Name: ct.name},
		Spec: infrav1.LibvirtClusterIdentitySpec{SecretRef: infrav1.SecretReference{Name: ct.name}}}
	ct.Expect(ct.client.Create(t.Context(), identity)).To(Succeed())
	host := &infrav1.LibvirtHost{}
	ct.Expect(ct.client.Get(t.Context(), client.ObjectKey{Name: ct.hostName(0)}, host)).To(Succeed())
	before := client.MergeFrom(host.DeepCopy())
	host.Spec.IdentityRef = &infrav1.ClusterIdentityReference{Name: ct.name}
	ct.Expect(ct.client.Patch(t.Context(), host, before)).To(Succeed())

	ct.create(nil, nil)
	ct.eventually(infrav1.HostsAvailableCondition, metav1.ConditionFalse, infrav1.NamespaceNotAllowedReason)

	// Allowed by the identity, then by a label of the namespace, and then not any more.
	allow := func(allowed *infrav1.AllowedNamespaces) {
		before := client.MergeFrom(identity.DeepCopy())
		identity.Spec.AllowedNamespaces = allowed
		ct.Expect(ct.client.Patch(t.Context(), identity, before)).To(Succeed())
	}
	allow(&infrav1.AllowedNamespaces{List: []string{"default"}})
	ct.eventually(infrav1.HostsAvailableCondition, metav1.ConditionTrue, infrav1.HostsAvailableReason)
	allow(&infrav1.AllowedNamespaces{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"for": ct.name}}})
	ct.eventually(infrav1.HostsAvailableCondition, metav1.ConditionFalse, infrav1.NamespaceNotAllowedReason)
	namespace := &corev1.Namespace{}
	ct.Expect(ct.client.Get(t.Context(), client.ObjectKey{Name: "default"}, namespace)).To(Succeed())
	namespace.Labels["for"] = ct.name
	ct.Expect(ct.client.Update(t.Context(), namespace)).To(Succeed())
	ct.eventually(infrav1.HostsAvailableCondition, metav1.ConditionTrue, infrav1.HostsAvailableReason)
}
