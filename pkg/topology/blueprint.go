package topology

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/exp/topology/scope"
	"sigs.k8s.io/cluster-api/util/contract"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterctl-release/clusterctl-release/pkg/schemas"
)

// newBlueprint reads the templates of a class as its controller does.
func newBlueprint(kinds *schemas.Kinds, class *clusterv1.ClusterClass, objects []unstructured.Unstructured) (*scope.ClusterBlueprint, error) {
	blueprint := &scope.ClusterBlueprint{
		ClusterClass: class,
		ControlPlane: &scope.ControlPlaneBlueprint{HealthCheck: class.Spec.ControlPlane.HealthCheck},

		MachineDeployments: map[string]*scope.MachineDeploymentBlueprint{}, MachinePools: map[string]*scope.MachinePoolBlueprint{},
	}
	var err error
	read := func(template **unstructured.Unstructured, ref clusterv1.ClusterClassTemplateReference) {
		if err == nil {
			*template, err = templateOf(kinds, objects, class.Namespace, ref)
		}
	}
	read(&blueprint.InfrastructureClusterTemplate, class.Spec.Infrastructure.TemplateRef)
	read(&blueprint.ControlPlane.Template, class.Spec.ControlPlane.TemplateRef)
	if blueprint.HasControlPlaneInfrastructureMachine() {
		read(&blueprint.ControlPlane.InfrastructureMachineTemplate, class.Spec.ControlPlane.MachineInfrastructure.TemplateRef)
	}
	for _, worker := range class.Spec.Workers.MachineDeployments {
		deployment := &scope.MachineDeploymentBlueprint{Metadata: worker.Metadata, HealthCheck: worker.HealthCheck}
		read(&deployment.BootstrapTemplate, worker.Bootstrap.TemplateRef)
		read(&deployment.InfrastructureMachineTemplate, worker.Infrastructure.TemplateRef)
		blueprint.MachineDeployments[worker.Class] = deployment
	}
	for _, worker := range class.Spec.Workers.MachinePools {
		pool := &scope.MachinePoolBlueprint{Metadata: worker.Metadata}
		read(&pool.BootstrapTemplate, worker.Bootstrap.TemplateRef)
		read(&pool.InfrastructureMachinePoolTemplate, worker.Infrastructure.TemplateRef)
		blueprint.MachinePools[worker.Class] = pool
	}
	return blueprint, err
}

// templateOf returns the object of a reference in the form of an API server.
func templateOf(kinds *schemas.Kinds, objects []unstructured.Unstructured, namespace string, r clusterv1.ClusterClassTemplateReference) (*unstructured.Unstructured, error) {
	gvk := schema.FromAPIVersionAndKind(r.APIVersion, r.Kind)
	object := find(objects, gvk.GroupKind(), r.Name)
	if object == nil {
		return nil, fmt.Errorf("the %s %s of the ClusterClass is missing", r.Kind, r.Name)
	}
	if object.GroupVersionKind() != gvk {
		return nil, fmt.Errorf("the ClusterClass names %s %s as %s, but it is %s: %w", r.Kind, r.Name, r.APIVersion, object.GetAPIVersion(), ErrVersion)
	}
	template := object.DeepCopy()
	template.SetNamespace(namespace)
	return template, kinds.Default(template)
}

// offline is a client that knows the labels of CRDs, the only objects that a new cluster needs.
type offline struct {
	client.Client
	kinds *schemas.Kinds
}

// Get implements client.Reader.
func (o offline) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	for _, kind := range o.kinds.All() {
		if contract.CalculateCRDName(kind.Group, kind.Kind) == key.Name {
			object.SetLabels(kind.Labels)
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}, key.Name)
}

// noClusters is the cache of connections to clusters that do not exist yet.
type noClusters struct{ clustercache.ClusterCache }
