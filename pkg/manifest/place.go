package manifest

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Object names a Kubernetes object.
type Object struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind,omitempty"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name,omitempty"`
}

// ObjectOf returns the names of an object.
func ObjectOf(o unstructured.Unstructured) Object {
	return Object{APIVersion: o.GetAPIVersion(), Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName()}
}

// GroupKind returns the object's group and kind.
func (o Object) GroupKind() schema.GroupKind {
	return schema.FromAPIVersionAndKind(o.APIVersion, o.Kind).GroupKind()
}

// String returns the usual name of the object, or "" if there is none.
func (o Object) String() string {
	switch {
	case o.Kind == "" && o.Name == "":
		return ""
	case o.Namespace != "":
		return o.Kind + " " + o.Namespace + "/" + o.Name
	}
	return o.Kind + " " + o.Name
}

// Place is a place in a release.
type Place struct {
	// File is the name of the file in the release; "" is the release as a whole.
	File string
	// Document counts the YAML documents of the file from 1; 0 is the file as a whole.
	Document int
	Object   Object
	// Path is the field's path, e.g. spec.template.spec.containers[0].image.
	Path string
	// Line and Column count from 1 in the published file; 0 means unknown.
	Line, Column int
}

// FieldPath returns a path in Kubernetes' notation: spec.containers[0].image, metadata.labels[a.b/c].
func FieldPath(steps ...any) string {
	var b strings.Builder
	for _, step := range steps {
		switch step := step.(type) {
		case int:
			fmt.Fprintf(&b, "[%d]", step)
		case string:
			switch {
			case strings.ContainsAny(step, "./"):
				fmt.Fprintf(&b, "[%s]", step)
			case b.Len() == 0:
				b.WriteString(step)
			default:
				b.WriteString("." + step)
			}
		}
	}
	return b.String()
}
