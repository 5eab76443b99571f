package rendered

import (
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/installed"
	"github.com/clusterctl-release/clusterctl-release/pkg/contract"
	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

// IsCore reports whether the object is of a kind of Cluster API's core group.
func (o Object) IsCore(kind string) bool {
	gvk := o.GroupVersionKind()
	return gvk.Group == clusterv1.GroupVersion.Group && gvk.Kind == kind
}

// HasMoveLabel reports whether a label of an object, or of the CRD of its kind, makes `clusterctl move` move it.
func HasMoveLabel(labels map[string]string) bool {
	_, moves := labels[clusterctlv1.ClusterctlMoveLabel]
	_, hierarchy := labels[clusterctlv1.ClusterctlMoveHierarchyLabel]
	return moves || hierarchy
}

// Published returns the value at a path before variables are replaced. It is nil if the path or valid YAML is missing
// there.
func (o Object) Published(path ...any) any {
	if o.Raw == nil {
		return nil
	}
	return manifest.At(o.Raw.Object.Object, path...)
}

// IsClusterScoped reports whether the kind of an object is known to be cluster-scoped.
func IsClusterScoped(s *checks.Subject, o Object) bool {
	if kind, ok := s.KnownKinds().Kind(o.GroupVersionKind().GroupKind()); ok {
		return kind.Scope == apiextensionsv1.ClusterScoped
	}
	return installed.KindScopes(s).Known(o.Unstructured) && !installed.KindScopes(s).Namespaced(o.Unstructured)
}

// OnlyServes reports whether an object is of a kind that has no effect until another object names it: templates, and
// the parts of a Cluster.
func OnlyServes(s *checks.Subject, o Object) bool {
	gvk := o.GroupVersionKind()
	shared := slices.Contains(installed.WellKnownGroups, gvk.Group)
	switch {
	case shared && strings.HasSuffix(gvk.Kind, "Template"):
		return true
	case shared && gvk.Group == "controlplane."+clusterv1.GroupVersion.Group && strings.HasSuffix(gvk.Kind, "ControlPlane"):
		return true
	}
	for _, crd := range s.CRDs() {
		if crd.Spec.Group == gvk.Group && crd.Spec.Names.Kind == gvk.Kind {
			resource, template, ok := installed.ContractKindOf(s, crd)
			return ok && (template || resource == contract.InfraCluster || resource == contract.ControlPlane)
		}
	}
	return false
}

// IsNamed reports whether another object names the object with an index: by kind and name or, in fields without a kind,
// by its name. It returns true if users set the name of such an object.
func (t *Template) IsNamed(index int) bool {
	wanted := t.Objects[index]
	for i, o := range t.Objects {
		if i == index {
			continue
		}
		if t.names(o, wanted) {
			return true
		}
	}
	return false
}

// otherNameFields are fields in which an object's name stands for something else.
var otherNameFields = []string{"metadata", "labels", "matchLabels", "annotations", "clusterName"}

// names reports whether an object names another one.
func (t *Template) names(o, wanted Object) bool {
	isNamed := false
	manifest.Walk(o.Object, nil, func(path []any, value any) bool {
		field := manifest.FieldName(path)
		if isNamed || slices.Contains(otherNameFields, field) || len(path) == 1 && (field == "apiVersion" || field == "kind") {
			return false
		}
		fields, _ := value.(map[string]any)
		kind, hasKind := fields["kind"].(string)
		name, hasName := fields["name"].(string)
		if len(path) > 0 && hasKind && hasName {
			isNamed = kind == wanted.GetKind() && (name == wanted.GetName() || t.GuessedAt(o, manifest.Join(path, "name")...))
			return false
		}
		isNamed = value == wanted.GetName()
		return !isNamed
	})
	return isNamed
}

// VariableAt reports whether the field has a variable in the published file.
func (o Object) VariableAt(path ...any) bool {
	text, _ := o.Published(path...).(string)
	return strings.Contains(text, "${")
}
