package world_test

import (
	"context"
	"os"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/yaml"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/world"
)

const (
	classFile = "../../../templates/clusterclass-libvirt-default.yaml"
	className = "libvirt-default"
)

// createClass creates the released ClusterClass with its templates. Its clusters use the scene's hosts.
func createClass(t *testing.T, s *world.Scene) {
	t.Helper()
	content, err := os.ReadFile(classFile)
	s.Expect(err).ToNot(HaveOccurred())
	objects, err := yaml.ToUnstructured(content)
	s.Expect(err).ToNot(HaveOccurred())
	for i := range objects {
		object := &objects[i]
		object.SetNamespace(s.Namespace)
		if object.GetKind() == "LibvirtClusterTemplate" {
			s.Expect(unstructured.SetNestedStringMap(object.Object, map[string]string{"scene": s.Namespace},
				"spec", "template", "spec", "hostSelector", "matchLabels")).To(Succeed())
		}
		s.Create(object)
	}
}

func value(json string) apiextensionsv1.JSON { return apiextensionsv1.JSON{Raw: []byte(json)} }

// set sets a variable of a Cluster.
func set(cluster *clusterv1.Cluster, name, json string) {
	variables := &cluster.Spec.Topology.Variables
	*variables = append(slices.DeleteFunc(*variables, func(v clusterv1.ClusterVariable) bool { return v.Name == name }),
		clusterv1.ClusterVariable{Name: name, Value: value(json)})
}

// topologyCluster creates a Cluster of the class with a MachineDeployment and a MachinePool, and waits until the
// topology controller has created their objects.
func topologyCluster(s *world.Scene, change ...func(*clusterv1.Cluster)) *clusterv1.Cluster {
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "blue"}, Spec: clusterv1.ClusterSpec{Topology: clusterv1.Topology{
		ClassRef: clusterv1.ClusterClassRef{Name: className}, Version: "v1.36.3",
		ControlPlane: clusterv1.ControlPlaneTopology{Replicas: ptr.To[int32](1)},
		Workers: clusterv1.WorkersTopology{
			MachineDeployments: []clusterv1.MachineDeploymentTopology{{Class: "default-worker", Name: "md-0", Replicas: ptr.To[int32](0)}},
			MachinePools:       []clusterv1.MachinePoolTopology{{Class: "default-worker", Name: "mp-0", Replicas: ptr.To[int32](2)}}},
		Variables: []clusterv1.ClusterVariable{
			{Name: "controlPlaneEndpoint", Value: value(`{"host":"192.0.2.20","port":6443}`)},
			{Name: "image", Value: value(`{"volume":"` + world.ImageVolume.Name + `"}`)},
			{Name: "workerMachine", Value: value(`{"cpus":1,"memory":"1Gi","diskSize":"2Gi"}`)},
		},
	}}}
	for _, change := range change {
		change(cluster)
	}
	s.Create(s.Kubeconfig(cluster.Name))
	// The class has to be reconciled first.
	s.Eventually(func() error { return s.Client.Create(context.Background(), cluster.DeepCopy()) }).Should(Succeed())
	s.Get(cluster)
	return cluster
}

// reconciled waits until the topology controller has applied the current Cluster.
func reconciled(s *world.Scene, cluster *clusterv1.Cluster) {
	s.Eventually(func(g Gomega) {
		condition := s.Condition(cluster, clusterv1.ClusterTopologyReconciledCondition, metav1.ConditionTrue)
		g.Expect(condition.ObservedGeneration).To(Equal(cluster.Generation))
	}).Should(Succeed())
}

// topologyObjects lists the objects of a kind in the scene that the topology controller has created.
func topologyObjects[L client.ObjectList](s *world.Scene, list L) L {
	s.Expect(s.Client.List(context.Background(), list, client.InNamespace(s.Namespace), client.HasLabels{clusterv1.ClusterTopologyOwnedLabel})).To(Succeed())
	return list
}

// poolOf returns the MachinePool and LibvirtMachinePool of the topology.
func poolOf(s *world.Scene) (*clusterv1.MachinePool, *infrav1.LibvirtMachinePool) {
	var pool *clusterv1.MachinePool
	s.Eventually(func(g Gomega) {
		pools := topologyObjects(s, &clusterv1.MachinePoolList{}).Items
		g.Expect(pools).To(HaveLen(1))
		pool = &pools[0]
	}).Should(Succeed())
	infra := &infrav1.LibvirtMachinePool{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: pool.Spec.Template.Spec.InfrastructureRef.Name}}
	s.Get(infra)
	return pool, infra
}

// workerTemplate returns the current LibvirtMachineTemplate of the topology's MachineDeployment.
func workerTemplate(s *world.Scene) *infrav1.LibvirtMachineTemplate {
	deployments := topologyObjects(s, &clusterv1.MachineDeploymentList{}).Items
	s.Expect(deployments).To(HaveLen(1))
	template := &infrav1.LibvirtMachineTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: deployments[0].Spec.Template.Spec.InfrastructureRef.Name}}
	s.Get(template)
	return template
}

// actAsKubeadm acts as the kubeadm providers: it creates bootstrap data for the pool, and initializes the control
// plane.
func actAsKubeadm(s *world.Scene, cluster *clusterv1.Cluster, pool *clusterv1.MachinePool) {
	s.Create(s.BootstrapData("mp-0-data"))
	config := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "bootstrap.cluster.x-k8s.io/v1beta2", "kind": "KubeadmConfig",
		"metadata": map[string]any{"namespace": s.Namespace, "name": pool.Spec.Template.Spec.Bootstrap.ConfigRef.Name}}}
	s.Expect(s.Client.Status().Patch(context.Background(), config, client.RawPatch("application/merge-patch+json",
		[]byte(`{"status":{"dataSecretName":"mp-0-data","initialization":{"dataSecretCreated":true}}}`)))).To(Succeed())
	s.Get(cluster)
	runsVersion(s, cluster, "v1.36.3")
}

// runsVersion sets the version that the control plane runs.
func runsVersion(s *world.Scene, cluster *clusterv1.Cluster, version string) {
	controlPlane := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "controlplane.cluster.x-k8s.io/v1beta2", "kind": "KubeadmControlPlane",
		"metadata": map[string]any{"namespace": s.Namespace, "name": cluster.Spec.ControlPlaneRef.Name}}}
	s.Expect(s.Client.Status().Patch(context.Background(), controlPlane, client.RawPatch("application/merge-patch+json",
		[]byte(`{"status":{"initialization":{"controlPlaneInitialized":true},"version":"`+version+`","replicas":1,"readyReplicas":1,"availableReplicas":1,"upToDateReplicas":1}}`)))).To(Succeed())
}

// TestTopology checks that Cluster API's topology controller works with the templates of the released ClusterClass. Its
// dry runs pass the webhooks and show no differences without a change. A change creates a new LibvirtMachineTemplate,
// changes the LibvirtMachinePool in place, and rolls out to the pool. Users can't change templates.
func TestTopology(t *testing.T) {
	t.Parallel()
	s := world.NewScene(t, "rack-a", "rack-b")
	createClass(t, s)
	cluster := topologyCluster(s)
	reconciled(s, cluster)
	pool, infra := poolOf(s)
	actAsKubeadm(s, cluster, pool)
	s.PoolSettled(pool, infra, 2)
	s.Expect(infra.Spec.Template.Spec).To(And(HaveField("CPUs", BeEquivalentTo(1)), HaveField("Image.Volume", world.ImageVolume.Name)))
	first := workerTemplate(s)
	s.Expect(first.Spec.Template.Spec.CPUs).To(BeEquivalentTo(1))

	// Without changes, reconciling again creates nothing and rolls out nothing.
	templates, generation := len(topologyObjects(s, &infrav1.LibvirtMachineTemplateList{}).Items), infra.Generation
	world.Change(s, cluster, func(c *clusterv1.Cluster) { c.Labels = map[string]string{"touched": "yes"} })
	s.AwaitManagers()
	reconciled(s, cluster)
	s.Expect(topologyObjects(s, &infrav1.LibvirtMachineTemplateList{}).Items).To(HaveLen(templates))
	s.Get(infra)
	s.Expect(infra.Generation).To(Equal(generation))

	// A variable changes.
	before := machineUIDs(s)
	world.Change(s, cluster, func(c *clusterv1.Cluster) { set(c, "workerMachine", `{"cpus":2,"memory":"1Gi","diskSize":"2Gi"}`) })
	s.Eventually(func(g Gomega) {
		g.Expect(workerTemplate(s)).To(And(HaveField("Name", Not(Equal(first.Name))), HaveField("Spec.Template.Spec.CPUs", BeEquivalentTo(2))))
		s.Get(infra)
		g.Expect(infra.Spec.Template.Spec.CPUs).To(BeEquivalentTo(2))
	}).Should(Succeed())
	reconciled(s, cluster)
	s.PoolSettled(pool, infra, 2)
	s.Expect(infra.Spec.ProviderIDList).To(HaveLen(2), "the topology controller leaves it to the provider")
	_, infras := ofPool(s, pool.Name)
	for i := range infras {
		s.Expect(infras[i].Spec.CPUs).To(BeEquivalentTo(2))
		s.Expect(before).ToNot(ContainElement(infras[i].UID), "an unchanged machine isn't replaced")
	}

	changeClassTemplates(t, s)
	reconciled(s, cluster)
	s.Eventually(func(g Gomega) {
		g.Expect(workerTemplate(s).Spec.Template.Spec.Autostart).To(HaveValue(BeFalse()))
		s.Get(infra)
		g.Expect(infra.Spec.Template.Spec.Autostart).To(HaveValue(BeFalse()))
	}).Should(Succeed())
	reconciled(s, cluster)
	s.Delete(cluster)
	s.NothingLeft()
	s.Expect(s.Log.String()).ToNot(ContainSubstring("is immutable: create a new template"), "a webhook refused a write of the topology controller")
}

// TestImagesByVersion checks a Cluster of the released class that gets another version and its image in one change. The
// control plane gets it first, and the workers when the control plane runs the version.
func TestImagesByVersion(t *testing.T) {
	t.Parallel()
	s := world.NewScene(t, "rack-a")
	createClass(t, s)
	const variable, before, after = "imagesByVersion", "v1.36.3.qcow2", "v1.37.0.qcow2"
	cluster := topologyCluster(s, func(c *clusterv1.Cluster) {
		// Cluster API reads the versions of a pool's nodes before it allows another version.
		c.Spec.Topology.Workers.MachinePools = nil
		set(c, variable, `[{"version":"v1.36.3","volume":"v1.36.3.qcow2"}]`)
	})
	reconciled(s, cluster)
	s.Get(cluster)
	runsVersion(s, cluster, "v1.36.3")
	volumes := func() []string {
		return []string{controlPlaneTemplate(s, cluster).Spec.Template.Spec.Image.Volume, workerTemplate(s).Spec.Template.Spec.Image.Volume}
	}
	s.Expect(volumes()).To(Equal([]string{before, before}))

	world.Change(s, cluster, func(c *clusterv1.Cluster) {
		c.Spec.Topology.Version = "v1.37.0"
		set(c, variable, `[{"version":"v1.36.3","volume":"v1.36.3.qcow2"},{"version":"v1.37.0","volume":"v1.37.0.qcow2"}]`)
	})
	s.Eventually(volumes).Should(Equal([]string{after, before}))
	s.AwaitManagers()
	s.Expect(volumes()).To(Equal([]string{after, before}))
	runsVersion(s, cluster, "v1.37.0")
	s.Eventually(volumes).Should(Equal([]string{after, after}))
	s.Delete(cluster)
	s.NothingLeft()
}

// TestImagesByVersionOfPools checks that pools of the released class have the image of their version, and `image` if no
// image is listed for it.
func TestImagesByVersionOfPools(t *testing.T) {
	t.Parallel()
	for version, volume := range map[string]string{"v1.36.3": "by-version.qcow2", "v1.36.2": world.ImageVolume.Name} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			s := world.NewScene(t, "rack-a")
			createClass(t, s)
			cluster := topologyCluster(s, func(c *clusterv1.Cluster) {
				c.Spec.Topology.Version = version
				c.Spec.Topology.Workers.MachinePools[0].Replicas = ptr.To[int32](0)
				set(c, "imagesByVersion", `[{"version":"v1.36.3","volume":"by-version.qcow2"}]`)
			})
			reconciled(s, cluster)
			_, infra := poolOf(s)
			s.Expect(infra.Spec.Template.Spec.Image.Volume).To(Equal(volume))
			s.Delete(cluster)
			s.NothingLeft()
		})
	}
}

// controlPlaneTemplate returns the current LibvirtMachineTemplate of the topology's control plane.
func controlPlaneTemplate(s *world.Scene, cluster *clusterv1.Cluster) *infrav1.LibvirtMachineTemplate {
	controlPlane := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "controlplane.cluster.x-k8s.io/v1beta2", "kind": "KubeadmControlPlane",
		"metadata": map[string]any{"namespace": s.Namespace, "name": cluster.Spec.ControlPlaneRef.Name}}}
	s.Get(controlPlane)
	name, _, err := unstructured.NestedString(controlPlane.Object, "spec", "machineTemplate", "spec", "infrastructureRef", "name")
	s.Expect(err).ToNot(HaveOccurred())
	template := &infrav1.LibvirtMachineTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name}}
	s.Get(template)
	return template
}

func machineUIDs(s *world.Scene) []any {
	var uids []any
	for _, machine := range s.LibvirtMachines() {
		uids = append(uids, machine.UID)
	}
	return uids
}

// changeClassTemplates changes the class's templates for workers as users do: existing templates are immutable, but the
// class can refer to new ones.
func changeClassTemplates(t *testing.T, s *world.Scene) {
	t.Helper()
	key := metav1.ObjectMeta{Namespace: s.Namespace, Name: className + "-worker"}
	machines, pools := &infrav1.LibvirtMachineTemplate{ObjectMeta: key}, &infrav1.LibvirtMachinePoolTemplate{ObjectMeta: key}
	clusters := &infrav1.LibvirtClusterTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: className}}
	for _, template := range []client.Object{machines, pools, clusters} {
		s.Get(template)
	}
	changed := []client.Object{machines.DeepCopy(), pools.DeepCopy(), clusters.DeepCopy()}
	changed[0].(*infrav1.LibvirtMachineTemplate).Spec.Template.Spec.Autostart = ptr.To(false)
	changed[1].(*infrav1.LibvirtMachinePoolTemplate).Spec.Template.Spec.Template.Spec.Autostart = ptr.To(false)
	changed[2].(*infrav1.LibvirtClusterTemplate).Spec.Template.Spec.HostSelector = nil
	for _, template := range changed {
		err := s.Client.Update(t.Context(), template.DeepCopyObject().(client.Object))
		s.Expect(err).To(And(Satisfy(apierrors.IsInvalid), MatchError(ContainSubstring("create a new template with the change"))), "%T", template)
	}
	for _, template := range changed[:2] {
		template.SetName(key.Name + "-2")
		template.SetResourceVersion("")
		template.SetOwnerReferences(nil)
		s.Create(template)
	}
	class := &clusterv1.ClusterClass{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: className}}
	world.Change(s, class, func(c *clusterv1.ClusterClass) {
		c.Spec.Workers.MachineDeployments[0].Infrastructure.TemplateRef.Name = key.Name + "-2"
		c.Spec.Workers.MachinePools[0].Infrastructure.TemplateRef.Name = key.Name + "-2"
	})
}
