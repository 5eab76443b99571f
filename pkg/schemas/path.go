package schemas

import (
	"strconv"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

// Steps splits a path into an object, in Kubernetes' notation such as spec.files[0].labels.example.com/a. Names of
// fields are not escaped, even if they contain dots: only the object shows where one ends.
func Steps(value any, path string) []any {
	if path == "<nil>" {
		return nil // the notation of an empty path
	}
	var steps []any
	for path != "" {
		var step any
		step, path = nextStep(value, strings.TrimPrefix(path, "."))
		value, _ = manifest.Child(value, step)
		steps = append(steps, step)
	}
	return steps
}

// nextStep returns the first step of a path into a value, and the rest of the path.
func nextStep(value any, path string) (any, string) {
	if inner, ok := strings.CutPrefix(path, "["); ok {
		key, rest, _ := strings.Cut(inner, "]")
		if _, isMap := value.(map[string]any); !isMap {
			if index, err := strconv.Atoi(key); err == nil {
				return index, rest
			}
		}
		return key, rest
	}
	end := strings.IndexAny(path, ".[")
	if end < 0 {
		end = len(path)
	}
	fields, _ := value.(map[string]any)
	for name := range fields {
		rest, ok := strings.CutPrefix(path, name)
		if ok && len(name) > end && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			end = len(name)
		}
	}
	return path[:end], path[end:]
}
