package move

import (
	"bytes"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

// reader reads a file of a dump.
type reader struct {
	file string
	// whole means that objects keep all their fields.
	whole bool

	objects  []*Object
	crds     []slimCRD
	problems []Problem
}

// read reads the file's content, which it may change.
func (r *reader) read(data []byte) {
	if trimmed := bytes.TrimLeft(data, " \t\r\n"); len(trimmed) > 0 && trimmed[0] == '{' {
		r.readJSON(data)
		return
	}
	r.readYAML(data)
}

// problem adds a problem at a line of the file; 0 means the file as a whole.
func (r *reader) problem(line int, format string, args ...any) {
	where := r.file
	if line > 0 {
		where = fmt.Sprintf("%s:%d", r.file, line)
	}
	r.problems = append(r.problems, Problem{Where: where, Message: fmt.Sprintf(format, args...)})
}

// add adds an object.
func (r *reader) add(u unstructured.Unstructured, place manifest.Place) {
	o := FromUnstructured(&u, place)
	if o.APIVersion == "" || o.Kind == "" || o.Name == "" {
		r.problem(place.Line, "this isn't an object of Kubernetes: it has no apiVersion, kind or metadata.name; a truncated file ends like this, too")
		return
	}
	if o.GroupKind() != crdKind {
		if !r.whole {
			o.dropUnread()
		}
		r.objects = append(r.objects, o)
		return
	}
	var crd slimCRD
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &crd); err != nil {
		r.problem(place.Line, "the CRD %s can't be read: %v", o.Name, err)
		return
	}
	r.crds = append(r.crds, crd)
}
