package world

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/secret"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/fake"
)

// ImageVolume is a volume in the pool for images of each scene's hosts.
var ImageVolume = hypervisor.VolumeRef{Pool: "default", Name: "image.qcow2"}

var scenes atomic.Int32

// Scene is the part of the world for one test: a namespace, and hosts that only its clusters select.
type Scene struct {
	*World
	*gomega.WithT
	// Namespace of the scene's objects. It is also the value of the label "scene" of its hosts.
	Namespace string
	// Hosts are the fake hosts, in the order of their failure domains.
	Hosts []*Host

	t *testing.T
}

// NewScene creates a namespace, and a host in each of the failure domains. It waits until they are Ready. The first
// call starts the world. Without KUBEBUILDER_ASSETS the test is skipped.
func NewScene(t *testing.T, failureDomains ...string) *Scene {
	t.Helper()
	s := (&Scene{World: get(t), Namespace: fmt.Sprintf("scene-%d", scenes.Add(1))}).In(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("The log about %s:\n%s", s.Namespace, s.Log.About(s.Namespace, 60))
		}
	})
	s.Create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.Namespace}})
	for _, domain := range failureDomains {
		s.AddHost(domain, nil)
	}
	for _, host := range s.Hosts {
		s.Condition(&infrav1.LibvirtHost{ObjectMeta: metav1.ObjectMeta{Name: host.Name}}, infrav1.ReadyCondition, metav1.ConditionTrue)
	}
	return s
}

// In returns the scene for a subtest, which fails in place of the test.
func (s *Scene) In(t *testing.T) *Scene {
	in := *s
	in.t, in.WithT = t, gomega.NewWithT(t)
	in.SetDefaultEventuallyTimeout(soon)
	in.SetDefaultEventuallyPollingInterval(poll)
	return &in
}

// AddHost adds a host with a LibvirtHost, which change may edit before. change may be nil.
func (s *Scene) AddHost(failureDomain string, change func(*infrav1.LibvirtHost)) *Host {
	s.t.Helper()
	host := &Host{Host: fake.NewHost(), Name: fmt.Sprintf("%s-%d", s.Namespace, len(s.Hosts))}
	connection, err := host.Connect(s.t.Context())
	s.Expect(err).ToNot(gomega.HaveOccurred())
	_, err = connection.CreateVolume(s.t.Context(), hypervisor.VolumeSpec{VolumeRef: ImageVolume, Format: hypervisor.FormatQCOW2, CapacityBytes: 1 << 30})
	s.Expect(err).ToNot(gomega.HaveOccurred())
	s.Expect(connection.Close()).To(gomega.Succeed())
	host.ForgetCalls()

	s.hosts.add(host)
	s.Hosts = append(s.Hosts, host)
	go runGuests(s.t.Context(), s.Client, host)
	object := &infrav1.LibvirtHost{ObjectMeta: metav1.ObjectMeta{Name: host.Name, Labels: map[string]string{"scene": s.Namespace}},
		Spec: infrav1.LibvirtHostSpec{URI: host.uri(), FailureDomain: failureDomain}}
	if change != nil {
		change(object)
	}
	s.Create(object)
	return host
}

// Create creates objects.
func (s *Scene) Create(objects ...client.Object) {
	s.t.Helper()
	for _, object := range objects {
		s.Expect(s.Client.Create(s.t.Context(), object)).To(gomega.Succeed())
	}
}

// Get reads an object by its name.
func (s *Scene) Get(object client.Object) {
	s.t.Helper()
	s.Expect(s.Client.Get(s.t.Context(), client.ObjectKeyFromObject(object), object)).To(gomega.Succeed())
}

// Change reads an object, edits it and writes the differences.
func Change[T client.Object](s *Scene, object T, change func(T)) {
	s.t.Helper()
	s.Get(object)
	before := client.MergeFrom(object.DeepCopyObject().(client.Object))
	change(object)
	s.Expect(s.Client.Patch(s.t.Context(), object, before)).To(gomega.Succeed())
}

// Condition waits until a condition of an object has a status, and returns the condition. It reads the object by its
// name.
func (s *Scene) Condition(object interface {
	client.Object
	conditions.Getter
}, conditionType string, status metav1.ConditionStatus) metav1.Condition {
	s.t.Helper()
	var condition *metav1.Condition
	s.Eventually(func(g gomega.Gomega) {
		g.Expect(s.Client.Get(s.t.Context(), client.ObjectKeyFromObject(object), object)).To(gomega.Succeed())
		condition = conditions.Get(object, conditionType)
		g.Expect(condition).ToNot(gomega.BeNil(), "%T %s has no condition %s", object, object.GetName(), conditionType)
		g.Expect(condition.Status).To(gomega.Equal(status), "%T %s: %s: %s", object, object.GetName(), conditionType, condition.Message)
	}).Should(gomega.Succeed())
	return *condition
}

// Delete deletes an object and waits until it doesn't exist.
func (s *Scene) Delete(object client.Object) {
	s.t.Helper()
	s.Expect(s.Client.Delete(s.t.Context(), object)).To(gomega.Succeed())
	s.Gone(object)
}

// Gone waits until an object doesn't exist.
func (s *Scene) Gone(object client.Object) {
	s.t.Helper()
	s.Eventually(func() bool {
		return apierrors.IsNotFound(s.Client.Get(s.t.Context(), client.ObjectKeyFromObject(object), object))
	}).Should(gomega.BeTrue(), "%T %s still exists", object, object.GetName())
}

var endpoints atomic.Uint32

// newEndpoint returns a unique control plane endpoint.
func newEndpoint() clusterv1.APIEndpoint {
	number := endpoints.Add(1)
	return clusterv1.APIEndpoint{Host: fmt.Sprintf("198.18.%d.%d", number/250, 1+number%250), Port: 6443}
}

// Cluster creates a Cluster with a LibvirtCluster of the same name, an endpoint and a kubeconfig, which the functions
// in change edit before. It waits until Cluster API reports the infrastructure as provisioned.
func (s *Scene) Cluster(name string, change ...func(*clusterv1.Cluster, *infrav1.LibvirtCluster)) *clusterv1.Cluster {
	s.t.Helper()
	infra := &infrav1.LibvirtCluster{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name}, Spec: infrav1.LibvirtClusterSpec{
		HostSelector:         &metav1.LabelSelector{MatchLabels: map[string]string{"scene": s.Namespace}},
		ControlPlaneEndpoint: newEndpoint()}}
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name}, Spec: clusterv1.ClusterSpec{
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "LibvirtCluster", Name: name}}}
	for _, f := range change {
		f(cluster, infra)
	}
	s.Create(s.Kubeconfig(name), infra, cluster)
	s.Eventually(func(g gomega.Gomega) {
		s.Get(cluster)
		g.Expect(ptr.Deref(cluster.Status.Initialization.InfrastructureProvisioned, false)).To(gomega.BeTrue())
	}).Should(gomega.Succeed())
	return cluster
}

// Kubeconfig returns the Secret with the kubeconfig of a workload cluster, as a control plane provider creates it.
func (s *Scene) Kubeconfig(cluster string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: secret.Name(cluster, secret.Kubeconfig),
		Labels: map[string]string{clusterv1.ClusterNameLabel: cluster}}, Type: clusterv1.ClusterSecretType,
		Data: map[string][]byte{secret.KubeconfigDataName: s.kubeconfig}}
}

// ControlPlane creates a Machine of the cluster's control plane directly, because there is no control plane provider,
// and waits until Cluster API reports the control plane as initialized, which it requires before it reads nodes of
// workers.
func (s *Scene) ControlPlane(cluster *clusterv1.Cluster) *clusterv1.Machine {
	s.t.Helper()
	name := cluster.Name + "-control-plane"
	infra := &infrav1.LibvirtMachine{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name}, Spec: smallMachine()}
	machine := &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name, Labels: map[string]string{clusterv1.MachineControlPlaneLabel: ""}},
		Spec: clusterv1.MachineSpec{
			ClusterName: cluster.Name, Version: version, Bootstrap: clusterv1.Bootstrap{DataSecretName: ptr.To(name)},
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "LibvirtMachine", Name: name},
		}}
	s.Create(s.BootstrapData(name), infra, machine)
	s.Condition(cluster, clusterv1.ClusterControlPlaneInitializedCondition, metav1.ConditionTrue)
	return machine
}

// version is the Kubernetes version of the machines.
const version = "v1.36.3"

func smallMachine() infrav1.LibvirtMachineSpec {
	return infrav1.LibvirtMachineSpec{CPUs: 1, Image: infrav1.ImageSpec{Volume: ImageVolume.Name}}
}

// Template creates a LibvirtMachineTemplate of small machines that start from ImageVolume.
func (s *Scene) Template(name string, change ...func(*infrav1.LibvirtMachineSpec)) *infrav1.LibvirtMachineTemplate {
	s.t.Helper()
	template := &infrav1.LibvirtMachineTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name}}
	template.Spec.Template.Spec = smallMachine()
	for _, f := range change {
		f(&template.Spec.Template.Spec)
	}
	s.Create(template)
	return template
}

// MachineDeployment creates a MachineDeployment of a cluster with machines of a template, and a bootstrap data Secret.
func (s *Scene) MachineDeployment(cluster *clusterv1.Cluster, name string, replicas int32, template string,
	change ...func(*clusterv1.MachineDeployment)) *clusterv1.MachineDeployment {
	s.t.Helper()
	s.Create(s.BootstrapData(name))
	deployment := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name}, Spec: clusterv1.MachineDeploymentSpec{
		ClusterName: cluster.Name, Replicas: ptr.To(replicas),
		Template: clusterv1.MachineTemplateSpec{Spec: clusterv1.MachineSpec{
			ClusterName: cluster.Name, Version: version,
			Bootstrap: clusterv1.Bootstrap{DataSecretName: ptr.To(name)},
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{
				APIGroup: infrav1.GroupVersion.Group, Kind: "LibvirtMachineTemplate", Name: template},
		}},
	}}
	for _, f := range change {
		f(deployment)
	}
	s.Create(deployment)
	return deployment
}

// BootstrapData creates a Secret as a bootstrap provider does.
func (s *Scene) BootstrapData(name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name}, Type: clusterv1.ClusterSecretType,
		Data: map[string][]byte{"value": []byte("#cloud-config\nhostname: x\n"), "format": []byte("cloud-config")}}
}

// list reads the objects of the scene into a list.
func list[L client.ObjectList](s *Scene, into L) L {
	s.t.Helper()
	s.Expect(s.Client.List(s.t.Context(), into, client.InNamespace(s.Namespace))).To(gomega.Succeed())
	return into
}

// LibvirtMachines lists the LibvirtMachines of the scene.
func (s *Scene) LibvirtMachines() []infrav1.LibvirtMachine {
	s.t.Helper()
	return list(s, &infrav1.LibvirtMachineList{}).Items
}

// Machines lists the Machines of the scene.
func (s *Scene) Machines() []clusterv1.Machine {
	s.t.Helper()
	return list(s, &clusterv1.MachineList{}).Items
}

// ManagerMarker is the prefix of the volumes by which management clusters mark the hosts with their machines. A marker
// is deleted some time after the last machine.
const ManagerMarker = "caplv-manager-"

// NothingLeft waits until the hosts of the scene have no domain, and only ImageVolume and markers as volumes.
func (s *Scene) NothingLeft() {
	s.t.Helper()
	for _, host := range s.Hosts {
		s.Eventually(func(g gomega.Gomega) {
			volumes, domains := host.Left()
			volumes = slices.DeleteFunc(volumes, func(ref hypervisor.VolumeRef) bool { return strings.HasPrefix(ref.Name, ManagerMarker) })
			g.Expect(domains).To(gomega.BeEmpty(), "domains on %s", host.Name)
			g.Expect(volumes).To(gomega.ConsistOf(ImageVolume), "volumes on %s", host.Name)
		}).Should(gomega.Succeed())
	}
}

// AwaitManagers lets both managers process other objects, so that their reactions to this scene are done.
func (s *Scene) AwaitManagers() {
	s.t.Helper()
	name := fmt.Sprintf("await-%d", scenes.Add(1))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cluster := s.Cluster(name)
	s.Expect(s.Client.Delete(ctx, cluster)).To(gomega.Succeed())
	s.Gone(cluster)
}
