package move

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	k8sjson "k8s.io/apimachinery/pkg/util/json"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

// readJSON reads the objects and lists of a file, one after the other.
func (r *reader) readJSON(data []byte) {
	lineOf := func(offset int64) int { return 1 + bytes.Count(data[:offset], []byte("\n")) }
	decoder := json.NewDecoder(bytes.NewReader(data))
	for {
		start := decoder.InputOffset()
		var raw json.RawMessage
		err := decoder.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			offset := decoder.InputOffset()
			var syntax *json.SyntaxError
			if errors.As(err, &syntax) {
				offset = start + syntax.Offset
			}
			if errors.Is(err, io.ErrUnexpectedEOF) {
				r.problem(lineOf(int64(len(data))), "the file is truncated: it ends within an object; what comes after is missing; dump it again")
			} else {
				r.problem(lineOf(min(offset, int64(len(data)))), "this isn't JSON: %v; what comes after is left out", err)
			}
			r.readTruncated(data[start:])
			return
		}
		r.readValue(raw, lineOf(decoder.InputOffset()-int64(len(raw))))
	}
}

// readTruncated reads the items of a truncated list.
func (r *reader) readTruncated(data []byte) {
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
				r.readValue(item, 0)
			}
			return
		}
	}
}

// readValue reads an object or a list that begins in a line; 0 if unknown.
func (r *reader) readValue(raw json.RawMessage, line int) {
	var list struct {
		Kind  string            `json:"kind"`
		Items []json.RawMessage `json:"items"`
	}
	err := json.Unmarshal(raw, &list)
	if err == nil && list.Items == nil {
		err = r.readFields(raw, keptFields(list.Kind), manifest.Place{File: r.file, Line: line})
	}
	if err != nil {
		r.problem(line, "this isn't an object of Kubernetes: %v", err)
		return
	}
	for _, item := range list.Items {
		r.readValue(item, 0) // counting the line of each item would be slow
	}
}

// readFields reads an object; unless whole objects are read, it keeps only the fields that rules read.
func (r *reader) readFields(raw json.RawMessage, keep fields, place manifest.Place) error {
	var texts map[string]json.RawMessage
	if err := json.Unmarshal(raw, &texts); err != nil {
		return err
	}
	object := unstructured.Unstructured{Object: map[string]any{}}
	for name, text := range texts {
		if _, kept := keep[name]; !kept && !r.whole {
			continue
		}
		var value any
		if err := k8sjson.Unmarshal(text, &value); err != nil {
			return err
		}
		object.Object[name] = value
	}
	r.add(object, place)
	return nil
}
