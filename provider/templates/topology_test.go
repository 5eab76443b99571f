package templates_test

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	coreadmission "sigs.k8s.io/cluster-api/core/webhooks/admission"
	"sigs.k8s.io/cluster-api/exp/topology/desiredstate"
	"sigs.k8s.io/cluster-api/exp/topology/scope"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// TestTopologyExpands expands the Cluster and the ClusterClass with the code of Cluster API's topology controller.
func TestTopologyExpands(t *testing.T) {
	scheme, known := newScheme(t), loadKinds(t)
	class, blueprint := readBlueprint(t)

	for name, values := range map[string][]map[string]string{"defaults": {required}, "everything set": {required, everything}} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			cluster := &clusterv1.Cluster{}
			g.Expect(fromUnstructured(render(t, "cluster-template-topology.yaml", values...)[0], cluster)).To(Succeed())
			// The template has no pool of this class. An added one must get the requested values.
			cluster.Spec.Topology.Workers.MachinePools = []clusterv1.MachinePoolTopology{{Class: "default-worker", Name: "mp-0", Replicas: ptr.To[int32](1)}}
			webhook := &coreadmission.Cluster{}
			g.Expect(webhook.DefaultAndValidateVariables(t.Context(), cluster, nil, class)).To(BeEmpty())

			state := generate(t, scheme, known, cluster, blueprint)
			for _, object := range objectsIn(state) {
				expectValid(t, scheme, known, object)
			}
			g.Expect(state.MachineDeployments).To(HaveKey("md-0"))
			g.Expect(state.MachinePools).To(HaveKey("mp-0"))
			expectVariablesArrive(t, state, merged(values))
		})
	}
}

// expectVariablesArrive checks that the values of variables are in the expected fields.
func expectVariablesArrive(t *testing.T, state *scope.ClusterState, value func(name, otherwise string) string) {
	t.Helper()
	g := NewWithT(t)
	cluster := &infrav1.LibvirtCluster{}
	controlPlane, worker := &infrav1.LibvirtMachineTemplate{}, &infrav1.LibvirtMachineTemplate{}
	pool := &infrav1.LibvirtMachinePool{}
	g.Expect(fromUnstructured(state.InfrastructureCluster, cluster)).To(Succeed())
	g.Expect(fromUnstructured(state.ControlPlane.InfrastructureMachineTemplate, controlPlane)).To(Succeed())
	g.Expect(fromUnstructured(state.MachineDeployments["md-0"].InfrastructureMachineTemplate, worker)).To(Succeed())
	g.Expect(fromUnstructured(state.MachinePools["mp-0"].InfrastructureMachinePoolObject, pool)).To(Succeed())

	g.Expect(cluster.Spec.ControlPlaneEndpoint.Host).To(Equal(required["CONTROL_PLANE_ENDPOINT_IP"]))
	g.Expect(controlPlane.Spec.Template.Spec.Memory.String()).To(Equal(value("LIBVIRT_CONTROL_PLANE_MEMORY", "4Gi")))
	g.Expect(controlPlane.Spec.Template.Spec.RootDisk.Size.String()).To(Equal(value("LIBVIRT_CONTROL_PLANE_DISK_SIZE", "40Gi")))
	for _, spec := range []infrav1.LibvirtMachineSpec{worker.Spec.Template.Spec, pool.Spec.Template.Spec} {
		g.Expect(spec.Memory.String()).To(Equal(value("LIBVIRT_WORKER_MEMORY", "4Gi")))
		g.Expect(spec.RootDisk.Size.String()).To(Equal(value("LIBVIRT_WORKER_DISK_SIZE", "40Gi")))
	}
	for _, spec := range []infrav1.LibvirtMachineSpec{controlPlane.Spec.Template.Spec, worker.Spec.Template.Spec, pool.Spec.Template.Spec} {
		g.Expect(spec.Image.URL).To(Equal(required["LIBVIRT_IMAGE_URL"]))
		g.Expect(spec.Image.Volume).To(BeEmpty(), "the placeholder is still set")
		g.Expect(string(spec.Image.Format)).To(Equal(value("LIBVIRT_IMAGE_FORMAT", "qcow2")))
		g.Expect(spec.Interfaces).To(HaveExactElements(infrav1.InterfaceSpec{Network: value("LIBVIRT_NETWORK", "default")}))
	}

	files, _, err := unstructured.NestedSlice(state.ControlPlane.Object.Object, "spec", "kubeadmConfigSpec", "files")
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(files).To(HaveLen(1))
	g.Expect(files[0]).To(HaveKeyWithValue("content", And(
		ContainSubstring(required["CONTROL_PLANE_ENDPOINT_IP"]),
		ContainSubstring(value("LIBVIRT_KUBE_VIP_IMAGE", "ghcr.io/kube-vip/kube-vip:"))),
	))
}

func generate(t *testing.T, scheme *runtime.Scheme, known kinds, cluster *clusterv1.Cluster, blueprint *scope.ClusterBlueprint) *scope.ClusterState {
	t.Helper()
	g := NewWithT(t)
	var crds []client.Object
	for _, crd := range known {
		labeled := crd.DeepCopy()
		if labeled.Labels == nil {
			labeled.Labels = map[string]string{}
		}
		// Cluster API's CRDs get this label from its kustomization.
		if labeled.Spec.Group != infrav1.GroupVersion.Group {
			labeled.Labels["cluster.x-k8s.io/v1beta2"] = "v1beta2"
		}
		crds = append(crds, labeled)
	}
	fakeClient := fake.NewClientBuilder().WithScheme(scheme).WithObjects(crds...).Build()
	clusterCache := clustercache.NewFakeClusterCache(fakeClient, client.ObjectKeyFromObject(cluster))
	generator, err := desiredstate.NewGenerator(fakeClient, clusterCache, nil, nil, nil)
	g.Expect(err).ToNot(HaveOccurred())

	s := scope.New(cluster)
	s.Current.ControlPlane = &scope.ControlPlaneState{}
	s.Blueprint = blueprint
	s.Blueprint.Topology = cluster.Spec.Topology
	state, err := generator.Generate(t.Context(), s)
	g.Expect(err).ToNot(HaveOccurred())
	return state
}

// readBlueprint reads the ClusterClass, with the status that its controller would set, and its templates.
func readBlueprint(t *testing.T) (*clusterv1.ClusterClass, *scope.ClusterBlueprint) {
	t.Helper()
	g := NewWithT(t)
	objects := readClass(t)
	templates := map[string]*unstructured.Unstructured{}
	for _, object := range objects {
		object.SetNamespace(required["NAMESPACE"]) // as clusterctl sets it
		templates[object.GetKind()+"/"+object.GetName()] = object
	}
	template := func(reference clusterv1.ClusterClassTemplateReference) *unstructured.Unstructured {
		g.Expect(templates).To(HaveKey(reference.Kind + "/" + reference.Name))
		return templates[reference.Kind+"/"+reference.Name]
	}

	class := &clusterv1.ClusterClass{}
	g.Expect(fromUnstructured(objects[0], class)).To(Succeed())
	for _, variable := range class.Spec.Variables {
		class.Status.Variables = append(class.Status.Variables, clusterv1.ClusterClassStatusVariable{
			Name: variable.Name,
			Definitions: []clusterv1.ClusterClassStatusVariableDefinition{
				{From: clusterv1.VariableDefinitionFromInline, Required: variable.Required, Schema: variable.Schema},
			},
		})
	}

	blueprint := &scope.ClusterBlueprint{
		ClusterClass:                  class,
		InfrastructureClusterTemplate: template(class.Spec.Infrastructure.TemplateRef),
		ControlPlane: &scope.ControlPlaneBlueprint{
			Template:                      template(class.Spec.ControlPlane.TemplateRef),
			InfrastructureMachineTemplate: template(class.Spec.ControlPlane.MachineInfrastructure.TemplateRef),
			HealthCheck:                   class.Spec.ControlPlane.HealthCheck,
		},
		MachineDeployments: map[string]*scope.MachineDeploymentBlueprint{},
		MachinePools:       map[string]*scope.MachinePoolBlueprint{},
	}
	for _, worker := range class.Spec.Workers.MachineDeployments {
		blueprint.MachineDeployments[worker.Class] = &scope.MachineDeploymentBlueprint{
			BootstrapTemplate:             template(worker.Bootstrap.TemplateRef),
			InfrastructureMachineTemplate: template(worker.Infrastructure.TemplateRef),
			HealthCheck:                   worker.HealthCheck,
		}
	}
	for _, worker := range class.Spec.Workers.MachinePools {
		blueprint.MachinePools[worker.Class] = &scope.MachinePoolBlueprint{
			BootstrapTemplate:                 template(worker.Bootstrap.TemplateRef),
			InfrastructureMachinePoolTemplate: template(worker.Infrastructure.TemplateRef),
		}
	}
	return class, blueprint
}

func objectsIn(state *scope.ClusterState) []*unstructured.Unstructured {
	objects := []*unstructured.Unstructured{
		state.InfrastructureCluster, state.ControlPlane.Object, state.ControlPlane.InfrastructureMachineTemplate,
	}
	for _, worker := range state.MachineDeployments {
		objects = append(objects, worker.BootstrapTemplate, worker.InfrastructureMachineTemplate)
	}
	for _, worker := range state.MachinePools {
		objects = append(objects, worker.BootstrapObject, worker.InfrastructureMachinePoolObject)
	}
	return objects
}

// merged looks up a variable as clusterctl does: the first set with it wins.
func merged(values []map[string]string) func(name, otherwise string) string {
	return func(name, otherwise string) string {
		for _, set := range values {
			if value, ok := set[name]; ok {
				return value
			}
		}
		return otherwise
	}
}

func fromUnstructured(object *unstructured.Unstructured, typed any) error {
	return runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, typed)
}
