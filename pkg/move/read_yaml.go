package move

import (
	"bytes"
	"errors"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

// sparse is an object of which only some fields were read.
type sparse struct {
	APIVersion string `json:"apiVersion" yaml:"apiVersion"`
	Kind       string `json:"kind" yaml:"kind"`
	Type       any    `json:"type" yaml:"type"`
	Metadata   struct {
		Name            string            `json:"name" yaml:"name"`
		Namespace       string            `json:"namespace" yaml:"namespace"`
		UID             types.UID         `json:"uid" yaml:"uid"`
		Labels          map[string]string `json:"labels" yaml:"labels"`
		Annotations     map[string]string `json:"annotations" yaml:"annotations"`
		OwnerReferences []struct {
			APIVersion string    `json:"apiVersion" yaml:"apiVersion"`
			Kind       string    `json:"kind" yaml:"kind"`
			Name       string    `json:"name" yaml:"name"`
			UID        types.UID `json:"uid" yaml:"uid"`
			Controller *bool     `json:"controller" yaml:"controller"`
		} `json:"ownerReferences" yaml:"ownerReferences"`
	} `json:"metadata" yaml:"metadata"`
}

// object returns what was read, with content for the fields outside of the metadata.
func (s *sparse) object(content map[string]any, place manifest.Place) Object {
	o := Object{
		Object: manifest.Object{APIVersion: s.APIVersion, Kind: s.Kind, Namespace: s.Metadata.Namespace, Name: s.Metadata.Name},
		UID:    s.Metadata.UID, Labels: s.Metadata.Labels, Annotations: s.Metadata.Annotations, Content: content, Place: place,
	}
	o.Place.Object = o.Object
	for _, r := range s.Metadata.OwnerReferences {
		o.Owners = append(o.Owners, metav1.OwnerReference{APIVersion: r.APIVersion, Kind: r.Kind, Name: r.Name, UID: r.UID, Controller: r.Controller})
	}
	return o
}

// yamlReader reads a YAML file of a dump.
type yamlReader struct {
	part
	file  string
	whole bool
}

// chunk is a part of a file, with how many lines are before it.
type chunk struct {
	text []byte
	at   int
}

// readYAML reads the documents of a file, objects and lists. The file is never in lines as a whole:
// those of one object are at a time.
func readYAML(file string, data []byte, whole bool) part {
	r := yamlReader{file: file, whole: whole}
	documents, start, at, number := 0, 0, 0, 0
	content := false
	end := func(to int) {
		if content {
			documents++
			r.document(chunk{data[start:to], at}, to == len(data))
		}
		content = false
	}
	for offset, l := range eachLine(data) {
		number++
		if !bytes.HasPrefix(l.text, []byte("---")) {
			content = content || l.indent >= 0
			continue
		}
		end(offset)
		rest := newLine(l.text[len("---"):])
		if start, at = offset+len(l.text), number-1; rest.indent >= 0 {
			start, content = offset+len("---"), true // the document begins in the line of its mark
		}
	}
	end(len(data))
	if documents == 0 {
		r.problem(file, 0, "the file has no objects")
	}
	return r.part
}

// document reads an object or a list; last says that nothing comes after: that is where a truncated
// file ends.
func (r *yamlReader) document(d chunk, last bool) {
	from, to, number, before := -1, len(d.text), d.at, 0
	kind := ""
	for offset, l := range eachLine(d.text) {
		number++
		if l.indent != 0 {
			continue
		}
		if from >= 0 && to == len(d.text) && !isItem(l) {
			to = offset
		}
		if bytes.Equal(bytes.TrimRight(l.text, " "), []byte("items:")) {
			from, to, before = offset+len(l.text), len(d.text), number-1
		}
		if value, ok := bytes.CutPrefix(l.text, []byte("kind:")); ok {
			kind = string(bytes.TrimSpace(value))
		}
	}
	if from < 0 || kind != "" && !strings.HasSuffix(kind, "List") {
		r.object(linesOf(d.text), d.at, !last)
		return
	}
	if kind == "" {
		r.problem(r.file, number, "the list ends without its kind: the file is truncated, and what comes after is missing; dump it again")
	}
	r.items(chunk{d.text[from:to], before})
}

// items reads the items of a list, each with a space in place of its dash.
func (r *yamlReader) items(c chunk) {
	indent, start, at, number := -1, 0, 0, c.at
	item := func(to int) {
		if indent < 0 {
			return
		}
		lines := linesOf(c.text[start:to])
		text := bytes.Clone(lines[0].text)
		text[indent] = ' '
		lines[0] = newLine(text)
		r.object(lines, at, to < len(c.text))
	}
	for offset, l := range eachLine(c.text) {
		number++
		if l.indent < 0 || indent >= 0 && l.indent > indent {
			continue
		}
		if !isItem(l) || indent >= 0 && l.indent < indent {
			item(offset)
			r.problem(r.file, number, "what comes next isn't an item of the list; dump it with `kubectl get -o yaml` or `-o json`")
			return
		}
		item(offset)
		indent, start, at = l.indent, offset, number-1
	}
	item(len(c.text))
}

// object reads one object. Where it may be skimmed only the fields to keep are parsed.
func (r *yamlReader) object(lines []line, at int, maySkim bool) {
	if maySkim && !r.whole && r.skimmed(lines, at) {
		return
	}
	var text bytes.Buffer
	writeLines(&text, lines)
	documents, err := manifest.Parse(r.file, text.Bytes())
	if err != nil {
		var syntax *manifest.SyntaxError
		if errors.As(err, &syntax) {
			r.problem(r.file, at+max(syntax.Line, 1), "this isn't YAML: %s; the object is left out", syntax.Message)
		}
		return
	}
	for _, d := range documents {
		place := d.Place()
		place.Line += at
		r.add(d, place)
	}
}

// add adds an object that was read with all its fields.
func (r *yamlReader) add(d *manifest.Document, place manifest.Place) {
	o := FromUnstructured(&d.Object, place)
	if o.APIVersion == "" || o.Kind == "" || o.Name == "" {
		r.problem(r.file, place.Line, "this isn't an object of Kubernetes: it has no apiVersion, kind or metadata.name; a truncated file ends like this, too")
		return
	}
	if o.GroupKind() != crdKind {
		r.objects = append(r.objects, o)
		return
	}
	var crd slimCRD
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(d.Object.Object, &crd); err != nil {
		r.problem(r.file, place.Line, "the CRD %s can't be read: %v", o.Name, err)
		return
	}
	r.crds = append(r.crds, crd.crd())
}

// skimmed reads the fields to keep of an object, or returns false where that is not enough.
func (r *yamlReader) skimmed(lines []line, at int) bool {
	kind, first := "", -1
	indent := -1
	for i, l := range lines {
		if l.indent < 0 {
			continue
		}
		if first < 0 {
			first, indent = i, l.indent
		}
		if value, ok := bytes.CutPrefix(l.text[l.indent:], []byte("kind: ")); ok && l.indent == indent {
			kind = string(value)
			break
		}
	}
	var text bytes.Buffer
	if kind == "" || !skim(&text, lines, keptFields(kind)) {
		return false
	}
	if kind == crdKind.Kind {
		var crd slimCRD
		if err := yamlv3.Unmarshal(text.Bytes(), &crd); err != nil || crd.Spec.Group == "" {
			return false
		}
		r.crds = append(r.crds, crd.crd())
		return true
	}
	var s sparse
	if err := yamlv3.Unmarshal(text.Bytes(), &s); err != nil || s.APIVersion == "" || s.Metadata.Name == "" {
		return false
	}
	var content map[string]any
	if _, keeps := keptOfKinds[kind]; keeps {
		var all map[string]any
		if err := yamlv3.Unmarshal(text.Bytes(), &all); err != nil {
			return false
		}
		content, _ = manifest.JSONValue(all).(map[string]any)
	}
	r.objects = append(r.objects, s.object(content, manifest.Place{File: r.file, Line: at + first + 1}))
	return true
}
