package move

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
	"github.com/clusterctl-release/clusterctl-release/pkg/topology"
)

// readClasses reads the ClusterClasses of other namespaces that Clusters name, and their templates.
func (l *live) readClasses(ctx context.Context) error {
	have := make(map[key]*Object, len(l.world.Objects))
	for _, o := range l.world.Objects {
		have[o.key()] = o
	}
	get := func(k key, version string) (*Object, error) {
		if o, ok := have[k]; ok {
			return o, nil
		}
		o, err := l.get(ctx, k, version)
		have[k] = o
		return o, err
	}
	for _, o := range slices.Clone(l.world.Objects) {
		if o.GroupKind() != clusterKind || l.namespace != "" && o.Namespace != l.namespace {
			continue
		}
		cluster, err := topology.Cluster(ctx, o.unstructured())
		if err != nil || !cluster.Spec.Topology.IsDefined() || cluster.GetClassKey().Namespace == l.namespace {
			continue // Discover reports the error
		}
		name := cluster.GetClassKey()
		class, err := get(key{GroupKind: classKind, namespace: name.Namespace, name: name.Name}, l.world.Kinds[classKind].Version)
		if err != nil {
			return err
		}
		if class == nil {
			continue
		}
		read, err := topology.Class(ctx, class.unstructured())
		if err != nil {
			continue
		}
		for _, r := range templatesOf(read) {
			gvk := r.GroupVersionKind()
			if _, err := get(key{GroupKind: gvk.GroupKind(), namespace: name.Namespace, name: r.Name}, gvk.Version); err != nil {
				return err
			}
		}
	}
	return nil
}

// get reads one object by its name; nil if it is missing or may not be read.
func (l *live) get(ctx context.Context, k key, version string) (*Object, error) {
	kind, ok := l.world.Kinds[k.GroupKind]
	if !ok {
		kind = Kind{GroupKind: k.GroupKind, Plural: pluralOf(k.GroupKind)}
	}
	kind.Version = version
	read, err := l.objects.Resource(kind.resource()).Namespace(k.namespace).Get(ctx, k.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case apierrors.IsForbidden(err):
		l.forbidden(kind.resource(), k.namespace, "a Cluster uses a ClusterClass of that namespace")
		return nil, nil
	case err != nil:
		return nil, readError(kind.String(), err)
	}
	o := FromUnstructured(read, manifest.Place{})
	l.add(o)
	return o, nil
}
