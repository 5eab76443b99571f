package move

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
)

// World is the content of a source: a management cluster, a dump or rendered templates.
type World struct {
	// Source names it, for people.
	Source string
	Kinds  Kinds
	// Desired means that the objects are not in a cluster yet, so their status is ignored.
	Desired bool
	// Objects may be more than a move reads: the others explain objects that are left behind.
	Objects []*Object
	// Assumptions replace information that the source lacks.
	Assumptions []string
	// Problems are the unreadable parts: with one, the world is incomplete.
	Problems []Problem
}

// Problem is an unreadable part of a source.
type Problem struct {
	// Where is a file with its line, or a kind of objects; "" is the source as a whole.
	Where string `json:"where,omitempty"`
	// Message says what is wrong and what to do about it.
	Message string `json:"message"`
}

func (p Problem) String() string {
	if p.Where == "" {
		return p.Message
	}
	return p.Where + ": " + p.Message
}

// problem adds a problem.
func (w *World) problem(where, format string, args ...any) {
	w.Problems = append(w.Problems, Problem{Where: where, Message: fmt.Sprintf(format, args...)})
}

// assume adds an assumption, once.
func (w *World) assume(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(w.Assumptions, text) {
		w.Assumptions = append(w.Assumptions, text)
	}
}

// NamespaceCount counts the objects of Cluster API and of providers in a namespace.
type NamespaceCount struct {
	Name              string
	Clusters, Objects int
}

// Namespaces returns the candidates for a move: those with Clusters or, without any, all with objects of Cluster API
// and of providers; in the order of their names.
func (w *World) Namespaces() []NamespaceCount {
	counts := map[string]*NamespaceCount{}
	clusters := 0
	for _, o := range w.Objects {
		gk := o.GroupKind()
		if _, known := w.Kinds[gk]; !known || o.Namespace == "" || gk == secretKind || gk == configMapKind || gk == providerKind {
			continue
		}
		c := counts[o.Namespace]
		if c == nil {
			c = &NamespaceCount{Name: o.Namespace}
			counts[o.Namespace] = c
		}
		c.Objects++
		if gk == clusterKind {
			c.Clusters++
			clusters++
		}
	}
	var namespaces []NamespaceCount
	for _, c := range counts {
		if clusters == 0 || c.Clusters > 0 {
			namespaces = append(namespaces, *c)
		}
	}
	slices.SortFunc(namespaces, func(a, b NamespaceCount) int { return strings.Compare(a.Name, b.Name) })
	return namespaces
}

// providerNamespaces returns the namespaces of infrastructure providers, by clusterctl's inventory.
func (w *World) providerNamespaces() sets.Set[string] {
	namespaces := sets.New[string]()
	for _, o := range w.Objects {
		if o.GroupKind() == providerKind && o.text("type") == string(clusterctlv1.InfrastructureProviderType) {
			namespaces.Insert(o.Namespace)
		}
	}
	return namespaces
}

// key names an object in a world.
type key struct {
	schema.GroupKind
	namespace, name string
}

func (o *Object) key() key {
	return key{GroupKind: o.GroupKind(), namespace: o.Namespace, name: o.Name}
}
