package manifest

import (
	"fmt"
	"time"
)

// JSONValue returns a YAML value with the types of JSON, which Kubernetes uses. Numbers are int64 or float64 (an
// integer beyond int64 is a float64), times are texts, and keys are texts; another key, which Kubernetes would refuse,
// is converted to text. It changes maps and lists in place if possible.
func JSONValue(value any) any { return Edit(value, ofJSON) }

// ofJSON converts a single value, or the fields of a map, to the types of JSON.
func ofJSON(value any) any {
	switch v := value.(type) {
	case map[any]any:
		converted := make(map[string]any, len(v))
		for key, field := range v {
			converted[fmt.Sprint(key)] = field
		}
		return converted
	case int:
		return int64(v)
	case uint64:
		return float64(v)
	case time.Time:
		return v.Format(time.RFC3339Nano)
	}
	return value
}
