package rendered

import (
	"context"
	"slices"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

// ExpandableClass returns the file of a Cluster's class, or nil if the Cluster can't be expanded: it has no topology,
// the release has no such class, or an API server refuses the objects.
func ExpandableClass(ctx context.Context, s *checks.Subject, t *Template, o Object) (*Template, error) {
	name, _, ok := className(o)
	if !ok {
		return nil, nil
	}
	if valid, err := IsValid(ctx, s, t, o); !valid || err != nil {
		return nil, err
	}
	classes, err := Classes.Of(ctx, s)
	i := slices.IndexFunc(classes, func(c *Template) bool { return c.Name == "clusterclass-"+name+".yaml" })
	if i < 0 || len(classes[i].Objects) == 0 {
		return nil, err
	}
	for _, part := range classes[i].Objects {
		if valid, err := IsValid(ctx, s, classes[i], part); !valid || err != nil {
			return nil, err
		}
	}
	return classes[i], nil
}

// className returns the class of a Cluster with a managed topology, and the path of its name.
func className(o Object) (name string, path []any, ok bool) {
	if !o.IsCore("Cluster") || manifest.Map(o.Object, "spec", "topology") == nil {
		return "", nil, false
	}
	path = []any{"spec", "topology", "class"}
	if o.GroupVersionKind().Version == clusterv1.GroupVersion.Version {
		path = []any{"spec", "topology", "classRef", "name"}
	}
	name, _ = manifest.At(o.Object, path...).(string)
	return name, path, true
}

// ClassReference is the place where a Cluster of a template names its class.
type ClassReference struct {
	Cluster Object
	Name    string
	Path    []any
}

// File returns the name of the file in which clusterctl looks for the class.
func (r *ClassReference) File() string { return "clusterclass-" + r.Name + ".yaml" }

// MissingClass returns the first reference of a template to a class that is not in the release, or nil.
func MissingClass(s *checks.Subject, t *Template) *ClassReference {
	for _, o := range t.Objects {
		name, path, ok := className(o)
		if !ok {
			continue
		}
		r := &ClassReference{o, name, path}
		isGuess := o.VariableAt(path...) && t.GuessedAt(o, path...)
		if _, found := s.Release.File(r.File()); !found || name == "" || isGuess {
			return r
		}
	}
	return nil
}
