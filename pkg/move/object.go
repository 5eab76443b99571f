package move

import (
	"cmp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

// Object is the part of a Kubernetes object that the rules of a move read.
type Object struct {
	manifest.Object
	// UID is "" if the source does not have it; then owners are found by kind and name.
	UID         types.UID
	Labels      map[string]string
	Annotations map[string]string
	Owners      []metav1.OwnerReference
	// addedOwners is the number of Owners, at the end, that are not in the source: controllers will set them.
	addedOwners int
	// Content is the object. Sources may leave out the fields that the rules for its kind do not read.
	Content map[string]any
	// Place is where it was read; live objects have the zero value.
	Place manifest.Place
}

// FromUnstructured returns the Object for an unstructured one that was read at a place.
func FromUnstructured(u *unstructured.Unstructured, place manifest.Place) *Object {
	return &Object{
		Object: manifest.ObjectOf(*u),
		UID:    u.GetUID(), Labels: u.GetLabels(), Annotations: u.GetAnnotations(), Owners: u.GetOwnerReferences(),
		Content: u.Object, Place: place,
	}
}

// ownOwners returns the owner references in the source.
func (o *Object) ownOwners() []metav1.OwnerReference {
	return o.Owners[:len(o.Owners)-o.addedOwners]
}

// unstructured returns the object's content with its metadata.
func (o *Object) unstructured() *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	for _, field := range []string{"spec", "status"} {
		if value, ok := o.Content[field]; ok {
			u.Object[field] = value
		}
	}
	u.SetAPIVersion(o.APIVersion)
	u.SetKind(o.Kind)
	u.SetNamespace(o.Namespace)
	u.SetName(o.Name)
	u.SetAnnotations(o.Annotations)
	return u
}

// text returns the text at a path of the content, or "".
func (o *Object) text(path ...string) string {
	return manifest.Text(o.Content, path...)
}

// compareObjects orders objects by kind, namespace and name.
func compareObjects(a, b manifest.Object) int {
	return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name), strings.Compare(a.APIVersion, b.APIVersion))
}
