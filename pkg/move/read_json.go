package move

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	k8sjson "k8s.io/apimachinery/pkg/util/json"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

// sparseJSON is an object in JSON: what is outside of its metadata waits.
type sparseJSON struct {
	sparse
	Spec   json.RawMessage `json:"spec"`
	Status json.RawMessage `json:"status"`
	// Items are those of a list.
	Items []json.RawMessage `json:"items"`
}

// jsonReader reads a JSON file of a dump.
type jsonReader struct {
	part
	file  string
	data  []byte
	whole bool
}

// readJSON reads the objects and lists of a file, one after the other.
func readJSON(file string, data []byte, whole bool) part {
	r := jsonReader{file: file, data: data, whole: whole}
	decoder := json.NewDecoder(bytes.NewReader(data))
	for {
		start := decoder.InputOffset()
		var raw json.RawMessage
		err := decoder.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return r.part
		}
		if err != nil {
			offset := decoder.InputOffset()
			var syntax *json.SyntaxError
			if errors.As(err, &syntax) {
				offset = start + syntax.Offset
			}
			if errors.Is(err, io.ErrUnexpectedEOF) {
				offset = int64(len(data))
				r.problem(file, r.line(offset), "the file is truncated: it ends within an object; what comes after is missing; dump it again")
			} else {
				r.problem(file, r.line(min(offset, int64(len(data)))), "this isn't JSON: %v; what comes after is left out", err)
			}
			r.salvage(data[start:])
			return r.part
		}
		r.value(raw, r.line(start+int64(leadingSpace(data[start:]))))
	}
}

// leadingSpace counts the white space before a value.
func leadingSpace(data []byte) int { return len(data) - len(bytes.TrimLeft(data, " \t\r\n")) }

// line returns the line of an offset.
func (r *jsonReader) line(offset int64) int { return 1 + bytes.Count(r.data[:offset], []byte("\n")) }

// salvage reads the items of a list that has no end.
func (r *jsonReader) salvage(data []byte) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	depth := 0
	for {
		token, err := decoder.Token()
		if err != nil {
			return
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		case "items":
			if depth != 1 {
				continue
			}
			if open, err := decoder.Token(); err != nil || open != json.Delim('[') {
				return
			}
			for decoder.More() {
				var item json.RawMessage
				if err := decoder.Decode(&item); err != nil {
					return
				}
				r.value(item, 0)
			}
			return
		}
	}
}

// value reads an object or a list.
func (r *jsonReader) value(raw json.RawMessage, line int) {
	var o sparseJSON
	if err := json.Unmarshal(raw, &o); err != nil {
		r.problem(r.file, line, "this isn't an object of Kubernetes: %v", err)
		return
	}
	switch {
	case o.Items != nil:
		for _, item := range o.Items {
			r.value(item, 0) // its line would have to be counted for each
		}
		return
	case o.APIVersion == "" || o.Kind == "" || o.Metadata.Name == "":
		r.problem(r.file, line, "this isn't an object of Kubernetes: it has no apiVersion, kind or metadata.name")
		return
	}
	place := manifest.Place{File: r.file, Line: line}
	if groupKind(o.APIVersion, o.Kind) == crdKind {
		var crd slimCRD
		if err := json.Unmarshal(raw, &crd); err != nil {
			r.problem(r.file, line, "the CRD %s can't be read: %v", o.Metadata.Name, err)
			return
		}
		r.crds = append(r.crds, crd.crd())
		return
	}
	if r.whole {
		u := &unstructured.Unstructured{}
		if err := k8sjson.Unmarshal(raw, &u.Object); err != nil {
			r.problem(r.file, line, "this isn't an object of Kubernetes: %v", err)
			return
		}
		r.objects = append(r.objects, FromUnstructured(u, place))
		return
	}
	content, err := o.content()
	if err != nil {
		r.problem(r.file, line, "%s %s can't be read: %v", o.Kind, o.Metadata.Name, err)
		return
	}
	r.objects = append(r.objects, o.object(content, place))
}

// content returns the fields that the rules for the kind read.
func (o *sparseJSON) content() (map[string]any, error) {
	keep, ok := keptOfKinds[o.Kind]
	if !ok {
		return nil, nil
	}
	content := map[string]any{"type": o.Type}
	for _, part := range []struct {
		name string
		raw  json.RawMessage
	}{{"spec", o.Spec}, {"status", o.Status}} {
		if _, kept := keep[part.name]; !kept || len(part.raw) == 0 {
			continue
		}
		value, err := keptOf(part.raw, keep[part.name])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", part.name, err)
		}
		content[part.name] = value
	}
	return content, nil
}

// keptOf returns the fields to keep of a value, or the value as it is where that is nil.
func keptOf(raw json.RawMessage, keep fields) (any, error) {
	if keep == nil {
		var value any
		err := k8sjson.Unmarshal(raw, &value)
		return value, err
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, err
	}
	kept := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(keep)) {
		if raw, ok := all[name]; ok {
			value, err := keptOf(raw, keep[name])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			kept[name] = value
		}
	}
	return kept, nil
}
