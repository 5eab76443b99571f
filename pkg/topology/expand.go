package topology

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/core/webhooks/admission"
	"sigs.k8s.io/cluster-api/exp/topology/desiredstate"
	"sigs.k8s.io/cluster-api/exp/topology/scope"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/schemas"
	"github.com/clusterctl-release/clusterctl-release/pkg/templates"
)

// The reasons, other than defects of the Cluster, for which it can't be expanded offline.
var (
	// ErrUnmanaged means that the objects contain no Cluster with a topology.
	ErrUnmanaged = errors.New("there is no Cluster with a topology")
	// ErrNoClass means that the class of a Cluster is not among the objects.
	ErrNoClass = errors.New("the ClusterClass is not among the objects")
	// ErrExternal means that patches or variables of the class come from a runtime extension.
	ErrExternal = errors.New("the ClusterClass needs a runtime extension")
	// ErrVariables means that the Cluster's variables do not fit those of its class.
	ErrVariables = errors.New("the variables of the Cluster do not fit its ClusterClass")
)

// ExpandFlavor returns the objects that Cluster API's topology controller generates for the managed Clusters of a
// flavor of a release, "" being the default one, rendered with these values. Kinds of other providers come from the
// releases with, and so do ClusterClasses that the release lacks, as if they were already in the cluster. The errors
// are clusterctl's and those of Expand.
func ExpandFlavor(ctx context.Context, r *release.Release, flavor string, values map[string]string, with ...*release.Release) ([]unstructured.Unstructured, error) {
	complete, err := withClasses(r, with)
	if err != nil {
		return nil, err
	}
	rendered, err := templates.Render(ctx, complete, flavor, values)
	if err != nil {
		return nil, err
	}
	kinds, err := schemas.For(append([]*release.Release{r}, with...)...)
	if err != nil {
		return nil, err
	}
	return Expand(ctx, kinds, rendered.Objects)
}

// withClasses returns a release with the ClusterClass definitions of others that it lacks. Of several with the same
// name, the first counts.
func withClasses(r *release.Release, others []*release.Release) (*release.Release, error) {
	files := slices.Clone(r.Files)
	for _, other := range others {
		for _, f := range other.Files {
			if release.IsClusterClass(f.Name) && !slices.ContainsFunc(files, func(own release.File) bool { return own.Name == f.Name }) {
				files = append(files, f)
			}
		}
	}
	return release.New(r.Provider, r.Version, files)
}

// Expand returns the objects that Cluster API's topology controller generates for the managed Clusters among some
// objects, which include their ClusterClasses and those classes' templates. The Clusters come first, with the
// references that they get. Names that Cluster API generates at random end in -00000 here. Templates get the defaults
// of their schemas if their kinds are known.
//
// The error is ErrUnmanaged, ErrNoClass, ErrExternal, ErrVersion or ErrVariables, or that of Cluster API if it can't
// generate the objects.
func Expand(ctx context.Context, kinds *schemas.Kinds, objects []unstructured.Unstructured) ([]unstructured.Unstructured, error) {
	var desired []unstructured.Unstructured
	managed := false
	for i := range objects {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if objects[i].GroupVersionKind().GroupKind() != clusterv1.GroupVersion.WithKind("Cluster").GroupKind() {
			continue
		}
		cluster, err := Cluster(ctx, &objects[i])
		if err != nil {
			return nil, err
		}
		if !cluster.Spec.Topology.IsDefined() {
			continue
		}
		managed = true
		cluster.Namespace = cmp.Or(cluster.Namespace, "default")
		expanded, err := expandCluster(ctx, kinds, cluster, objects)
		if err != nil {
			return nil, fmt.Errorf("the Cluster %s: %w", cluster.Name, err)
		}
		desired = append(desired, expanded...)
	}
	if !managed {
		return nil, ErrUnmanaged
	}
	return desired, nil
}

// expandCluster generates the objects of one Cluster. It returns a panic of Cluster API's code as an error, because the
// objects may be arbitrary.
func expandCluster(ctx context.Context, kinds *schemas.Kinds, cluster *clusterv1.Cluster, objects []unstructured.Unstructured) (desired []unstructured.Unstructured, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			desired, err = nil, fmt.Errorf("the topology can't be read: %v", cause)
		}
	}()
	class, err := classOf(ctx, cluster, objects)
	if err != nil {
		return nil, err
	}
	if errs := (&admission.Cluster{}).DefaultAndValidateVariables(ctx, cluster, nil, class); len(errs) > 0 {
		return nil, fmt.Errorf("%w: %w", ErrVariables, inOrder(errs))
	}
	if errs := admission.ValidateClusterForClusterClass(cluster, class); len(errs) > 0 {
		return nil, fmt.Errorf("the topology does not fit the ClusterClass %s: %w", class.Name, inOrder(errs))
	}
	blueprint, err := newBlueprint(kinds, class, objects)
	if err != nil {
		return nil, err
	}
	blueprint.Topology = cluster.Spec.Topology
	generator, err := desiredstate.NewGenerator(offline{kinds: kinds}, noClusters{}, nil, nil, nil)
	if err != nil {
		return nil, err
	}
	s := scope.New(cluster)
	s.Current.ControlPlane = &scope.ControlPlaneState{}
	s.Blueprint = blueprint
	state, err := generator.Generate(ctx, s)
	if err != nil {
		return nil, err
	}
	return settle(cluster, state)
}

// inOrder joins errors in a stable order: Cluster API's code iterates over maps.
func inOrder(errs field.ErrorList) error {
	slices.SortStableFunc(errs, func(a, b *field.Error) int { return strings.Compare(a.Error(), b.Error()) })
	return errs.ToAggregate()
}

// classOf returns the class of a Cluster, with the variables that its controller would list.
func classOf(ctx context.Context, cluster *clusterv1.Cluster, objects []unstructured.Unstructured) (*clusterv1.ClusterClass, error) {
	name := cluster.Spec.Topology.ClassRef.Name
	gk := clusterv1.GroupVersion.WithKind("ClusterClass").GroupKind()
	o := find(objects, gk, name)
	if o == nil {
		return nil, fmt.Errorf("%s: %w", name, ErrNoClass)
	}
	class, err := Class(ctx, o)
	if err != nil {
		return nil, err
	}
	class.Namespace = cluster.Namespace
	for _, patch := range class.Spec.Patches {
		if patch.External != nil {
			return nil, fmt.Errorf("the patch %s: %w", patch.Name, ErrExternal)
		}
	}
	class.Status.Variables = nil
	for _, v := range class.Spec.Variables {
		class.Status.Variables = append(class.Status.Variables, clusterv1.ClusterClassStatusVariable{
			Name: v.Name,
			Definitions: []clusterv1.ClusterClassStatusVariableDefinition{
				{From: clusterv1.VariableDefinitionFromInline, Required: v.Required, Schema: v.Schema},
			},
		})
	}
	return class, nil
}

// find returns the object of a kind and name, or nil.
func find(objects []unstructured.Unstructured, gk schema.GroupKind, name string) *unstructured.Unstructured {
	i := slices.IndexFunc(objects, func(o unstructured.Unstructured) bool {
		return o.GroupVersionKind().GroupKind() == gk && o.GetName() == name
	})
	if i < 0 {
		return nil
	}
	return &objects[i]
}

// settle converts the desired state of Cluster API to objects in a stable order, with stable names.
func settle(cluster *clusterv1.Cluster, state *scope.ClusterState) ([]unstructured.Unstructured, error) {
	var typed []client.Object
	add := func(objects ...client.Object) { typed = append(typed, objects...) }
	add(state.Cluster, state.InfrastructureCluster, state.ControlPlane.Object)
	if o := state.ControlPlane.InfrastructureMachineTemplate; o != nil {
		add(o)
	}
	if o := state.ControlPlane.MachineHealthCheck; o != nil {
		add(o)
	}
	for _, name := range slices.Sorted(maps.Keys(state.MachineDeployments)) {
		worker := state.MachineDeployments[name]
		add(worker.Object, worker.BootstrapTemplate, worker.InfrastructureMachineTemplate)
		if worker.MachineHealthCheck != nil {
			add(worker.MachineHealthCheck)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(state.MachinePools)) {
		worker := state.MachinePools[name]
		add(worker.Object, worker.BootstrapObject, worker.InfrastructureMachinePoolObject)
	}
	desired := make([]unstructured.Unstructured, 0, len(typed))
	for _, o := range typed {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			return nil, fmt.Errorf("writing an object of the Cluster %s: %w", cluster.Name, err)
		}
		unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
		unstructured.RemoveNestedField(content, "metadata", "ownerReferences")
		unstructured.RemoveNestedField(content, "status")
		object := unstructured.Unstructured{Object: content}
		if object.GetKind() == "" { // Cluster API omits what the Go type implies
			object.SetGroupVersionKind(clusterv1.GroupVersion.WithKind(reflect.TypeOf(o).Elem().Name()))
		}
		desired = append(desired, object)
	}
	return renamed(desired), nil
}
